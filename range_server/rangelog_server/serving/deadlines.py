"""Thousands of deadlines on one timer: an item costs no processor time before its deadline.

What holds: an item is called once, at its deadline or up to two ticks later, unless it is removed before. Without items there
is no timer; otherwise there is one, for the first tick that has an item.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

TICK_S = 0.01


class Expiring(Protocol):
    """An item with a deadline."""

    def expire(self) -> None:
        """Handle the deadline. Raises nothing."""


class Deadlines:
    """Items by the tick at which they are due. For the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticks: dict[int, dict[Expiring, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    def add(self, item: Expiring, deadline_s: float) -> int:
        """Add an item with a deadline on the loop's clock; return the tick that `discard` needs."""
        tick = int(deadline_s / TICK_S) + 1
        self._ticks.setdefault(tick, {})[item] = None
        if self._timer is None or tick < self._timer_tick:
            self._set_timer(tick)
        return tick

    def discard(self, item: Expiring, tick: int) -> None:
        """Remove an item, if it is still there."""
        items = self._ticks.get(tick)
        if items is not None:
            items.pop(item, None)
            if not items:
                del self._ticks[tick]

    def _set_timer(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = self._loop.call_at(tick * TICK_S, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for tick in sorted(tick for tick in self._ticks if tick * TICK_S <= now):
            items = self._ticks.pop(tick, {})
            for item in items:
                item.expire()
        first = min(self._ticks, default=None)
        if first is not None and (self._timer is None or first < self._timer_tick):
            self._set_timer(first)
