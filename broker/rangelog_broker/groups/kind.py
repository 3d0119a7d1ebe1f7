"""Groups, as a kind of machine on coordinator journals."""

from __future__ import annotations

from typing import Any

from rangelog_broker.groups.machine import GroupCoordinator
from rangelog_broker.groups.service import GroupsService
from rangelog_broker.kind import KindCall, MachineKind, Need, on_group
from rangelog_core.rights import ANY, Verb
from rangelog_proto.v1 import rights_pb2 as pb
from rangelog_proto.v1.group_service_pb2_grpc import add_GroupsServicer_to_server


def _joining(request: Any) -> list[Need]:
    """A member learns of the topics' shards, and its group may hold up what is trimmed of them."""
    topics = ((Verb.READ, pb.RESOURCE_KIND_TOPIC, "", topic_id) for topic_id in request.join.topic_ids)
    return [(Verb.READ, pb.RESOURCE_KIND_GROUP, request.group, 0), *topics]


def _staging_positions(request: Any) -> list[Need]:
    """They are of the transaction as well, as what a STAGE frame stages is."""
    by = request.stage.transactional_id
    return [(Verb.READ, pb.RESOURCE_KIND_GROUP, request.group, 0), (Verb.APPEND, pb.RESOURCE_KIND_TRANSACTION, by, 0)]


def _resetting(request: Any) -> list[Need]:
    """A position that moves back holds up what is trimmed of its topic, as a member does that joins."""
    topics = sorted({each.shard.topic_id for each in request.reset.positions})
    return [
        (Verb.ADMIN, pb.RESOURCE_KIND_GROUP, request.group, 0),
        *((Verb.READ, pb.RESOURCE_KIND_TOPIC, "", topic_id) for topic_id in topics),
    ]


_READS, _LOOKS, _ADMINISTERS = KindCall(on_group(Verb.READ)), KindCall(on_group(ANY)), KindCall(on_group(Verb.ADMIN))

GROUPS = MachineKind(
    number=1,
    service="rangelog.v1.Groups",
    make=lambda number: GroupCoordinator(),
    open=lambda journals, context: GroupsService(journals, context.topics, context.calls, context.rights),
    add=add_GroupsServicer_to_server,
    calls={
        "OpenGroupSession": KindCall(lambda request: [(ANY, pb.RESOURCE_KIND_GROUP, request.group or "*", 0)]),
        "JoinGroup": KindCall(_joining),
        "HeartbeatGroup": _READS,
        "LeaveGroup": _READS,
        "CommitPositions": _READS,
        "ReleaseShards": _READS,
        "ReachCheckpoint": _READS,
        "StagePositions": KindCall(_staging_positions),
        "ListGroups": KindCall(lambda request: [(ANY, pb.RESOURCE_KIND_GROUP, f"{request.prefix}*", 0)]),
        "DescribeGroup": _LOOKS,
        "DescribeCheckpoint": _LOOKS,
        "ResetGroup": KindCall(_resetting),
        "DeleteGroup": _ADMINISTERS,
        "UnsubscribeGroup": _ADMINISTERS,
        "RetainGroup": _ADMINISTERS,
        "RequestCheckpoint": _ADMINISTERS,
        "DeleteCheckpoint": _ADMINISTERS,
    },
)
