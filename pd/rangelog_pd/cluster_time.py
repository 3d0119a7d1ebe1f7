"""Cluster time: the clock by which the placement driver dates the state and computes ages. Pure: callers pass all clocks.

What holds: while at most one clock among the leader's and the servers' is wrong:

* It never decreases, and no age grows too fast: between steps it runs at the rate of the leader's monotonic clock,
  whatever the leader's wall clock does.
* It steps forward only to the median of the wall clocks, of at least two range servers (or the only registered one, or the
  only one alive) and, where their number is even or one, the leader's. Of two clocks that differ either may be wrong: the
  earlier one counts.
* Of three clocks or more, a step also needs a second clock within AGREEMENT_MS of the median. A clock is known from its last
  heartbeat, so two that were wrong one after the other look wrong at once, and the median of three is one of them; but they
  do not agree. Without agreement the time steps to the median after APART_MS, in which every living server reports often.
* Ahead of the median it runs at nine tenths of the rate until the clocks have caught up.
* A leader starts at the highest time of all commands, which is old after days without commands. Until enough servers have
  reported, its time is provisional: good for ages, which are too small at worst, but a date of that time would be too old
  after the step. So rows are not dated until the time is confirmed.

A jump of the leader's own wall clock against its monotonic one (it was suspended, or was set) makes the time provisional
until the servers have reported again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

TOLERANCE_MS = 1_000.0
"""The longest transit time of a heartbeat; smaller differences cause no step."""

AGREEMENT_MS = 60_000.0
"""Clocks that are kept by anything at all are closer to each other than this."""

APART_MS = 60_000.0
"""So long a step waits when the middle clock stands alone."""

SLEW_RATE = 0.9
WITNESSES_MIN = 2


@dataclass(slots=True)
class ClusterTime:
    """The cluster time of one leader. Times in ms; `now_ms` is its monotonic clock, `wall_ms` a wall clock."""

    _time_ms: float = 0.0
    _read_ms: float = 0.0
    _own_ms: float = 0.0  # the leader's wall clock less its monotonic one
    _heard: dict[str, float] = field(default_factory=dict)  # the same of each server
    _middle_ms: float | None = None
    _middle_alone: bool = False  # no other clock agrees with the middle one
    _apart_since_ms: float | None = None  # a step has waited since then for a clock that agrees
    _witnesses: int = 0  # the largest number of clocks so far
    _needed: int = 0

    def begin(self, now_ms: float, wall_ms: float, time_ms: int) -> None:
        """Start a term of leadership; `time_ms` is the highest time of all commands, 0 in a new cluster."""
        self._time_ms = float(time_ms or wall_ms)
        self._read_ms = now_ms
        self._own_ms = wall_ms - now_ms
        self._forget()

    def heard(self, server: str, now_ms: float, wall_ms: float) -> None:
        """Note the wall clock in a range server's heartbeat; 0: it has none."""
        if wall_ms > 0:
            self._heard[server] = wall_ms - now_ms

    def judge(self, alive: Collection[str], expected: int) -> None:
        """Compute the median of the clocks of living servers. Call it regularly.

        `expected`: how many servers may still report; at least 1 where any is registered.
        """
        witnesses = [self._heard[name] for name in alive if name in self._heard]
        self._needed = min(WITNESSES_MIN, expected)
        if len(witnesses) < self._needed:
            self._middle_ms = None
            return
        self._witnesses = max(self._witnesses, len(witnesses))
        if len(witnesses) % 2 == 0 or len(witnesses) == 1:
            witnesses.append(self._own_ms)
        witnesses.sort()
        middle = (len(witnesses) - 1) // 2
        self._middle_ms = witnesses[middle]
        others = witnesses[:middle] + witnesses[middle + 1 :]
        self._middle_alone = len(others) > 1 and all(abs(each - self._middle_ms) > AGREEMENT_MS for each in others)

    def read(self, now_ms: float, wall_ms: float) -> int:
        """Return the time now."""
        if abs(wall_ms - now_ms - self._own_ms) > TOLERANCE_MS:
            self._forget()
        self._own_ms = wall_ms - now_ms
        elapsed_ms = max(0.0, now_ms - self._read_ms)
        self._read_ms = max(now_ms, self._read_ms)
        run_ms = self._time_ms + elapsed_ms
        waits_since_ms, self._apart_since_ms = self._apart_since_ms, None
        if self._middle_ms is not None:
            middle_ms = self._middle_ms + now_ms
            if middle_ms > run_ms + TOLERANCE_MS:
                if self._middle_alone:
                    self._apart_since_ms = now_ms if waits_since_ms is None else waits_since_ms
                if self._apart_since_ms is None or now_ms - self._apart_since_ms >= APART_MS:
                    run_ms = middle_ms
            elif middle_ms < run_ms - TOLERANCE_MS:
                run_ms = max(middle_ms, self._time_ms + elapsed_ms * SLEW_RATE)
        self._time_ms = run_ms
        return int(run_ms)

    @property
    def provisional(self) -> bool:
        """Whether a step may still follow because servers have not reported, or because the clocks are far apart."""
        return self._witnesses < self._needed or self._apart_since_ms is not None

    def leader_is_off_by_ms(self, now_ms: float) -> float:
        """Return by how many ms the leader's wall clock is ahead of the time last read, or (negative) behind it."""
        return self._own_ms + now_ms - self._time_ms

    def _forget(self) -> None:
        self._heard.clear()
        self._middle_ms = None
        self._middle_alone = False
        self._apart_since_ms = None
        self._witnesses = 0
