"""One round of the measurements of topics, each on a cluster of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from rangelog_bench.topics.keeping import measure_journal, measure_table
from rangelog_bench.topics.moving import measure_broker_gap, measure_rebalance, measure_split
from rangelog_bench.topics.producing import measure_broker_latency, measure_producers, measure_shards
from rangelog_bench.topics.transacting import measure_transactions
from rangelog_bench.workload import PRODUCERS, Effort, Emit, attempt

MEASUREMENTS: dict[str, Callable[[Path, Effort, Emit], Awaitable[None]]] = {
    PRODUCERS: measure_producers,
    "broker-latency": measure_broker_latency,
    "shards": measure_shards,
    "broker-gap": measure_broker_gap,
    "split": measure_split,
    "rebalance": measure_rebalance,
    "journal": measure_journal,
    "table": measure_table,
    "transactions": measure_transactions,
}
"""Name → measurement."""
TOPICS = tuple(MEASUREMENTS)


async def run_topics_round(directory: Path, effort: Effort, only: Collection[str], emit: Emit) -> list[str]:
    """Measure everything in `only`, once. Returns what failed, in words."""
    failed: list[str] = []
    for name, measure in MEASUREMENTS.items():
        if name in only:
            failed += await attempt(name, measure(directory / name, effort, emit))
    return failed
