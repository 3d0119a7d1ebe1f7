"""The rows of a placement driver's state, as the snapshot of feature level 1 held them."""

from __future__ import annotations

from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import pd_state_pb2


def level_1_snapshot(machine: Machine) -> pd_state_pb2.StateSnapshot:
    """What a member of feature level 1 would have written, without the kept results."""
    state = machine.state
    return pd_state_pb2.StateSnapshot(
        version=1,
        cluster_id=state.cluster_id,
        time_ms=state.time_ms,
        next_stream_id=state.next_stream_id,
        next_object_id=state.next_object_id,
        streams=state.streams.values(),
        ranges=state.ranges.values(),
        objects=state.objects.values(),
        servers=state.servers.values(),
    )
