"""How long a replica may hold batches back until its writer takes it for slow: the limits, their defaults and bounds.

A writer leaves a range with a slow replica; what is acked does not depend on these limits.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_core.errors import InvalidArgument

REPLICA_LAG_MS_MAX = 2_000.0
"""A replica that holds batches back this long is slow, however slow the others are. Far below an append's time limit."""

REPLICA_LAG_MS_MIN = 500.0
"""No replica is slow before that: a pause of the garbage collector, or of another process on the machine, is shorter."""

REPLICA_LAG_FACTOR = 10.0
"""Between both, a replica is slow when it takes this many times as long as the slowest recent confirm."""

LAG_MS_LEAST, LAG_MS_MOST = 10.0, 600_000.0
"""The bounds of both limits."""


@dataclass(frozen=True, slots=True)
class LagLimits:
    """The limits of one client's writers. Raises InvalidArgument for limits that are not valid."""

    ms_min: float = REPLICA_LAG_MS_MIN
    ms_max: float = REPLICA_LAG_MS_MAX

    def __post_init__(self) -> None:
        for name, value in (("replica_lag_ms_min", self.ms_min), ("replica_lag_ms_max", self.ms_max)):
            if type(value) not in (int, float) or not LAG_MS_LEAST <= value <= LAG_MS_MOST:
                raise InvalidArgument(
                    f"{name} must be from {LAG_MS_LEAST:g} to {LAG_MS_MOST:,.0f} ms, not {value!r:.100}"
                )
        if self.ms_min > self.ms_max:
            raise InvalidArgument(
                f"replica_lag_ms_min must not be more than replica_lag_ms_max: {self.ms_min:g} > {self.ms_max:g}"
            )

    def allowed_ms(self, latency_ms: float) -> float:
        """Return how long a replica may hold batches back, in proportion to the latency of confirms; 0: none yet."""
        if not latency_ms:
            return self.ms_max
        return min(self.ms_max, max(self.ms_min, REPLICA_LAG_FACTOR * latency_ms))


LAG_LIMITS = LagLimits()
"""The defaults."""
