"""The shards that a member reads: a reader for each, one chunk of each waits at most, and they take turns.

What holds: a shard whose chunk was taken waits until the chunks of all others that wait were taken. A chunk of a shard that was
stopped is passed over. A reader ends at the end of a shard that is sealed for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, NamedTuple

from rangelog._consume.group_core import Begin, GroupShard, Stop
from rangelog._read.reader import Reader
from rangelog._topics.shard_errors import of_shard
from rangelog_core.errors import OffsetTrimmed, RangelogError, StreamNotFound
from rangelog_core.record import Record

_log = logging.getLogger("rangelog.group")


class ShardEndFound(Exception):
    """The reader is at the end of a shard that has ended."""


class ShardReader(Reader):
    """Reads one shard, up to its end for good if it has ended."""

    async def _look_for_a_range(self) -> None:
        await super()._look_for_a_range()
        stream = self._view.stream
        if stream.sealed_for_good and self.position >= stream.next_offset:
            raise ShardEndFound


class ReadyChunk(NamedTuple):
    """Records of a shard under a generation."""

    shard: GroupShard
    since: int
    records: Sequence[Record]


class ShardFeeds:
    """The readers of one member. For one event loop."""

    def __init__(
        self,
        make_reader: Callable[..., Reader],
        *,
        woken: asyncio.Event,
        found_end: Callable[[GroupShard, int], None],
        skipped: Callable[[GroupShard, int, int], None],
        skips_trimmed: bool,
        named: Callable[[GroupShard], tuple[str, int]],
    ) -> None:
        """`make_reader`: returns a ShardReader; `named`: a shard's topic and number, for messages.

        `woken`: set when a chunk waits, or a reader has failed.
        """
        self._make_reader = make_reader
        self._woken = woken
        self._found_end = found_end
        self._skipped = skipped
        self._skips_trimmed = skips_trimmed
        self._named = named
        self._ready: deque[tuple[ReadyChunk, asyncio.Event]] = deque()
        self._tasks: dict[tuple[GroupShard, int], asyncio.Task[None]] = {}
        self._ended: set[asyncio.Task[Any]] = set()
        self.failed: RangelogError | None = None

    def perform(self, effect: Begin | Stop) -> None:
        """Begin or stop to read a shard."""
        key = effect.shard, effect.since
        if isinstance(effect, Begin):
            self._tasks[key] = asyncio.create_task(self._feed(effect))
            return
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()
            self._ended.add(task)
            task.add_done_callback(self._ended.discard)

    def next_chunk(self) -> ReadyChunk | None:
        """Return the next chunk; None: none waits."""
        while self._ready:
            chunk, taken = self._ready.popleft()
            taken.set()
            if (chunk.shard, chunk.since) in self._tasks:
                return chunk
        return None

    async def close(self) -> None:
        """Stop all readers."""
        tasks = [*self._tasks.values(), *self._ended]
        self._tasks.clear()
        self._ready.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _feed(self, begin: Begin) -> None:
        offset, is_committed = begin.offset, begin.has_position
        try:
            while True:
                try:
                    await self._read(begin, offset)
                except ShardEndFound:
                    self._found_end(begin.shard, begin.since)
                    return
                except OffsetTrimmed as error:
                    if (is_committed and not self._skips_trimmed) or error.offset is None or error.offset <= offset:
                        raise
                    _log.info(
                        "shard %s begins at %d now: records from %d on are gone", begin.shard, error.offset, offset
                    )
                    offset = error.offset
                    self._skipped(begin.shard, begin.since, offset)
                except StreamNotFound:  # its topic was deleted
                    self._found_end(begin.shard, begin.since)
                    return
        except RangelogError as error:
            self.failed = of_shard(error, *self._named(begin.shard))
            self._woken.set()

    async def _read(self, begin: Begin, offset: int) -> None:
        reader = self._make_reader(begin.shard, start=offset, follow=True)
        async with aclosing(reader.chunks()) as chunks:
            async for records in chunks:
                taken = asyncio.Event()
                self._ready.append((ReadyChunk(begin.shard, begin.since, records), taken))
                self._woken.set()
                await taken.wait()
