"""Compaction without a measure: any full segment is worth it, at once, and every step is taken in the call."""

from __future__ import annotations

from rangelog_core.errors import StorageFull
from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.reading import read_batches
from rangelog_server.ranges.space import LogSpace
from rangelog_server.ranges.store import Store

STEPS_MAX = 1_000


class EagerCompaction(Compaction):
    """Takes the full segment with the least live bytes, whatever there is to gain."""

    def __init__(self, space: LogSpace) -> None:
        super().__init__(space, 1 << 60)

    def _choose(self, now_s: float) -> int | None:
        usage, wal = self._space.usage, self._space.store.wal
        last = wal.last_full_sequence
        found = [
            each for each in wal.segments if each <= last and usage.batches.get(each) and each not in self._blocked
        ]
        return min(found, key=lambda each: (usage.live_bytes(each), each), default=None)


def submit_moves(store: Store, compaction: Compaction, now_s: float) -> int:
    """Read and submit one step; return how many copies were submitted. Raises StorageFull, Corruption."""
    step = compaction.next(now_s)
    if step is None:
        return 0
    moved = 0
    for part in step.parts:
        moved += store.space.move(part.hosted, part.plan, read_batches(store.wal, part.plan))
    return moved


def compact(store: Store, segments_max: int = 1) -> int:
    """Move everything out of so many segments and free them, as far as there is room; return how many copies were made."""
    compaction, moved, now_s = EagerCompaction(store.space), 0, 1.0
    begun: dict[int | None, None] = {}
    for _ in range(STEPS_MAX):
        now_s += 1.0
        before = compaction._sequence
        try:
            moved += submit_moves(store, compaction, now_s)
        except StorageFull:
            compaction.failed(now_s)
        store.wal.kick()
        begun[compaction._sequence] = None
        if len({*begun, None}) > segments_max + 1 or before is compaction._sequence is None:
            break
    while store.reclaim() or store.space.is_busy:
        store.wal.kick()
    return moved
