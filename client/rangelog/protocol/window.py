"""The append window: the batches that some replica still lacks, and the progress of each replica. Pure.

What holds:

* Batches are contiguous; each is kept until it is confirmed, and for as long as the policy asks (replication.py).
* `confirm_offset` is the policy's answer to the members' durable offsets and never decreases. While it is frozen only a
  floor moves it, which the placement driver proved by the same rule.
* A replica is sent each batch once per connection, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rangelog.protocol.replication import ReplicaProgress, Star
from rangelog_core.ids import ReplicaId

_LATENCY_KEPT = 0.99
"""The factor by which the latency of a slow confirm decays at each later confirm: one half after 70."""


@dataclass(slots=True)
class SentBatch:
    """One encoded batch and when it was first due."""

    base_offset: int
    end_offset: int
    data: bytes
    submitted_ms: float


class Window:
    """The append window of one open range."""

    def __init__(self, replicas: Sequence[ReplicaId], policy: Star, start_offset: int, now_ms: float) -> None:
        self.replicas = {
            replica: ReplicaProgress(replica, start_offset, start_offset, progress_ms=now_ms) for replica in replicas
        }
        self.members = tuple(self.replicas.values())
        self._policy = policy
        self.receivers = policy.receivers(self.members)
        self.confirm_offset = start_offset
        self.frozen = False
        self.end_offset = start_offset
        self.size_bytes = 0  # kept
        self.confirmed_bytes = 0  # of this range so far
        self.latency_ms = 0.0  # from submit to confirm: the slowest recent one, with decay; 0: none yet
        self._unconfirmed: deque[SentBatch] = deque()
        self._batches: deque[SentBatch] = deque()

    def push(self, batch: SentBatch) -> None:
        """Add the next batch."""
        assert batch.base_offset == self.end_offset, "batches lie end to end"
        for progress in self.members:
            if progress.durable_offset == self.end_offset:  # nothing was due until now
                progress.progress_ms = batch.submitted_ms
        self._batches.append(batch)
        self._unconfirmed.append(batch)
        self.end_offset = batch.end_offset
        self.size_bytes += len(batch.data)

    def unsent(self, progress: ReplicaProgress, bytes_max: int) -> list[SentBatch]:
        """Return the next batches for a live replica, at least one if there is any, and count them as sent."""
        if progress.sent_offset >= self.end_offset:
            return []
        chosen: list[SentBatch] = []
        size = 0
        newest = self._batches[-1]
        if newest.base_offset == progress.sent_offset:  # the common case: no search
            chosen = [newest]
        else:
            for batch in self._batches:
                if batch.base_offset < progress.sent_offset:
                    continue
                if chosen and size + len(batch.data) > bytes_max:
                    break
                chosen.append(batch)
                size += len(batch.data)
        if chosen:
            progress.sent_offset = chosen[-1].end_offset
        return chosen

    def acked(self, progress: ReplicaProgress, durable_offset: int, now_ms: float) -> bool:
        """A replica holds all below `durable_offset`; return whether the confirm offset moved."""
        if durable_offset <= progress.durable_offset:
            return False
        progress.durable_offset = durable_offset
        progress.progress_ms = now_ms
        progress.slow = False
        if durable_offset <= self.confirm_offset:
            self._release()  # one more holds what enough held before
            return False
        return self._advance(now_ms)

    def unfreeze(self) -> bool:
        """Let the confirm offset move again; return whether it moved."""
        self.frozen = False
        return self._advance(None)

    def _advance(self, now_ms: float | None) -> bool:
        """Move the confirm offset. `now_ms` None: the latency is not measured, since replicas did not cause it."""
        if self.frozen:
            return False
        confirm = self._policy.confirmed_offset(self.members)
        moved = confirm > self.confirm_offset
        if moved:
            if now_ms is not None and self._unconfirmed:
                took_ms = now_ms - self._unconfirmed[0].submitted_ms
                self.latency_ms = max(took_ms, self.latency_ms * _LATENCY_KEPT)
            self._confirm(confirm)
        self._release()
        return moved

    def confirm_to(self, floor_offset: int) -> bool:
        """Confirm all records below a proved floor, frozen or not; return False where the floor contradicts the window."""
        borders = (batch.end_offset for batch in self._unconfirmed)
        if floor_offset <= self.confirm_offset or floor_offset not in borders:
            return False
        self._confirm(floor_offset)
        self._release()
        return True

    def _confirm(self, confirm_offset: int) -> None:
        self.confirm_offset = confirm_offset
        while self._unconfirmed and self._unconfirmed[0].end_offset <= confirm_offset:
            self.confirmed_bytes += len(self._unconfirmed.popleft().data)

    def goes_on(self, without: ReplicaProgress | None = None) -> bool:
        """Whether this range gets acks, also without this replica."""
        return self._policy.goes_on(self.members, without)

    @property
    def spare(self) -> int:
        """How many replicas acks can do without."""
        return self._policy.spare(len(self.members))

    def give_up(self, progress: ReplicaProgress) -> None:
        """Exclude this replica: keep no batches for it."""
        progress.failed, progress.live = True, False
        self._release()

    def unconfirmed(self) -> list[SentBatch]:
        """Return the batches at or beyond the confirm offset, for the next range."""
        return list(self._unconfirmed)

    def lags_by(self, progress: ReplicaProgress, size_bytes: int) -> bool:
        """Whether this replica lacks more than so many of the kept bytes."""
        if self.size_bytes <= size_bytes:
            return False
        return (
            sum(len(batch.data) for batch in self._batches if batch.end_offset > progress.durable_offset) > size_bytes
        )

    def _release(self) -> None:
        keep_from = self._policy.kept_from(self.members, self.confirm_offset)
        while self._batches and self._batches[0].end_offset <= keep_from:
            self.size_bytes -= len(self._batches.popleft().data)
