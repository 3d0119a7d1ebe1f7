"""Waiting for a future with a limit, at the cost of one timer: no task and no exception where the answer comes in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from rangelog_core.errors import RangelogError

_T = TypeVar("_T")
Waits = dict[asyncio.Future[Any], Callable[[], RangelogError]]
"""Waits in progress, each with the error with which it fails before its time."""


async def within(
    future: asyncio.Future[_T],
    limit_s: float,
    error: Callable[[], RangelogError],
    held_s: Callable[[], float] | None = None,
    waits: Waits | None = None,
) -> _T:
    """Wait for a future that has no other waiter; after `limit_s` seconds it fails with `error()`.

    `held_s`: returns a time so far that does not count, if there is such a time. `waits`: has this wait while it lasts.
    """
    loop = future.get_loop()
    timer: asyncio.TimerHandle
    began_s = loop.time() - (held_s() if held_s is not None else 0.0)

    def expire() -> None:
        nonlocal timer
        left_s = began_s + limit_s + held_s() - loop.time() if held_s is not None else 0.0
        if left_s > 0:
            timer = loop.call_later(left_s, expire)
        elif not future.done():
            future.set_exception(error())

    timer = loop.call_later(limit_s, expire)
    if waits is not None:
        waits[future] = error
    try:
        return await future
    finally:
        timer.cancel()
        if waits is not None:
            del waits[future]


def end_waits(waits: Waits) -> None:
    """Fail all waits in progress."""
    for future, error in waits.items():
        if not future.done():
            future.set_exception(error())
