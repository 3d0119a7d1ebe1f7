"""Which end a recoverer decides on: the product's own core asked, and the wrong ways to do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from rangelog.protocol.quorum import confirmed_offset, seal_end_offset, seal_quorum
from rangelog.protocol.recovery import Answer, Copy, Recovery, RecoveryPhase
from rangelog_core.ids import Incarnation, ReplicaId

NO_ANSWER, TRUTHFUL, DOUBTFUL, UNKNOWN, GONE = range(5)
_KINDS = {TRUTHFUL: Answer.TRUTHFUL, DOUBTFUL: Answer.DOUBTFUL, UNKNOWN: Answer.UNKNOWN}

Answers = tuple[tuple[int, int], ...]
"""For each replica the kind of its answer and its durable offset."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The end, and the replicas that must hold everything below it before it is committed."""

    end_offset: int
    targets: tuple[int, ...]


@cache
def decide(answers: Answers, acks: int) -> Decision | None:
    """Ask the recovery core, as when no further answer came within its grace."""
    replicas = [ReplicaId(f"r{number}", Incarnation(1)) for number in range(len(answers))]
    recovery = Recovery(replicas, acks, 0, grace_ms=1)
    recovery.effects()
    for replica, (kind, offset) in zip(replicas, answers, strict=True):
        if kind == GONE:
            recovery.lost(0.0, replica, "gone", gone=True)
        elif kind != NO_ANSWER:
            recovery.answered(0.0, replica, _KINDS[kind], offset)
    recovery.tick(1.0)
    if recovery.phase is RecoveryPhase.FENCING or recovery.end_offset is None:
        return None
    copies = [effect for effect in recovery.effects() if isinstance(effect, Copy)]
    return Decision(recovery.end_offset, tuple(replicas.index(copy.target) for copy in copies))


def decide_wrong(wrong: str, answers: Answers, acks: int) -> Decision | None:
    """Decide as a wrong choice would; choices that are about something else decide rightly."""
    ends = [end for kind, end in answers if kind == TRUTHFUL]
    quorum = seal_quorum(len(answers), acks)
    if wrong in ("min", "ack-formula"):
        if len(ends) < quorum:
            return None
        end = confirmed_offset(ends, acks) if wrong == "ack-formula" and len(ends) >= acks else min(ends)
        return _decision(answers, end, acks)
    if wrong in ("seal-one", "seal-one-max-copy"):
        return _decision(answers, max(ends), acks, copies=wrong != "seal-one") if ends else None
    if wrong == "no-copy":
        right = decide(answers, acks)
        return Decision(right.end_offset, ()) if right else None
    if wrong == "doubtful-counts":
        return decide(tuple((TRUTHFUL if kind == DOUBTFUL else kind, end) for kind, end in answers), acks)
    if wrong == "doubt-never-counts":
        return decide(answers, acks) if DOUBTFUL not in [kind for kind, _ in answers] else None
    if wrong == "always-a-copies":
        end_offset = seal_end_offset(ends, len(answers), acks)
        return None if end_offset is None or len(ends) < acks else decide(answers, acks)
    return decide(answers, acks) if answers else None


def _decision(answers: Sequence[tuple[int, int]], end: int, acks: int, *, copies: bool = True) -> Decision:
    """Fill up the longest, as the core does; with too few answers, those that did not answer as well."""
    order = sorted(range(len(answers)), key=lambda number: (answers[number][0] != TRUTHFUL, -answers[number][1]))
    targets = tuple(number for number in order[:acks] if answers[number][1] < end)
    return Decision(end, targets if copies else ())
