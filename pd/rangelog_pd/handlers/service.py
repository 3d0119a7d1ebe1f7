"""The gRPC servicers: each call goes to its handler. Errors are mapped by the server's interceptor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rangelog_pd.driver import Driver
from rangelog_pd.handlers import batches, brokers, cluster, members, objects, ranges, servers, streams, topics, watch
from rangelog_proto.v1.broker_pb2_grpc import BrokersServicer
from rangelog_proto.v1.members_pb2_grpc import MembersServicer
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer
from rangelog_proto.v1.topic_pb2_grpc import TopicsServicer

SERVICE_NAME = "rangelog.v1.PlacementDriver"
TOPICS_SERVICE_NAME = "rangelog.v1.Topics"
BROKERS_SERVICE_NAME = "rangelog.v1.Brokers"
MEMBERS_SERVICE_NAME = "rangelog.v1.Members"

_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "CreateStream": streams.create_stream,
    "DescribeStream": streams.describe_stream,
    "ListStreams": streams.list_streams,
    "UpdateStream": streams.update_stream,
    "DeleteStream": streams.delete_stream,
    "TrimStream": streams.trim_stream,
    "OpenWriter": ranges.open_writer,
    "CreateRange": ranges.create_range,
    "SealRange": ranges.seal_range,
    "OpenWriters": batches.open_writers,
    "SealRanges": batches.seal_ranges,
    "ProveEnd": ranges.prove_end,
    "ListRanges": ranges.list_ranges,
    "Watch": watch.watch,
    "PrepareObject": objects.prepare_object,
    "CommitObject": objects.commit_object,
    "ListObjects": objects.list_objects,
    "PrepareRepack": objects.prepare_repack,
    "CommitRepack": objects.commit_repack,
    "RegisterServer": servers.register_server,
    "Heartbeat": servers.heartbeat,
    "ListServers": servers.list_servers,
    "DescribeCluster": cluster.describe_cluster,
    "ListTasks": cluster.list_tasks,
}

_TOPIC_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "CreateNamespace": topics.create_namespace,
    "DeleteNamespace": topics.delete_namespace,
    "ListNamespaces": topics.list_namespaces,
    "CreateTopic": topics.create_topic,
    "DescribeTopic": topics.describe_topic,
    "ListTopics": topics.list_topics,
    "UpdateTopic": topics.update_topic,
    "TruncateTopic": topics.truncate_topic,
    "SealTopic": topics.seal_topic,
    "DeleteTopic": topics.delete_topic,
    "ListShards": topics.list_shards,
    "StartScale": topics.start_scale,
    "CancelScale": topics.cancel_scale,
    "CommitScale": topics.commit_scale,
    "EndShard": topics.end_shard,
    "EnsureLog": topics.ensure_log,
    "ReportConsumed": topics.report_consumed,
}

_BROKER_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "RegisterBroker": brokers.register_broker,
    "BrokerHeartbeat": brokers.broker_heartbeat,
    "ReportBrokerLost": brokers.report_broker_lost,
    "ListBrokers": brokers.list_brokers,
    "FindOwners": brokers.find_owners,
}

_MEMBER_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "ListMembers": members.list_members,
    "AddMember": members.add_member,
    "RemoveMember": members.remove_member,
    "TransferLeadership": members.transfer_leadership,
    "SaveState": members.save_state,
}


class Service(PlacementDriverServicer):
    """All calls of the placement driver."""

    def __init__(self, driver: Driver) -> None:
        for name, handler in _HANDLERS.items():
            setattr(self, name, _bind(driver, handler))


class TopicsService(TopicsServicer):
    """All calls on topics, on the placement driver's port."""

    def __init__(self, driver: Driver) -> None:
        for name, handler in _TOPIC_HANDLERS.items():
            setattr(self, name, _bind(driver, handler))


class BrokersService(BrokersServicer):
    """All calls of and on brokers, on the placement driver's port."""

    def __init__(self, driver: Driver) -> None:
        for name, handler in _BROKER_HANDLERS.items():
            setattr(self, name, _bind(driver, handler))


class MembersService(MembersServicer):
    """All calls on the members of the group, on the placement driver's port."""

    def __init__(self, driver: Driver) -> None:
        for name, handler in _MEMBER_HANDLERS.items():
            setattr(self, name, _bind(driver, handler))


def _bind(driver: Driver, handler: Callable[[Driver, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        return await handler(driver, request)

    return call
