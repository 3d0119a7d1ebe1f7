"""Streams by any name, those of shards, side logs and journals among them: for brokers. Users' names go through `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.roll import leave_range
from rangelog._append.shared_dials import SharedDials
from rangelog._append.takeover import TakenOver, take_over
from rangelog._append.writer import Writer
from rangelog._garbage import MANY_WRITERS, spare_many_writers
from rangelog._metadata import Metadata
from rangelog._read.batch_headers import ColdHeaders, HeaderFields, HeaderReader
from rangelog._read.cold import ColdReader, ColdStores
from rangelog._read.proof import ProvedEnd
from rangelog._read.reader import Reader, SpanReader, Start
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._read.stream_watches import StreamWatches
from rangelog._read.whole_batches import BatchReader, WholeBatch
from rangelog.protocol.lag_limits import LagLimits
from rangelog_core.limits import INFLIGHT_BYTES_MAX
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.record import Record

READ_TIMEOUT_S = 30.0

_Reader = TypeVar("_Reader", bound=SpanReader[Any])


class InternalStreams:
    """The streams of one client; `Client.internal` has it."""

    def __init__(
        self,
        metadata: Metadata,
        connections: DataConnections,
        calls: PlacementCalls,
        dials: SharedDials,
        watches: StreamWatches,
        stores: ColdStores,
        lag_limits: LagLimits,
    ) -> None:
        self.metadata = metadata
        self.connections = connections
        self.calls = calls
        self.dials = dials
        self._watches = watches
        self._stores = stores
        self.lag_limits = lag_limits
        """Those of all writers."""
        self._leaving: set[asyncio.Task[None]] = set()
        self.writer_class: Callable[..., Writer] = Writer
        self.writers: dict[Writer, None] = {}
        """Those that are open."""

    def close(self) -> None:
        """Tell replicas nothing more: the placement driver does."""
        for task in list(self._leaving):
            task.cancel()

    def writer(
        self,
        stream: str,
        *,
        append_timeout_s: float = 30.0,
        open_timeout_s: float = 30.0,
        inflight_bytes_max: int = INFLIGHT_BYTES_MAX,
    ) -> Writer:
        """As Client.writer."""
        writer = self.writer_class(
            self,
            stream,
            append_timeout_s=append_timeout_s,
            open_timeout_s=open_timeout_s,
            inflight_bytes_max=inflight_bytes_max,
        )
        self.writers[writer] = None
        if len(self.writers) == MANY_WRITERS:
            spare_many_writers()
        writer.on_closed = self.writers.pop
        return writer

    async def settle_end(
        self,
        stream: str,
        *,
        timeout_s: float = 30.0,
        tell_later: bool = False,
        expected: tuple[int, int] | None = None,
    ) -> TakenOver:
        """Fence the stream's writer and seal its open range; return what ended. Raises as Client.seal_stream, StreamSealed.

        `expected`: the stream's id and epoch; PreconditionFailed, and nothing is changed, if it has others by now.
        `tell_later`: return as soon as the end is committed; the range's replicas are told meanwhile, at best.
        """
        taken = await take_over(
            self.metadata, self.calls, self.connections, stream, timeout_s=timeout_s, expected=expected
        )
        if taken.left is not None:
            row = taken.stream
            leaving = leave_range(self.connections, row.stream_id, row.epoch, taken.left, taken.addresses)
            if tell_later:
                task = asyncio.create_task(leaving)
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)
            else:
                await leaving
        return taken

    def records(
        self, stream: str, stream_id: int, start: int, end: int | None, taken_by: Writer | None = None
    ) -> AsyncIterator[Sequence[Record]]:
        """Yield the records of [start, end), an acked part of a stream; without an end all that follow, for ever.

        `taken_by`: the writer that has taken the stream over. Where the ranges that it was given cover the span, none are
        asked for.
        """
        return self._span(Reader, stream, stream_id, start, end, taken_by=taken_by).chunks()

    def batches(
        self, stream: str, stream_id: int, start: int, end: int | None
    ) -> AsyncGenerator[Sequence[WholeBatch], None]:
        """Yield the batches of [start, end), as `records` does."""
        return self._span(BatchReader, stream, stream_id, start, end).chunks()

    def batch_headers(
        self, stream: str, stream_id: int, start: int, end: int, taken_by: Writer | None = None
    ) -> AsyncIterator[Sequence[HeaderFields]]:
        """Yield the headers of the batches that start in [start, end), an acked part of a stream.

        `taken_by`: as for `records`.
        """
        cold = ColdHeaders(self.metadata, self._stores)
        return self._span(HeaderReader, stream, stream_id, start, end, cold, taken_by).chunks()

    async def find(self, stream: str, stream_id: int, start: Start) -> int:
        """Return the offset of the first record from a start on, as a reader takes it. Raises StreamNotFound, Unavailable."""
        return await self._span(Reader, stream, stream_id, start, None).find_start()

    def _span(
        self,
        kind: type[_Reader],
        stream: str,
        stream_id: int,
        start: Start,
        end: int | None,
        cold: ColdReader | None = None,
        taken_by: Writer | None = None,
    ) -> _Reader:
        reader = kind(
            self.metadata,
            self.connections,
            cold or ColdReader(self.metadata, self._stores),
            self._watches,
            stream,
            stream_id=stream_id,
            start=start,
            end=end,
            follow=True,
            read_preference="hot_first",
            timeout_s=READ_TIMEOUT_S,
            resolved=end is not None,
        )
        if taken_by is not None:
            reader.adopt(taken_by.taken.stream, taken_by.taken.ranges)
        return reader

    async def end(self, stream: str, stream_id: int) -> int:
        """As Client.end_offset."""
        return (await self.proved_end(stream, stream_id)).offset

    async def proved_end(self, stream: str, stream_id: int = 0) -> ProvedEnd:
        """Return where the acked records of a stream end, and whether that is exact. Raises StreamNotFound, Unavailable."""
        view = StreamView(self.metadata, stream, stream_id=stream_id, connections=self.connections)
        return await confirmed_end(view, self.connections)
