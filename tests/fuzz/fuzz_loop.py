"""One event loop for the targets that need one, and a pool of threads that is none: work is done in the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from functools import cache
from typing import Any, TypeVar

_T = TypeVar("_T")


@cache
def loop() -> asyncio.AbstractEventLoop:
    """The loop of this process."""
    return asyncio.new_event_loop()


def run(work: Coroutine[Any, Any, _T]) -> _T:
    """Run to the end."""
    return loop().run_until_complete(work)


def turns(count: int) -> None:
    """Let callbacks run that were called soon."""

    async def wait() -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    run(wait())


class Inline(Executor):
    """Runs what it is given at once."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
