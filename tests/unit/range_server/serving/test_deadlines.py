"""Deadlines on one timer: each item is called once, in time, whatever others do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from rangelog_server.serving.deadlines import TICK_S, Deadlines


class Timer:
    """A call at a time."""

    def __init__(self, at_s: float, call: Callable[[], None]) -> None:
        self.at_s, self.call = at_s, call
        self.cancelled = False

    def cancel(self) -> None:
        """See asyncio.TimerHandle."""
        self.cancelled = True


class Loop:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        """See asyncio."""
        return self.now

    def call_at(self, at_s: float, call: Callable[[], None]) -> Timer:
        """See asyncio."""
        self.timers.append(Timer(at_s, call))
        return self.timers[-1]

    @property
    def pending(self) -> list[Timer]:
        """Timers that are set."""
        return [timer for timer in self.timers if not timer.cancelled]

    def move(self, to_s: float) -> None:
        """Time passes: timers run when they are due."""
        while due := [timer for timer in self.pending if timer.at_s <= to_s]:
            first = min(due, key=lambda timer: timer.at_s)
            self.timers.remove(first)
            self.now = max(self.now, first.at_s)
            first.call()
        self.now = to_s


class Item:
    """Notes when it was called, and begins to wait again as often as it is told to."""

    def __init__(self, loop: Loop, deadlines: Deadlines, again_s: float = 0.0) -> None:
        self.loop, self.deadlines, self.again_s = loop, deadlines, again_s
        self.wanted_s: list[float] = []
        self.called_s: list[float] = []
        self.tick = 0

    def wait(self, seconds: float) -> None:
        """Wait so long."""
        self.wanted_s.append(self.loop.now + seconds)
        self.tick = self.deadlines.add(self, self.wanted_s[-1])

    def expire(self) -> None:
        """See Expiring."""
        self.called_s.append(self.loop.now)
        if self.again_s:
            self.wait(self.again_s)


def made() -> tuple[Any, Deadlines]:
    """A loop and deadlines on it."""
    loop: Any = Loop()
    return loop, Deadlines(loop)


def test_items_are_called_at_their_time() -> None:
    """Whatever order they came in, though each waits again when it is called: never early, two ticks late at most."""
    loop, deadlines = made()
    chance = Random(1)
    items = [Item(loop, deadlines, again_s=chance.choice([0.5, 2.0])) for _ in range(200)]
    for item in items:
        item.wait(chance.uniform(0, 3))
        assert len(loop.pending) == 1
    for step in range(1000):
        loop.move(step * 0.01)
        assert len(loop.pending) == 1
    for item in items:
        assert len(item.called_s) >= 3
        for wanted, called in zip(item.wanted_s, item.called_s, strict=False):
            assert wanted <= called <= wanted + 2 * TICK_S


def test_what_was_taken_out_is_not_called() -> None:
    """Nor does it leave anything behind; when nothing waits there is no timer for long."""
    loop, deadlines = made()
    kept, out = Item(loop, deadlines), Item(loop, deadlines)
    kept.wait(1.0)
    out.wait(1.0)
    deadlines.discard(out, out.tick)
    deadlines.discard(out, out.tick)
    loop.move(2.0)
    assert (len(kept.called_s), len(out.called_s)) == (1, 0)
    assert not loop.pending
    assert not deadlines._ticks
