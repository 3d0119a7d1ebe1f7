"""The arithmetic of R replicas and A acks: what is confirmed, and where a failover seal may end a range.

Every replica holds a prefix, so one number is its whole state. What holds:

* Confirmed: the A-th largest durable offset. Everything below it is durable on A replicas.
* Seal end: the A-th largest answer, each replica that did not answer truthfully counting as "may hold everything".
  Nothing acked is at or past it: an acked record is on A replicas, of which at most the silent ones are not seen. Fewer
  than R - A + 1 answers leave it undefined, and then nothing is guessed.

Source: derived and model-checked in the project's reliability notes; the same rule as LogDevice's and Elastic Stream's.
"""

from __future__ import annotations

from collections.abc import Iterable


def confirmed_offset(durable_offsets: Iterable[int], acks: int) -> int:
    """Return the A-th largest of the durable offsets, one per replica. There must be at least `acks` of them."""
    return sorted(durable_offsets, reverse=True)[acks - 1]


def seal_end_offset(answers: Iterable[int], replicas: int, acks: int) -> int | None:
    """Return the end for these truthful answers out of `replicas`, or None when there are too few to say."""
    known = sorted(answers)
    silent = replicas - len(known)
    rank = acks - silent  # the silent ones are the largest
    return known[-rank] if rank > 0 else None


def seal_quorum(replicas: int, acks: int) -> int:
    """Return how many truthful answers a failover seal needs: enough that the rest cannot ack."""
    return replicas - acks + 1
