"""The reader of a stream of event files for an event loop: the files of one generation after the other.

What holds: an event is handed out once; `position` is behind all that was handed out, and before all that was not. A reader
that follows takes a truncation and a changed TTL up within an interval: it goes on in the new generation, and at its position
with the new TTL. A read that is cancelled loses nothing: the next one has what it brings. An error comes behind the events that
were read before it. The loop is not blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.record import NO_HEADERS, moment_of
from rangelog_files.block_filters import OffsetFilter, TimeFilter
from rangelog_files.event_reader import DamagedFile, EventBatch, EventReader
from rangelog_files.layout import parse_path
from rangelog_files.merging import FilePosition, MergingCore
from rangelog_files.readable_files import ReadableFiles
from rangelog_files.stream_properties import EventStreamProperties

POLL_S = 0.1
"""Between two looks for new events of a reader that follows."""
BATCH_EVENTS = 1_000
BATCH_BYTES = 1 << 20
"""A batch has events of further blocks, up to about so many of them: a thread is asked for each batch."""


class EventRecord(NamedTuple):
    """One event of a stream, as read.

    Attributes:
        path: The file that it is in, relative to the directory of all streams.
        offset: The event's offset in its file.
        timestamp_ms: The event's own time in ms since 1970: that at which it was written, where it has none.
        key: The key, or None without one.
        value: The value.
        headers: Header names and values; empty without headers.
        written_ms: When it was written, by the writer's clock, in ms since 1970.
    """

    path: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes] = NO_HEADERS
    written_ms: int = 0

    @property
    def timestamp(self) -> datetime:
        """The event's time as a datetime in UTC."""
        return moment_of(self.timestamp_ms)


class ReadPlace(NamedTuple):
    """The stream that is read, its files and properties, and how."""

    stream: str
    files: Callable[[], ReadableFiles]
    properties: Callable[[], EventStreamProperties]
    clock_ms: Callable[[], int]
    share: OffsetFilter | None
    leave_damaged: bool


class _Fetched(NamedTuple):
    """Events, and where to go on behind them."""

    records: list[EventRecord]
    position: list[FilePosition]


