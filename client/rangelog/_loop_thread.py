"""One event loop on a thread of its own, and calls on it for which other threads wait.

What holds: a call ends with its result, its error, or a typed error for a call that is impossible: on the loop's own thread
it would wait for itself, in a forked process the thread does not exist, and after `stop` the loop has ended. `stop` ends
every task, and every thread that waits for one gets an error. An abandoned generator is closed without waiting, since the
garbage collector may end it on any thread, the loop's own among them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from rangelog_core.errors import ClientClosed, InvalidArgument, RangelogError
from rangelog_core.net.fork_guard import never_free_in_children

END_TIMEOUT_S = 5.0
"""The limit of each step of `stop`: the last call, the cancelled tasks, the generators; and of a call after Ctrl-C."""

_T = TypeVar("_T")
_END = object()
_log = logging.getLogger("rangelog.sync")


class LoopThread:
    """An event loop on its own thread. Any number of threads may call; `stop` it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._lock = threading.RLock()  # the collector may end a generator while this very thread holds it
        self._calls: set[_Call[Any]] = set()
        self._clearing: set[asyncio.Task[None]] = set()
        self._last: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._stopping = False
        never_free_in_children(self)
        self._thread = threading.Thread(target=self._main, name="rangelog-sync", daemon=True)
        self._thread.start()

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one that made the loop, so that the loop does not run here."""
        return os.getpid() != self._pid

    def run(self, work: Coroutine[Any, Any, _T], *, reads: bool = False) -> _T:
        """Run a coroutine on the loop and wait for it; an interrupt cancels it. `reads`: it changes nothing in the cluster.

        Raises InvalidArgument on the loop's own thread and in a forked process, ClientClosed when the loop is stopped.
        """
        call = _Call(
            work, ClientClosed("the client was closed while this call was under way", outcome_unknown=not reads)
        )
        try:
            self._start(call)
            return call.ended.result()
        except BaseException:
            if call.started and not call.ended.done():
                self._give_up(call)
            raise
        finally:
            self._calls.discard(call)
            del call  # its result may be the exception that holds this frame

    def begin(self, work: Coroutine[Any, Any, _T]) -> concurrent.futures.Future[_T]:
        """Start a coroutine on the loop; return a future of its end, which always comes. Raises as `run` does."""
        call = _Call(work, ClientClosed("the client was closed while this call was under way", outcome_unknown=True))
        self._start(call)
        call.ended.add_done_callback(lambda _: self._calls.discard(call))
        return call.ended

    def call(self, function: Callable[[], _T], *, reads: bool = False) -> _T:
        """Call a function on the loop's thread and wait for its result. Raises as `run` does."""

        async def call() -> _T:
            return function()

        return self.run(call(), reads=reads)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Let the loop call something soon; nothing happens once it is stopped."""
        with self._lock:
            if not self._stopping and not self.forked:
                self._loop.call_soon_threadsafe(callback)

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    def iterate(self, items: AsyncIterator[_T]) -> Iterator[_T]:
        """Yield the items of an asynchronous iterator that runs on the loop. Raises as `run` does."""
        iterator = items.__aiter__()

        async def step() -> Any:
            return await anext(iterator, _END)

        try:
            while (item := self.run(step(), reads=True)) is not _END:
                yield item
        finally:
            self._clear_away(iterator)

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run `last`, cancel all tasks, end the thread. Idempotent, also from several threads; does nothing in a fork.

        Raises InvalidArgument on the loop's own thread.
        """
        if self.forked:
            return
        self._refuse_own_thread()
        with self._lock:
            if not self._stopping:
                self._stopping, self._last = True, last
                self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(4 * END_TIMEOUT_S)
        self._fail_calls()  # there are some only when a callback blocks the thread, which then ends by itself or never

    # ---- on the caller's thread

    def _start(self, call: _Call[Any]) -> None:
        try:
            if self.forked:
                raise InvalidArgument(
                    f"this client was made in process {self._pid}, before a fork: connect in the child, and only there"
                )
            self._refuse_own_thread()
            with self._lock:
                if self._stopping:
                    raise ClientClosed("the client is closed")
                self._calls.add(call)
                call.started = True
                self._loop.call_soon_threadsafe(call.start)
        except BaseException:
            if not call.started:
                call.work.close()
            raise

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:  # not by its number, which a later thread may have
            raise InvalidArgument(
                "a blocking call on the client's own thread (in a future's callback?) would wait for itself: "
                "hand it to another thread"
            )

    def _give_up(self, call: _Call[Any]) -> None:
        """Cancel an interrupted call and wait for its end, so that its objects can be used again."""
        with self._lock:
            if not self._stopping:  # otherwise `stop` cancels it
                self._loop.call_soon_threadsafe(call.cancel)
        concurrent.futures.wait([call.ended], END_TIMEOUT_S)

    def _clear_away(self, iterator: AsyncIterator[Any]) -> None:
        close = getattr(iterator, "aclose", None)
        if close is None or self.forked:
            return
        with self._lock:
            if not self._stopping:  # otherwise the loop closes it with all others
                self._loop.call_soon_threadsafe(self._start_clearing, close)

    # ---- on the loop's thread

    def _start_clearing(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def clear() -> None:
            try:
                await close()
            except Exception as error:
                _log.debug("an abandoned generator ended with %r", error)

        task = self._loop.create_task(clear())
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    def _main(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            with self._lock:
                self._stopping = True
            try:
                self._end()
            finally:
                self._loop.close()
                self._fail_calls()

    def _end(self) -> None:
        if self._last is not None:
            self._finish(self._last())
        for call in self._waiting():
            call.closing = True
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._finish(asyncio.wait(tasks))
        for task in tasks:
            if task.done() and not task.cancelled():
                task.exception()  # marked as retrieved: it has no waiter
        self._finish(self._loop.shutdown_asyncgens())

    def _finish(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            self._loop.run_until_complete(asyncio.wait_for(work, END_TIMEOUT_S))
        except (Exception, asyncio.CancelledError) as error:
            _log.warning("closing the client: %r", error)

    def _waiting(self) -> list[_Call[Any]]:
        with self._lock:
            return list(self._calls)

    def _fail_calls(self) -> None:
        for call in self._waiting():
            call.fail()


class _Call(Generic[_T]):
    """A coroutine that runs on the loop; `ended` is the future of its result."""

    def __init__(self, work: Coroutine[Any, Any, _T], closed: RangelogError) -> None:
        self.work = work
        self.started = False
        self.closing = False
        self.ended: concurrent.futures.Future[_T] = concurrent.futures.Future()
        self._closed = closed
        self._task: asyncio.Task[_T] | None = None

    def start(self) -> None:
        """Start the coroutine as a task. For the loop's thread, as `cancel`."""
        self._task = asyncio.get_running_loop().create_task(self.work)
        self._task.add_done_callback(self._tell)

    def cancel(self) -> None:
        """Cancel the coroutine on behalf of its caller."""
        if self._task is not None:
            self._task.cancel()
        else:  # interrupted before its start
            self.work.close()
            self.ended.cancel()

    def fail(self) -> None:
        """Fail the call: the loop has ended."""
        with suppress(concurrent.futures.InvalidStateError):
            self.ended.set_exception(self._closed)

    def _tell(self, task: asyncio.Task[_T]) -> None:
        with suppress(concurrent.futures.InvalidStateError):  # failed before, while a callback blocked the thread
            if not task.cancelled():
                error = task.exception()
                if error is not None:
                    self.ended.set_exception(error)
                else:
                    self.ended.set_result(task.result())
            elif self.closing:
                self.ended.set_exception(self._closed)
            else:
                self.ended.set_exception(concurrent.futures.CancelledError())
