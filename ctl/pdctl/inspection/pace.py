"""Keeps reading below a rate, on average since the start."""

from __future__ import annotations

import asyncio
import time


class ReadPace:
    """`await spend(n)` returns when n further bytes are within the rate. 0: without bound."""

    def __init__(self, bytes_per_s: int) -> None:
        self._rate = bytes_per_s
        self._started_s = time.monotonic()
        self.spent_bytes = 0

    async def spend(self, size_bytes: int) -> None:
        """Count bytes that were read; wait until they are within the rate."""
        self.spent_bytes += size_bytes
        if self._rate:
            ahead_s = self.spent_bytes / self._rate - (time.monotonic() - self._started_s)
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
