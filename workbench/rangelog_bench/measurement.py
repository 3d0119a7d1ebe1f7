"""One measured figure, as a line of JSON; and the medians of several rounds.

What holds: percentiles are exact (all latencies are kept), and figures of different systems are comparable because they
come from the same code. Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

import json
import statistics
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MS = "ms"
RECORDS_PER_S = "records/s"
PER_S = "1/s"

APPEND = "append_throughput"
LATENCY = "append_latency"
OPEN_LOOP = "open_loop_latency"
TAIL = "tail_latency"
CATCHUP = "catchup_read"
CATCHUP_ARROW = "catchup_read_arrow"
COLD = "cold_read"
COLD_FIRST = "cold_read_first"
"""The first read in a process: the memory for the objects was never used before."""
COLD_ARROW = "cold_read_arrow"
COLD_GET = "cold_raw_get"
GAP_SERVER = "gap_server"
GAP_PD = "gap_pd_leader"
TAKEOVER = "takeover"
END_BUSY = "end_offset_busy"
END_IDLE = "end_offset_idle"
STREAMS = "append_streams"
"""Followed by how many are open at once: append_streams_100."""
PRODUCERS = "topic_producers"
PRODUCERS_KEYED = "topic_producers_keyed"
BROKER_LATENCY = "broker_latency"
SHARDS_WAITING = "topic_shards_waiting"
BROKER_GAP = "broker_gap"
SPLIT_PAUSE = "split_pause"
REBALANCE = "group_rebalance"
JOURNAL_COMMANDS = "journal_commands"
JOURNAL_RECOVERY = "journal_recovery"
TABLE_GET = "table_get"
TABLE_PUT = "table_conditional_put"
COMMIT = "transaction_commit"
TRANSACTIONS = "transactions"

_PERCENTILES = ((50.0, "p50"), (90.0, "p90"), (99.0, "p99"), (99.9, "p99.9"))


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure. `details` holds what belongs to it: percentiles, MB/s, processor time."""

    system: str
    setting: str
    metric: str
    record_size: int
    value: float
    unit: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str, int]:
        """Equal for rounds of the same measurement."""
        return self.system, self.setting, self.metric, self.record_size

    def to_json(self) -> str:
        """One line."""
        fields = asdict(self)
        details = fields.pop("details")
        return json.dumps(fields | details)

    @classmethod
    def from_json(cls, line: str) -> Measurement:
        """Parse one line. Raises ValueError if it is not a measurement."""
        fields = json.loads(line)
        try:
            named = {name: fields.pop(name) for name in ("system", "setting", "metric", "record_size", "value", "unit")}
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"not a measurement: {line[:100]}") from None
        return cls(**named, details=fields)


def read_lines(text: str) -> list[Measurement]:
    """Parse JSON lines; raises ValueError."""
    return [Measurement.from_json(line) for line in text.splitlines() if line.strip()]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` % of the (sorted, not empty) values do not exceed."""
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, min(len(ordered), int(rank)) - 1)]


def latency_details(latencies_s: Iterable[float]) -> dict[str, Any]:
    """Percentiles in ms of latencies in seconds, and their number; raises ValueError for no latency."""
    ordered = array("d", sorted(latencies_s))
    if not ordered:
        raise ValueError("nothing was measured")
    details: dict[str, Any] = {name: round(percentile(ordered, percent) * 1e3, 4) for percent, name in _PERCENTILES}
    return details | {"max": round(ordered[-1] * 1e3, 4), "count": len(ordered)}


def medians(rounds: Sequence[Measurement]) -> list[Measurement]:
    """One measurement for each key, in order of first appearance: medians of the value and of each numeric detail.

    `runs` keeps the values of the single rounds.
    """
    grouped: dict[tuple[str, str, str, int], list[Measurement]] = {}
    for each in rounds:
        grouped.setdefault(each.key, []).append(each)
    return [_median(group) for group in grouped.values()]


def _median(group: list[Measurement]) -> Measurement:
    first = group[0]
    details = _median_of([each.details for each in group])
    details["runs"] = [run for each in group for run in each.details.get("runs", [each.value])]
    value = statistics.median(details["runs"])
    return Measurement(first.system, first.setting, first.metric, first.record_size, value, first.unit, details)


def _median_of(dicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in dicts for name in each):
        values = [each[name] for each in dicts if name in each]
        if all(isinstance(value, dict) for value in values):
            found[name] = _median_of(values)
        elif all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            found[name] = statistics.median(values)
        else:
            found[name] = values[-1]
    return found
