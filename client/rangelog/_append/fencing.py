"""Fencing a range's replicas: behind a fence nothing of a lower epoch is taken, so nothing of it is acked.

What holds: a replica is fenced when it has answered, and so has its fence on disk, or when it refuses because it dropped the
range for good. A range is fenced when so many of its replicas are that the rest cannot give an ack.
"""

from __future__ import annotations

import asyncio

from rangelog.protocol.quorum import seal_quorum
from rangelog_core.errors import RangelogError, WriterFenced
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_core.net.replica_client import FenceAnswer, ReplicaClient, range_key
from rangelog_proto.v1 import common_pb2, pd_pb2

FENCE_TIMEOUT_S = 5.0
_RETRY_S = 0.2


async def fence_replica(
    connections: DataConnections, replica: ReplicaId, address: str, of: common_pb2.Range, epoch: int
) -> FenceAnswer:
    """Fence one replica; what it holds is in the answer. Raises WriterFenced (a higher fence, or dropped), Unavailable, …"""
    client = ReplicaClient(await connections.get(replica, address), range_key(of))
    return await client.fence(epoch, timeout_s=FENCE_TIMEOUT_S)


async def fence_range(
    connections: DataConnections, of: common_pb2.Range, epoch: int, timeout_s: float = FENCE_TIMEOUT_S
) -> bool:
    """Fence a range below `epoch`; return whether enough replicas are fenced. Waits no longer than `timeout_s`."""

    async def fence(replica: ReplicaId, address: str) -> None:
        while True:
            try:
                await fence_replica(connections, replica, address, of, epoch)
            except WriterFenced:
                return
            except RangelogError:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    addresses = {replica_id(each.server, each.incarnation): each.data_address for each in of.replicas}
    pending = {asyncio.create_task(fence(replica, address)) for replica, address in addresses.items()}
    missing = seal_quorum(len(addresses), of.acks)
    try:
        async with asyncio.timeout(timeout_s):
            while missing > 0:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                missing -= len(done)
    except TimeoutError:
        return False
    finally:
        for task in pending:
            task.cancel()
    return True


async def fence_deleted(connections: DataConnections, deleted: pd_pb2.DeleteStreamResponse) -> None:
    """Fence what was open in a stream that is gone, above the epoch of whoever wrote. Best effort, for a bounded time."""
    if deleted.HasField("open_range"):
        await fence_range(connections, deleted.open_range, deleted.stream.epoch + 1)
