"""What a simulated group of placement drivers needs of the world around it, and a plain world for tests of it alone."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol


class World(Protocol):
    """Virtual time in seconds, lots, and a network that loses and delays."""

    now: float
    random: Random

    def call_later(self, delay_s: float, call: Callable[[], None], /) -> object:
        """Call once `delay_s` have passed; of two calls for one moment the one asked for first comes first."""

    def deliver(self, source: str, target: str, size_bytes: int, /) -> Sequence[float] | None:
        """How long a packet takes from one member to another. None or nothing: it is lost. Connections are built on
        this: what is lost is sent again, what comes twice or too early is put in order."""


class PlainWorld:
    """A heap of events. Tests set `blocked` (pairs that hear nothing), `loss` and `delay_s`."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self.blocked: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.delay_s = 0.0005
        self.slow_share = 0.0
        self.slow_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def call_later(self, delay_s: float, call: Callable[[], None], /) -> None:
        """See World."""
        heapq.heappush(self._events, (self.now + max(delay_s, 0.0), next(self._numbers), call))

    def deliver(self, source: str, target: str, size_bytes: int, /) -> Sequence[float] | None:
        """See World."""
        if (source, target) in self.blocked or self.random.random() < self.loss:
            return None
        delay_s = self.delay_s * (0.2 + self.random.expovariate(1.25)) + size_bytes / 100e6
        if self.random.random() < self.slow_share:
            delay_s += self.slow_s * self.random.random()
        return [delay_s]

    def run_until(self, end_s: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let time pass; whether `stop` came true before `end_s`."""
        while self._events and self._events[0][0] <= end_s:
            self.now, _, call = heapq.heappop(self._events)
            call()
            if stop is not None and stop():
                return True
        self.now = max(self.now, end_s)
        return False
