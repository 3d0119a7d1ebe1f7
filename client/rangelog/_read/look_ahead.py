"""Reads a stream's objects in order: the next objects are fetched, and the next row group decoded, ahead of the reader.

What holds: rows come in offset order without gap; an error ahead is raised when the reader reaches it, not before; memory
is bounded (see object_fetcher; one decoded row group waits beside the one in use); after `close` only the pieces that threads
are reading at that moment are still in progress.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from mmap import mmap

import pyarrow as pa

from rangelog._read.object_fetcher import ObjectFetcher, Spare
from rangelog_core.errors import Corruption, Unavailable
from rangelog_core.limits import MIB
from rangelog_proto.v1 import common_pb2
from rangelog_tier.object_reader import ByteSpan, ObjectReader, RowGroup, first_span

JOINED_BYTES_MAX = 32 * MIB
_SPANS_AHEAD_MAX = 16
_DECODED_AHEAD = 1


@dataclass(slots=True)
class _Fetched:
    """A span that is being fetched or has arrived, and its row groups; without `reader`, the wanted part of an object."""

    described: common_pb2.Object
    start: int
    """The first offset that is wanted: the object may have taken the place of earlier ones, which were read."""
    span: ByteSpan
    buffer: mmap
    view: memoryview
    under_way: list[asyncio.Future[None]]
    reader: ObjectReader | None = None
    groups: Sequence[RowGroup] = ()

    async def arrived(self) -> None:
        """Wait for the whole span. Raises the error of the fetch."""
        if self.under_way:
            await asyncio.wait(self.under_way)
        for each in self.under_way:
            if each.cancelled():
                raise Unavailable("the client was closed")  # work that waited for a thread is cancelled
            each.result()

    def data(self, group: RowGroup) -> memoryview | None:
        """The bytes of a row group, if they have arrived."""
        low, high = group.span.begin - self.span.begin, group.span.end - self.span.begin
        return self.view[low:high] if 0 <= low <= high <= len(self.view) else None


class LookAhead:
    """Reads objects of one stream, with fetches ahead. Close it."""

    def __init__(
        self,
        fetcher: ObjectFetcher,
        list_objects: Callable[[int], Awaitable[Sequence[common_pb2.Object]]],
        start: int,
        end: int,
    ) -> None:
        """Read the records of [start, end). `list_objects` returns one page of the objects that end beyond an offset."""
        self.end = end
        self._fetcher = fetcher
        self._list_objects = list_objects
        self._start = start
        self._spare = Spare()
        self._held: dict[int, _Fetched] = {}
        self._closed = False
        self._fetched: asyncio.Queue[_Fetched | Exception | None] = asyncio.Queue(_SPANS_AHEAD_MAX)
        self._decoded: asyncio.Queue[list[pa.RecordBatch] | Exception | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(_DECODED_AHEAD)
        self._batches: deque[pa.RecordBatch] = deque()
        self._tasks = [asyncio.create_task(self._fetch()), asyncio.create_task(self._decode())]

    async def next(self) -> pa.RecordBatch | None:
        """Return the next rows, or None at the end.

        Raises Corruption, ObjectNotFound, Unavailable, UnsupportedVersion; then close it.
        """
        while not self._batches:
            found = await self._decoded.get()
            if found is None:
                return None
            if isinstance(found, Exception):
                raise found
            self._room.release()
            self._batches.extend(found)
        return self._batches.popleft()

    def close(self) -> None:
        """Cancel all fetches; idempotent."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        for each in list(self._held.values()):
            for request in each.under_way:
                request.cancel()
            self._let_go(each)

    # ---- from the store

    async def _fetch(self) -> None:
        end: Exception | None = None
        try:
            await self._fetch_all()
        except Exception as error:  # raised once the reader has come this far
            end = error
        await self._fetched.put(end)

    async def _fetch_all(self) -> None:
        position = self._start
        page: deque[common_pb2.Object] = deque()
        while position < self.end:
            if not page:
                page.extend(await self._list_objects(position))
            described = page.popleft() if page else common_pb2.Object()
            if not described.start_offset <= position < described.end_offset:
                raise Corruption(f"no object covers offset {position}, which the placement driver lists as tiered")
            await self._fetch_object(described, position)
            position = described.end_offset

    async def _fetch_object(self, described: common_pb2.Object, start: int) -> None:
        first = await self._get(described, start, first_span(described, start, self.end))
        if not first.span.begin:  # nothing precedes it: this is the whole object
            await self._fetched.put(first)
            return
        await first.arrived()
        reader = await asyncio.to_thread(ObjectReader, self._fetcher.store, described, first.view)
        self._let_go(first)
        for groups in joined(reader.row_groups(start, self.end)):
            fetched = await self._get(described, start, ByteSpan(groups[0].span.begin, groups[-1].span.end))
            fetched.reader, fetched.groups = reader, groups
            await self._fetched.put(fetched)

    async def _get(self, described: common_pb2.Object, start: int, span: ByteSpan) -> _Fetched:
        await self._fetcher.take(span.size, lambda: bool(self._held))
        buffer = self._spare.take(span.size)
        under_way = self._fetcher.get(described.key, span, buffer, lambda: self._closed)
        fetched = _Fetched(described, start, span, buffer, memoryview(buffer)[: span.size], under_way)
        self._held[id(fetched)] = fetched
        return fetched

    def _let_go(self, fetched: _Fetched) -> None:
        if self._held.pop(id(fetched), None) is None:
            return
        self._fetcher.give(fetched.span.size)
        if not self._closed:
            fetched.view.release()  # a thread may release its reference later
            self._spare.give(fetched.buffer)

    # ---- to Arrow

    async def _decode(self) -> None:
        end: Exception | None = None
        try:
            while (fetched := await self._fetched.get()) is not None:
                if isinstance(fetched, Exception):
                    raise fetched
                await self._decode_one(fetched)
        except Exception as error:
            end = error
        self._decoded.put_nowait(end)

    async def _decode_one(self, fetched: _Fetched) -> None:
        await fetched.arrived()
        reader, groups, view = fetched.reader, fetched.groups, fetched.view
        if reader is None:
            reader = await asyncio.to_thread(ObjectReader, self._fetcher.store, fetched.described, view)
            groups = reader.row_groups(fetched.start, self.end)
        for group in groups:
            await self._room.acquire()
            data = fetched.data(group)
            self._decoded.put_nowait(await asyncio.to_thread(reader.decode, group, fetched.start, self.end, data))
            if data is not None:
                data.release()
        self._let_go(fetched)


def joined(groups: Sequence[RowGroup]) -> list[list[RowGroup]]:
    """Join adjacent row groups into requests of up to JOINED_BYTES_MAX, since each request has a cost."""
    found: list[list[RowGroup]] = []
    for group in groups:
        if found and group.span.end - found[-1][0].span.begin <= JOINED_BYTES_MAX:
            found[-1].append(group)
        else:
            found.append([group])
    return found
