"""The single writer of a stream, as a core: one open range, a pipeline of batches, and when to leave the range.

What holds:

* A batch is confirmed when A replicas of its range hold it and all before it durably; never otherwise.
* To leave a range, the confirm offset is frozen first; then the placement driver is asked to seal there and to create
  the next range in one step. Later acks of the old range are ignored.
* A seal that is refused because readers have seen more records (the floor) is requested again at the floor: records below
  the floor are on A disks, so they are acked.
* Batches in flight are sent to the next range with unchanged offsets. Appends wait; they do not fail.
* The first FENCED by a higher epoch ends the writer. The outcome of unconfirmed batches stays unknown: they are never resent.
* A replica that holds the writer off, by a quota, is not slow for that. The largest delay of all replicas counts, not their
  sum: each of them counts the same bytes. While one is owed, batches wait here and go out one by one.
* Where too few servers have room for acks, and there are no others, waits fail; batches in flight are tried on (`room`).
* Seals because of failures are paced: each one soon after another waits twice as long, so that a bad network does not
  create many ranges.

Events are the methods that take `now_ms`; each may add effects, which `effects()` hands out once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum

from rangelog.protocol.append_effects import (
    Confirmed as Confirmed,
)
from rangelog.protocol.append_effects import (
    Connect as Connect,
)
from rangelog.protocol.append_effects import (
    Effect as Effect,
)
from rangelog.protocol.append_effects import (
    Leave as Leave,
)
from rangelog.protocol.append_effects import (
    NoRoom as NoRoom,
)
from rangelog.protocol.append_effects import (
    OpenRange as OpenRange,
)
from rangelog.protocol.append_effects import (
    Probe as Probe,
)
from rangelog.protocol.append_effects import (
    SealRange as SealRange,
)
from rangelog.protocol.append_effects import (
    Send as Send,
)
from rangelog.protocol.append_effects import (
    SendConfirm as SendConfirm,
)
from rangelog.protocol.append_effects import (
    Stopped as Stopped,
)
from rangelog.protocol.lag_limits import LAG_LIMITS, LagLimits
from rangelog.protocol.replication import ReplicaProgress, Star
from rangelog.protocol.room import Room
from rangelog.protocol.window import SentBatch, Window
from rangelog_core.batch import restamp
from rangelog_core.errors import InternalError, RangelogError, StorageFull, WriterFenced
from rangelog_core.ids import ReplicaId
from rangelog_core.limits import FRAME_PAYLOAD_BYTES_MAX, REPLICA_LAG_BYTES_MAX

ROLL_RETRY_MS = 1_000.0
"""The time until the next probe after the placement driver had no better placement."""

PACE_MS = 500.0
"""The second seal after failures comes this long after the first, the third after twice that time, and so on ..."""

PACE_MS_MAX = 60_000.0
"""... up to this while the range still accepts appends ..."""

PACE_BLOCKED_MS_MAX = 4_000.0
"""... and up to this while it does not."""

CALM_MS = 10_000.0
"""A range that works with all replicas for this long resets the pace."""

HOLD_MS_MAX = 30_000.0
"""No server holds a writer off for longer at a time."""

HOLD_CALM_MS = 500.0
"""When no server has held the writer off for so long, what waits goes out together."""

TICK_BUSY_MS = 50.0
"""The shortest time between two ticks: after failures, or when many bytes are kept for a replica."""
TICK_MS_MIN = 1.0
"""When the time is known at which a batch may go out."""
TICK_CALM_MS = 1_000.0
"""The longest time: until the next event only the range's age matters. Ticks of a thousand writers cost processor time."""


class AppenderPhase(Enum):
    """The state of the writer."""

    OPEN = "open"
    PROBING = "probing"  # still open; about to leave
    SEALING = "sealing"  # frozen
    STOPPED = "stopped"


