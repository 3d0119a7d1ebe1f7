"""Compaction as a server has it whose log is always nearly full, and which looks all the time."""

from __future__ import annotations

from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.space import LogSpace

BYTES_PER_S = 4 * 1024 * 1024
LOOK_S = 0.05


class HastyCompaction(Compaction):
    """Takes any full segment of which at most three quarters are live."""

    def __init__(self, space: LogSpace, bytes_per_s: int) -> None:
        super().__init__(space, BYTES_PER_S)

    def _choose(self, now_s: float) -> int | None:
        usage, wal = self._space.usage, self._space.store.wal
        self._space.look_at_closed()
        last = wal.last_full_sequence
        found = [each for each in wal.segments if each <= last and usage.batches.get(each) and self._is_worth(each)]
        found = [each for each in found if self._blocked.get(each, now_s) <= now_s]
        best = min(found, key=lambda each: (usage.live_bytes(each), each), default=None)
        return best if best is not None and self._needed_bytes(best) <= wal.room_bytes else None

    def flushed(self, now_s: float, took_s: float) -> None:
        """See Compaction: without a rest."""

    def wait_s(self, now_s: float) -> float:
        """See Compaction."""
        return min(LOOK_S, super().wait_s(now_s))
