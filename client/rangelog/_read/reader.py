"""Reads a stream: one offset space over hot and tiered ranges.

What holds: records come in offset order without gap or repeat, all of one stream: its name is resolved once; no record is
shown that a seal could still cut (see `protocol.proof`); a range that moves to the other tier meanwhile is located again.
`follow=False` ends at the last record that was acked when the reader started. A start by time skips no acked record.
A start that was looked up, and is trimmed before a record is handed out, moves to where the stream begins by then.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from rangelog._metadata import Metadata
from rangelog._read.cold import ColdReader, cold_until, records_of
from rangelog._read.deserializing import Deserialize
from rangelog._read.hot import Fetched, HotRange
from rangelog._read.patience import Patience
from rangelog._read.polling import Pollable
from rangelog._read.record_chunk import RecordChunk
from rangelog._read.refreshing import BackgroundRefresh
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._read.stream_watches import StreamWatches
from rangelog.protocol.reading import ReadPreference, Tier, tiers_for, trimmed
from rangelog_core.batch import Columns
from rangelog_core.errors import (
    Corruption,
    InvalidArgument,
    ObjectNotFound,
    OffsetOutOfRange,
    OffsetTrimmed,
    RangelogError,
    RangeNotFound,
    RecordsLost,
    Unavailable,
)
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.record import Record, moment_before, ms_of
from rangelog_core.tracing import traced
from rangelog_proto.v1 import common_pb2

_T = TypeVar("_T")
_log = logging.getLogger("rangelog.reader")

_LONG_POLL_MS = 2_000
_IDLE_WAIT_S = 5.0
"""How long a reader waits for a change of its stream before it asks the placement driver."""
Start = int | str | datetime | timedelta


class SpanReader(ABC, Generic[_T]):
    """Reads a stream in chunks of consecutive records; the subclass decides the type of a chunk."""

    def __init__(
        self,
        metadata: Metadata,
        connections: DataConnections,
        cold: ColdReader,
        watches: StreamWatches,
        stream: str,
        *,
        start: Start,
        end: int | None,
        follow: bool,
        read_preference: str,
        timeout_s: float,
        resolved: bool = False,
        stream_id: int = 0,
    ) -> None:
        """`resolved`: `start` and `end` are offsets of acked records; neither they nor a `stream_id` are looked up."""
        self._resolved = resolved
        self._view = StreamView(metadata, stream, stream_id=stream_id, connections=connections)
        self._connections = connections
        self._cold = cold
        self._beside = BackgroundRefresh(self._view, watches)
        self._start = start
        self._end = end
        self._follow = follow
        self._preference = ReadPreference.parse(read_preference)
        self._timeout_s = timeout_s
        self._hot: HotRange | None = None
        self._proved_end = 0
        self._idle_count = 0
        self._not_before_ms: int | None = None  # earlier records are skipped, up to the first that is not
        self._sought_ms: int | None = None  # the start, if it is a time
        self._is_movable = False  # `position` is of a record that was looked up, and nothing was handed out
        self._is_begun = False
        self._is_resolved = False  # `position` is known
        self.position = 0

    @abstractmethod
    async def _from_batches(self, batches: Sequence[Columns], start: int, end: int) -> _T:
        """Return a chunk of the records in [start, end) of opened batches."""

    def _open(self, fetched: Fetched) -> tuple[Sequence[Any], int]:
        """Return what `_from_batches` gets of fetched batches, and their end offset."""
        return fetched.open_known()

    @abstractmethod
    async def _from_arrow(self, table: Any) -> _T:
        """Return a chunk of a tiered object's rows."""

    @abstractmethod
    def _first_at(self, chunk: _T, timestamp_ms: int) -> int | None:
        """Return the offset of the chunk's first record at or after a time."""

    async def chunks(self) -> AsyncGenerator[_T, None]:
        """Yield chunks of consecutive records, at a much lower cost per record than one by one.

        Returns:
            An asynchronous generator; for `Reader` each chunk is a sequence of Records, not empty, in offset order.

        Raises:
            OffsetTrimmed: The position is below the trim offset.
            Corruption: The bytes fit no checksum on any replica or object.
            Unavailable: No copy could be read for `timeout_s`.
            StreamNotFound: The stream does not exist, or was deleted.
        """
        try:
            if not self._is_begun:
                await self._resolve()
            self._is_resolved = True
            async with aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._release()

    async def begin(self) -> None:
        """Look up where to start, so that `chunks` need not. For the package's own use. Raises the errors of `chunks`."""
        try:
            await self._resolve()
            self._is_begun = self._is_resolved = True
        finally:
            self._release()

    def adopt(self, stream: common_pb2.Stream, ranges: Sequence[common_pb2.Range]) -> None:
        """Begin with known ranges, in place of asking for them. For the package's own use, before `chunks`."""
        self._view.adopt(stream, ranges)

    async def find_start(self) -> int:
        """Return the offset of the first record that `chunks` would yield, in place of iterating. As `begin`."""
        await self.begin()
        return self.position

    # ---- inside

    def _release(self) -> None:
        self._beside.close()
        self._read_from(None)
        self._cold.close()

    async def _chunks(self) -> AsyncGenerator[_T, None]:
        patience = Patience(self._timeout_s)
        while self._end is None or self.position < self._end:
            try:
                chunk = await self._next()
            except RangelogError as error:
                await self._after(error, patience)
                continue
            patience.renew()
            if chunk is not None and self._fits(chunk):
                content, self.position = chunk
                self._is_movable = False
                yield content

    def _fits(self, chunk: tuple[_T, int]) -> bool:
        """Whether to yield a chunk. A chunk that starts before the start time is skipped up to the first later record."""
        if self._not_before_ms is None:
            return True
        first = self._first_at(chunk[0], self._not_before_ms)
        if first is not None:
            self._not_before_ms = None
        if first == self.position:
            return True
        self._read_from(None)
        self.position = chunk[1] if first is None else first
        return False

    async def _after(self, error: RangelogError, patience: Patience) -> None:
        """Pause and locate again after a failed read. Raises errors that are final, and others after `timeout_s`."""
        if isinstance(error, Corruption | ObjectNotFound):
            await self._refresh()  # a missing object may have been trimmed
            try:
                self._view.locate(self.position)
            except OffsetTrimmed as gone:
                error = gone
        if isinstance(error, OffsetTrimmed):
            self._begin_later(error)
            return
        may_change = error.retriable or isinstance(error, RangeNotFound | OffsetOutOfRange)
        if not may_change or isinstance(error, RecordsLost):
            raise error
        _log.info("reading %s at %d: %s", self._view.name, self.position, error)
        await patience.pause(error)
        await self._refresh()

    def _begin_later(self, error: OffsetTrimmed) -> None:
        """Move the start to the first record that is left. Raises the error if it is the caller's, or was handed out."""
        if not self._is_movable or error.offset is None or error.offset <= self.position:
            raise error
        _log.info("%s starts at %d now: its start at %d was trimmed", self._view.name, error.offset, self.position)
        self._read_from(None)
        self.position, self._not_before_ms = error.offset, self._sought_ms

    def _read_from(self, hot: HotRange | None) -> None:
        if self._hot is not None:
            self._hot.close()
        self._hot = hot

    async def _refresh(self) -> None:
        self._read_from(None)
        try:
            await self._view.refresh(self.position)
        except Unavailable as error:
            _log.info("the placement driver does not answer; reading continues with the known ranges: %s", error)

    @traced("rangelog.reader.open", stream=lambda reader: reader._view.name)
    async def _resolve(self) -> None:
        """Turn `start` into an offset, and fix the end of a reader that does not follow."""
        start = self._start
        if isinstance(start, timedelta):
            start = moment_before(self._view.clock_ms(), start)
        if self._resolved:
            assert isinstance(start, int)
            self.position = start
            self._proved_end = self._end or 0
            await self._view.reach(start)
            return
        known = isinstance(start, int) and not isinstance(start, bool)
        if not (known or isinstance(start, datetime) or start in ("earliest", "latest")):
            raise InvalidArgument(
                f"bad start {start!r}: an offset, -n for the last n records, 'earliest', 'latest', a datetime or a timedelta"
            )
        if self._follow and start == "earliest":
            await self._view.refresh(0)
            self.position, self._is_movable = self._view.stream.trim_offset, True
            return
        tail = await self._tail(max(0, start) if isinstance(start, int) else 0)
        trim = self._view.stream.trim_offset
        if isinstance(start, datetime):
            self._sought_ms = ms_of(start)
            self.position = await self._find_timestamp(self._sought_ms, tail)
        elif isinstance(start, int):
            self.position = start if start >= 0 else max(trim, tail + start)
        else:
            self.position = trim if start == "earliest" else tail
        if self.position < trim:
            raise trimmed(self.position, trim)
        self._is_movable = start == "earliest" or (self.position < tail and not (known and self.position == start))
        self._proved_end = tail
        if not self._follow:
            self._end = tail if self._end is None else min(self._end, tail)
        await self._view.refresh(self.position)

    async def _tail(self, position: int) -> int:
        """Return the end of the acked records. Raises OffsetOutOfRange where `position` certainly lies beyond it."""
        patience = Patience(self._timeout_s)
        while True:
            proved = await confirmed_end(self._view, self._connections)
            if position <= proved.offset:
                return proved.offset
            if proved.exact:
                proved.check_reached(position)
            await patience.pause(
                Unavailable(f"offset {position}: too few replicas answer to decide whether it was written")
            )

    async def _next(self) -> tuple[_T, int] | None:
        """Return the next records and their end offset, or None when there are none yet."""
        located = self._view.locate(self.position)
        if located is None:
            watch = self._beside.watch()
            version = watch.version
            await self._look_for_a_range()
            located = self._view.locate(self.position)
            if located is None:
                await watch.wait(version, _IDLE_WAIT_S)  # no range is open: wait for a writer to open one
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
            if fetched.no_replica:
                self._idle_count += 1
                self._beside.ask(self.position)
                await self._beside.until_changed(source, self.position, hot.wait_for_replica(wait_ms))
                return None
            if fetched.sealed_end_offset is not None and not sealed:
                self._proved_end = min(self._proved_end, fetched.sealed_end_offset)  # a committed end overrides it
            if fetched.batches or not more_is_known:
                break
            if not sealed and fetched.durable_offset > known and await self._prove_more(source):
                return (
                    None  # `known` cut a batch, of which replicas that were all started again show the whole or nothing
                )
            hot.next_replica()  # this one lacks records that are known to exist
        else:
            raise Unavailable(f"the replicas of range {source.index} that answer are behind; trying again")
        if fetched.batches:
            opened, end = self._open(fetched)
            if sealed:
                end = min(end, source.end_offset)
            if self._end is not None:
                end = min(end, self._end)
            return await self._from_batches(opened, self.position, end), end
        if fetched.sealed_end_offset is not None or not sealed:
            if fetched.durable_offset > self.position:  # perhaps of a writer that died before its confirm
                await self._prove_more(source)
            else:
                self._idle_count += 1
                hot.next_replica()  # perhaps only this one is behind
            if fetched.sealed_end_offset is not None:
                await self._view.refresh(self.position)
            else:
                self._beside.ask(self.position)
        return None

    async def _prove_more(self, source: common_pb2.Range) -> bool:
        """Ask for the end of an open range; return whether it is beyond what was proved before."""
        known, proved = self._proved_end, await self._view.proved_end(self._connections, source)
        self._proved_end = max(known, proved.offset)
        return self._proved_end > known

    async def _look_for_a_range(self) -> None:
        """Ask for ranges behind the known ones. A missing reply is no failure: all known records are read."""
        try:
            await self._view.refresh(self.position)
        except Unavailable as error:
            _log.info("the placement driver does not answer; %s rests at %d: %s", self._view.name, self.position, error)

    async def _find_timestamp(self, timestamp_ms: int, tail: int) -> int:
        """Return the first offset whose record is at or after the time, or the tail."""
        self._proved_end = max(self._proved_end, tail)
        self.position, self._is_movable = self._view.stream.trim_offset, True
        patience = Patience(self._timeout_s)
        while self.position < tail:
            try:
                found = await self._look_on(timestamp_ms, tail)
            except RangelogError as error:
                await self._after(error, patience)
                continue
            patience.renew()
            if found is not None:
                return found if self._follow else min(found, tail)
        self._not_before_ms = timestamp_ms
        return tail

    async def _look_on(self, timestamp_ms: int, tail: int) -> int | None:
        """Look through the range at `position` and move `position` behind it; return an offset that was found."""
        located = self._view.locate(self.position)
        if located is None:
            await self._view.refresh(self.position)
            located = self._view.locate(self.position)
        if located is None:
            raise Unavailable(f"no range holds offset {self.position}, below the end {tail}: trying again")
        source = self._view.ranges[located.number]
        end = min(tail, source.end_offset) if located.sealed else tail
        start = await self._lookup(source, timestamp_ms, end)
        self.position = end if start is None else max(self.position, start)
        while self.position < end:
            chunk = await self._next()
            if chunk is None:
                raise Unavailable(f"offset {self.position} cannot be read yet, below the end {tail}: trying again")
            offset = self._first_at(chunk[0], timestamp_ms)
            if offset is not None:
                return offset
            self.position = chunk[1]
        return None

    async def _lookup(self, source: common_pb2.Range, timestamp_ms: int, end: int) -> int | None:
        """Return the offset from which to look for the time in one range; None: no such record below `end`."""
        tiered = source.tiered_end_offset >= end
        if source.lost:  # only what the tier has can be looked through
            end = min(end, source.tiered_end_offset)
            if end <= source.start_offset:
                return None
        elif not source.hot_dropped:
            try:
                return await HotRange(self._connections, source).lookup_timestamp(timestamp_ms, end)
            except RangelogError:
                if not tiered:
                    raise
        return await self._cold.find_timestamp(self._view.stream, source, timestamp_ms)


