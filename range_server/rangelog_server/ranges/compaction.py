"""Which batches to move so that their segments become free, and how fast. Pure: the caller reads, and passes the time.

What holds: one segment at a time, the one with the least live bytes, and only when all of these fit into the free space;
normally a segment of which at most a quarter is live, and only when many bytes are dead; when space is short, one of which at
most three quarters are. So at most 1/3 byte is copied for each dead byte, or 3. Over any time no more than `bytes_per_s` is
requested, plus one step (`SHORT_FACTOR` times that when space is short). After a step the log is left to appends for `REST`
times as long as the flush of its copies took, so copies take at most a twentieth of the disk's time.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.reading import ReadPlan, make_plan
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.ranges.space import SLICE_ENTRIES, LogSpace
from rangelog_server.ranges.usage import METADATA_BYTES
from rangelog_server.wal.entry import ENTRY_HEADER_BYTES

DEAD_SEGMENTS_MIN = 4
DEAD_SHARE = 4
"""Compaction starts when one byte in so many is dead, and so many segments' worth of bytes."""
STEP_BYTES = 256 * 1024
"""Every flush takes long, whatever its size: few large ones disturb appends less than many small ones."""
STEP_PARTS = 64
SHORT_FACTOR = 8
REST = 19.0
REST_SHORT = 1.0
PENDING_BYTES_MAX = 1024 * 1024
"""While so many bytes of appends wait for the disk, copies wait, unless most of the log is dead."""
PRESSING_SEGMENTS_MIN = 64
"""With so many segments of dead bytes, and half of the full segments' bytes, copies do not wait."""
LOOK_S = 1.0
BLOCKED_S = 60.0
"""A segment with a batch that cannot be moved is skipped for so long."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive batches of one replica."""

    hosted: HostedReplica
    plan: ReadPlan


@dataclass(frozen=True, slots=True)
class CompactionStep:
    """The batches to read now and to pass to `LogSpace.move`."""

    parts: list[Part]
    size_bytes: int


class Compaction:
    """The planner of the compaction of one log. Times in seconds on the caller's monotonic clock."""

    def __init__(self, space: LogSpace, bytes_per_s: int) -> None:
        self._space = space
        self._bytes_per_s = bytes_per_s
        self._step_bytes = min(STEP_BYTES, space.store.wal.segment_bytes // 8)
        self._sequence: int | None = None
        self._position = 0  # residents that are done
        self._blocked: dict[int, float] = {}  # until when
        self._next_s = 0.0
        self.copied_bytes = 0

    def next(self, now_s: float) -> CompactionStep | None:
        """Return the next copies, or None: call again after `wait_s`. The step before must be flushed or have failed."""
        wal = self._space.store.wal
        if now_s < self._next_s:
            return None
        if wal.pending_bytes > PENDING_BYTES_MAX and not wal.is_short and not self._is_dead(PRESSING_SEGMENTS_MIN, 2):
            self._next_s = now_s + STEP_BYTES / self._bytes_per_s
            return None
        if self._sequence is None:
            self._sequence, self._position = self._choose(now_s), 0
            if self._sequence is None:
                self._next_s = now_s + LOOK_S
                return None
        step = self._collect(self._sequence)
        if step is not None:
            rate = self._bytes_per_s * (SHORT_FACTOR if wal.is_short else 1)
            self._next_s = now_s + step.size_bytes / rate
            self.copied_bytes += step.size_bytes
        elif self._position >= len(self._space.usage.residents.get(self._sequence, ())):
            if self._space.usage.batches.get(self._sequence):
                self._blocked[self._sequence] = now_s + BLOCKED_S
            self._sequence = None
        return step

    def flushed(self, now_s: float, took_s: float) -> None:
        """Note that the copies of the last step are flushed, and how long their flush took."""
        rest = REST_SHORT if self._space.store.wal.is_short else REST
        self._next_s = max(self._next_s, now_s + rest * took_s)

    def wait_s(self, now_s: float) -> float:
        """Return the time until the next step is due, in seconds."""
        return max(0.0, self._next_s - now_s)

    def failed(self, now_s: float) -> None:
        """Note that the last step could not be read or written: its segment is skipped for a while."""
        if self._sequence is not None:
            self._blocked[self._sequence] = now_s + BLOCKED_S
            self._sequence = None

    # ---- inside

    def _choose(self, now_s: float) -> int | None:
        space, wal = self._space, self._space.store.wal
        self._blocked = {each: until for each, until in self._blocked.items() if until > now_s}
        space.look_at_closed()
        if wal.is_short:
            last = wal.last_full_sequence
            found = [each for each in wal.segments if each <= last and self._is_worth(each)]
        else:
            found = space.sparse_segments() if self._is_dead(DEAD_SEGMENTS_MIN, DEAD_SHARE) else []
            found = found or wal.stale_segments()
        usage = space.usage
        found = [each for each in found if usage.batches.get(each) and each not in self._blocked]
        best = min(found, key=lambda each: (usage.live_bytes(each), each), default=None)
        return best if best is not None and self._needed_bytes(best) <= wal.room_bytes else None

    def _is_worth(self, sequence: int) -> bool:
        return self._space.usage.live_bytes(sequence) * 4 <= self._space.store.wal.segment_bytes * 3

    def _is_dead(self, segments_min: int, share: int) -> bool:
        """Whether one byte in `share` of the full segments is dead, and `segments_min` segments of bytes."""
        usage, wal = self._space.usage, self._space.store.wal
        full_bytes = wal.full_count * wal.segment_bytes
        dead_bytes = full_bytes - usage.batch_bytes
        return dead_bytes >= segments_min * wal.segment_bytes and dead_bytes * share >= full_bytes

    def _needed_bytes(self, sequence: int) -> int:
        usage = self._space.usage
        headers = (ENTRY_HEADER_BYTES + METADATA_BYTES) * len(usage.residents.get(sequence, ()))
        return usage.live_bytes(sequence) + headers + usage.batches[sequence] // self._step_bytes * ENTRY_HEADER_BYTES

    def _collect(self, sequence: int) -> CompactionStep | None:
        """Return the next batches of a segment's residents; None where the next slice of them has none."""
        replicas = self._space.store.replicas
        residents = self._space.usage.residents.get(sequence, [])
        parts: list[Part] = []
        size = 0
        stop = min(len(residents), self._position + SLICE_ENTRIES)
        while self._position < stop and len(parts) < STEP_PARTS and size < self._step_bytes:
            hosted = replicas.get(residents[self._position])
            if hosted is not None and hosted.segments.get(sequence) and hosted.core.trust is not DiskTrust.QUARANTINED:
                for first, last in hosted.batches_in(sequence):
                    end = first
                    while end < last and (end == first or size + hosted.lengths[end] <= self._step_bytes):
                        size += hosted.lengths[end]
                        end += 1
                    parts.append(Part(hosted, make_plan(hosted, first, end)))
                    if end < last or size >= self._step_bytes:
                        # The same replica is first in the next step: it may have more batches.
                        return CompactionStep(parts, size)
            self._position += 1
        return CompactionStep(parts, size) if parts else None
