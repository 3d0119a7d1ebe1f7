"""Calls of and on range servers: registrations are log entries, heartbeats stay in the leader's memory."""

from __future__ import annotations

from rangelog_core.errors import DirectoryGivenUp, InvalidArgument, PreconditionFailed
from rangelog_core.ids import check_name
from rangelog_core.labels import check_labels
from rangelog_core.limits import ADDRESS_LENGTH_MAX
from rangelog_core.net.principals import WITH_PD
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import needs
from rangelog_pd.handlers.call import RANGE_SERVERS, Call
from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.directives import Planner
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.tier_stores import tier_url
from rangelog_pd.state.versions import LEVEL_HOSTS, LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, pd_state_pb2
from rangelog_proto.v1 import pd_pb2 as pb


async def register_server(driver: Driver, request: pb.RegisterServerRequest) -> pb.RegisterServerResponse:
    """Register a server. Raises InvalidArgument, DirectoryGivenUp, PreconditionFailed (rolled back, or another is alive)."""
    check_name("range server", request.server)
    texts = (request.data_address, request.control_address, request.zone, request.version, request.rack, request.host)
    if any(len(text) > ADDRESS_LENGTH_MAX for text in texts) or not request.data_address:
        raise InvalidArgument("a range server registers with an address, and no field over 300 characters")
    check_labels(request.labels)
    await driver.barrier()
    if (request.rack or request.labels) and not driver.knows_level(LEVEL_OPERATIONS):
        request.rack = ""  # the server is known by them from its next registration on
        del request.labels[:]
    if not driver.knows_level(LEVEL_HOSTS):
        request.host = ""  # a heartbeat asks for another registration
    with driver.state() as state:
        known = state.servers.find(request.server)
        _check_not_given_up(known or state.removed.find(request.server), request)
        if known is not None and known.server.incarnation != request.incarnation:
            health = driver.view.health(state, request.server, known.server.incarnation, driver.now_ms())
            if health is not ServerHealth.DEAD:
                raise PreconditionFailed(
                    f"another range server named {request.server!r} is registered and {health.name.lower()}: "
                    "choose another name, or wait until its lease is over"
                )
        heard = driver.view.of(request.server, request.incarnation)
    if heard is not None and request.log_end < heard.log_end:  # the state has the end once a second
        mark = pd_state_pb2.MarkLogEnd(server=request.server, incarnation=heard.incarnation, log_end=heard.log_end)
        await driver.propose(pb.ListTasksResponse, "", mark_log_end=mark)
    response = await driver.propose(pb.RegisterServerResponse, request.request_id, register_server=request)
    driver.view.registered(request.server, request.incarnation, driver.now_ms(), boot=request.boot)
    response.heartbeat_interval_ms = driver.settings.heartbeat_interval_ms
    response.tier_url = driver.tier_url()
    driver.put_versions(response)
    return response


def _check_not_given_up(known: pd_state_pb2.RegisteredServer | None, request: pb.RegisterServerRequest) -> None:
    """Raise DirectoryGivenUp for an incarnation that never counts again; the state refuses it too, as all members know how."""
    if known is not None and request.incarnation in known.retired:
        raise DirectoryGivenUp(
            f"range server {request.server} was removed, or another data directory has replaced this one, whose replicas are "
            "given up: move it away and start with an empty one"
        )


async def heartbeat(driver: Driver, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
    """Apply a heartbeat's reports and return the server's directives. Raises PreconditionFailed: register first."""
    await driver.barrier()
    now_ms, wall_ms = driver.now_ms(), driver.wall_ms()
    driver.heard_clock(request.server, request.wall_ms)
    time_ms = driver.time_ms()
    with driver.state() as state:
        known = state.servers.find(request.server)
        if known is None or known.server.incarnation != request.incarnation:
            raise PreconditionFailed(f"range server {request.server} is not registered in this incarnation")
        if known.server.host != request.host and state.cluster_version >= LEVEL_HOSTS:
            raise PreconditionFailed(f"range server {request.server} is not registered with its host yet")
        send_complete = driver.view.heartbeat(request, now_ms, wall_ms)
        deleted = driver.tasks.report(request.tasks, wall_ms)
        for task in request.tasks:
            driver.view.complain(state, task.failed_servers, f"server {request.server}", now_ms)
        for report in request.tasks:
            if report.done:
                driver.view.upkeep.manifests.done(report.task_id)
            driver.view.upkeep.repacks.reported(report.task_id, error=report.error, now_ms=now_ms)
            if report.writer_answers and (task_of := driver.tasks.find(report.task_id, wall_ms)) is not None:
                driver.view.upkeep.orphans.writer_answers((task_of.stream_id, task_of.range_index), now_ms)
        tier, grace_ms = tier_url(state, driver.settings.tier_url), driver.settings.delete_grace_ms
        planner = Planner(state, driver.view, bool(tier), now_ms, time_ms, grace_ms)
        directives = planner.directives(request.server, request.incarnation)
        for directive in directives:
            stream = state.streams.find(directive.stream_id)
            driver.tasks.want(request.server, directive, stream.name if stream is not None else "", wall_ms)
    if deleted:
        command = pd_state_pb2.CollectObjects(object_ids=deleted)
        await driver.propose(pb.ListTasksResponse, "", collect_objects=command)
    response = pb.HeartbeatResponse(directives=directives, send_complete=send_complete, tier_url=tier)
    driver.put_versions(response)
    return response


async def list_servers(driver: Driver, request: pb.ListServersRequest) -> pb.ListServersResponse:
    """Return all servers that ever registered, by name."""
    await driver.barrier()
    with driver.state() as state:
        return pb.ListServersResponse(servers=describe_servers(driver, state))


def describe_servers(driver: Driver, state: State) -> list[common_pb2.Server]:
    """Return the registered servers, with their health and load as this member knows them."""
    return [describe_server(driver, state, name) for name in sorted(state.servers)]


def describe_server(driver: Driver, state: State, name: str) -> common_pb2.Server:
    """Return a registered server, with its health, load and mode."""
    registered = state.servers[name]
    server = copy_of(registered.server)
    view = driver.view.of(name, server.incarnation)
    server.health = driver.view.shown_health(state, name, server.incarnation, driver.now_ms())
    server.health_reason = driver.view.complaints.avoided.get(name, "")
    hosted = state.hosted.of(name, server.incarnation)
    server.replica_count, server.open_range_count = len(hosted), len(hosted.open)
    server.mode = registered.mode or common_pb2.SERVER_MODE_ACTIVE
    if view is not None:
        server.used_bytes = view.used_bytes
        server.capacity_bytes = view.capacity_bytes
        server.last_heartbeat_ms = view.heard_wall_ms
        server.feature_level = view.feature_level
        if view.log_error:
            server.health_reason = f"its log cannot grow: {view.log_error}"
    return server


CALLS = (
    Call("RegisterServer", register_server, RANGE_SERVERS, caller_field="server"),
    Call("Heartbeat", heartbeat, RANGE_SERVERS, caller_field="server"),
    Call("ListServers", list_servers, WITH_PD, needs=needs.nothing),
)
