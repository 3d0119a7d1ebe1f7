"""One pass of a reader over a stream: all that it is given and told is noted in the history of the stream's life.

Which life it is, is what the reader took the name for when it began; every end that the SDK works with is noted as well.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rangelog_core.errors import OffsetOutOfRange, OffsetTrimmed, RangelogError, StreamNotFound
from tests.simulation.virtual_life import Life

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

TOLD: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("TOLD", default=None)
"""Ends that were told to the role that runs, since it put an empty list here."""


class Pass:
    """See the module. `first`: the first offset given; `position`: one past the last. `follower`: on whose behalf."""

    def __init__(self, clients: Clients, life: Life, name: str, follower: str = "") -> None:
        self._clients = clients
        self._follower = follower
        self.life, self.name = life, name
        self.first: int | None = None
        self.position = 0
        self.invoked_s = clients.loop.now
        self.told: list[int] = []
        self._end: int | None = None  # at which the reader ended by itself
        TOLD.set(self.told)

    async def run(self, reader: Any, records_max: int | None = None) -> None:
        """Read until the reader ends, or so much was given. Raises what the reader raises."""
        given = 0
        try:
            async with aclosing(reader.chunks()) as chunks:
                async for chunk in chunks:
                    self._meant(reader)
                    for offset, identities in _runs(chunk):
                        self._saw(offset, identities)
                        given += len(identities)
                    if records_max is not None and given >= records_max:
                        return
            self._end = reader._end
        finally:
            self._meant(reader)

    def _meant(self, reader: Any) -> None:
        """Note which life of the stream the name was taken for."""
        stream_id = reader._view.stream.stream_id
        if self.first is None and stream_id:
            self.life = self._clients.cluster.life_of(self.life.name, stream_id)

    def _saw(self, offset: int, identities: list[bytes]) -> None:
        if self.first is None:
            self.first = offset
        self.position = offset + len(identities)
        self.life.saw(self.name, offset, identities, self._clients.loop.now)
        if self._follower:
            self.life.positions[self._follower] = self.position
        self._clients.check_durable(self.life, self.position - 1, f"{self.name} was served")

    def failed(self, error: RangelogError, start: Any) -> bool:
        """Note an error; return whether it makes sense to read on. `start`: where the reader was to begin."""
        cluster, now = self._clients.cluster, self._clients.loop.now
        cluster.note(f"reader: {type(error).__name__}")
        if isinstance(error, StreamNotFound):
            cluster.check_deleted(self.life, self.name)
            return False
        if isinstance(error, OffsetOutOfRange):
            trimmed = (error.offset or 0) if isinstance(error, OffsetTrimmed) else None
            asked = self.position if self.first is not None else start if isinstance(start, int) else 0
            self.life.refused(self.name, asked, self.invoked_s, now, trimmed)
        return not self.life.deleting

    def ended(self, start: int) -> None:
        """The reader ended by itself: at the end that it settled on when it began."""
        end = self._end if self._end is not None else self.position
        self.position = max(self.position, end)
        self.life.bounded(self.name, start, end, self._clients.loop.now)

    def started(self, timestamp_ms: int, offset: int) -> None:
        """It began by time, there."""
        self.life.started(self.name, timestamp_ms, offset, self.invoked_s, self._clients.loop.now)


def _runs(chunk: Any) -> Iterator[tuple[int, list[bytes]]]:
    """Consecutive records: where they begin, and who they are."""
    offsets: list[int] = []
    identities: list[bytes] = []
    for offset, value in _rows(chunk):
        if offsets and offset != offsets[-1] + 1:
            yield offsets[0], identities
            offsets, identities = [], []
        offsets.append(offset)
        identities.append(value.partition(b"|")[0])
    if offsets:
        yield offsets[0], identities


def _rows(chunk: Any) -> Iterator[tuple[int, bytes]]:
    for each in chunk:
        if isinstance(each, pa.RecordBatch):
            yield from zip(each.column("offset").to_pylist(), each.column("value").to_pylist(), strict=True)
        else:
            yield each.offset, each.value
