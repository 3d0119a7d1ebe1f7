"""One daemon thread for work that may wait long for the object store: it never holds up the end of the process."""

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
        """Return what `work` returns, or raise what it raises. Cancelled: the work is finished, its result dropped."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_Result] = loop.create_future()
        self._jobs.put((work, future, loop))
        return await future

    def close(self) -> None:
        """End after the job at hand."""
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
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
