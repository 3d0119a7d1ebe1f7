"""The table of the measurements of topics: each figure beside its target.

Standard library only, as the other tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that is to be at most, or at least, so much."""

    metric: str
    what: str
    """`{…}` names details."""
    bound: float
    unit: str
    at_least: bool = False
    detail: str = ""
    """What is compared; empty: the value itself."""

    def figure(self, each: Measurement) -> float:
        """Return what is compared with the bound."""
        return float(each.details[self.detail] if self.detail else each.value)

    def is_met(self, each: Measurement) -> bool:
        """Whether the figure is within the bound."""
        figure = self.figure(each)
        return figure >= self.bound if self.at_least else figure <= self.bound


TARGETS = (
    Target(
        m.PRODUCERS, "100 producers, 8 shards, one broker: part of a single stream's rate", 0.6, "", True, "of_stream"
    ),
    Target(m.PRODUCERS_KEYED, "the same, records with keys", 0.6, "", True, "of_stream"),
    Target(m.BROKER_LATENCY, "one in flight through a broker: p50 by the writer's", 1.5, "", False, "ratio_p50"),
    Target(m.BROKER_LATENCY, "one in flight through a broker: p99 by the writer's", 1.5, "", False, "ratio_p99"),
    Target(m.SHARDS_WAITING, "{shards:.0f} shards, one record in flight each: acks/s", 8_000, "", True),
    Target(
        m.BROKER_GAP, "broker killed, {shards:.0f} shards: longest ack gap of a shard, p50", 150, "ms", False, "p50"
    ),
    Target(
        m.BROKER_GAP, "broker killed, {shards:.0f} shards: longest ack gap of a shard, max", 500, "ms", False, "max"
    ),
    Target(m.SPLIT_PAUSE, "split of a busy shard: pause of a producer, p99", 50, "ms", False, "p99"),
    Target(m.REBALANCE, "dead member noticed until its shards are handed out, {shards:.0f} shards", 200, "ms"),
    Target(m.JOURNAL_COMMANDS, "one journal: commands/s", 20_000, "", True),
    Target(m.JOURNAL_RECOVERY, "recovery of a journal with {state_mb:.0f} MB of state", 1_000, "ms"),
    Target(m.TABLE_GET, "table: reads of a row/s, one broker", 20_000, "", True),
    Target(m.TABLE_PUT, "table: conditional puts/s, one broker", 10_000, "", True),
    Target(m.COMMIT, "transaction of {records:.0f} records in {shards:.0f} shards: commit, p50", 5, "ms"),
    Target(m.TRANSACTIONS, "transactions/s with {open:.0f} open", 1_500, "", True),
)


def target_rows(results: Sequence[Measurement]) -> list[list[str]]:
    """Rows with the heading first: what, measured, target, met, runs."""
    rows = [["what", "median", "target", "met", "runs"]]
    found = {each.metric: each for each in results}
    for target in TARGETS:
        each = found.get(target.metric)
        if each is None:
            continue
        bound = f"{'≥' if target.at_least else '≤'} {_show(target.bound, target.unit)}"
        rows.append(
            [
                target.what.format(**each.details),
                _show(target.figure(each), target.unit),
                bound,
                "yes" if target.is_met(each) else "no",
                ", ".join(_show(run, "") for run in each.details.get("runs", [])),
            ]
        )
    return rows


def _show(value: float, unit: str) -> str:
    shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{shown} {unit}".strip()
