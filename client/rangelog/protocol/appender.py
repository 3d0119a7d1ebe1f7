"""The single writer of a stream, as a core: one open range, a pipeline of batches, and when to leave the range.

What holds:

* A batch is confirmed when A replicas of its range hold it and all before it durably; never otherwise.
* To leave a range, the confirm offset is frozen first; then the placement driver is asked to seal there and to create
  the next range in one step. Acks of the old range that come later count for nothing.
* A seal that is refused because a reader was shown more (the floor) is asked for again at the floor: what lies below it is
  on A disks, so it is acked.
* What was in flight goes to the next range with the offsets it has. Appends wait; they do not fail.
* The first FENCED by a higher epoch ends it for good. What is unconfirmed then stays unknown: it is never sent again.
* Seals for trouble's sake are paced: each one soon after another waits twice as long, so that a bad network does not
  make a storm of ranges.

Events are the methods that take `now_ms`; each may add effects, which `effects()` hands out once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from rangelog.protocol.window import ReplicaProgress, SentBatch, Window
from rangelog_core.batch import restamp
from rangelog_core.errors import InternalError, RangelogError, WriterFenced
from rangelog_core.ids import ReplicaId
from rangelog_core.limits import FRAME_PAYLOAD_BYTES_MAX, REPLICA_LAG_BYTES_MAX

REPLICA_LAG_MS_MAX = 2_000.0
"""A replica that holds batches back this long is slow, whatever the others take. Far below a user's patience."""

REPLICA_LAG_MS_MIN = 500.0
"""None is slow before that: a pause of the garbage collector, or of a neighbour on the machine, is shorter."""

REPLICA_LAG_FACTOR = 10.0
"""In between, a replica is slow when it takes this many times as long as the slowest confirm of late."""

ROLL_RETRY_MS = 1_000.0
"""After the placement driver could not help, how long until it is asked again."""

PACE_MS = 500.0
"""The second seal in trouble comes this long after the first, the third twice as long after that, and so on ..."""

PACE_MS_MAX = 60_000.0
"""... up to this while the range can still be written to ..."""

PACE_BLOCKED_MS_MAX = 4_000.0
"""... and up to this while it cannot."""

CALM_MS = 10_000.0
"""A range that all replicas served for this long ends the count."""

TICK_BUSY_MS = 50.0
"""The shortest time between two ticks: in trouble, or when much is kept for a replica."""
TICK_CALM_MS = 1_000.0
"""The longest: until the next event only the range's age matters. A thousand writers tick, so more often than needed costs."""


@dataclass(frozen=True, slots=True)
class OpenRange:
    """The range that is written to, as the placement driver created it."""

    index: int
    start_offset: int
    acks: int
    replicas: tuple[ReplicaId, ...]
    created_ms: float  # on the clock that `now_ms` counts by
    size_bytes_max: int
    age_ms_max: int


class Connect(NamedTuple):
    """Connect to this replica for this range, and say `connected` or `disconnected`; again and again until closed."""

    range_index: int
    replica: ReplicaId


class Send(NamedTuple):
    """Send these consecutive batches to connected replicas."""

    range_index: int
    replicas: Sequence[ReplicaId]
    batches: Sequence[SentBatch]
    confirm_offset: int


class SendConfirm(NamedTuple):
    """Nothing follows: tell the replicas the confirm offset by itself."""

    range_index: int
    replicas: Sequence[ReplicaId]
    confirm_offset: int


class Confirmed(NamedTuple):
    """Everything below is acked: tell the application."""

    confirm_offset: int


class Probe(NamedTuple):
    """Find out whether the placement driver answers and has somewhere to go, and say `probed`.

    Nothing is frozen before that: while it cannot help, the range is written to as well as it can be. There is
    somewhere to go when at least `servers_min` servers are alive that are not excluded (strictly) or at all (else).
    """

    exclude_servers: tuple[str, ...]
    strictly: bool
    servers_min: int


