"""Reads a stream: one offset space over hot and tiered ranges.

What holds: records come in offset order without gap or repeat; nothing that is not acked is shown; a range that moves to
the other tier meanwhile is planned anew. `follow=False` ends at what was acked when the reader started.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar

from rangelog._cold import ColdReader, cold_until, records_of
from rangelog._gathering import ms_of
from rangelog._hot import HotRange, ProvedEnd
from rangelog._metadata import Metadata, backoff
from rangelog._records import RecordChunk
from rangelog._transport.data_connection import DataConnections
from rangelog.batch import Columns, open_columns
from rangelog.errors import (
    Corruption,
    InvalidArgument,
    ObjectNotFound,
    OffsetOutOfRange,
    OffsetTrimmed,
    RangelogError,
    RangeNotFound,
    Unavailable,
)
from rangelog.protocol.reading import Located, ReadPreference, Tier, locate, tiers_for
from rangelog.record import Record
from rangelog_proto.v1 import common_pb2

_T = TypeVar("_T")
_log = logging.getLogger("rangelog.reader")

_LONG_POLL_MS = 2_000
_IDLE_POLL_S = 0.2
Start = int | str | datetime


class StreamView:
    """A stream's ranges as last heard from the placement driver."""

    def __init__(self, metadata: Metadata, stream: str) -> None:
        self.name = stream
        self._metadata = metadata
        self.stream = common_pb2.Stream()
        self.ranges: list[common_pb2.Range] = []
        self._sealed: list[bool] = []

    async def refresh(self, from_offset: int) -> None:
        """Ask the placement driver. Raises StreamNotFound, Unavailable."""
        self.stream, self.ranges = await self._metadata.ranges(self.name, from_offset)
        self._sealed = [each.state == common_pb2.RANGE_STATE_SEALED for each in self.ranges]

    def locate(self, position: int) -> Located | None:
        """See protocol.reading.locate."""
        return locate(self.ranges, self._sealed, position, self.stream.trim_offset)


async def confirmed_end(view: StreamView, connections: DataConnections) -> ProvedEnd:
    """Return the end of what is acked now, at least every ack that anybody got before this call if it is exact.

    In an open range it is proved by asking all replicas: what A of them hold durably is acked, or as good as. With a
    replica silent, the highest confirm offset that the others heard of counts as well. Raises Unavailable.
    """
    await view.refresh(0)
    if not view.ranges:
        return ProvedEnd(view.stream.next_offset, exact=True)
    last = view.ranges[-1]
    if last.state == common_pb2.RANGE_STATE_SEALED:
        return ProvedEnd(last.end_offset, exact=True)
    return await HotRange(connections, last).proved_end()


