"""For how long the event loop is held by one piece of work, in processor time of its thread.

What holds: a loop that is late because the machine stands still was not held, nor was one that is busy and on time: a hold is
the lesser of both, short by INTERVAL_S at most. Each hold of LOGGED_S and more has a line in the log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog

INTERVAL_S = 0.1
LOGGED_S = 1.0
LOGGED = "the event loop was held"

_log = structlog.get_logger("loop")


class LoopHolds:
    """Of one event loop, in its own thread."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, worked: Callable[[], float] = time.thread_time
    ) -> None:
        """`worked`: the processor time of the calling thread."""
        self._now = now
        self._worked = worked
        self._longest_s = 0.0
        self._watching: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Watch the running loop until it ends."""
        self._watching = asyncio.create_task(self._watch())

    def observe(self, late_s: float, worked_s: float) -> None:
        """Count that a timer was late by so much, and that the thread worked for so long meanwhile."""
        hold_s = min(late_s, worked_s)
        self._longest_s = max(self._longest_s, hold_s)
        if hold_s >= LOGGED_S:
            _log.warning(LOGGED, seconds=round(hold_s, 2))

    def take_longest_s(self) -> float:
        """Return the longest hold since the last call, or since the start."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    async def _watch(self) -> None:
        while True:
            due_s, worked_s = self._now() + INTERVAL_S, self._worked()
            await asyncio.sleep(INTERVAL_S)
            self.observe(self._now() - due_s, self._worked() - worked_s)


HOLDS = LoopHolds()
"""Those of this process, whose main module begins it."""
