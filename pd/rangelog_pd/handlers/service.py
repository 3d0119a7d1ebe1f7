"""The gRPC services of a placement driver: each call goes to its handler. Errors are mapped by the server's interceptor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from rangelog_pd.driver import Driver
from rangelog_pd.handlers import (
    audit,
    audited,
    batches,
    brokers,
    client_rights,
    cluster,
    cursors,
    inspection,
    members,
    objects,
    operations,
    placement,
    quotas,
    ranges,
    repairs,
    restore,
    rights,
    servers,
    streams,
    tier,
    tokens,
    topics,
    watch,
)
from rangelog_proto.v1 import (
    audit_pb2_grpc,
    broker_pb2_grpc,
    cursor_pb2_grpc,
    inspection_pb2_grpc,
    members_pb2_grpc,
    operations_pb2_grpc,
    pd_pb2_grpc,
    placement_pb2_grpc,
    quotas_pb2_grpc,
    repair_pb2_grpc,
    restore_pb2_grpc,
    rights_pb2_grpc,
    tier_pb2_grpc,
    tokens_pb2_grpc,
    topic_pb2_grpc,
)
from rangelog_server_common.grpc_server import current_caller, host_of

Handler = Callable[[Driver, Any], Awaitable[Any]]

_HANDLERS: dict[str, Handler] = {
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
_TOPIC_HANDLERS: dict[str, Handler] = {
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
_BROKER_HANDLERS: dict[str, Handler] = {
    "RegisterBroker": brokers.register_broker,
    "BrokerHeartbeat": brokers.broker_heartbeat,
    "ReportBrokerLost": brokers.report_broker_lost,
    "ListBrokers": brokers.list_brokers,
    "FindOwners": brokers.find_owners,
}
_REPAIR_HANDLERS: dict[str, Handler] = {
    "ListRepairs": repairs.list_repairs,
    "AcceptLoss": repairs.accept_loss,
}
_INSPECTION_HANDLERS: dict[str, Handler] = {
    "InspectRanges": inspection.inspect_ranges,
    "LocateOffset": inspection.locate_offset,
    "FindTasks": inspection.find_tasks,
    "CancelTask": inspection.cancel_task,
    "InspectMember": inspection.inspect_member,
}
_TIER_HANDLERS: dict[str, Handler] = {
    "DescribeTier": tier.describe_tier,
    "FindObjects": tier.find_objects,
    "ReuploadObject": tier.reupload_object,
    "SetTier": tier.set_tier,
}

_OPERATION_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "SetServerMode": operations.set_server_mode,
    "RemoveServer": operations.remove_server,
    "DescribeDrain": operations.describe_drain,
    "CheckImpact": operations.check_impact,
    "FinalizeUpgrade": operations.finalize_upgrade,
}

_CURSOR_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "SetCursors": cursors.set_cursors,
    "GetCursor": cursors.get_cursor,
    "ListCursors": cursors.list_cursors,
    "DeleteCursor": cursors.delete_cursor,
}

_PLACEMENT_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "ExplainPlacement": placement.explain_placement,
    "PlanRebalance": placement.plan,
    "ApplyRebalance": placement.apply,
    "DescribeRebalance": placement.describe_rebalance,
}

_RESTORE_HANDLERS: dict[str, Handler] = {
    "BeginRestore": restore.begin_restore,
    "RestoreRows": restore.restore_rows,
    "EndRestore": restore.end_restore,
    "DescribeRestore": restore.describe_restore,
}

_RIGHTS_HANDLERS: dict[str, Handler] = {
    "GrantRights": rights.grant_rights,
    "RevokeRights": rights.revoke_rights,
    "ListRights": rights.list_rights,
    "EnforceRights": rights.enforce_rights,
    "CheckRights": rights.check_rights,
}

_AUDIT_HANDLERS: dict[str, Handler] = {
    "SetAudit": audit.set_audit,
    "DescribeAudit": audit.describe_audit,
}

_TOKEN_HANDLERS: dict[str, Handler] = {
    "CreateToken": tokens.create_token,
    "ListTokens": tokens.list_tokens,
    "RevokeToken": tokens.revoke_token,
    "GetTokenTrust": tokens.get_token_trust,
}

_QUOTA_HANDLERS: dict[str, Handler] = {
    "SetQuota": quotas.set_quota,
    "RemoveQuota": quotas.remove_quota,
    "ListQuotas": quotas.list_quotas,
}

_HIDDEN_BY_RESTORE: frozenset[Handler] = frozenset(
    {
        streams.describe_stream, streams.list_streams, ranges.list_ranges, watch.watch, objects.list_objects,
        topics.list_namespaces, topics.describe_topic, topics.list_topics, topics.list_shards, brokers.find_owners,
    }
)  # fmt: skip
"""Reads of rows, which a restore in progress has not put yet. Commands are refused by the state machine."""

_MEMBER_HANDLERS: dict[str, Callable[[Driver, Any], Awaitable[Any]]] = {
    "ListMembers": members.list_members,
    "AddMember": members.add_member,
    "RemoveMember": members.remove_member,
    "TransferLeadership": members.transfer_leadership,
    "SaveState": members.save_state,
}


class Service(NamedTuple):
    """One service: its name, the generated class of its calls and the function that adds it to a server, and the handlers."""

    name: str
    servicer: type[Any]
    add_to_server: Callable[[Any, Any], None]
    handlers: Mapping[str, Handler]

    @property
    def full_name(self) -> str:
        """The name on the wire."""
        return f"rangelog.v1.{self.name}"


def _service(module: Any, name: str, handlers: Mapping[str, Handler]) -> Service:
    return Service(name, getattr(module, f"{name}Servicer"), getattr(module, f"add_{name}Servicer_to_server"), handlers)


SERVICES = (
    _service(pd_pb2_grpc, "PlacementDriver", _HANDLERS),
    _service(topic_pb2_grpc, "Topics", _TOPIC_HANDLERS),
    _service(broker_pb2_grpc, "Brokers", _BROKER_HANDLERS),
    _service(repair_pb2_grpc, "Repairs", _REPAIR_HANDLERS),
    _service(tier_pb2_grpc, "Tier", _TIER_HANDLERS),
    _service(operations_pb2_grpc, "Operations", _OPERATION_HANDLERS),
    _service(cursor_pb2_grpc, "Cursors", _CURSOR_HANDLERS),
    _service(placement_pb2_grpc, "Placement", _PLACEMENT_HANDLERS),
    _service(inspection_pb2_grpc, "Inspection", _INSPECTION_HANDLERS),
    _service(restore_pb2_grpc, "Restore", _RESTORE_HANDLERS),
    _service(members_pb2_grpc, "Members", _MEMBER_HANDLERS),
    _service(rights_pb2_grpc, "Rights", _RIGHTS_HANDLERS),
    _service(audit_pb2_grpc, "Audit", _AUDIT_HANDLERS),
    _service(tokens_pb2_grpc, "Tokens", _TOKEN_HANDLERS),
    _service(quotas_pb2_grpc, "Quotas", _QUOTA_HANDLERS),
)
"""All services on a placement driver's port."""


