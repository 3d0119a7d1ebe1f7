"""The topic's scaling policy, and what it makes the placement driver do: the demo asks for no scale itself.

What holds: at the producers' pace one shard takes nearly five times its target, and a quarter of the load is above the target
still, so the topic is split until it has its largest number of shards; merges leave that number.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rangelog_core.errors import RangelogError
from rangelog_demo.topic.outcome import SHARDS_LAST, ScaleMark

if TYPE_CHECKING:
    from rangelog import Client, ScalingPolicy

SHARDS_FIRST = 1
MINUTE_MS = 200
"""What counts as a minute in the moving averages: the demo produces for a few seconds only."""
SETTINGS = {"RANGELOG_PD_SCALING_MINUTE_MS": str(MINUTE_MS)}
_TARGET_PART = 0.21
_LOOK_S = 0.05


def scaling_policy(flights_per_s: float) -> ScalingPolicy:
    """Return the topic's policy, for this pace of all producers together."""
    from rangelog import ScalingPolicy

    target = max(1, round(flights_per_s * _TARGET_PART))
    return ScalingPolicy(kind="events", target_per_s=target, shards_min=SHARDS_LAST, shards_max=SHARDS_LAST)


async def watch_scales(client: Client, topic: str, marks: list[ScaleMark]) -> None:
    """Note each scale, from when it is planned to when it is committed, until cancelled."""
    started_ns = 0
    count = SHARDS_FIRST
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            found = await client.topics.describe(topic)
        except RangelogError:
            continue
        now_ns = time.monotonic_ns()
        if found.state == "scaling":
            started_ns = started_ns or now_ns
        if found.shard_count != count:
            count = found.shard_count
            marks.append(ScaleMark(count, started_ns or now_ns, now_ns))
        if found.state == "active":
            started_ns = 0
