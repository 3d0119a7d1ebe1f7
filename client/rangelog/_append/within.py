"""Waiting for a future with a limit, at the cost of one timer: no task and no exception where the answer comes in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from rangelog_core.errors import RangelogError

_T = TypeVar("_T")


async def within(future: asyncio.Future[_T], limit_s: float, error: Callable[[], RangelogError]) -> _T:
    """Wait for a future that has no other waiter; after `limit_s` seconds it fails with `error()`."""
    timer = future.get_loop().call_later(limit_s, _expire, future, error)
    try:
        return await future
    finally:
        timer.cancel()


def _expire(future: asyncio.Future[_T], error: Callable[[], RangelogError]) -> None:
    if not future.done():
        future.set_exception(error())