class SealRange(NamedTuple):
    """Ask for the seal and the next range until answered; say `sealed`, `seal_refused`, `floor_refused` or `fenced`."""

    range_index: int
    end_offset: int
    exclude_servers: tuple[str, ...]
    strictly: bool


class Leave(NamedTuple):
    """Tell the old range's replicas the committed end, in the background, and forget them."""

    range_index: int
    start_offset: int
    end_offset: int
    replicas: tuple[ReplicaId, ...]


class Stopped(NamedTuple):
    """The writer is fenced or broken: fail what is pending with this error."""

    error: RangelogError


Effect = Connect | Send | SendConfirm | Confirmed | Probe | SealRange | Leave | Stopped


class AppenderPhase(Enum):
    """Where the writer stands."""

    OPEN = "open"
    PROBING = "probing"  # still open; about to leave
    SEALING = "sealing"  # frozen
    STOPPED = "stopped"


class Appender:
    """See the module. `next_offset` is where the next batch must start."""

    def __init__(self, epoch: int, opened: OpenRange, now_ms: float) -> None:
        self.epoch = epoch
        self.phase = AppenderPhase.OPEN
        self.error: RangelogError | None = None
        self.seal_count = 0
        self._effects: list[Effect] = []
        self._troubles = 0
        self._entered_ms = now_ms
        self._roll_after_ms = now_ms
        self._waiting: list[SentBatch] = []  # submitted while frozen
        self._waiting_end = 0
        self._enter(opened, (), now_ms)

    # ---- the application

    @property
    def next_offset(self) -> int:
        """Where the next batch starts."""
        return self._waiting_end if self._waiting else self._window.end_offset

    @property
    def confirm_offset(self) -> int:
        """Everything below is acked."""
        return self._window.confirm_offset

    @property
    def range_index(self) -> int:
        """The range to stamp a batch with; a batch submitted during a seal is stamped anew."""
        return self._range.index

    @property
    def opened(self) -> OpenRange:
        """The range that is written to."""
        return self._range

    def should_leave(self, now_ms: float) -> bool:
        """Whether a replica is lost or slow, or the range is full or old; an empty one does not age."""
        return self._in_trouble() or self._full() or self._aged(now_ms)

    @property
    def holds_much(self) -> bool:
        """So much is kept for replicas that lack it that one of them may be slow: ticks are due soon."""
        return self._window.size_bytes > REPLICA_LAG_BYTES_MAX // 2

    def tick_after_ms(self, now_ms: float) -> float:
        """Return when the next tick is due, unless an event other than an ack comes before."""
        if self.phase is not AppenderPhase.OPEN:
            return TICK_CALM_MS  # the placement driver's answer is the next event
        if self.holds_much:
            return TICK_BUSY_MS
        after_ms, trouble, end_offset, lag_ms_max = TICK_CALM_MS, False, self._window.end_offset, 0.0
        for progress in self._window.replicas.values():
            if progress.failed or progress.slow or progress.unreachable:
                trouble = True
            elif progress.durable_offset < end_offset:
                lag_ms_max = lag_ms_max or self._lag_ms_max()
                after_ms = min(after_ms, progress.progress_ms + lag_ms_max - now_ms)
        if trouble:
            after_ms = min(after_ms, self._roll_due_ms() - now_ms)
        return max(TICK_BUSY_MS, after_ms)

    def submit(self, now_ms: float, base_offset: int, end_offset: int, data: bytes) -> None:
        """Take the next encoded batch. Raises what stopped the writer."""
        if self.error is not None:
            raise self.error
        assert base_offset == self.next_offset, "offsets are dense"
        batch = SentBatch(base_offset, end_offset, data, now_ms)
        if self.phase is AppenderPhase.SEALING:
            self._waiting.append(batch)
            self._waiting_end = end_offset
            return
        window = self._window
        window.push(batch)
        following = []  # replicas that were sent everything before
        for progress in window.replicas.values():
            if progress.live and progress.sent_offset == base_offset:
                progress.sent_offset = end_offset
                following.append(progress.replica)
            elif progress.live:
                self._send(progress)
        if following:
            self._effects.append(Send(self._range.index, following, (batch,), window.confirm_offset))

    # ---- replicas

    def connected(self, now_ms: float, range_index: int, replica: ReplicaId) -> None:
        """The replica can be sent to; what it has not acked goes out again."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return
        progress.unreachable = False
        if progress.failed:
            return  # too late for this range; good for the next one
        progress.live = True
        progress.sent_offset = progress.durable_offset
        progress.progress_ms = now_ms
        self._send(progress)

    def disconnected(self, now_ms: float, range_index: int, replica: ReplicaId) -> None:
        """The connection broke or could not be made: leave the range if there is somewhere better."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return
        progress.live = False
        progress.unreachable = True
        self._want_roll(now_ms)

    def acked(self, now_ms: float, range_index: int, replica: ReplicaId, durable_offset: int) -> None:
        """The replica holds everything below `durable_offset`."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return  # left: it counts for nothing
        if durable_offset > self._window.end_offset:
            self._stop(InternalError(f"{replica} acks {durable_offset}, beyond what was sent"))
            return
        if self._window.acked(progress, durable_offset, now_ms):
            self._report()
            if self._full():
                self._want_roll(now_ms)

    def refused(self, now_ms: float, range_index: int, replica: ReplicaId, error: RangelogError) -> None:
        """The replica refused an append. A higher epoch ends the writer; anything else ends this replica's part."""
        progress = self._progress_of(range_index, replica)
        if progress is None:
            return
        if isinstance(error, WriterFenced):
            if self.phase is AppenderPhase.SEALING and (error.epoch or 0) <= self.epoch:
                return  # our own seal went ahead of the reply
            self.fenced(error)
            return
        self._window.give_up(progress)  # it lost what it had acked, or is in doubt: not to be trusted in this range
        self._want_roll(now_ms)

    # ---- leaving the range

    def tick(self, now_ms: float) -> None:
        """Look for slow replicas, an old range, trouble that waits for a better place. Call it `tick_after_ms` later again."""
        if self.phase is not AppenderPhase.OPEN:
            return
        for progress in self._window.replicas.values():
            self._judge(progress, now_ms)
        trouble = self._in_trouble()
        if not trouble and now_ms - self._entered_ms > CALM_MS:
            self._troubles = 0
        if trouble or self._full() or self._aged(now_ms):
            self._want_roll(now_ms)

    def probed(self, now_ms: float, *, possible: bool) -> None:
        """The placement driver answered a probe and has somewhere to go, or not."""
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
        """There is no better place, and nothing was changed: go on where we are."""
        if self.phase is not AppenderPhase.SEALING:
            return
        self.phase = AppenderPhase.OPEN
        self._roll_after_ms = now_ms + ROLL_RETRY_MS
        for progress in self._window.replicas.values():
            progress.progress_ms = now_ms
        if self._window.unfreeze():
            self._report()
        waiting, self._waiting = self._waiting, []
        for batch in waiting:
            self._window.push(batch)
        for progress in self._window.replicas.values():
            if progress.live:
                self._send(progress)

    def floor_refused(self, now_ms: float, floor_offset: int) -> None:
        """A reader was shown more than the seal would keep: A replicas hold it, so it is acked; ask for a seal there."""
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
        rest = [*self._window.unconfirmed(), *self._waiting]
        self._waiting = []
        self._effects.append(Leave(old.index, old.start_offset, end_offset, old.replicas))
        self.seal_count += 1
        self._troubles = 0 if self._full() else self._troubles + 1
        self._enter(opened, rest, now_ms)

    def fenced(self, error: WriterFenced) -> None:
        """A later writer owns the stream."""
        self._stop(error)

    def fail(self, error: RangelogError) -> None:
        """Something that cannot be mended: the stream was deleted, or a defect."""
        self._stop(error)

    def effects(self) -> Sequence[Effect]:
        """Hand out what is to be done now, in order; each effect once."""
        if not self._effects:
            return ()
        effects, self._effects = self._effects, []
        return effects

    # ---- inside

    def _enter(self, opened: OpenRange, batches: Sequence[SentBatch], now_ms: float) -> None:
        self._range = opened
        self._window = Window(opened.replicas, opened.acks, opened.start_offset, now_ms)
        self.phase = AppenderPhase.OPEN
        self._entered_ms = self._roll_after_ms = now_ms
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
        """Give up a replica that holds the others back, if they can do without it."""
        if progress.failed or progress.durable_offset >= self._window.end_offset:
            return
        late = now_ms - progress.progress_ms > self._lag_ms_max()
        if late or self._window.lags_by(progress, REPLICA_LAG_BYTES_MAX):
            progress.slow = True
            if self._goes_on_without(progress):
                self._window.give_up(progress)

    def _lag_ms_max(self) -> float:
        """How long a replica may hold batches back, by what confirms take here."""
        latency_ms = self._window.latency_ms
        if not latency_ms:
            return REPLICA_LAG_MS_MAX
        return min(REPLICA_LAG_MS_MAX, max(REPLICA_LAG_MS_MIN, REPLICA_LAG_FACTOR * latency_ms))

    def _goes_on_without(self, progress: ReplicaProgress | None = None) -> bool:
        """Whether enough sound replicas (other than `progress`) take appends: else this range is never acked again."""
        replicas = self._window.replicas.values()
        sound = [each for each in replicas if each is not progress and each.live and not each.slow]
        return len(sound) >= self._range.acks

    def _to_avoid(self) -> tuple[tuple[str, ...], bool]:
        """Return the servers the next range should not be on, and whether it is pointless with them.

        Pointless: while this range still works, or is only full, a move must lead to a better place.
        """
        replicas = self._window.replicas.values()
        bad = tuple(
            progress.replica.server for progress in replicas if progress.failed or progress.slow or progress.unreachable
        )
        back = all(
            not progress.unreachable and not progress.slow for progress in replicas
        )  # those that failed could be of use again
        return bad, bool(bad) and not back and not self._full() and self._goes_on_without()

    def _in_trouble(self) -> bool:
        return any(each.failed or each.slow or each.unreachable for each in self._window.replicas.values())

    def _aged(self, now_ms: float) -> bool:
        """Whether the range is old; an empty one does not age."""
        age_ms_max = self._range.age_ms_max
        return bool(age_ms_max and self._window.confirmed_bytes) and now_ms - self._range.created_ms > age_ms_max

    def _full(self) -> bool:
        """Counts what is confirmed: what is in flight moves on to the next range."""
        return self._window.confirmed_bytes >= self._range.size_bytes_max

    def _want_roll(self, now_ms: float) -> None:
        if self.phase is not AppenderPhase.OPEN or now_ms < self._roll_due_ms():
            return  # tick comes back to it
        bad, strictly = self._to_avoid()
        self.phase = AppenderPhase.PROBING
        wanted = len(self._range.replicas) if strictly else self._range.acks
        self._effects.append(Probe(bad, strictly, wanted))

    def _roll_due_ms(self) -> float:
        """From when the placement driver may be asked again; seals for trouble's sake are paced."""
        if not self._troubles or self._full() or not self._to_avoid()[0]:
            return self._roll_after_ms
        limit = PACE_MS_MAX if self._goes_on_without() else PACE_BLOCKED_MS_MAX
        return max(self._roll_after_ms, self._entered_ms + min(limit, PACE_MS * 2.0**self._troubles))

    def _ask_for_seal(self) -> None:
        bad, strictly = self._to_avoid()
        self._effects.append(SealRange(self._range.index, self._window.confirm_offset, bad, strictly))

    def _report(self) -> None:
        confirm = self._window.confirm_offset
        self._effects.append(Confirmed(confirm))
        if confirm == self._window.end_offset:  # nothing follows that would carry it
            live = [progress.replica for progress in self._window.replicas.values() if progress.live]
            self._effects.append(SendConfirm(self._range.index, live, confirm))

    def _stop(self, error: RangelogError) -> None:
        if self.phase is not AppenderPhase.STOPPED:
            self.phase, self.error = AppenderPhase.STOPPED, error
            self._effects.append(Stopped(error))
