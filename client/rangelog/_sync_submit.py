"""From other threads to a client's loop: futures of single records, and iterables of many.

What holds: a record of an iterable is taken on the caller's thread, in order, and handed to the loop at once; so a slow
iterable delays no record that it gave. At most `FEED_RECORDS_MAX` records and about `FEED_BYTES_MAX` wait for the loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Generic, TypeVar

from rangelog._append.many_records import check_iterable
from rangelog._loop_thread import LoopThread
from rangelog_core.errors import Overloaded, WriterClosed
from rangelog_core.limits import MIB

FEED_RECORDS_MAX = 1_000
FEED_BYTES_MAX = 1 * MIB
_T = TypeVar("_T")
_R = TypeVar("_R")


def submit_when_there_is_room(
    loop: LoopThread, ready: Callable[[], Coroutine[object, object, None]], submit: Callable[[], asyncio.Future[_T]]
) -> concurrent.futures.Future[_T]:
    """Submit once there is room; return a future for other threads."""
    result: concurrent.futures.Future[_T] = concurrent.futures.Future()
    result.set_running_or_notify_cancel()

    async def wait_and_submit() -> None:
        while True:
            await ready()
            try:
                future = submit()
            except Overloaded:
                continue  # another thread took the room
            future.add_done_callback(lambda done: _pass_on(done, result))
            return

    loop.run(wait_and_submit())
    return result


def _pass_on(done: asyncio.Future[_T], result: concurrent.futures.Future[_T]) -> None:
    error = WriterClosed(outcome_unknown=True) if done.cancelled() else done.exception()
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(done.result())


def listed(items: Iterable[_T]) -> list[_T]:
    """Take all of an iterable of records, on this thread. Raises InvalidArgument."""
    check_iterable(items)
    return list(items)


def feed(
    loop: LoopThread,
    items: Iterable[_T],
    size_of: Callable[[_T], int],
    consume: Callable[[AsyncIterator[_T]], Coroutine[object, object, _R]],
) -> _R:
    """Iterate `items` on this thread while `consume` takes them on the loop; return what it returns.

    Raises what `consume` raises. An exception of `items` ends `consume`, and is raised here.
    """
    source = iter(items)
    handing = _Feed[_T](loop)
    ended = loop.begin(consume(handing.taken()))
    ended.add_done_callback(lambda _: handing.give_up())
    try:
        for item in source:
            if not handing.put(item, size_of(item)):
                break
        handing.end()
    except BaseException:
        handing.end(failed=True)
        concurrent.futures.wait([ended])
        raise
    return ended.result()


class _IterableFailed(Exception):
    """The caller's iterable raised: its thread knows what."""


class _Feed(Generic[_T]):
    """Items on their way from one thread to the loop."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._changed = threading.Condition()
        self._items: list[_T] = []
        self._size_bytes = 0
        self._ended = self._failed = self._given_up = False
        self._wanted: asyncio.Event | None = None  # of the loop, while it waits

    def put(self, item: _T, size_bytes: int) -> bool:
        """Hand an item over, once there is room; return whether anybody will take it."""
        with self._changed:
            while not self._given_up and (
                len(self._items) >= FEED_RECORDS_MAX or (self._items and self._size_bytes + size_bytes > FEED_BYTES_MAX)
            ):
                self._changed.wait()
            if self._given_up:
                return False
            self._items.append(item)
            self._size_bytes += size_bytes
            self._wake()
        return True

    def end(self, *, failed: bool = False) -> None:
        """There are no more items; `failed`: because their iterable raised."""
        with self._changed:
            self._ended, self._failed = True, failed
            self._wake()

    def give_up(self) -> None:
        """Nobody takes items any more."""
        with self._changed:
            self._given_up = True
            self._changed.notify_all()

    async def taken(self) -> AsyncIterator[_T]:
        """Yield the items, on the loop."""
        while True:
            with self._changed:
                items, self._items, self._size_bytes = self._items, [], 0
                ended, failed = self._ended, self._failed
                wanted = self._wanted = None if items or ended else asyncio.Event()
                self._changed.notify_all()
            for item in items:
                yield item
            if ended:
                if failed:
                    raise _IterableFailed
                return
            if wanted is not None:
                await wanted.wait()

    def _wake(self) -> None:
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            self._loop.call_soon(wanted.set)
