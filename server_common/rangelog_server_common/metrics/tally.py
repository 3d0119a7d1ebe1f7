"""How long something takes, in buckets: counted where the work is done, read at a scrape. Pure, without a library.

What holds: `count` is the sum of the buckets; each observation is in the first bucket whose bound it does not exceed. One
thread counts at a time; another may read meanwhile.
"""

from __future__ import annotations

from bisect import bisect_left

DURATION_BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip


class DurationTally:
    """Durations in seconds.

    Example:
        >>> tally = DurationTally()
        >>> tally.observe(0.003, 2)
        >>> tally.count, tally.cumulative()[5]
        (2, ('0.005', 2))
    """

    __slots__ = ("_counts", "total_s")

    def __init__(self) -> None:
        self._counts = [0] * (len(DURATION_BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Count `count` things that took so long each."""
        self._counts[bisect_left(DURATION_BOUNDS_S, seconds)] += count
        self.total_s += seconds * count

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self._counts)

    def cumulative(self) -> list[tuple[str, int]]:
        """Return the observations up to each bound, the last one without a bound, as the text format wants them."""
        found, so_far = [], 0
        for bound, count in zip((*map(str, DURATION_BOUNDS_S), "+Inf"), list(self._counts), strict=True):
            so_far += count
            found.append((bound, so_far))
        return found


def count_by(counts: dict[str, int], label: str, label_count_max: int = 100) -> None:
    """Count one more of a kind. Kinds beyond `label_count_max` are counted together, as "other"."""
    if label not in counts and len(counts) >= label_count_max:
        label = "other"
    counts[label] = counts.get(label, 0) + 1
