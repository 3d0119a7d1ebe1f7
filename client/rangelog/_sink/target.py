"""Where a sink appends: a stream. What a topic does instead: topic_target.py.

What holds: after `open` this target is the only writer, and it has seen, in `copied`, all that earlier ones appended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._sink.decision import ControlLog, Decision, Mark
from rangelog_core.batch import check_batch
from rangelog_core.batch_extension import Tag, decode_producer
from rangelog_core.errors import OffsetTrimmed, RangelogError, StreamNotFound

Note = Callable[[bytes, bytes], Awaitable[None]]
"""Appends a record to the control stream, by its key and value, and returns once it is acked."""


class SinkTarget(Protocol):
    """What a committer appends to, for one writer at a time."""

    async def open(self) -> None:
        """Become the only writer. Raises as `SinkCommitter.commit`."""

    @property
    def start(self) -> int:
        """What `target_from` of a decision is that is made now."""

    async def copied(self, decided: Decision, log: ControlLog) -> int:
        """Return how many batches of the last decision are there."""

    async def append(self, copied: int, batches: AsyncIterator[bytes], note: Note) -> None:
        """Append the batches of the last decision that follow the first `copied`; return once all are acked."""

    async def leave(self) -> None:
        """End; what is in flight may still be appended. Idempotent."""


class StreamTarget:
    """A stream. Batches keep their marks, by which the next writer knows them."""

    def __init__(self, client: Client, name: str, stream_id: int, control_name: str) -> None:
        """`control_name`: for messages."""
        self._client = client
        self._name = name
        self._stream_id = stream_id
        self._control_name = control_name
        self._writer: Writer | None = None

    async def open(self) -> None:
        """See SinkTarget."""
        self._writer = writer = self._client.writer(self._name)
        await writer.open()
        if writer.stream_id != self._stream_id:
            raise StreamNotFound(f"stream {self._name!r} was deleted and made anew since the sink began")

    @property
    def start(self) -> int:
        """The stream's end."""
        return self._open.next_offset

    async def copied(self, decided: Decision, log: ControlLog) -> int:
        """See SinkTarget. Raises OffsetTrimmed if that cannot be seen any more."""
        trimmed = (await self._client.describe_stream(self._name)).trim_offset
        start, end = max(trimmed, decided.target_from), self._open.next_offset
        marks: list[Mark] = []
        if start < end:
            async for chunk in self._client.internal.batch_headers(self._name, self._stream_id, start, end):
                for each in chunk:
                    field = each.fields.get(Tag.PRODUCER)
                    if field is not None:
                        producer = decode_producer(field)
                        marks.append((producer.producer_id, producer.sequence))
        copied = decided.copied(marks, cut=trimmed > decided.target_from)
        if copied is None:
            raise OffsetTrimmed(
                f"stream {self._name!r} was trimmed up to {trimmed} while batch {decided.number} was being appended "
                f"from {decided.target_from} on: whether it was there cannot be seen. Stream {self._control_name!r} has the "
                "decision: delete it, and the batch is appended (again)",
                offset=trimmed,
            )
        return copied

    async def append(self, copied: int, batches: AsyncIterator[bytes], note: Note) -> None:
        """See SinkTarget."""
        writer = self._open
        async for data in batches:
            header = check_batch(data)
            await writer.ready()
            acked = writer.submit_batch(data, header)
            acked.add_done_callback(lambda done: done.cancelled() or done.exception())  # `flush` raises it
        await writer.flush()

    async def leave(self) -> None:
        """See SinkTarget."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(RangelogError):
                await writer.close(flush=False)

    @property
    def _open(self) -> Writer:
        assert self._writer is not None, "the target is not open"
        return self._writer
