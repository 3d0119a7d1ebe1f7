"""The gRPC services of a placement driver: each call goes to its handler. Errors are mapped by the server's interceptor."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from rangelog_core.net import principals
from rangelog_core.net.principals import CallRules
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
from rangelog_pd.handlers.call import Call
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


class Service(NamedTuple):
    """One service: its name, the generated module of its calls, and these."""

    name: str
    module: Any
    calls: tuple[Call, ...]

    @property
    def full_name(self) -> str:
        """The name on the wire."""
        return f"rangelog.v1.{self.name}"


SERVICES = (
    Service(
        "PlacementDriver",
        pd_pb2_grpc,
        (
            *streams.CALLS,
            *ranges.CALLS,
            *batches.CALLS,
            *watch.CALLS,
            *objects.CALLS,
            *servers.CALLS,
            *cluster.CALLS,
        ),
    ),
    Service("Topics", topic_pb2_grpc, topics.CALLS),
    Service("Brokers", broker_pb2_grpc, brokers.CALLS),
    Service("Repairs", repair_pb2_grpc, repairs.CALLS),
    Service("Tier", tier_pb2_grpc, tier.CALLS),
    Service("Operations", operations_pb2_grpc, operations.CALLS),
    Service("Cursors", cursor_pb2_grpc, cursors.CALLS),
    Service("Placement", placement_pb2_grpc, placement.CALLS),
    Service("Inspection", inspection_pb2_grpc, inspection.CALLS),
    Service("Restore", restore_pb2_grpc, restore.CALLS),
    Service("Members", members_pb2_grpc, members.CALLS),
    Service("Rights", rights_pb2_grpc, rights.CALLS),
    Service("Audit", audit_pb2_grpc, audit.CALLS),
    Service("Tokens", tokens_pb2_grpc, tokens.CALLS),
    Service("Quotas", quotas_pb2_grpc, quotas.CALLS),
)
"""All services on a placement driver's port."""

CALLS = {call.name: call for each in SERVICES for call in each.calls}
"""By name: no two services have a call of the same name."""

RULES = CallRules(
    {**principals.RULES.roles}
    | {f"{each.full_name}/{call.name}": call.roles for each in SERVICES for call in each.calls},
    {
        f"{each.full_name}/{call.name}": call.caller_field
        for each in SERVICES
        for call in each.calls
        if call.caller_field
    },
)
"""Who may make which of their calls, and of those of other servers."""


def bound(driver: Driver, name: str) -> Any:
    """Return the servicer of one service, whose calls go to a driver.

    Example: `bound(driver, "Topics")`.
    """
    (found,) = [each for each in SERVICES if each.name == name]
    servicer = getattr(found.module, f"{name}Servicer")()
    for call in found.calls:
        setattr(servicer, call.name, _bind(driver, call))
    return servicer


def add_services(driver: Driver, server: Any) -> tuple[str, ...]:
    """Add all services to a gRPC server; return their names on the wire."""
    for each in SERVICES:
        getattr(each.module, f"add_{each.name}Servicer_to_server")(bound(driver, each.name), server)
    return tuple(each.full_name for each in SERVICES)


def _bind(driver: Driver, made: Call) -> Callable[[Any, Any], Awaitable[Any]]:
    tls = driver.settings.tls is not None

    async def call(request: Any, context: Any) -> Any:
        caller = current_caller(context, tls=tls)
        client = client_rights.limited(caller, tls=tls)
        handler = made.handler
        if made.audit is not None:
            handler = audited.recorded(made, handler, caller, host_of(context))
        if made.check is not None and caller is not None:
            made.check(driver, request, caller)
        if made.tells_caller:
            handler = partial(handler, caller=(str(caller or ""), host_of(context)))
        if not made.hidden_by_restore:
            return await client_rights.serve(driver, made.needs, handler, request, client)
        before = driver.check_restored()
        answer = await client_rights.serve(driver, made.needs, handler, request, client)
        driver.check_restored(before)  # the handler's barrier may have brought the start of a restore, or its end
        return answer

    return call
