"""The failover seal of one range, as a core: fence, decide the end, copy, commit.

What holds:

* The end is decided from trusted, fenced answers (quorum.seal_end_offset): silent replicas and untrusted tails do not count.
  Only when all R have answered and untrusted tails alone prevent a decision, the end is the largest of all answers: such a
  tail is a torn write that was never acked, or rot on at most A - 1 disks, so acked records are on a trusted disk as well.
* A replica whose incarnation is retired, or that is quarantined, never answers. When A - 1 replicas are like that, no further
  disk has failed (the bound of the promise), so an untrusted tail is a torn write, and such an answer counts.
* Before the placement driver is asked to commit, every offset below the end is durable on C replicas that answered; on
  all remaining ones, where fewer than C remain (a range that was created while servers were few). C: `Star.holders`.
* An answer whose replica is lost before the commit is discarded, and the end is computed again.
* The end in force is the placement driver's, whichever caller proposed it.

Drive it with events; after each, perform the effects of `effects()`. Every effect may fail: report the replica as `lost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from rangelog.protocol.quorum import seal_end_offset, seal_quorum
from rangelog.protocol.replication import Star
from rangelog_core.errors import InternalError
from rangelog_core.ids import ReplicaId

GRACE_MS = 100
"""The time to wait for further answers once there are enough: about a round trip; it often saves a copy."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Send a seal to this replica."""

    replica: ReplicaId


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy [start, end) from source to target at the fence's epoch, and report `copied` once it is durable."""

    source: ReplicaId
    target: ReplicaId
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Ask the placement driver to commit this end, and report `committed` with the end in force."""

    end_offset: int


Effect = Fence | Copy | Commit


class Answer(Enum):
    """The kind of a replica's answer."""

    TRUTHFUL = "truthful"
    DOUBTFUL = "doubtful"
    UNKNOWN = "unknown"


class RecoveryPhase(Enum):
    """The state of the recovery."""

    FENCING = "fencing"
    COPYING = "copying"
    COMMITTING = "committing"
    DONE = "done"


@dataclass(slots=True)
class _Member:
    asked: bool = False
    gone: bool = False
    answer: Answer | None = None
    durable_offset: int = 0
    lost: bool = False
    why: str = "no answer yet"


