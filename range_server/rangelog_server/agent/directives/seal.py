"""SealReplica: store the committed end of a range."""

from __future__ import annotations

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.flush_waiter import FlushWaiter
from rangelog_server.ranges.store import Store


async def seal_replica(store: Store, directive: pb.Directive) -> None:
    """Store the end, durably. Raises PreconditionFailed when the replica has another end, StorageFull."""
    action = directive.seal_replica
    await commit_end(store, directive, action.epoch, action.start_offset, action.end_offset)


async def commit_end(store: Store, directive: pb.Directive, epoch: int, start_offset: int, end_offset: int) -> None:
    """Store the end that the placement driver committed."""
    done = FlushWaiter()
    store.commit_end(
        directive.stream_id,
        directive.range_index,
        start_offset,
        end_offset,
        epoch,
        done,
        by_placement_driver=True,
    )
    await done.wait(store)
