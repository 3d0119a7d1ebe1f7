"""Reads a topic: a reader for each shard that the core opens, taken in turns.

What holds: at most one chunk of each shard waits, beside what the client's budget of fetches lets its readers receive; a shard
whose chunk was taken waits until the chunks of all others that wait were taken. What was not yielded is not in the position.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime

from rangelog._consume.core import CloseShard, OpenShard, TopicReading
from rangelog._consume.records import TopicChunk, TopicRecord
from rangelog._topics.cut import Cut
from rangelog._topics.cuts import AT_ONCE, ShardReaders
from rangelog._topics.shard_errors import errors_of_shard, of_shard
from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.time_windows import TimeWindow, TimeWindows
from rangelog._topics.topics import CutPlace, Topics, check_topic_of
from rangelog._topics.watches import ShardMapWatch, TopicShards, TopicWatches
from rangelog.protocol.reading import ReadPreference
from rangelog_core.errors import InvalidArgument, OffsetTrimmed, RangelogError, StreamNotFound
from rangelog_core.name_errors import deleted_topic
from rangelog_core.topic_names import parse_topic_name

TopicStart = str | Cut | datetime
_PLACES: dict[str, CutPlace] = {"earliest": "head", "latest": "tail"}

_log = logging.getLogger("rangelog.reader")


class TopicReader:
    """An asynchronous iterator of the records of a topic. Make it with `client.topic_reader(...)`; iterate once.

    The records of one key are in the order in which they were appended, over splits and merges of shards. Records of different
    shards are in no order, but for those of a shard and of the shards that follow it.

    Example:
        ```python
        reader = client.topic_reader("flights", follow=True)
        async for record in reader:
            print(record.shard_id, record.offset, record.value)
            checkpoint = reader.position().to_json()
        ```
    """

    def __init__(
        self,
        topics: Topics,
        watches: TopicWatches,
        shard_readers: ShardReaders,
        topic: str,
        *,
        start: TopicStart,
        end: Cut | None,
        follow: bool,
        read_preference: str,
        timeout_s: float,
        deserialize: Callable[[TopicRecord], TopicRecord] | None = None,
    ) -> None:
        if not isinstance(start, Cut | datetime) and not (isinstance(start, str) and start in _PLACES):
            raise InvalidArgument(f"bad start {start!r}: a Cut, 'earliest', 'latest', a datetime or a timedelta")
        if end is not None and not isinstance(end, Cut):
            raise InvalidArgument(f"bad end {end!r}: a Cut")
        ReadPreference.parse(read_preference)
        self.topic = str(parse_topic_name(topic))
        self._topics = topics
        self._watches = watches
        self._shard_readers = shard_readers
        self._start = start
        self._end = end
        self._follow = follow
        self._read_preference = read_preference
        self._timeout_s = timeout_s
        self.deserialize = deserialize
        self._topic_id = start.topic_id if isinstance(start, Cut) else 0
        self._core: TopicReading | None = None
        self._windows: TimeWindows | None = None
        self._unchecked: dict[int, None] = {}  # shards whose first offset is the caller's: it may be beyond the end
        self._movable: dict[int, None] = {}  # shards whose start was looked up, and may be trimmed since
        self._beginning = asyncio.Semaphore(AT_ONCE)
        self._feeds: dict[int, asyncio.Task[None]] = {}
        self._ended_feeds: set[asyncio.Task[None]] = set()
        self._ready: deque[tuple[TopicChunk, asyncio.Event]] = deque()
        self._woken = asyncio.Event()
        self._failed: BaseException | None = None
        self._yielded: tuple[int, int] | None = (
            None  # shard and offset up to which a chunk that is not done was yielded
        )

    def __aiter__(self) -> AsyncIterator[TopicRecord]:
        return self._records()

    async def chunks(self) -> AsyncGenerator[TopicChunk, None]:
        """Yield chunks of consecutive records of one shard, at a much lower cost per record than one by one.

        Raises:
            TopicNotFound: The topic does not exist, or was deleted.
            TopicKindForbids: It is a table.
            InvalidArgument, ShardNotFound, KeyRangeGap, KeyRangeOverlap: `start` or `end` is not a cut of this topic.
            OffsetTrimmed: Records behind the position were trimmed; `offset` is the first one that the shard still has.
            OffsetOutOfRange: The start is beyond the end of a shard; `offset` is that end.
            Corruption: The bytes fit no checksum on any replica or object.
            Unavailable: No copy could be read for `timeout_s`.
        """
        async with aclosing(self.parts()) as parts:
            async for chunk in parts:
                self.note(chunk.shard_id, chunk.end_offset)
                yield chunk

    def position(self) -> Cut:
        """Return where the reader is: a cut behind all records that were yielded and before all others.

        Another reader that starts there goes on without loss or repeat. With `chunks` a yielded chunk counts as a whole.

        Raises:
            InvalidArgument: The reader has not begun, and its start is no cut.
        """
        if self._core is None:
            if isinstance(self._start, Cut):
                return self._start
            raise InvalidArgument("the reader has no position before its first record is asked for")
        offsets = self._core.position()
        if self._yielded is not None:
            offsets[self._yielded[0]] = self._yielded[1]
        return Cut(self._topic_id, offsets)

    async def time_window(self) -> TimeWindow:
        """Return the window of event times at the reader's position, from the watermarks of the topic.

        Later watermarks are asked of a broker once a second at most. Both times are None where no producer notes times.

        Raises:
            InvalidArgument: The reader has no position yet; see `position`.
            TopicNotFound: The topic was deleted.
            Unavailable: No broker answers.
        """
        position = self.position()
        if self._windows is None:
            self._windows = self._topics._time_windows(position.topic_id)
        return await self._windows.at(position.offsets, is_cut=True)

    # ---- for the blocking client

    async def parts(self) -> AsyncGenerator[TopicChunk, None]:
        """Yield chunks; the position goes on by `note` while one is out. For the package's own use."""
        try:
            known = await self._topics.shard_map(self.topic)
            core = await self._begin(known)
            async with aclosing(self._parts(core, known)) as parts:
                async for chunk in parts:
                    yield chunk
        except StreamNotFound as error:
            raise deleted_topic(self.topic) from error

    def note(self, shard_id: int, offset: int) -> None:
        """The records of the chunk that is out are yielded below an offset. For the package's own use."""
        self._yielded = shard_id, offset

    # ---- inside

    async def _records(self) -> AsyncIterator[TopicRecord]:
        async with aclosing(self.parts()) as parts:
            async for chunk in parts:
                shard_id = chunk.shard_id
                for record in chunk.records:
                    self._yielded = shard_id, record.offset + 1
                    made = TopicRecord(shard_id, *record)
                    yield made if self.deserialize is None else self.deserialize(made)

    async def _begin(self, known: TopicShards) -> TopicReading:
        """Turn start and end into cuts of the topic, and make the core."""
        for given in (self._start, self._end):
            if isinstance(given, Cut):
                check_topic_of(given, self.topic, known)
        self._topic_id = known.topic_id
        graph = ShardGraph(known.shards.values())
        end = self._end.offsets if self._end is not None else None
        if end is not None:
            graph.check_cut(end)
        if isinstance(self._start, Cut):
            start = dict(self._start.offsets)
            graph.check_cut(start)
            self._unchecked = {each: None for each, offset in start.items() if offset and known.shards[each].is_current}
        elif isinstance(self._start, datetime):
            behind = (await self._topics.cut_in(known, "tail")).offsets if self._follow else {}
            start = dict((await self._topics.cut_in(known, self._start)).offsets)
            self._movable = {each: None for each, at in start.items() if each not in behind or at < behind[each]}
        else:
            start = dict((await self._topics.cut_in(known, _PLACES[self._start])).offsets)
            self._movable = dict.fromkeys(start) if self._start == "earliest" else {}
        if not self._follow:
            tail = start if self._start == "latest" else (await self._topics.cut_in(known, "tail")).offsets
            await self._check_starts(start, tail)
            end = graph.earlier(end, tail) if end is not None else tail
        self._core = TopicReading(known.shards.values(), start, end)
        return self._core

    async def _check_starts(self, start: Mapping[int, int], tail: Mapping[int, int]) -> None:
        """Raise OffsetOutOfRange where the caller's start lies beyond the end of a current shard."""
        for shard_id in self._unchecked:
            if start[shard_id] > tail[shard_id]:  # or too few replicas have answered: then the reader finds out
                with errors_of_shard(self.topic, shard_id):
                    await self._shard_readers(
                        self._topic_id, shard_id, start=start[shard_id], timeout_s=self._timeout_s
                    ).find_start()

    async def _parts(self, core: TopicReading, known: TopicShards) -> AsyncGenerator[TopicChunk, None]:
        watch = self._watches.join(known) if self._follow else None
        mapping = None
        if watch is not None:
            mapping = asyncio.create_task(self._follow_map(core, watch))
            mapping.add_done_callback(self._task_ended)
        try:
            while True:
                self._perform(core)
                if self._failed is not None:
                    raise self._failed
                if self._ready:
                    chunk, taken = self._ready.popleft()
                    self.note(chunk.shard_id, chunk.start_offset)
                    yield chunk
                    self._yielded = None
                    core.read(chunk.shard_id, chunk.end_offset)
                    taken.set()
                elif core.is_over:
                    return
                else:
                    self._woken.clear()
                    await self._woken.wait()
        finally:
            if watch is not None:
                self._watches.leave(watch)
            await self._end_all(mapping)

    def _perform(self, core: TopicReading) -> None:
        """Open and close the readers of shards."""
        for effect in core.effects():
            if isinstance(effect, OpenShard):
                before = core.predecessors(effect.shard_id)
                if before and all(each in self._movable for each in before):  # nothing of what it follows was there
                    self._movable[effect.shard_id] = None
                feed = asyncio.create_task(self._feed(core, effect))
                self._feeds[effect.shard_id] = feed
                feed.add_done_callback(self._task_ended)
            else:
                assert isinstance(effect, CloseShard)
                feed = self._feeds.pop(effect.shard_id)
                if not feed.done():
                    self._ended_feeds.add(feed)
                    feed.cancel()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._ended_feeds.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed = self._failed or error
            self._woken.set()

    async def _feed(self, core: TopicReading, opened: OpenShard) -> None:
        """Read one shard: hand over a chunk, and the next one when it was taken."""
        shard_id, offset = opened.shard_id, opened.offset
        while True:
            try:
                async with aclosing(self._shard_chunks(opened._replace(offset=offset))) as chunks:
                    async for chunk in chunks:
                        self._movable.pop(shard_id, None)
                        taken = asyncio.Event()
                        self._ready.append((chunk, taken))
                        self._woken.set()
                        await taken.wait()
                return
            except OffsetTrimmed as error:
                if shard_id not in self._movable or error.offset is None or error.offset <= offset:
                    raise of_shard(error, self.topic, shard_id) from error
                _log.info("shard %d of topic %s starts at %d now", shard_id, self.topic, error.offset)
                # trimmed since the start was looked up, and nothing of the shard was yielded
                offset = await self._later_start(shard_id, error.offset)
                core.read(shard_id, offset)
                self._woken.set()
            except RangelogError as error:
                raise of_shard(error, self.topic, shard_id) from error

    async def _later_start(self, shard_id: int, trim_offset: int) -> int:
        """Return where a shard begins that was trimmed up to an offset since its start was looked up."""
        if not isinstance(self._start, datetime):
            return trim_offset
        reader = self._shard_readers(
            self._topic_id, shard_id, start=self._start, follow=False, timeout_s=self._timeout_s
        )
        return max(trim_offset, await reader.find_start())

    async def _shard_chunks(self, opened: OpenShard) -> AsyncGenerator[TopicChunk, None]:
        shard_id, start = opened.shard_id, opened.offset
        reader = self._shard_readers(
            self._topic_id,
            shard_id,
            start=start,
            end=opened.end_offset,
            follow=True,
            read_preference=self._read_preference,
            timeout_s=self._timeout_s,
            resolved=shard_id not in self._unchecked and not self._may_end_later(shard_id),
        )
        async with self._beginning:
            await reader.begin()
        async with aclosing(reader.chunks()) as chunks:
            async for records in chunks:
                end = reader.position
                yield TopicChunk(shard_id, start, end, records)
                start = end

    def _may_end_later(self, shard_id: int) -> bool:
        """Whether the offset that a shard is read up to is the caller's: records below it may not be acked yet."""
        return self._follow and self._end is not None and shard_id in self._end.offsets

    async def _follow_map(self, core: TopicReading, watch: ShardMapWatch) -> None:
        """Give each later shard map to the core, until the topic is deleted."""
        known = None
        while True:
            version = watch.version
            if watch.map is not known:
                known = watch.map
                core.mapped(known.shards.values())
                self._woken.set()
            await self._watches.changed(watch, version)

    async def _end_all(self, mapping: asyncio.Task[None] | None) -> None:
        """Cancel all tasks, and wait until the readers of shards have closed what they had open."""
        tasks = [*self._feeds.values(), *self._ended_feeds, *([mapping] if mapping is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._feeds.clear()
        self._ready.clear()
