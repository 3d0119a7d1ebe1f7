"""The figures of quotas in a process, for metrics: how often it has held clients off, and for how long."""

from __future__ import annotations

from collections.abc import Sequence

from rangelog_server_common.metrics.figures import Figure, counter, gauge
from rangelog_server_common.quotas.guard import QuotaGuard

QUOTA_FIGURES: Sequence[Figure[QuotaGuard]] = (
    counter("rangelog_throttled_total", "Times that a client was held off since it is over a quota.",
            lambda f: f.counts.count, "kind"),
    counter("rangelog_throttled_seconds_total", "Time for which they were held off, by what the quota is of.",
            lambda f: {measure: held_us / 1_000_000 for measure, held_us in f.counts.held_us.items()}, "kind"),
    gauge("rangelog_throttled_calls", "Calls that are held now.", lambda f: f.calls_held),
    gauge("rangelog_throttled_clients", "Rates of clients and prefixes that this process counts.", lambda f: len(f.book)),
)  # fmt: skip