class SpanReader(ABC, Generic[_T]):
    """Reads a stream in chunks of consecutive records; what a chunk is made of, the subclass decides."""

    def __init__(
        self,
        metadata: Metadata,
        connections: DataConnections,
        cold: ColdReader,
        stream: str,
        *,
        start: Start,
        end: int | None,
        follow: bool,
        read_preference: str,
        timeout_s: float,
        resolved: bool = False,
    ) -> None:
        """`resolved`: `start` and `end` are offsets known to be acked; they are not looked up again."""
        self._resolved = resolved
        self._view = StreamView(metadata, stream)
        self._connections = connections
        self._cold = cold
        self._start = start
        self._end = end
        self._follow = follow
        self._preference = ReadPreference.parse(read_preference)
        self._timeout_s = timeout_s
        self._hot: HotRange | None = None
        self._proved_end = 0
        self._idle_count = 0
        self.position = 0

    @abstractmethod
    async def _from_batches(self, batches: Sequence[Columns], start: int, end: int) -> _T:
        """Make a chunk of the records in [start, end) of opened batches."""

    @abstractmethod
    async def _from_arrow(self, table: Any) -> _T:
        """Make a chunk of a tiered object's rows."""

    @abstractmethod
    def _first_at(self, chunk: _T, timestamp_ms: int) -> int | None:
        """Return the offset of the chunk's first record at or after a time."""

    async def chunks(self) -> AsyncGenerator[_T, None]:
        """Yield chunks of consecutive records: much cheaper per record than one by one."""
        try:
            await self._resolve()
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._read_from(None)
            self._cold.close()

    # ---- inside

    async def _chunks(self) -> AsyncGenerator[_T, None]:
        attempt = 0
        failing_since: float | None = None
        while self._end is None or self.position < self._end:
            try:
                chunk = await self._next()
                failing_since, attempt = None, 0
            except OffsetTrimmed:
                raise
            except RangelogError as problem:
                error = problem
                if isinstance(error, OffsetOutOfRange):  # there is such an offset: that was checked, or we came by it
                    error = Unavailable(f"the replicas that answer are behind: {error.message}")
                if isinstance(error, Corruption | ObjectNotFound):
                    await self._refresh()  # an object that is not there may have been trimmed
                    self._view.locate(self.position)
                if not (error.retriable or isinstance(error, RangeNotFound | OffsetOutOfRange)):
                    raise
                failing_since = failing_since or time.monotonic()
                if time.monotonic() - failing_since > self._timeout_s:
                    raise
                _log.info("reading %s at %d: %s", self._view.name, self.position, error)
                await backoff(attempt)
                attempt += 1
                await self._refresh()
                continue
            if chunk is not None:
                content, self.position = chunk
                yield content

    def _read_from(self, hot: HotRange | None) -> None:
        if self._hot is not None:
            self._hot.close()
        self._hot = hot

    async def _refresh(self) -> None:
        self._read_from(None)
        try:
            await self._view.refresh(self.position)
        except Unavailable as error:
            _log.info("the placement driver does not answer; reading on with what is known: %s", error)

    async def _resolve(self) -> None:
        """Turn `start` into an offset, and fix the end of a reader that does not follow."""
        start = self._start
        if self._resolved:
            assert isinstance(start, int)
            self.position = start
            self._proved_end = self._end or 0
            await self._view.refresh(start)
            return
        await self._view.refresh(0)
        trim = self._view.stream.trim_offset
        tail: int | None = None
        if not self._follow or not isinstance(start, str) or start == "latest":
            proved = await confirmed_end(self._view, self._connections)
            tail = proved.offset
        if isinstance(start, datetime):
            found = await self._find_timestamp(ms_of(start), tail or 0)
            self.position = found
        elif start == "earliest":
            self.position = trim
        elif start == "latest":
            self.position = tail or 0
        elif isinstance(start, int) and not isinstance(start, bool):
            self.position = start
        else:
            raise InvalidArgument(f"bad start {start!r}: an offset, 'earliest', 'latest' or a datetime")
        if self.position < trim:
            raise OffsetTrimmed(f"offset {self.position} was trimmed; the stream starts at {trim}", offset=trim)
        if tail is not None and self.position > tail and not proved.exact:
            raise Unavailable(f"offset {self.position}: too few replicas answer to tell whether it was written")
        if tail is not None and self.position > tail:
            raise OffsetOutOfRange(f"offset {self.position} is beyond the end; the stream ends at {tail}", offset=tail)
        if not self._follow:
            assert tail is not None
            self._end = self._proved_end = tail if self._end is None else min(self._end, tail)
        await self._view.refresh(self.position)

    async def _next(self) -> tuple[_T, int] | None:
        """Return the next records and where they end, or None when there is nothing yet."""
        located = self._view.locate(self.position)
        if located is None:
            await self._view.refresh(self.position)
            located = self._view.locate(self.position)
            if located is None:
                await asyncio.sleep(_IDLE_POLL_S)  # no range is open: wait for a writer to open one
                return None
        source = self._view.ranges[located.number]
        last: RangelogError | None = None
        for tier in tiers_for(source, sealed=located.sealed, position=self.position, preference=self._preference):
            try:
                if tier is Tier.COLD:
                    table, after = await self._cold.read(
                        self._view.stream, self.position, partial(self._cold_until, located.number)
                    )
                    return await self._from_arrow(table), after
                return await self._read_hot(source, sealed=located.sealed)
            except RangelogError as error:
                last = error
        assert last is not None
        raise last

    def _cold_until(self, number: int) -> int:
        end = cold_until(self._view.ranges, number, self._preference)
        return end if self._end is None else min(end, self._end)

    async def _read_hot(self, source: common_pb2.Range, *, sealed: bool) -> tuple[_T, int] | None:
        hot = self._hot
        if hot is None or hot.source is not source:
            hot = HotRange(self._connections, source, turn=self._idle_count)
            self._read_from(hot)
        known = source.end_offset if sealed else self._proved_end
        more_is_known = self.position < known
        wait_ms = 0 if sealed else _LONG_POLL_MS
        end_offset = self._end or 0
        for _ in source.replicas:
            fetched = await hot.fetch(self.position, wait_ms=wait_ms, known_end_offset=known, end_offset=end_offset)
            if fetched.batches or not more_is_known:
                break
            hot.next_replica()  # this one lacks what is known to be there
        else:
            raise Unavailable(f"the replicas of range {source.index} that answer are behind; trying again")
        if fetched.batches:
            end = fetched.end_offset
            if sealed:
                end = min(end, source.end_offset)
            if self._end is not None:
                end = min(end, self._end)
            opened = [open_columns(header, data) for header, data in fetched.batches]
            return await self._from_batches(opened, self.position, end), end
        if fetched.sealed_end_offset is not None or not sealed:
            if fetched.durable_offset > self.position:  # of a writer that was gone before it could confirm?
                self._proved_end = (await hot.proved_end()).offset
            else:
                self._idle_count += 1  # perhaps only this replica was left behind: another one is asked next
            await self._view.refresh(self.position)
        return None

    async def _find_timestamp(self, timestamp_ms: int, tail: int) -> int:
        """Return the first offset whose record is at or after the time, or the tail."""
        for source in self._view.ranges:
            sealed = source.state == common_pb2.RANGE_STATE_SEALED
            start: int | None = None
            if not source.hot_dropped:
                known = source.end_offset if sealed else tail
                start = await HotRange(self._connections, source).lookup_timestamp(timestamp_ms, known)
            elif source.tiered_end_offset > source.start_offset:
                start = await self._cold.find_timestamp(self._view.stream, source, timestamp_ms)
            if start is None:
                continue
            self.position = max(start, self._view.stream.trim_offset)
            await self._view.refresh(self.position)
            end = source.end_offset if sealed else tail
            while self.position < end:
                chunk = await self._next()
                if chunk is None:
                    break
                offset = self._first_at(chunk[0], timestamp_ms)
                if offset is not None:
                    return offset
                self.position = chunk[1]
            await self._view.refresh(0)
        return tail


class Reader(SpanReader[Sequence[Record]]):
    """An asynchronous iterator of records; make it with `client.reader(...)`."""

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records()

    async def _records(self) -> AsyncIterator[Record]:
        async with aclosing(self.chunks()) as chunks:
            async for chunk in chunks:
                for record in chunk:
                    yield record

    async def _from_batches(self, batches: Sequence[Columns], start: int, end: int) -> Sequence[Record]:
        return RecordChunk(batches, start, end)

    async def _from_arrow(self, table: Any) -> Sequence[Record]:
        return records_of(table)

    def _first_at(self, chunk: Sequence[Record], timestamp_ms: int) -> int | None:
        for record in chunk:
            if record.timestamp_ms >= timestamp_ms:
                return record.offset
        return None
