"""One daemon thread for work that may wait long for the object store; the process can end without it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class SingleThread:
    """Runs one job after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Run `work` on the thread; return its result or raise its error. If cancelled, the result is lost."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        self._jobs.put((work, future, loop))
        return await future

    def close(self) -> None:
        """End the thread after its current job."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, future, loop = job
            if future.cancelled():
                continue
            try:
                result, error = work(), None
            except Exception as problem:
                result, error = None, problem
            with suppress(RuntimeError):  # the loop is closed, and with it all waiters
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
