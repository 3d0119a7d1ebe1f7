"""Leaving a range: its replicas are told where it ended. Best effort: the placement driver tells them as well."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rangelog.protocol.appender import Leave
from rangelog_core.errors import RangelogError
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.replica_client import RangeKey, ReplicaClient

_LEAVE_TIMEOUT_S = 2.0


def send_end(connections: DataConnections, stream_id: int, epoch: int, effect: Leave) -> None:
    """Send the committed end to the old range's replicas that are connected; waits for no answer."""
    key = RangeKey(stream_id, effect.range_index, effect.start_offset)
    for replica in effect.replicas:
        connection = connections.existing(replica)
        if connection is not None:
            ReplicaClient(connection, key).send_end(epoch, effect.end_offset)


async def leave_range(
    connections: DataConnections, stream_id: int, epoch: int, effect: Leave, addresses: Mapping[ReplicaId, str]
) -> None:
    """Send the committed end to the old range's replicas. Best effort: the placement driver sends it as well."""
    key = RangeKey(stream_id, effect.range_index, effect.start_offset)

    async def tell(replica: ReplicaId) -> None:
        try:
            client = ReplicaClient(await connections.get(replica, addresses.get(replica, "")), key)
            await client.commit_end(epoch, effect.end_offset, timeout_s=_LEAVE_TIMEOUT_S)
        except RangelogError:
            return

    await asyncio.gather(*(tell(replica) for replica in effect.replicas))
