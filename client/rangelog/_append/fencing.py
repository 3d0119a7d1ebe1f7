"""Fences a range's replicas: a fenced replica refuses appends of lower epochs, so these are never acked.

What holds: a replica counts as fenced when it has replied, since its fence is on disk then, or when it has dropped the range.
A range is fenced when the replicas that are not fenced are too few for an ack.
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
    """Fence one replica; the answer holds its durable offset. Raises WriterFenced (higher fence, or dropped), Unavailable, …"""
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
    pending: set[asyncio.Task[None]] = {asyncio.create_task(fence(*each)) for each in addresses.items()}
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
    """Fence the open range of a deleted stream above the epoch of its writer. Best effort, for a bounded time."""
    if deleted.HasField("open_range"):
        await fence_range(connections, deleted.open_range, deleted.stream.epoch + 1)
