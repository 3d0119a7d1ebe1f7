"""The rate at which a server's log grows, from its heartbeats.

What holds: the rate is an exponential moving average over about half a minute, so that one burst or one late heartbeat does
not move placements; it falls to 0 when nothing is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SMOOTHED_OVER_MS = 30_000.0


@dataclass(slots=True)
class WriteRate:
    """Bytes per second of one log."""

    bytes_per_s: float = 0.0
    _end: int = 0
    _noted_ms: float = -math.inf

    def note(self, log_end: int, now_ms: float) -> None:
        """Note where the log ends now."""
        passed_ms = now_ms - self._noted_ms
        if passed_ms <= 0:
            return
        if self._noted_ms > -math.inf:
            rate = max(0, log_end - self._end) * 1_000 / passed_ms
            self.bytes_per_s += (rate - self.bytes_per_s) * -math.expm1(-passed_ms / SMOOTHED_OVER_MS)
        self._end, self._noted_ms = log_end, now_ms
