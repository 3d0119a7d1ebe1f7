"""How late the event loop runs what is due: the time by which a process is behind its work."""

from __future__ import annotations

import asyncio

from rangelog_server_common.metrics.tally import DurationTally

INTERVAL_S = 0.5


async def measure_lag(tally: DurationTally) -> None:
    """Count until cancelled by how much a sleep took longer than it should."""
    loop = asyncio.get_running_loop()
    while True:
        began_s = loop.time()
        await asyncio.sleep(INTERVAL_S)
        tally.observe(max(0.0, loop.time() - began_s - INTERVAL_S))
