"""One answer for all who ask the same within a moment, so that many browsers cost the cluster as much as one.

What holds: for each key one call runs at a time; an answer is given out until it is older than its asker accepts; an error goes
to those who waited for it, and is not kept. At most KEYS_MAX answers are kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any

KEYS_MAX = 128


class SharedAnswers:
    """For one event loop. `close` it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._answers: dict[Hashable, tuple[float, Any]] = {}
        self._running: dict[Hashable, asyncio.Task[Any]] = {}

    async def get(self, key: Hashable, age_max_s: float, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return an answer that is at most so old. Raises what `ask` raises."""
        known = self._answers.get(key)
        if known is not None and self._clock() - known[0] <= age_max_s:
            return known[1]
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key, ask))
            self._running[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)  # who goes away does not take the answer from the others

    async def _ask(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        began_s = self._clock()
        found = await ask()
        self._answers.pop(key, None)
        self._answers[key] = (began_s, found)
        while len(self._answers) > KEYS_MAX:
            del self._answers[next(iter(self._answers))]
        return found

    def _ended(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # looked at: an error that nobody waits for any more is not reported

    async def close(self) -> None:
        """End what runs; idempotent."""
        running = list(self._running.values())
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