@dataclass(slots=True)
class Recovery:
    """One failover seal of one range. `replicas` are all R members, `acks` is A."""

    replicas: Sequence[ReplicaId]
    acks: int
    start_offset: int
    grace_ms: int = GRACE_MS
    phase: RecoveryPhase = RecoveryPhase.FENCING
    end_offset: int | None = None
    _holders: int = field(init=False)
    _members: dict[ReplicaId, _Member] = field(default_factory=dict)
    _quorum_ms: float | None = None
    _copies: list[Copy] = field(default_factory=list)
    _pending: list[Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._holders = Star(self.acks).holders
        for replica in self.replicas:
            self._members[replica] = _Member(asked=True)
            self._pending.append(Fence(replica))

    # ---- events

    def answered(self, now_ms: float, replica: ReplicaId, answer: Answer, durable_offset: int, why: str = "") -> None:
        """A replica answered the seal; its fence is durable unless the answer is UNKNOWN."""
        member = self._members[replica]
        if self.phase is not RecoveryPhase.FENCING:
            return  # decided without it; the next round, if any, asks again
        member.answer, member.durable_offset, member.lost = answer, durable_offset, False
        member.why = why or answer.value
        self._decide(now_ms)

    def lost(self, now_ms: float, replica: ReplicaId, why: str, *, gone: bool = False) -> None:
        """A replica cannot be reached, or failed as source or target of a copy: its answer is discarded.

        `gone`: a retired incarnation; the placement driver has another one for the server, so this one never returns.
        """
        member = self._members[replica]
        member.gone = member.gone or gone
        member.answer, member.lost, member.why, member.asked = None, True, why, False
        if self.phase is RecoveryPhase.COPYING:
            self._back_to_fencing()
        if self.phase is RecoveryPhase.FENCING:
            self._decide(now_ms)

    def tick(self, now_ms: float) -> None:
        """Advance the time."""
        if self.phase is RecoveryPhase.FENCING:
            self._decide(now_ms)

    def retry_lost(self) -> None:
        """Fence lost replicas and those with untrusted tails again; the caller paces this."""
        if self.phase is not RecoveryPhase.FENCING:
            return
        for replica, member in self._members.items():
            if not member.gone and (not member.asked or member.answer in (Answer.UNKNOWN, Answer.DOUBTFUL)):
                member.asked = True
                self._pending.append(Fence(replica))

    def copied(self, now_ms: float, copy: Copy) -> None:
        """A copy is durable on its target."""
        if copy not in self._copies:
            return
        self._copies.remove(copy)
        member = self._members[copy.target]
        member.durable_offset = max(member.durable_offset, copy.end_offset)
        if self.phase is RecoveryPhase.COPYING and not self._copies:
            self._commit()

    def committed(self, end_offset: int) -> None:
        """The placement driver answered with the end in force."""
        self.phase, self.end_offset = RecoveryPhase.DONE, end_offset

    # ---- effects

    def effects(self) -> list[Effect]:
        """Return the effects to perform now; each effect once."""
        pending, self._pending = self._pending, []
        return pending

    def next_tick_ms(self) -> float | None:
        """The latest time of the next `tick`."""
        if self.phase is RecoveryPhase.FENCING and self._quorum_ms is not None:
            return self._quorum_ms + self.grace_ms
        return None

    def blocked_because(self) -> str:
        """One line that names what is missing, for error messages."""
        need = seal_quorum(len(self.replicas), self.acks)
        have = len(self._counting())
        states = ", ".join(f"{replica.server}: {member.why}" for replica, member in self._members.items())
        return f"{have} of {len(self.replicas)} replicas answered, {need} are needed ({states})"

    # ---- inside

    @staticmethod
    def _dead(member: _Member) -> bool:
        """Whether this replica will never answer."""
        return member.gone or member.answer is Answer.UNKNOWN

    def _counting(self) -> dict[ReplicaId, int]:
        """Return the answers from which the end is computed."""
        dead = sum(self._dead(member) for member in self._members.values())
        counting = (Answer.TRUTHFUL, Answer.DOUBTFUL) if dead >= self.acks - 1 > 0 else (Answer.TRUTHFUL,)
        return {
            replica: member.durable_offset for replica, member in self._members.items() if member.answer in counting
        }

    def _all_answered(self) -> dict[ReplicaId, int]:
        """Return all answers, untrusted tails included; none while one is missing or UNKNOWN."""
        usable = (Answer.TRUTHFUL, Answer.DOUBTFUL)
        if any(member.answer not in usable for member in self._members.values()):
            return {}
        return {replica: member.durable_offset for replica, member in self._members.items()}

    def _decide(self, now_ms: float) -> None:
        answers = self._counting()
        end = seal_end_offset(answers.values(), len(self.replicas), self.acks)
        left = sum(not self._dead(member) for member in self._members.values())
        if end is None or len(answers) < min(self._holders, left):
            answers = self._all_answered()
            end = max(answers.values(), default=None)
        if end is None:
            self._quorum_ms = None
            return
        if self._quorum_ms is None:
            self._quorum_ms = now_ms
        waiting = any(member.asked and member.answer is None for member in self._members.values())
        if waiting and now_ms < self._quorum_ms + self.grace_ms:
            return
        self._plan_copies(answers, end)

    def _plan_copies(self, answers: dict[ReplicaId, int], end: int) -> None:
        """Plan copies so that every offset below the end is durable on C answering replicas; the longest are completed."""
        self.end_offset = end
        order = sorted(answers, key=lambda replica: -answers[replica])
        source = order[0]
        self._copies = [
            Copy(source, target, answers[target], end) for target in order[1 : self._holders] if answers[target] < end
        ]
        if self._copies:
            self.phase = RecoveryPhase.COPYING
            self._pending += self._copies
        else:
            self._commit()

    def _commit(self) -> None:
        if self.end_offset is None:
            raise InternalError("a seal is to be committed before its end is decided")
        self.phase = RecoveryPhase.COMMITTING
        self._pending.append(Commit(self.end_offset))

    def _back_to_fencing(self) -> None:
        """Fence all replicas again: an answer from before a failed copy may lack records that were copied since."""
        self.phase, self.end_offset, self._quorum_ms = RecoveryPhase.FENCING, None, None
        self._copies.clear()
        for replica, member in self._members.items():
            if not member.lost:
                member.answer, member.asked = None, True
                self._pending.append(Fence(replica))
