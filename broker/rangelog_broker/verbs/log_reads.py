"""Reads of shards' logs, at the range servers and in the tier, that go on from one fetch to the next.

What holds: a fetch that begins where an earlier one ended gets that one's reader, with the batches that it has read ahead. So
many readers are kept at most, for a while, the latest ones; so many read at once, and others wait in turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress

from rangelog.errors import Overloaded, RangelogError
from rangelog.ranges import WholeBatch
from rangelog_broker.shards.tail import ENTRY_BYTES, FetchMemory
from rangelog_core.limits import MIB

KEPT_MAX = 64
KEPT_S = 10.0
RESERVED_BYTES_MIN = MIB
"""A read below an end takes so much memory at least, until it is known how large its first batch is."""
TURN_S_MAX = 10.0
"""A fetch that has waited for its turn for so long is refused."""

Chunks = AsyncGenerator[Sequence[WholeBatch], None]
Place = tuple[int, int, int]
"""Topic, shard and offset."""


def size_of(batches: Iterable[WholeBatch]) -> int:
    """Return the memory of batches, in bytes."""
    return sum(len(each.data) + ENTRY_BYTES for each in batches)


class _Read:
    """A reader between two fetches, or in use by one."""

    def __init__(self, chunks: Chunks, end: int | None, memory: FetchMemory) -> None:
        self.end = end
        self.used_s = 0.0
        self._chunks = chunks
        self._memory = memory
        self._ahead: deque[WholeBatch] = deque()
        self._next: asyncio.Task[Sequence[WholeBatch]] | None = None

    async def fill(self, bytes_max: int, until_s: float) -> list[WholeBatch]:
        """Return the next batches: at least one unless the time is over, more only within `bytes_max` and if they are there."""
        found: list[WholeBatch] = []
        left_bytes = bytes_max
        try:
            while True:
                while self._ahead and (not found or len(self._ahead[0].data) <= left_bytes):
                    left_bytes -= len(self._ahead[0].data)
                    found.append(self._ahead.popleft())
                waits_s = 0.0 if found else until_s - asyncio.get_running_loop().time()
                if self._ahead or not await self._arrived(waits_s):
                    return found
        except BaseException as error:
            if found and isinstance(error, RangelogError):
                return found  # the next fetch gets the error
            self._ahead.extendleft(reversed(found))
            raise

    async def _arrived(self, timeout_s: float) -> bool:
        """Whether further batches came within a time. Raises the errors of the reader."""
        if self._next is None:
            self._next = asyncio.ensure_future(_following(self._chunks))
        if not self._next.done():
            await asyncio.wait([self._next], timeout=max(0.0, timeout_s))
            if not self._next.done():
                return False
        chunk, self._next = self._next.result(), None
        self._memory.take(size_of(chunk))
        self._ahead.extend(chunk)
        return bool(chunk)

    async def close(self) -> None:
        if self._next is not None:
            self._next.cancel()
            await asyncio.wait([self._next])
            if not self._next.cancelled():
                self._next.exception()
        with suppress(Exception):  # what it fails with concerns nobody any more
            await self._chunks.aclose()
        self._memory.give_back(size_of(self._ahead))
        self._ahead.clear()


async def _following(chunks: Chunks) -> Sequence[WholeBatch]:
    async for chunk in chunks:
        return chunk
    return ()  # the end


class LogReads:
    """See the module. For one event loop; `close` it."""

    def __init__(self, memory: FetchMemory, at_once: int, reserve: Callable[[int], Awaitable[None]]) -> None:
        """`reserve`: takes memory, once there is some."""
        self._memory = memory
        self._reserve = reserve
        self._kept: OrderedDict[Place, _Read] = OrderedDict()
        self._at_once = at_once
        self._turns = asyncio.Semaphore(at_once)
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def kept_count(self) -> int:
        """Readers between two fetches."""
        return len(self._kept)

    @property
    def is_busy(self) -> bool:
        """Whether another read would have to wait for its turn."""
        return self._turns.locked()

    def goes_on(self, place: Place) -> bool:
        """Whether a reader is kept at a place."""
        return place in self._kept

    async def read(
        self, place: Place, open_read: Callable[[], Chunks], end: int | None, bytes_max: int, until_s: float
    ) -> list[WholeBatch]:
        """Return the batches at a place once there are any, or nothing once the time is over.

        `open_read` gives a reader from there up to `end`; None: it goes on for ever. The batches count in the memory: the
        caller gives them back. Raises Overloaded, and the errors of the reader.
        """
        try:
            async with asyncio.timeout(TURN_S_MAX):
                await self._turns.acquire()
        except TimeoutError:
            raise Overloaded(f"{self._at_once} fetches read the logs of shards: try again") from None
        reserved_bytes = max(bytes_max, RESERVED_BYTES_MIN) if end is not None else 0
        try:
            await self._reserve(reserved_bytes)
            try:
                found, read = await self._read(place, open_read, end, bytes_max, until_s)
            finally:
                self._memory.give_back(reserved_bytes)
        finally:
            self._turns.release()
        self._keep((*place[:2], found[-1].end if found else place[2]), read)
        return found

    async def _read(
        self, place: Place, open_read: Callable[[], Chunks], end: int | None, bytes_max: int, until_s: float
    ) -> tuple[list[WholeBatch], _Read]:
        read = self._kept.pop(place, None) or _Read(open_read(), end, self._memory)
        try:
            return await read.fill(bytes_max, until_s), read
        except BaseException:
            self._close(read)
            raise

    def drop_idle(self, now_s: float) -> None:
        """Close the readers that no fetch has gone on with."""
        while self._kept and now_s - next(iter(self._kept.values())).used_s > KEPT_S:
            self._close(self._kept.popitem(last=False)[1])

    async def close(self) -> None:
        """Close all readers. Idempotent."""
        while self._kept:
            self._close(self._kept.popitem()[1])
        if self._closing:
            await asyncio.wait(self._closing)

    def _keep(self, place: Place, read: _Read) -> None:
        if place[2] == read.end:
            self._close(read)
            return
        read.used_s = asyncio.get_running_loop().time()
        former = self._kept.pop(place, None)
        self._kept[place] = read
        if former is not None:
            self._close(former)
        elif len(self._kept) > KEPT_MAX:
            self._close(self._kept.popitem(last=False)[1])

    def _close(self, read: _Read) -> None:
        task = asyncio.ensure_future(read.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
