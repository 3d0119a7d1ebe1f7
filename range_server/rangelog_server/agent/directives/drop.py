"""DropReplica: drop a replica that the placement driver has placed elsewhere or no longer needs."""

from __future__ import annotations

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.flush_waiter import FlushWaiter
from rangelog_server.ranges.store import Store


async def drop_replica(store: Store, directive: pb.Directive) -> None:
    """Drop the replica, durably. Raises StorageFull."""
    done = FlushWaiter()
    store.drop(directive.stream_id, directive.range_index, done)
    await done.wait(store)
