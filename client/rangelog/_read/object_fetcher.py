"""Ranged GETs from one object store on threads, for all readers of a client; bounds their number, size and memory.

What holds: at most REQUESTS_MAX requests at once; the bytes that are being fetched or not yet used stay within BYTES_MAX,
except for one span of each reader, so that no reader waits for the progress of another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

from rangelog_core.errors import Unavailable
from rangelog_core.limits import MIB
from rangelog_tier.object_reader import ByteSpan
from rangelog_tier.object_store import ObjectStore, ObjectTooShort

BYTES_MAX = 128 * MIB
REQUESTS_MAX = 8
PART_BYTES_FIRST, PART_BYTES_MIN, PART_BYTES_MAX = 32 * MIB, 4 * MIB, 64 * MIB
PART_S, WAITED_FACTOR = 0.15, 4
"""How long the transfer of one request should take, and how much longer than the wait for its first byte. So a store with a
low rate gets several requests at once, and a store with a high cost per request (some read the whole object to return a
part) gets few large ones."""
_SPARE_MAX = 3
_MEMORY_BYTES_MIN = MIB


class ObjectFetcher:
    """The ranged GETs of one client from one store. For one event loop; close it."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.part_bytes = PART_BYTES_FIRST
        self._threads = ThreadPoolExecutor(REQUESTS_MAX, thread_name_prefix="tier-get")
        self._used_bytes = 0
        self._closed = False
        self._waiting: list[asyncio.Future[None]] = []

    def close(self) -> None:
        """Start no more requests and close the store; idempotent."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    async def take(self, size_bytes: int, holds_some: Callable[[], bool]) -> None:
        """Wait until so many bytes fit; a reader that holds none never waits."""
        while holds_some() and self._used_bytes + size_bytes > BYTES_MAX:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
        self._used_bytes += size_bytes

    def give(self, size_bytes: int) -> None:
        """Return so many bytes that are no longer used."""
        self._used_bytes -= size_bytes
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def get(self, key: str, span: ByteSpan, target: mmap, stopped: Callable[[], bool]) -> list[asyncio.Future[None]]:
        """Start to fetch a span into memory, in concurrent parts; a part that is too short leaves its memory unchanged.

        Raises Unavailable once it is closed.
        """
        if self._closed:
            raise Unavailable("the client is closed")
        loop = asyncio.get_running_loop()
        under_way: list[asyncio.Future[None]] = []
        for part in parts(span, self.part_bytes):
            place = part.begin - span.begin
            under_way.append(loop.run_in_executor(self._threads, self._get, key, part, target, place, stopped))
            under_way[-1].add_done_callback(_seen)
        return under_way

    def _get(self, key: str, part: ByteSpan, target: mmap, place: int, stopped: Callable[[], bool]) -> None:
        begun_s = time.monotonic()
        with (
            memoryview(target) as view,
            view[place : place + part.size] as into,
        ):  # released before the waiters are woken
            try:
                came_s = self.store.read_into(key, part.begin, into, lambda: self._closed or stopped())
            except ObjectTooShort:
                return  # the checksum will not fit, and its check fetches again
        waited_s = time.monotonic() - begun_s - came_s
        self.part_bytes = suitable_part(part.size, came_s, waited_s, self.part_bytes)


def parts(span: ByteSpan, part_bytes: int) -> list[ByteSpan]:
    """Split a span into even parts of at most so many bytes."""
    count = max(1, -(-span.size // part_bytes))
    edges = [span.begin + span.size * number // count for number in range(count + 1)]
    return [ByteSpan(low, high) for low, high in pairwise(edges) if low < high]


def suitable_part(size_bytes: int, came_s: float, waited_s: float, before: int) -> int:
    """Return the size of the next requests, from the times of one until its first byte and until its last."""
    if size_bytes < PART_BYTES_MIN // 2:
        return before  # too short to measure the rate
    wanted_s = max(PART_S, WAITED_FACTOR * waited_s)
    wanted = PART_BYTES_MAX if came_s <= 0 else int(size_bytes / came_s * wanted_s)
    return min(PART_BYTES_MAX, max(PART_BYTES_MIN, (before + wanted + 1) // 2))


def _seen(future: asyncio.Future[None]) -> None:
    """Mark the error of a fetch as retrieved: it is raised to its waiters, and without one it is ignored."""
    if not future.cancelled():
        future.exception()


class Spare:
    """Reusable memory: the first use of new memory costs more than the fetch that fills it."""

    def __init__(self) -> None:
        self._free: list[mmap] = []

    def take(self, size_bytes: int) -> mmap:
        """Return a buffer of at least so many bytes."""
        for found in self._free:
            if len(found) >= size_bytes and not _looked_at(found):
                self._free = [each for each in self._free if each is not found]
                return found
        # Memory costs nothing until it is filled, so a larger buffer is free, and fits the next span as well.
        rounded = max(_MEMORY_BYTES_MIN, 1 << (size_bytes - 1).bit_length())
        return mmap(-1, rounded, flags=MAP_PRIVATE | MAP_ANONYMOUS)

    def give(self, memory: mmap) -> None:
        """Keep a buffer for reuse. It may still be referenced: Arrow's threads release their references at some later time."""
        self._free = sorted([*self._free, memory], key=len)[-_SPARE_MAX:]


def _looked_at(memory: mmap) -> bool:
    try:
        memory.resize(len(memory))
    except (BufferError, SystemError, OSError):  # it is referenced; or this system cannot report it
        return True
    return False