def bound(driver: Driver, name: str) -> Any:
    """Return the servicer of one service, whose calls go to a driver.

    Example: `bound(driver, "Topics")`.
    """
    (found,) = [each for each in SERVICES if each.name == name]
    servicer = found.servicer()
    for call, handler in found.handlers.items():
        setattr(servicer, call, _bind(driver, call, handler))
    return servicer


def add_services(driver: Driver, server: Any) -> tuple[str, ...]:
    """Add all services to a gRPC server; return their names on the wire."""
    for each in SERVICES:
        each.add_to_server(bound(driver, each.name), server)
    return tuple(each.full_name for each in SERVICES)


def _bind(driver: Driver, name: str, handler: Handler) -> Callable[[Any, Any], Awaitable[Any]]:
    hidden, tls = handler in _HIDDEN_BY_RESTORE, driver.settings.tls is not None

    async def call(request: Any, context: Any) -> Any:
        caller = current_caller(context, tls=tls)
        client = client_rights.limited(caller, tls=tls)
        if name in audited.AUDITED:
            return await client_rights.serve(
                driver, name, audited.recorded(name, handler, caller, host_of(context)), request, client
            )
        if not hidden:
            if name in ("OpenWriter", "OpenWriters") and caller is not None:
                audit.check_writer(driver, request, caller)
            if handler is audit.set_audit:
                audit.CALLER.set((str(caller or ""), host_of(context)))
            return await client_rights.serve(driver, name, handler, request, client)
        before = driver.check_restored()
        answer = await client_rights.serve(driver, name, handler, request, client)
        driver.check_restored(before)  # the handler's barrier may have brought the start of a restore, or its end
        return answer

    return call
