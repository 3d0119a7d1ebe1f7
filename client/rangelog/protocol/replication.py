"""The replication policy of a range: to whom its writer sends, whose acks count, what a lost replica means. Pure.

What holds:

* Every replica holds a prefix, so its durable offset is its whole state. A policy adds no state: it judges the progress of
  the members, which are in the order of the placement driver's list, and is the same as long as the range is open.
* Nothing is confirmed that A members do not hold durably (quorum.py: a seal's end follows from that alone).
* A batch is kept at least until it is confirmed: the next range is sent what this one has not confirmed.

The core of the writer (appender.py, window.py) asks the policy and decides nothing of this itself. Star is the only policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangelog.protocol.quorum import confirmed_offset
from rangelog_core.ids import ReplicaId


@dataclass(slots=True)
class ReplicaProgress:
    """The progress of one replica of the open range, as the writer knows it."""

    replica: ReplicaId
    durable_offset: int
    sent_offset: int
    live: bool = False
    failed: bool = False  # excluded from this range: no batch is kept for it
    unreachable: bool = False  # the last connection broke or failed
    slow: bool = False  # held batches back for too long, and has neither moved nor been connected anew since
    progress_ms: float = 0.0  # when its durable offset last rose, or it lacked nothing
    held_until_ms: float = 0.0  # it holds this writer off until then, by a quota: it is not slow


@dataclass(frozen=True, slots=True)
class Star:
    """The writer sends each batch to every replica itself, and any A of them ack it.

    Example: of three replicas that are durable up to 7, 5 and 4, with A = 2, the records below 5 are confirmed, and batches
    from 4 on are kept.
    """

    acks: int

    @property
    def holders(self) -> int:
        """C: before a failover seal commits an end, so many replicas hold everything below it."""
        return self.acks

    def receivers(self, members: Sequence[ReplicaProgress]) -> Sequence[ReplicaProgress]:
        """Return the members to which the writer itself sends batches, also again after a connection broke."""
        return members

    def confirmed_offset(self, members: Sequence[ReplicaProgress]) -> int:
        """Return the offset below which all records are acked."""
        return confirmed_offset([member.durable_offset for member in members], self.acks)

    def kept_from(self, members: Sequence[ReplicaProgress], confirm_offset: int) -> int:
        """Return the offset from which on batches are kept, for the next range and for members that lack them."""
        for member in members:
            if member.durable_offset < confirm_offset and not member.failed:
                confirm_offset = member.durable_offset
        return confirm_offset

    def goes_on(self, members: Sequence[ReplicaProgress], without: ReplicaProgress | None = None) -> bool:
        """Whether the sound members other than `without` suffice for acks; if not, the range gets no more acks."""
        return sum(each.live and not each.slow and each is not without for each in members) >= self.acks

    def spare(self, replicas: int) -> int:
        """Return how many of so many replicas acks can do without."""
        return replicas - self.acks
