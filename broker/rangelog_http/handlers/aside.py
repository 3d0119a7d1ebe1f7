"""Work that is too long for the event loop: what is large is decoded and encoded on a thread, one piece at a time.

What holds: producers' requests go on meanwhile, and a door uses one thread at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

LARGE_BYTES = 32 * 1024
"""More than that is not decoded or encoded on the loop."""
T = TypeVar("T")


class Aside:
    """The thread of one door. `await aside(len(body), lambda: parsed(body))`."""

    def __init__(self) -> None:
        self._one_large = asyncio.Lock()

    async def __call__(self, size_bytes: int, work: Callable[[], T]) -> T:
        """Return what work returns; `size_bytes`: what it has to look at."""
        if size_bytes <= LARGE_BYTES:
            return work()
        async with self._one_large:
            return await asyncio.to_thread(work)
