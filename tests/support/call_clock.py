"""A clock for calls on the placement drivers: how many tries a call makes is the test's choice, not that of the load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rangelog_core.errors import RangelogError

ENOUGH_S = 3_600.0
"""Longer than any call's time."""


class CallClock:
    """A client's clock, which stands still until a step of a placement driver, or a pause, ends the call's time.

    Example:
        `start_pd(CreateStream=in_turn(refusal, clock.ends_after(refusal)))`: two tries, whatever the machine does.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses_left = 1_000
        """The call's time runs out in the last of them: where no placement driver is there to end it."""

    async def pause(self, attempt: int, deadline: float) -> None:
        """As the client's pause between two rounds of tries, but for its length."""
        self.pauses_left -= 1
        if not self.pauses_left:
            self.now_s += ENOUGH_S
        await asyncio.sleep(0.01)

    def monotonic(self) -> float:
        """As time.monotonic."""
        return self.now_s

    def ends_after(self, error: RangelogError) -> Callable[[], Awaitable[Any]]:
        """A step that answers with `error` as the call's time runs out."""

        async def step() -> None:
            self.now_s += ENOUGH_S
            raise error

        return step
