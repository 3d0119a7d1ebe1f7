"""The report of a replica for the placement driver and pdctl."""

from __future__ import annotations

from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.replica import DiskTrust, Replica


def state_of(core: Replica) -> pb.ReplicaState:
    """Return the state to report."""
    if core.trust is DiskTrust.QUARANTINED:
        return pb.REPLICA_STATE_QUARANTINED
    if core.sealed_end_offset is not None:
        return pb.REPLICA_STATE_SEALED if core.complete else pb.REPLICA_STATE_INCOMPLETE
    return pb.REPLICA_STATE_FENCED if core.fenced else pb.REPLICA_STATE_OPEN


def report_of(hosted: HostedReplica) -> pb.ReplicaReport:
    """Return the report of one replica."""
    core = hosted.core
    return pb.ReplicaReport(
        stream_id=core.stream_id,
        range_index=core.range_index,
        state=state_of(core),
        start_offset=core.start_offset,
        durable_offset=core.durable_offset,
        confirm_offset=core.confirm_offset,
        epoch=core.epoch,
        size_bytes=core.size_bytes,
        problem=core.problem,
    )


def report_gone(key: tuple[int, int]) -> pb.ReplicaReport:
    """Return the report of a dropped replica."""
    return pb.ReplicaReport(stream_id=key[0], range_index=key[1], state=pb.REPLICA_STATE_UNSPECIFIED)
