"""The rates of a shard: exponential moving averages of its events and bytes per second, over several windows. Pure.

What holds: an average starts at 0 and nears a constant rate by 63 % within its window, so a shard that was just opened seems
less busy than it is, never more. It is *mature* once it was observed for twice the longest window: only then is a low average
a low rate, and from then on what the start at 0 takes away is put back.
"""

from __future__ import annotations

import math
from typing import NamedTuple

WINDOWS_MINUTES = (2, 5, 10, 20)
MINUTE_S = 60.0
_SIGNIFICANT_BITS = 6
_UNSEEN_MAX = math.exp(-2) * (1 + 1e-9)
"""After twice the window."""


class Decay(NamedTuple):
    """How much of each average is left after a time: the same for all shards that are counted together."""

    passed_s: float
    left: tuple[float, ...]


def decay(passed_s: float, minute_s: float = MINUTE_S) -> Decay:
    """Return the decay after `passed_s`, where a minute of the windows takes `minute_s`."""
    return Decay(passed_s, tuple(math.exp(-passed_s / (window * minute_s)) for window in WINDOWS_MINUTES))


def rounded(rate: float) -> int:
    """Return a rate to about 3 %, so that one that hardly changes is not reported again and again.

    Example:
        >>> [rounded(rate) for rate in (0.4, 63.2, 1000.0, 1001.0)]
        [0, 63, 1008, 1008]
    """
    whole = round(rate)
    shift = max(0, whole.bit_length() - _SIGNIFICANT_BITS)
    return (whole + (1 << shift >> 1)) >> shift << shift


class MovingRates:
    """The rates of one shard since its owner opened it."""

    __slots__ = (
        "_bytes",
        "_bytes_averages",
        "_events",
        "_events_averages",
        "_unseen",
        "bytes_per_s",
        "events_per_s",
    )

    def __init__(self) -> None:
        self._events = self._bytes = 0
        self._unseen = [1.0] * len(WINDOWS_MINUTES)  # the weight of the time before the first count
        self.events_per_s = self.bytes_per_s = 0
        """Since the count before the last one."""
        self._events_averages = [0.0] * len(WINDOWS_MINUTES)
        self._bytes_averages = [0.0] * len(WINDOWS_MINUTES)

    def count(self, events: int, size_bytes: int, after: Decay) -> None:
        """Note how many events and bytes the shard has taken in all; counters that fell are those of another opening."""
        new_events, new_bytes = max(0, events - self._events), max(0, size_bytes - self._bytes)
        self._events, self._bytes = events, size_bytes
        for place, part in enumerate(after.left):
            self._unseen[place] *= part
        self.events_per_s = round(new_events / after.passed_s)
        self.bytes_per_s = round(new_bytes / after.passed_s)
        _add(self._events_averages, new_events / after.passed_s, after.left)
        _add(self._bytes_averages, new_bytes / after.passed_s, after.left)

    @property
    def mature(self) -> bool:
        """Whether the shard was observed for long enough."""
        return self._unseen[-1] <= _UNSEEN_MAX

    @property
    def events_averages(self) -> list[int]:
        """Events per second by window, rounded."""
        return self._reported(self._events_averages)

    @property
    def bytes_averages(self) -> list[int]:
        """Bytes per second by window, rounded."""
        return self._reported(self._bytes_averages)

    def _reported(self, averages: list[float]) -> list[int]:
        if not self.mature:
            return [rounded(each) for each in averages]
        return [rounded(each / (1 - unseen)) for each, unseen in zip(averages, self._unseen, strict=True)]


def _add(averages: list[float], rate: float, left: tuple[float, ...]) -> None:
    for place, part in enumerate(left):
        averages[place] = rate + part * (averages[place] - rate)
