"""From faults, histories and what was read to numbers: gaps and times to heal per kind, totals, the last line."""

from __future__ import annotations

import bisect
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tests.chaos.chaos_outcome import Injected, Run
from tests.chaos.chaos_topic_check import TopicVerdict
from tests.support.log_report import Report


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def ack_gap_ms(acks_ns: Sequence[int], start_ns: int, end_ns: int) -> float:
    """The longest time without an ack that reaches into [start, end]. `acks_ns`: sorted."""
    first = max(0, bisect.bisect_left(acks_ns, start_ns) - 1)
    last = min(len(acks_ns) - 1, bisect.bisect_right(acks_ns, end_ns))
    longest = max((acks_ns[i + 1] - acks_ns[i] for i in range(first, last)), default=0)
    return longest / 1e6


def gap_ms(fault: Injected, acks_by_stream: dict[str, list[int]]) -> float:
    """The longest gap of any stream around a fault."""
    end_ns = fault.healthy_ns or fault.healed_ns
    return max((ack_gap_ms(acks, fault.injected_ns, end_ns) for acks in acks_by_stream.values()), default=0.0)


def by_kind(
    faults: Iterable[Injected], acks_by_stream: dict[str, list[int]], topic_acks: dict[str, list[int]]
) -> dict[str, dict[str, float]]:
    """Per kind: how many, gaps in ms, of streams and of the topic's keys, times to heal in s."""
    gaps: dict[str, list[float]] = defaultdict(list)
    topic_gaps: dict[str, list[float]] = defaultdict(list)
    heals: dict[str, list[float]] = defaultdict(list)
    for fault in faults:
        gaps[fault.kind].append(gap_ms(fault, acks_by_stream))
        topic_gaps[fault.kind].append(gap_ms(fault, topic_acks))
        heals[fault.kind].append((fault.healthy_ns - fault.healed_ns) / 1e9)
    return {
        kind: {
            "faults": len(gaps[kind]),
            "gap_ms_p50": round(statistics.median(gaps[kind]), 1),
            "gap_ms_p99": round(percentile(gaps[kind], 0.99), 1),
            "gap_ms_max": round(max(gaps[kind]), 1),
            "topic_gap_ms_p50": round(statistics.median(topic_gaps[kind]), 1),
            "topic_gap_ms_max": round(max(topic_gaps[kind]), 1),
            "heal_s_p50": round(statistics.median(heals[kind]), 2),
            "heal_s_max": round(max(heals[kind]), 2),
        }
        for kind in sorted(gaps)
    }


def table(kinds: dict[str, dict[str, float]]) -> str:
    """For people."""
    lines = [f"{'fault':28} {'n':>3} {'gap p50':>9} {'p99':>9} {'topic p50':>10} {'max':>9} {'heal p50':>9} {'max':>7}"]
    for kind, row in kinds.items():
        lines.append(
            f"{kind:28} {row['faults']:3.0f} {row['gap_ms_p50']:6.0f} ms {row['gap_ms_p99']:6.0f} ms"
            f" {row['topic_gap_ms_p50']:7.0f} ms {row['topic_gap_ms_max']:6.0f} ms"
            f" {row['heal_s_p50']:7.1f} s {row['heal_s_max']:5.1f} s"
        )
    return "\n".join(lines)


def last_line(run: Run, report: Report, kinds: dict[str, dict[str, float]], topic: TopicVerdict) -> str:
    """The summary."""
    counts = " ".join(f"{kind}={report.counts[kind]}" for kind in ("lost", "duplicated", "misordered"))
    of_topic = " ".join(f"{kind}={topic.counts[kind]}" for kind in ("lost", "duplicated", "misordered"))
    return (
        f"chaos: kinds={len(kinds)} faults={len(run.injected)} acked={report.acked} {counts}; "
        f"topic acked={topic.acked} {of_topic}"
    )
