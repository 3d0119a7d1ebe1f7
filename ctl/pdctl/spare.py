"""May any one range server go down now? For the pod that keeps the disruption budget of range servers on Kubernetes.

What holds: yes only while every range that depends on copies has as many as its stream wants and no server is suspect, so the
absence that follows, whosever, is the only one. An answer that is not a leader's is no. It reads counts that the placement
driver keeps anyway: its cost does not grow with ranges.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pdctl.units import show_count
from rangelog_core.errors import Unavailable

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import pd_pb2

POLL_S = 1.0


def hindrances(described: pd_pb2.DescribeClusterResponse) -> list[str]:
    """Return why no range server should go down now, an empty list where any one may."""
    from rangelog_proto.v1 import common_pb2

    found = []
    if not described.has_majority or not any(each.leader for each in described.members):
        found.append("no placement driver leads")
    if not described.health:
        found.append("the placement driver that answers is of an earlier version, and counts no copies")
    if not described.servers:
        found.append("no range server is registered")
    if described.under_replicated_range_count:
        count = show_count(described.under_replicated_range_count, "range")
        found.append(f"fewer copies than wanted: {count}")
    suspects = [each.name for each in described.servers if each.health == common_pb2.SERVER_HEALTH_SUSPECT]
    if suspects:
        found.append(f"not heard of lately: {', '.join(suspects[:3])}{', …' if len(suspects) > 3 else ''}")
    return found


async def wait_until_spare(pd: PdClient, timeout_s: float, wait_s: float) -> list[str]:
    """Return an empty list once any one range server may go down, else what hinders it after `wait_s`."""
    from rangelog_proto.v1 import pd_pb2

    end_s = time.monotonic() + wait_s
    while True:
        try:
            found = hindrances(
                await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=timeout_s)
            )
        except Unavailable:
            if time.monotonic() >= end_s:
                raise
            found = ["no placement driver answers"]
        if not found or time.monotonic() >= end_s:
            return found
        await asyncio.sleep(min(POLL_S, max(0.0, end_s - time.monotonic())))