class Reader(SpanReader[Sequence[Record]], Pollable):
    """An asynchronous iterator of Records in offset order. Make it with `client.reader(...)`; iterate once.

    Example:
        ```python
        async for record in client.reader("flights", start="earliest", follow=True):
            print(record.offset, record.value)
        ```
    """

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._records() if self.deserialize is None else self._deserialized(self.deserialize)

    @property
    def next_offset(self) -> int:
        """The offset after the last record that was polled; without polls, after the last chunk; at first, the start."""
        known = self._polling.next_offset if self._polling is not None else None
        return known if known is not None else self.position

    async def lag(self) -> int:
        """Return how many acked records lie between `next_offset` and the stream's end. Raises StreamNotFound, Unavailable."""
        if not self._is_resolved and self._polling is None:
            await self.begin()
        return max(0, (await confirmed_end(self._view, self._connections)).offset - self.next_offset)

    def _to_poll(self) -> AsyncGenerator[Sequence[Record], None]:
        return self.chunks()

    def _polled(self, records: Sequence[Record]) -> None:
        """Nothing to note."""

    async def _deserialized(self, deserialize: Deserialize) -> AsyncIterator[Record]:
        async with aclosing(self._records()) as records:
            async for record in records:
                yield deserialize(record)

    async def _records(self) -> AsyncGenerator[Record, None]:
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
