"""The calls of a gRPC server: how many by method and result, and how long they took."""

from __future__ import annotations

from collections.abc import Sequence

from rangelog_server_common.metrics.figures import Figure, counter, histogram
from rangelog_server_common.metrics.tally import DurationTally, count_by

OK = "OK"
CANCELLED = "CANCELLED"
"""The caller went away, or its deadline passed."""


class CallTally:
    """Calls of services that the server has: a method that does not exist is not counted, so labels are bounded."""

    def __init__(self) -> None:
        self.durations: dict[str, DurationTally] = {}
        self._codes: dict[str, dict[str, int]] = {}

    def ended(self, method: str, code: str, seconds: float) -> None:
        """Count a call. `method`: /package.Service/Method. `code`: OK or that of the error."""
        name = method.removeprefix("/")
        tally = self.durations.get(name)
        if tally is None:
            tally, self._codes[name] = DurationTally(), {}
            self.durations[name] = tally
        tally.observe(seconds)
        count_by(self._codes[name], code)

    def counts(self) -> dict[tuple[str, ...], float]:
        """Return the number of calls by method and code."""
        return {(method, code): count for method, codes in self._codes.items() for code, count in codes.items()}


CALL_FIGURES: Sequence[Figure[CallTally]] = (
    counter(
        "rangelog_grpc_calls_total", "Calls of gRPC that have ended, by result.", CallTally.counts, "method", "code"
    ),
    histogram(
        "rangelog_grpc_call_duration_seconds", "Time from a call's arrival to its end.", lambda s: s.durations, "method"
    ),
)
