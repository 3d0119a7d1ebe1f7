"""Which end of an open range is proved to a reader by the answers of its replicas. Pure.

What holds:

* A confirm offset comes from the writer: everything below it is acked. The same holds for a committed end, and for a floor
  that the placement driver put under the range.
* Records that A replicas hold durably are *held*, but not proved: every ack lies below the held offset, but an active seal
  ends a range at the acks that its writer had received when it froze, which may be fewer. Once the placement driver has put
  a floor there, no seal cuts it: an active seal below the floor is refused, and a failover seal ends at or beyond it.
* With a silent replica, or one with an untrusted tail, acks may lie beyond the records of the others: then the proof is not
  complete. Records that a replica with an untrusted tail does hold count as held.

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
    """The answer of one replica. `sealed_end_offset`: None while it knows none. `doubtful`: it may have held more records."""

    replica: ReplicaId
    durable_offset: int
    confirm_offset: int
    sealed_end_offset: int | None = None
    doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of all answers. `held_offset` is at least `confirmed_offset`; `holders` hold all below it durably."""

    confirmed_offset: int
    held_offset: int
    holders: tuple[ReplicaId, ...]
    sealed_end_offset: int | None
    complete: bool


def weigh(told: Sequence[Told], *, replicas: int, acks: int, start_offset: int, floor_offset: int) -> Evidence:
    """Return the evidence in the answers of some of a range's `replicas`. There must be at least one answer.

    Example: two of three replicas hold 7 and know the confirm offset 5: confirmed 5, held 7.
    """
    ends = [each.sealed_end_offset for each in told if each.sealed_end_offset is not None]
    confirmed = max(each.confirm_offset for each in told)
    sound = sum(not each.doubtful for each in told)
    if sound > replicas - acks:
        # One of these holds all acked records: a confirm offset beyond all of them comes from no writer.
        confirmed = min(confirmed, max(each.durable_offset for each in told))
    confirmed = max(confirmed, floor_offset, start_offset)
    held = confirmed
    holders: tuple[ReplicaId, ...] = ()
    if len(told) >= acks:
        held = max(held, confirmed_offset([each.durable_offset for each in told], acks))
        holders = tuple(each.replica for each in told if each.durable_offset >= held)
    return Evidence(confirmed, held, holders, ends[0] if ends else None, complete=sound == replicas)
