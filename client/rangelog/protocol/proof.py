"""What a reader may believe of the end of an open range, from what its replicas say. Pure.

What holds:

* A confirm offset is the writer's own word: everything below it is acked. So is a committed end, and a floor that the
  placement driver put under the range.
* What A replicas hold durably is *held*, and not yet to be believed: every ack that anybody has lies below it, but an active
  seal ends a range at what its writer had heard of when it froze, which may be less. Only once the placement driver has put
  a floor there does no seal cut it: an active seal below the floor is refused, and a failover seal ends at or beyond it.
* With a replica silent, or in doubt of what it held, acks may lie beyond what the others hold: then the proof is not
  complete. What a replica in doubt does hold counts as held.

Source: found by simulation and by the exhaustive model (tests/model/seal_readers.py: `proof-without-arbitration`,
`doubtful-is-complete`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangelog.protocol.quorum import confirmed_offset
from rangelog_core.ids import ReplicaId


@dataclass(frozen=True, slots=True)
class Told:
    """What one replica says. `sealed_end_offset`: None while it knows of none. `doubtful`: it may have held more."""

    replica: ReplicaId
    durable_offset: int
    confirm_offset: int
    sealed_end_offset: int | None = None
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What follows. `held_offset` is at least `confirmed_offset`; `holders` hold everything below it durably."""

    confirmed_offset: int
    held_offset: int
    holders: tuple[ReplicaId, ...]
    sealed_end_offset: int | None
    complete: bool


def weigh(told: Sequence[Told], *, replicas: int, acks: int, start_offset: int, floor_offset: int) -> Evidence:
    """Return what the answers of some of a range's `replicas` prove. There must be at least one answer.

    Example: two of three replicas hold 7 and have heard that 5 is acked: confirmed 5, held 7.
    """
    ends = [each.sealed_end_offset for each in told if each.sealed_end_offset is not None]
    confirmed = max(each.confirm_offset for each in told)
    sound = sum(not each.doubtful for each in told)
    if sound > replicas - acks:
        # One of these holds all that was acked: a confirm offset beyond them all is nothing a writer said.
        confirmed = min(confirmed, max(each.durable_offset for each in told))
    confirmed = max(confirmed, floor_offset, start_offset)
    held = confirmed
    holders: tuple[ReplicaId, ...] = ()
    if len(told) >= acks:
        held = max(held, confirmed_offset([each.durable_offset for each in told], acks))
        holders = tuple(each.replica for each in told if each.durable_offset >= held)
    return Evidence(confirmed, held, holders, ends[0] if ends else None, complete=sound == replicas)
