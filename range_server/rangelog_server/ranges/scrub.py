"""Scrubbing: which batches to read again next, and when. Pure: the caller reads them and passes the time.

What holds: each pass reads every batch of every replica that is sealed and whole when its turn comes, once, from the disk;
over any time it requests no more than `bytes_per_s`, plus one step; passes start at least `interval_s` apart. A batch that
the disk refused is requested again before all others: soon it is read, or the replica is quarantined. Open replicas are
skipped: their ranges are sealed at some time, and their reads are checked as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import ReadPlan, make_plan

STEP_BYTES = 1024 * 1024
AGAIN_S = 30.0
"""The pause between two tries of a refused batch: short enough to separate lasting faults from temporary ones."""

LOOKS_MAX = 2_000
"""Replicas that one call examines, if none of them is to be read."""

Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ScrubStep:
    """The batches of one replica to read and check now."""

    hosted: HostedReplica
    plan: ReadPlan
    size_bytes: int


class Scrub:
    """The planner of the scrub of one server. Times in seconds on the caller's monotonic clock."""

    def __init__(self, bytes_per_s: int, interval_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._interval_s = interval_s
        self._left: list[Key] = []
        self._position: tuple[Key, int] | None = None  # the replica in turn, and its next batch
        self._begun_s: float | None = None
        self._next_s = 0.0
        self.passes = 0
        """The number of completed passes."""
        self.read_bytes = 0

    def next(self, replicas: Mapping[Key, HostedReplica], now_s: float) -> ScrubStep | None:
        """Return the next batches to read, or None: call again after `wait_s`."""
        if now_s < self._next_s:
            return None
        if self._begun_s is None:
            self._begun_s = now_s
            self._left = list(replicas)[::-1]
        for _ in range(LOOKS_MAX):
            if not self._left and self._position is None:
                break
            step = self._take(replicas)
            if step is not None:
                self._next_s = now_s + step.size_bytes / self._bytes_per_s
                self.read_bytes += step.size_bytes
                return step
        if self._left or self._position is not None:
            return None  # many open replicas in a row: the loop does its other work first
        self.passes += 1
        self._next_s = max(now_s, self._begun_s + self._interval_s)
        self._begun_s = None
        return None

    def again(self, step: ScrubStep, now_s: float, *, soon: bool = False) -> None:
        """Note that the last step could not be read: it is returned again, at once if `soon`, otherwise after AGAIN_S."""
        core = step.hosted.core
        self._position = step.hosted.key, core.batch_number(step.plan.wanted[0].base_offset)
        self._next_s = max(self._next_s, now_s + (0.0 if soon else AGAIN_S))

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next step is due, in seconds."""
        return max(0.0, self._next_s - now_s)

    def _take(self, replicas: Mapping[Key, HostedReplica]) -> ScrubStep | None:
        key, first = self._position or (self._left.pop(), 0)
        self._position = None
        hosted = replicas.get(key)
        if hosted is None or not hosted.core.complete or first >= hosted.core.batch_count:
            return None
        last, size = first, 0
        while last < hosted.core.batch_count and (last == first or size + hosted.lengths[last] <= STEP_BYTES):
            size += hosted.lengths[last]
            last += 1
        self._position = (key, last)
        return ScrubStep(hosted, make_plan(hosted, first, last), size)
