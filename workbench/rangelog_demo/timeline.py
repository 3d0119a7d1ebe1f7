"""Acks over time, and the pauses after the kills. Pure arithmetic over the writers' ack logs and the kill times."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rangelog_demo.ack_log import LoggedAck

_AFTER_KILL_NS = 5_000_000_000
"""Only pauses that begin within this time of a kill, and before the next one, are attributed to it."""


@dataclass
class Kill:
    """One `kill -9` and what followed. Times are CLOCK_MONOTONIC in ns."""

    what: str
    process: str
    killed_ns: int
    restarted_ns: int | None = None
    replaced_by: str = ""
    gap_ms: float = 0.0


@dataclass(frozen=True)
class Bucket:
    """The acks of one slice of time. Latencies are None where nothing was acked."""

    start_s: float
    acks_per_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None


@dataclass
class Timeline:
    """The appends, as the report shows them."""

    start_ns: int
    duration_s: float
    acked: int
    longest_gap_ms: float
    latency_p50_ms: float
    latency_p99_ms: float
    buckets: list[Bucket]
    kills: list[Kill] = field(default_factory=list)


def make_timeline(acks: Iterable[LoggedAck], kills: Sequence[Kill], *, bucket_ms: int = 100) -> Timeline:
    """Order the acks by time, measure pauses between them, and set each kill's `gap_ms`."""
    points = sorted((ack.acked_ns, (ack.acked_ns - ack.submitted_ns) / 1e6) for ack in acks if ack.acked_ns is not None)
    if not points:
        return Timeline(0, 0.0, 0, 0.0, 0.0, 0.0, [], list(kills))
    times = [time_ns for time_ns, _ in points]
    for kill in kills:
        later = [other.killed_ns for other in kills if other.killed_ns > kill.killed_ns]
        kill.gap_ms = gap_after(times, kill.killed_ns, min(later, default=None))
    latencies = sorted(latency for _, latency in points)
    start_ns = times[0]
    return Timeline(
        start_ns=start_ns,
        duration_s=(times[-1] - start_ns) / 1e9,
        acked=len(points),
        longest_gap_ms=max((b - a for a, b in itertools.pairwise(times)), default=0) / 1e6,
        latency_p50_ms=percentile(latencies, 0.50),
        latency_p99_ms=percentile(latencies, 0.99),
        buckets=_buckets(points, bucket_ms),
        kills=list(kills),
    )


def gap_after(times_ns: Sequence[int], killed_ns: int, next_kill_ns: int | None = None) -> float:
    """The longest pause in ms between two consecutive acks that spans this kill or began up to 5 s after it.

    A pause that spans the next kill is the next one's.
    """
    first = max(0, bisect_right(times_ns, killed_ns) - 1)
    last = bisect_right(times_ns, killed_ns + _AFTER_KILL_NS) + 1
    if next_kill_ns is not None:
        last = min(last, bisect_right(times_ns, next_kill_ns))
    return max((b - a for a, b in itertools.pairwise(times_ns[first:last])), default=0) / 1e6


def percentile(ordered: Sequence[float], share: float) -> float:
    """Nearest rank in an ordered sequence; 0 for an empty one."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _buckets(points: Sequence[tuple[int, float]], bucket_ms: int) -> list[Bucket]:
    width_ns = bucket_ms * 1_000_000
    start_ns = points[0][0]
    groups: list[list[float]] = [[] for _ in range((points[-1][0] - start_ns) // width_ns + 1)]
    for time_ns, latency in points:
        groups[(time_ns - start_ns) // width_ns].append(latency)
    return [_bucket(i * bucket_ms / 1e3, sorted(group), bucket_ms) for i, group in enumerate(groups)]


def _bucket(start_s: float, latencies: list[float], bucket_ms: int) -> Bucket:
    if not latencies:
        return Bucket(start_s, 0.0, None, None, None)
    return Bucket(
        start_s,
        len(latencies) * 1000 / bucket_ms,
        percentile(latencies, 0.50),
        percentile(latencies, 0.99),
        latencies[-1],
    )
