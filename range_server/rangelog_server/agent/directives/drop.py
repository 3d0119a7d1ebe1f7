"""DropReplica: forget a replica that the placement driver does not want here any more."""

from __future__ import annotations

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.flush_waiter import FlushWaiter
from rangelog_server.ranges.store import Store


async def drop_replica(store: Store, directive: pb.Directive) -> None:
    """Forget the replica, durably. Raises StorageFull."""
    done = FlushWaiter()
    store.drop(directive.stream_id, directive.range_index, done)
    await done.wait(store)
