"""The writer's dealings with the placement driver when it leaves a range: probe, seal and create, tell the old replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rangelog._metadata import SEAL_TRY_TIMEOUT_S, Metadata, backoff, new_request_id
from rangelog.protocol.appender import Leave, Probe, SealRange
from rangelog_core.errors import NoPlacement, RangelogError
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.replica_client import RangeKey, ReplicaClient
from rangelog_proto.v1 import pd_pb2

_PROBE_TIMEOUT_S = 2.0
_LEAVE_TIMEOUT_S = 2.0


async def probe_placement(metadata: Metadata, effect: Probe) -> bool:
    """Return whether the placement driver answers and has enough servers to go to."""
    try:
        alive = await metadata.alive_servers(_PROBE_TIMEOUT_S)
    except RangelogError:
        return False
    if effect.strictly:
        alive = [server for server in alive if server not in effect.exclude_servers]
    return len(alive) >= effect.servers_min


async def seal_and_create(
    metadata: Metadata, stream_id: int, epoch: int, effect: SealRange
) -> pd_pb2.SealRangeResponse | None:
    """Seal and create the next range; None: nothing was changed, there is no better place.

    The confirm offset is frozen meanwhile, and whether an unanswered try was applied is unknown: so the same command is
    repeated until it is answered. Raises WriterFenced, StreamNotFound and whatever else is final.
    """
    request = pd_pb2.SealRangeRequest(
        request_id=new_request_id(),
        stream_id=stream_id,
        range_index=effect.range_index,
        epoch=epoch,
        end_offset=effect.end_offset,
        create_next=True,
        exclude_servers=effect.exclude_servers,
        exclude_strictly=effect.strictly,
    )
    attempt = 0
    while True:
        try:
            return await metadata.seal_range(request, SEAL_TRY_TIMEOUT_S)
        except NoPlacement:
            return None
        except RangelogError as error:
            if not error.retriable:
                raise
        await backoff(attempt)
        attempt += 1


async def leave_range(
    connections: DataConnections, stream_id: int, epoch: int, effect: Leave, addresses: Mapping[ReplicaId, str]
) -> None:
    """Tell the old range's replicas the committed end. Best effort: the placement driver tells them as well."""
    key = RangeKey(stream_id, effect.range_index, effect.start_offset)

    async def tell(replica: ReplicaId) -> None:
        try:
            client = ReplicaClient(await connections.get(replica, addresses.get(replica, "")), key)
            await client.commit_end(epoch, effect.end_offset, timeout_s=_LEAVE_TIMEOUT_S)
        except RangelogError:
            return

    await asyncio.gather(*(tell(replica) for replica in effect.replicas))
