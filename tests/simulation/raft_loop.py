"""An event loop on the world's clock: just what asyncio's tasks, futures and timeouts ask of one."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.raft_process import RaftProcess


class VirtualLoop(asyncio.AbstractEventLoop):
    """One process's. Callbacks run in the order in which they were asked for; none while the process is paused or gone."""

    def __init__(self, owner: RaftProcess) -> None:
        self._owner = owner
        self._ready: collections.deque[asyncio.Handle] = collections.deque()
        self._draining = False
        self.stopped = False

    def time(self) -> float:
        return self._owner.world.now

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.stopped

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        task = asyncio.Task(coro, loop=self)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self._owner.world.call_later(delay, lambda: self._put(handle))
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(max(when - self.time(), 0.0), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self._owner.broken(f"the event loop: {context.get('message')}: {context.get('exception')!r}")

    def _put(self, handle: asyncio.Handle) -> None:
        if self.stopped or handle.cancelled():
            return
        self._ready.append(handle)
        if not self._draining:
            self._draining = True
            self._owner.world.call_later(self._owner.elapsed_s, self.drain)

    def drain(self) -> None:
        """Run what is ready, and what that makes ready."""
        if self._owner.paused and not self.stopped:
            return  # the process calls again when it goes on
        with self._owner.inside():
            outer = asyncio._get_running_loop()
            asyncio._set_running_loop(self)
            try:
                while self._ready and not self.stopped and not self._owner.paused:
                    handle = self._ready.popleft()
                    if not handle.cancelled():
                        handle._run()
            finally:
                asyncio._set_running_loop(outer)
        self._draining = bool(self._ready) and self._owner.paused

    def stop(self) -> None:
        """The process is gone."""
        self.stopped = True
        self._ready.clear()
