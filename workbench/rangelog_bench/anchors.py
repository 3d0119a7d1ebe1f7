"""Kafka and BookKeeper as peers: their names in the results, and the line that compares rangelog with them.

Standard library only: the peers' processes import this as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rangelog_bench import measurement as m
from rangelog_bench.measurement import Measurement


@dataclass(frozen=True, slots=True)
class Anchor:
    """A peer in one setting."""

    system: str
    setting: str
    """What an ack means, and the client that was used."""


KAFKA = Anchor("kafka", "page cache, Java client")
KAFKA_FLUSHED = Anchor("kafka", "flush on every append, Java client")
BOOKKEEPER = Anchor("bookkeeper", "flushed on 2 of 3, Java client")
BOOKKEEPER_FLUSH_WHEN_IDLE = Anchor("bookkeeper", "flushed on 2 of 3, flush when idle, Java client")

COMPARED = {"kafka": KAFKA, "kafka_flushed": KAFKA_FLUSHED, "bookkeeper": BOOKKEEPER}
"""Name in the line → with whom."""

_RATIOS = {
    "append_1k": (m.APPEND, 1024, None),
    "latency_p50": (m.LATENCY, 1024, "p50"),
    "latency_p99": (m.LATENCY, 1024, "p99"),
    "catchup_100": (m.CATCHUP, 100, None),
    "catchup_1k": (m.CATCHUP, 1024, None),
    "catchup_16k": (m.CATCHUP, 16384, None),
    "gap": (m.GAP_SERVER, 1024, None),
}


def ratio(ours: Measurement | None, theirs: Measurement | None, detail: str | None = None) -> str:
    """Our value (or detail of it) over theirs, for a line; `-` when one was not measured or theirs is 0."""
    if ours is None or theirs is None:
        return "-"
    mine, other = (each.details[detail] if detail else each.value for each in (ours, theirs))
    if not other:
        return "-"
    return f"{mine / other:.2f}" if mine / other >= 0.1 else f"{mine / other:.2g}"


def anchor_line(results: Sequence[Measurement], ours: str) -> str:
    """Ratios of the system `ours` to each of `COMPARED`; empty when none of them was measured.

    Above 1 is better for appends and reads (`append_…`, `catchup_…`), below 1 for the times (`latency_…`, `gap`).
    """
    mine = {(each.metric, each.record_size): each for each in results if each.system == ours}
    found = {(Anchor(each.system, each.setting), each.metric, each.record_size): each for each in results}
    if not any(anchor in COMPARED.values() for anchor, _, _ in found):
        return ""
    fields = [
        f"{name}_{field}={ratio(mine.get((metric, size)), found.get((anchor, metric, size)), detail)}"
        for name, anchor in COMPARED.items()
        for field, (metric, size, detail) in _RATIOS.items()
    ]
    return "anchors: " + " ".join(fields)