class Appender:
    """The core of one writer. `next_offset` is the offset at which the next batch must start."""

    def __init__(self, epoch: int, opened: OpenRange, now_ms: float, *, lag_limits: LagLimits = LAG_LIMITS) -> None:
        self.epoch = epoch
        self.phase = AppenderPhase.OPEN
        self.error: RangelogError | None = None
        self.seal_count = 0
        self._lag_limits = lag_limits
        self._effects: list[Effect] = []
        self._troubles = 0
        self._entered_ms = now_ms
        self._roll_after_ms = now_ms
        self._waiting: deque[SentBatch] = deque()  # submitted while frozen, or held off by a quota
        self._held_until_ms = 0.0
        self.held_ms = 0.0
        """For how long quotas have held this writer off in all, and will for what is owed now."""
        self._leave_wanted = False
        self.room = Room()
        self._enter(opened, (), now_ms)

    # ---- the application

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch starts."""
        return self._waiting[-1].end_offset if self._waiting else self._window.end_offset

    @property
    def confirm_offset(self) -> int:
        """All records below this offset are acked."""
        return self._window.confirm_offset

    @property
    def latency_ms(self) -> float:
        """From submit to confirm: the slowest recent one in the open range, with decay; 0: none yet."""
        return self._window.latency_ms

    @property
    def range_index(self) -> int:
        """The index of the range for the next batch; a batch submitted during a seal is restamped for the range after it."""
        return self._range.index

    @property
    def opened(self) -> OpenRange:
        """The open range of the writer."""
        return self._range

    def should_leave(self, now_ms: float) -> bool:
        """Whether a replica is lost or slow, the range is full or old, or another can have more; an empty one does not age."""
        return self._in_trouble() or self._full() or self._leave_wanted or self._aged(now_ms)

    @property
    def holds_much(self) -> bool:
        """Whether so many bytes are kept for replicas that one of them may be slow: then ticks are due soon."""
        return self._window.size_bytes > REPLICA_LAG_BYTES_MAX // 2

    @property
    def waits(self) -> bool:
        """Whether batches wait for their turn: the writer is over a quota, or leaves its range."""
        return bool(self._waiting)

    def tick_after_ms(self, now_ms: float) -> float:
        """Return when the next tick is due, unless an event other than an ack comes before."""
        if self.phase is not AppenderPhase.OPEN:
            return TICK_CALM_MS  # the placement driver's reply is the next event
        after_ms = TICK_BUSY_MS if self.holds_much else self._calm_tick_ms(now_ms)
        if self._waiting and now_ms < self._held_until_ms:
            after_ms = min(after_ms, max(TICK_MS_MIN, self._held_until_ms - now_ms))
        return after_ms

    def _calm_tick_ms(self, now_ms: float) -> float:
        after_ms, trouble, end_offset, lag_ms_max = TICK_CALM_MS, False, self._window.end_offset, 0.0
        for progress in self._window.members:
            if progress.failed or progress.slow or progress.unreachable:
                trouble = True
            elif progress.durable_offset < end_offset:
                lag_ms_max = lag_ms_max or self._lag_limits.allowed_ms(self._window.latency_ms)
                due_ms = max(progress.progress_ms, progress.held_until_ms) + lag_ms_max
                after_ms = min(after_ms, due_ms - now_ms)
        if trouble:
            after_ms = min(after_ms, self._roll_due_ms() - now_ms)
        return max(TICK_BUSY_MS, after_ms)

    def submit(self, now_ms: float, base_offset: int, end_offset: int, data: bytes) -> None:
        """Take the next encoded batch. Raises the error that ended the writer."""
        if self.error is not None:
            raise self.error
        assert base_offset == self.next_offset, "offsets are dense"
        batch = SentBatch(base_offset, end_offset, data, now_ms)
        if self._waiting or now_ms < self._held_until_ms or self.phase is AppenderPhase.SEALING:
            self._waiting.append(batch)
            return
        self._push(batch)

    def _push(self, batch: SentBatch) -> None:
        window, base_offset, end_offset = self._window, batch.base_offset, batch.end_offset
        window.push(batch)
        following = []  # replicas that were sent everything before
        for progress in window.receivers:
            if progress.live and progress.sent_offset == base_offset:
                progress.sent_offset = end_offset
                following.append(progress.replica)
            elif progress.live:
                self._send(progress)
        if following:
            self._effects.append(Send(self._range.index, following, (batch,), window.confirm_offset))

    # ---- replicas

    def connected(self, now_ms: float, range_index: int, replica: ReplicaId) -> None:
        """The replica is connected: batches that it has not acked are sent again."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return
        progress.unreachable = progress.slow = False  # how long it takes now is not known
        if progress.failed:
            return  # too late for this range; used for the next one
        progress.live = True
        progress.sent_offset = progress.durable_offset
        progress.progress_ms = now_ms
        if progress in self._window.receivers:
            self._send(progress)

    def disconnected(self, now_ms: float, range_index: int, replica: ReplicaId) -> None:
        """The connection broke or failed: leave the range if there is a better placement."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return
        progress.live = False
        progress.unreachable = True
        self._want_roll(now_ms)

    def acked(self, now_ms: float, range_index: int, replica: ReplicaId, durable_offset: int) -> None:
        """The replica holds all records below `durable_offset` durably."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return  # of a range that the writer has left: ignored
        if durable_offset > self._window.end_offset:
            self._stop(InternalError(f"{replica} acks {durable_offset}, beyond what was sent"))
            return
        if self._window.acked(progress, durable_offset, now_ms):
            self._report()
            if self._waiting:
                self._release(now_ms)
            if self._full():
                self._want_roll(now_ms)

    def throttled(self, now_ms: float, range_index: int, replica: ReplicaId, hold_ms: float) -> None:
        """A replica has taken what was sent, and holds this writer off: it is over a quota."""
        progress = self._progress_of(range_index, replica)
        if progress is not None:
            until_ms = now_ms + min(hold_ms, HOLD_MS_MAX)
            self.held_ms += max(0.0, until_ms - max(self._held_until_ms, now_ms))
            self._held_until_ms = max(self._held_until_ms, until_ms)
            progress.held_until_ms = max(progress.held_until_ms, until_ms)

    def refused(self, now_ms: float, range_index: int, replica: ReplicaId, error: RangelogError) -> None:
        """The replica refused an append. A higher epoch ends the writer; any other error excludes the replica."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return
        if isinstance(error, WriterFenced):
            if self.phase is AppenderPhase.SEALING and (error.epoch or 0) <= self.epoch:
                return  # the writer's own seal overtook the reply
            self.fenced(error)
            return
        self._window.give_up(progress)  # it lost acked records, or its tail is untrusted: excluded from this range
        if isinstance(error, StorageFull):
            self.room.refused(replica.server)
            self._judge_room(refused=False)
        self._want_roll(now_ms)

    def leave_wanted(self, now_ms: float, range_index: int) -> None:
        """The placement driver has more replicas for the next range than this one has: leave it; it works until then."""
        if range_index == self._range.index and self.phase is not AppenderPhase.STOPPED:
            self._leave_wanted = True
            self._want_roll(now_ms)

    # ---- leaving the range

    def tick(self, now_ms: float) -> None:
        """Check for slow replicas, the range's age and failures that wait for a better placement. Due after `tick_after_ms`."""
        if self._waiting:
            self._release(now_ms)
        if self.phase is not AppenderPhase.OPEN:
            return
        for progress in self._window.members:
            self._judge(progress, now_ms)
        trouble = self._in_trouble()
        if not trouble and now_ms - self._entered_ms > CALM_MS:
            self._troubles = 0
        if trouble or self._full() or self._leave_wanted or self._aged(now_ms):
            self._want_roll(now_ms)

    def probed(self, now_ms: float, *, possible: bool) -> None:
        """The result of a probe: whether there is a better placement."""
        if self.phase is not AppenderPhase.PROBING:
            return
        if not possible:
            self.phase = AppenderPhase.OPEN
            self._roll_after_ms = now_ms + ROLL_RETRY_MS
            return
        self.phase = AppenderPhase.SEALING
        self._window.frozen = True
        self._ask_for_seal()

    def seal_refused(self, now_ms: float) -> None:
        """There is no better placement and the range is not sealed: continue with it."""
        if self.phase is not AppenderPhase.SEALING:
            return
        self.phase = AppenderPhase.OPEN
        self._roll_after_ms = now_ms + ROLL_RETRY_MS
        for progress in self._window.members:
            progress.progress_ms = now_ms
        if self._window.unfreeze():
            self._report()
        if now_ms >= self._held_until_ms:
            for batch in self._waiting:
                self._window.push(batch)
            self._waiting.clear()
        for progress in self._window.receivers:
            if progress.live:
                self._send(progress)
        self._judge_room(refused=True)

    def floor_refused(self, now_ms: float, floor_offset: int) -> None:
        """Readers have seen more records than the seal keeps: A replicas hold them, so they are acked; seal at the floor."""
        if self.phase is not AppenderPhase.SEALING:
            return
        frozen = self._window.confirm_offset
        if not self._window.confirm_to(floor_offset):
            self._stop(InternalError(f"a floor of {floor_offset} under a range that this writer froze at {frozen}"))
            return
        self._effects.append(Confirmed(floor_offset))
        self._ask_for_seal()

    def sealed(self, now_ms: float, end_offset: int, opened: OpenRange) -> None:
        """The range ended at `end_offset`, and the next one is open."""
        if self.phase is not AppenderPhase.SEALING:
            return
        frozen = self._window.confirm_offset
        if end_offset != frozen:
            self._stop(InternalError(f"the range was sealed at {end_offset}, this writer froze {frozen}"))
            return
        old = self._range
        rest = self._window.unconfirmed()
        if now_ms >= self._held_until_ms:
            rest += self._waiting
            self._waiting.clear()
        for batch in self._waiting:  # held off: they follow one by one
            batch.data = restamp(batch.data, range_index=opened.index, epoch=self.epoch)
        self._effects.append(Leave(old.index, old.start_offset, end_offset, old.replicas))
        self.seal_count += 1
        self._troubles = 0 if self._full() else self._troubles + 1
        self._enter(opened, rest, now_ms)

    def fenced(self, error: WriterFenced) -> None:
        """A later writer owns the stream."""
        self._stop(error)

    def fail(self, error: RangelogError) -> None:
        """End the writer with a final error: the stream was deleted, or a defect."""
        self._stop(error)

    def effects(self) -> Sequence[Effect]:
        """Return the effects to perform now, in order; each effect once."""
        if not self._effects:
            return ()
        effects, self._effects = self._effects, []
        return effects

    # ---- inside

    def _release(self, now_ms: float) -> None:
        """Send the next batch that waits, once nothing is owed and what was sent is confirmed: its ack tells what it owes."""
        window = self._window
        if self.phase not in (AppenderPhase.OPEN, AppenderPhase.PROBING) or now_ms < self._held_until_ms:
            return
        if window.confirm_offset != window.end_offset:
            return
        calm = now_ms - self._held_until_ms > HOLD_CALM_MS
        for _ in range(len(self._waiting) if calm else 1):
            batch = self._waiting.popleft()
            batch.submitted_ms = now_ms
            self._push(batch)

    def _enter(self, opened: OpenRange, batches: Sequence[SentBatch], now_ms: float) -> None:
        self._range = opened
        self.room.entered()
        self._window = Window(opened.replicas, Star(opened.acks), opened.start_offset, now_ms)
        self.phase = AppenderPhase.OPEN
        self._entered_ms = self._roll_after_ms = now_ms
        self._leave_wanted = False
        for batch in batches:
            batch.data = restamp(batch.data, range_index=opened.index, epoch=self.epoch)
            batch.submitted_ms = now_ms
            self._window.push(batch)
        self._effects += [Connect(opened.index, replica) for replica in opened.replicas]

    def _send(self, progress: ReplicaProgress) -> None:
        batches = self._window.unsent(progress, FRAME_PAYLOAD_BYTES_MAX)
        while batches:
            self._effects.append(Send(self._range.index, (progress.replica,), batches, self._window.confirm_offset))
            batches = self._window.unsent(progress, FRAME_PAYLOAD_BYTES_MAX)

    def _progress_of(self, range_index: int, replica: ReplicaId) -> ReplicaProgress | None:
        if range_index != self._range.index or self.phase is AppenderPhase.STOPPED:
            return None
        return self._window.replicas.get(replica)

    def _judge(self, progress: ReplicaProgress, now_ms: float) -> None:
        """Exclude a replica that holds batches back, if the others suffice for acks."""
        if progress.failed or progress.durable_offset >= self._window.end_offset or now_ms < progress.held_until_ms:
            return
        late = now_ms - max(progress.progress_ms, progress.held_until_ms) > self._lag_limits.allowed_ms(
            self._window.latency_ms
        )
        if late or self._window.lags_by(progress, REPLICA_LAG_BYTES_MAX):
            progress.slow = True
            if self._window.goes_on(without=progress):
                self._window.give_up(progress)

    def _to_avoid(self) -> tuple[tuple[str, ...], bool]:
        """Return the servers to avoid for the next range, and whether to avoid them strictly.

        Strictly: while this range still works, or is only full, the next one must have a better placement.
        """
        replicas = self._window.members
        bad = tuple(
            progress.replica.server for progress in replicas if progress.failed or progress.slow or progress.unreachable
        )
        back = all(
            not progress.unreachable and not progress.slow for progress in replicas
        )  # failed servers may have recovered
        return bad, bool(bad) and not back and not self._full() and self._window.goes_on()

    def _in_trouble(self) -> bool:
        return any(each.failed or each.slow or each.unreachable for each in self._window.members)

    def _aged(self, now_ms: float) -> bool:
        """Whether the range is old; an empty one does not age."""
        age_ms_max = self._range.age_ms_max
        return bool(age_ms_max and self._window.confirmed_bytes) and now_ms - self._range.created_ms > age_ms_max

    def _full(self) -> bool:
        """Whether the confirmed part has the full size: batches in flight move to the next range."""
        return self._window.confirmed_bytes >= self._range.size_bytes_max

    def _judge_room(self, *, refused: bool) -> None:
        if self.room.is_none_left(self._window.spare, refused=refused):
            self._effects.append(NoRoom(self.room.without))

    def _want_roll(self, now_ms: float) -> None:
        if self.phase is not AppenderPhase.OPEN or now_ms < self._roll_due_ms():
            return  # tick comes back to it
        bad, strictly = self._to_avoid()
        self.phase = AppenderPhase.PROBING
        wanted = len(self._range.replicas) if strictly else self._range.acks
        self._effects.append(Probe(bad, strictly, wanted))

    def _roll_due_ms(self) -> float:
        """The time of the next allowed probe; seals because of failures are paced."""
        if not self._troubles or self._full() or not self._to_avoid()[0]:
            return self._roll_after_ms
        limit = PACE_MS_MAX if self._window.goes_on() else PACE_BLOCKED_MS_MAX
        return max(self._roll_after_ms, self._entered_ms + min(limit, PACE_MS * 2.0**self._troubles))

    def _ask_for_seal(self) -> None:
        bad, strictly = self._to_avoid()
        self._effects.append(SealRange(self._range.index, self._window.confirm_offset, bad, strictly))

    def _report(self) -> None:
        confirm = self._window.confirm_offset
        self.room.acked()
        self._effects.append(Confirmed(confirm))
        if confirm == self._window.end_offset:  # no batch follows that would carry it
            live = [progress.replica for progress in self._window.members if progress.live]
            self._effects.append(SendConfirm(self._range.index, live, confirm))

    def _stop(self, error: RangelogError) -> None:
        if self.phase is not AppenderPhase.STOPPED:
            self.phase, self.error = AppenderPhase.STOPPED, error
            self._effects.append(Stopped(error))
