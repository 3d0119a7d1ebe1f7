"""When the leader writes the next snapshot of its state to the tier, and what became of the last one.

What holds: a change is in a snapshot within the interval, one that is urgent (an object was committed, a stream or topic was
made, changed or deleted) within a shorter one, as long as the store answers; the rate of bytes is bounded whatever the size of
the state is. In the leader's memory only: another leader begins with a snapshot of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_core.limits import MIB

BYTES_PER_S_MAX = MIB
RETRY_MS_MIN, RETRY_MS_MAX = 1_000.0, 60_000.0


@dataclass(slots=True)
class SnapshotSchedule:
    """Times are those of the monotonic clock, in ms. An interval of 0: none is written."""

    interval_ms: int
    soon_ms: int
    written_index: int = 0
    """The last entry in a snapshot that this leader wrote."""
    written_ms: int = 0
    """In cluster time."""
    size_bytes: int = 0
    last_error: str = ""
    _ended_ms: float = 0.0
    _not_before_ms: float = 0.0
    _failures: int = 0

    def start_leading(self, now_ms: float) -> None:
        """Forget what an earlier term of leadership wrote."""
        self.written_index = self.written_ms = self.size_bytes = self._failures = 0
        self.last_error = ""
        self._ended_ms = self._not_before_ms = now_ms

    def is_due(self, now_ms: float, changing: int, urgent: int) -> bool:
        """Whether to write one now. `changing`, `urgent`: the last entries of these kinds."""
        if not self.interval_ms or now_ms < self._not_before_ms:
            return False
        if urgent > self.written_index:
            return now_ms >= self._ended_ms + min(self.soon_ms, self.interval_ms)
        return changing > self.written_index and now_ms >= self._ended_ms + self.interval_ms

    def written(self, now_ms: float, index: int, time_ms: int, size_bytes: int) -> None:
        """Note a snapshot of the state at `index`."""
        self.written_index, self.written_ms, self.size_bytes = index, time_ms, size_bytes
        self.last_error, self._failures = "", 0
        self._ended_ms = now_ms
        self._not_before_ms = now_ms + 1_000 * size_bytes / BYTES_PER_S_MAX

    def failed(self, now_ms: float, problem: str) -> None:
        """Note a failure: the next try comes later each time."""
        self.last_error = problem
        self._not_before_ms = now_ms + min(RETRY_MS_MAX, RETRY_MS_MIN * 2.0 ** min(self._failures, 10))
        self._failures += 1
