"""The arithmetic of R replicas and A acks: what is confirmed, and where a failover seal may end a range.

Every replica holds a prefix, so one number is its whole state. What holds:

* Confirmed: the A-th largest durable offset. Everything below it is durable on A replicas.
* Seal end: the A-th largest answer, where each replica without a trusted answer counts as "may hold everything".
  No acked record is at or past it: an acked record is on A replicas, of which only the silent ones are not counted. With
  fewer than R - A + 1 answers the end is undefined, and the range stays unsealed.

Source: derived and model-checked in the project's reliability notes; the same rule as LogDevice's and Elastic Stream's.
"""

from __future__ import annotations

from collections.abc import Iterable


def confirmed_offset(durable_offsets: Iterable[int], acks: int) -> int:
    """Return the A-th largest of the durable offsets, one per replica. There must be at least `acks` of them."""
    return sorted(durable_offsets, reverse=True)[acks - 1]


def seal_end_offset(answers: Iterable[int], replicas: int, acks: int) -> int | None:
    """Return the end for these trusted answers out of `replicas`, or None when there are too few."""
    known = sorted(answers)
    silent = replicas - len(known)
    rank = acks - silent  # silent replicas count as the largest
    return known[-rank] if rank > 0 else None


def seal_quorum(replicas: int, acks: int) -> int:
    """Return how many trusted answers a failover seal needs: so many that the rest are too few for an ack."""
    return replicas - acks + 1