class EventStreamReader:
    """An asynchronous iterator of EventRecords. Made by `store.reader(…)`.

    Example:
        ```python
        async for record in store.reader(start=timedelta(hours=1), follow=True):
            print(record.timestamp, record.value)
        ```
    """

    def __init__(
        self,
        place: ReadPlace,
        times: TimeFilter,
        positions: Sequence[FilePosition],
        *,
        follow: bool,
        look_interval_s: float,
    ) -> None:
        if follow and times.until_ms is not None:
            raise InvalidArgument("a reader that follows has no end: leave one of them out")
        self._place = place
        self._times = times
        self._positions = positions
        self._follow = follow
        self._look_interval_s = look_interval_s
        self._reader: EventReader | None = None
        self._opened = EventStreamProperties()
        self._looked_s = 0.0
        self._reading: asyncio.Future[_Fetched | None] | None = None
        self._handed = _Fetched([], list(positions))
        self._taken = 0
        self._left_damaged: list[DamagedFile] = []
        self._read_before = 0

    def __aiter__(self) -> AsyncIterator[EventRecord]:
        """Iterate over the events. Raises Corruption, StreamNotFound, Unavailable."""
        return self._records()

    async def batches(self) -> AsyncGenerator[list[EventRecord], None]:
        """Yield events as they come, those of one block or of several at a time. Raises as the iteration."""
        loop = asyncio.get_running_loop()
        while True:
            if self._reading is None:
                self._reading = loop.run_in_executor(None, self._next, loop.time())
            fetched = await asyncio.shield(self._reading)
            self._reading = None
            if fetched is not None:
                self._positions, self._handed, self._taken = self._handed.position, fetched, len(fetched.records)
                yield fetched.records
            elif not self._follow:
                return
            else:
                await asyncio.sleep(POLL_S)

    def position(self) -> list[FilePosition]:
        """Return where to go on: the events that were handed out are before it, and no others; of a batch of `batches`, all."""
        if self._taken == len(self._handed.records):
            return list(self._handed.position)
        found = {parse_path(each.path).prefix: each for each in self._positions}
        for record in self._handed.records[: self._taken]:
            found[parse_path(record.path).prefix] = FilePosition(record.path, record.offset + 1)
        return [found[prefix] for prefix in sorted(found)]

    @property
    def generation(self) -> int:
        """The generation that is read, once the reading has begun."""
        return self._opened.generation

    @property
    def bytes_read(self) -> int:
        """Of event files and indexes, so far."""
        return self._read_before + (0 if self._reader is None else self._reader.bytes_read)

    @property
    def damaged(self) -> list[DamagedFile]:
        """The files that were left, with `leave_damaged`."""
        return self._left_damaged + ([] if self._reader is None else self._reader.damaged)

    async def _records(self) -> AsyncGenerator[EventRecord, None]:
        async for records in self.batches():
            for self._taken, record in enumerate(records, 1):
                yield record

    def _next(self, now_s: float) -> _Fetched | None:
        """Return the next events that are there. In a thread."""
        if self._reader is None or (self._follow and now_s - self._looked_s >= self._look_interval_s):
            self._looked_s = now_s
            self._look()
        assert self._reader is not None
        records: list[EventRecord] = []
        size_bytes = 0
        while len(records) < BATCH_EVENTS and size_bytes < BATCH_BYTES:
            try:
                batch = self._reader.next_batch(timeout_s=0 if self._follow else None)
            except RangelogError:
                if not records:
                    raise
                break  # it is raised again when the next batch is asked for
            if batch is None:
                break
            records += records_of(batch)
            size_bytes += sum([len(event.body) for event in batch.events])
        return _Fetched(records, self._reader.position()) if records else None

    def _look(self) -> None:
        """Open the generation that there is now, or go on in it with another TTL."""
        found = self._place.properties()
        same_generation = found.generation == self._opened.generation
        if self._reader is not None and same_generation and found.ttl_s == self._opened.ttl_s:
            return
        positions = list(self._positions) if self._reader is None else self._reader.position()
        if self._reader is not None and not same_generation:
            positions = []
        if self._reader is not None:
            self._left_damaged, self._read_before = self.damaged, self.bytes_read
        times = self._times._replace(ttl_ms=None if found.ttl_s is None else round(found.ttl_s * 1_000))
        core = MergingCore(self._place.stream, found.generation, times=times, start=positions, follow=self._follow)
        self._reader = EventReader(
            self._place.files(), core, share=self._place.share, leave_damaged=self._place.leave_damaged,
            now_ms=self._place.clock_ms,
        )  # fmt: skip
        self._opened = found


def records_of(batch: EventBatch) -> list[EventRecord]:
    """Return the events of one block as records."""
    path, written_ms = batch.path.data_path, batch.timestamp_ms
    return [
        EventRecord(
            path, offset, written_ms if event.timestamp_ms is None else event.timestamp_ms, event.key, event.body,
            event.headers, written_ms,
        )
        for offset, event in zip(batch.offsets, batch.events, strict=True)
    ]  # fmt: skip


def times_from(
    start: str | datetime | timedelta | Sequence[FilePosition], end: datetime | None, now_ms: int
) -> tuple[TimeFilter, Sequence[FilePosition]]:
    """Return the times and the positions that a start and an end stand for. Raises InvalidArgument."""
    until_ms = None if end is None else _ms_of(end)
    if isinstance(start, datetime):
        return TimeFilter(_ms_of(start), until_ms), ()
    if isinstance(start, timedelta):
        if start < timedelta(0):
            raise InvalidArgument(f"a start of {start} is in the future: a timedelta is how long ago")
        return TimeFilter(max(0, now_ms - round(start.total_seconds() * 1_000)), until_ms), ()
    if start in ("earliest", "latest"):
        return TimeFilter(now_ms if start == "latest" else None, until_ms), ()
    if isinstance(start, (list, tuple)) and all(isinstance(each, FilePosition) for each in start):
        return TimeFilter(None, until_ms), tuple(start)
    raise InvalidArgument(f'bad start {start!r:.100}: "earliest", "latest", a datetime, a timedelta, or a position')


def _ms_of(moment: datetime) -> int:
    if moment.tzinfo is None:
        raise InvalidArgument("a time without a time zone: give it one, such as datetime.UTC")
    return round(moment.timestamp() * 1_000)
