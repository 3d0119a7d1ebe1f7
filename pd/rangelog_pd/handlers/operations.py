"""Calls of operators on range servers: modes, removal, how far a drain is, what an absence would do."""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_core.errors import InvalidArgument, OutcomeUnknown, PreconditionFailed, RangeNotFound
from rangelog_core.net.principals import ADMINS, Role
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import Call
from rangelog_pd.handlers.servers import describe_server, describe_servers
from rangelog_pd.reconcile import draining, finalizing, impact
from rangelog_pd.reconcile.finalizing import Announced
from rangelog_pd.reconcile.impact import LISTED_MAX
from rangelog_pd.reconcile.task_board import task_id_of
from rangelog_pd.state.server_modes import registered
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import operations_pb2 as pb

LISTED_DEFAULT = 20
NAMES_MAX = 100


async def set_server_mode(driver: Driver, request: pb.SetServerModeRequest) -> pb.SetServerModeResponse:
    """Cordon, uncordon or drain a server. Raises InvalidArgument, RangeNotFound, PreconditionFailed (a drain could not end)."""
    await driver.barrier()
    with driver.state() as state:
        registered(state, request.server)
        if request.mode == common_pb2.SERVER_MODE_DRAINING and request.server not in state.modes.draining:
            draining.check_drain(state, driver.view, request.server, driver.now_ms())
    await driver.propose_request(pb.SetServerModeResponse, request.request_id, set_server_mode=request)
    with driver.state() as state:
        registered(state, request.server)
        return pb.SetServerModeResponse(server=describe_server(driver, state, request.server))


async def remove_server(driver: Driver, request: pb.RemoveServerRequest) -> pb.RemoveServerResponse:
    """Remove a server for good. Raises InvalidArgument, RangeNotFound, PreconditionFailed, Unavailable (not known yet)."""
    await driver.barrier()
    with driver.state() as state:
        if request.server not in state.removed:  # else a repeat, whose answer is kept, or RangeNotFound
            known = registered(state, request.server)
            request.dead = draining.check_removal(
                state, driver.view, request.server, driver.now_ms(), accept_loss=request.accept_loss
            )
            request.incarnation = request.incarnation or known.server.incarnation
    return await driver.propose_request(pb.RemoveServerResponse, request.request_id, remove_server=request)


async def describe_drain(driver: Driver, request: pb.DescribeDrainRequest) -> pb.DescribeDrainResponse:
    """Return what a server has left, and what keeps it there. Raises InvalidArgument, RangeNotFound."""
    await driver.barrier()
    listed_max = _listed_max(request.listed_max)
    with driver.state() as state:
        known = registered(state, request.server)
        incarnation = known.server.incarnation
        left = draining.progress(state, driver.view, known)
        response = pb.DescribeDrainResponse(
            server=describe_server(driver, state, request.server),
            open_count=left.open_count,
            sealed_count=left.sealed_count,
            copying_count=len(left.copying),
            reported=left.reported,
        )
        moves = driver.view.upkeep.moves
        troubles = [*moves.blocked_on(state, request.server, incarnation), *_failed_copies(driver, state, left.copying)]
        response.blocked_count = len(troubles)
        for key, reason in troubles[:listed_max]:
            response.blocked.append(_trouble(state, key, reason))
    return response


async def check_impact(driver: Driver, request: pb.CheckImpactRequest) -> pb.CheckImpactResponse:
    """Return what would be wrong if the named servers went down now. Raises InvalidArgument, RangeNotFound."""
    if not 1 <= len(request.names) <= NAMES_MAX:
        raise InvalidArgument(f"{len(request.names)} servers are named; 1 to {NAMES_MAX} are allowed")
    await driver.barrier()
    names = dict.fromkeys(request.names)
    members = {each.name: each.reachable for each in driver.consensus.status().members}
    with driver.state() as state:
        for name in names:
            if name not in state.servers and name not in members:
                raise RangeNotFound(f"no range server or placement driver {name!r}: see `pdctl cluster status`")
        now_ms = driver.now_ms()
        found = impact.check(state, driver.view, names, now_ms, _listed_max(request.listed_max))
        response = pb.CheckImpactResponse(
            range_count=found.range_count,
            lost=[_trouble(state, key, "no copy is left", left) for key, left in found.lost],
            lost_count=found.lost_count,
            short=[_trouble(state, key, "fewer copies than acks", left) for key, left in found.short],
            short_count=found.short_count,
            stalled=[_trouble(state, key, "open, and takes no append", left) for key, left in found.stalled],
            stalled_count=found.stalled_count,
            members_reachable=sum(reachable for name, reachable in members.items() if name not in names),
            members_needed=len(members) // 2 + 1,
            unreported=impact.unreported(state, driver.view, names, now_ms)[:NAMES_MAX],
        )
    keeps_majority = response.members_reachable >= response.members_needed
    response.safe = found.is_harmless and keeps_majority and not response.unreported
    return response


async def finalize_upgrade(driver: Driver, request: pb.FinalizeUpgradeRequest) -> pb.FinalizeUpgradeResponse:
    """Raise the cluster version to the leader's level. Raises PreconditionFailed (a process is older), OutcomeUnknown."""
    await driver.barrier()
    level = driver.settings.feature_level_max
    members = [Announced(each.name, each.feature_level) for each in driver.consensus.status().members]
    with driver.state() as state:
        before = state.cluster_version
        servers = [Announced(each.name, each.feature_level) for each in describe_servers(driver, state)]
        known = sorted(state.owners.brokers.values(), key=lambda each: each.name)
        brokers = [Announced(each.name, driver.brokers.feature_level(each)) for each in known if not each.lost]
    if request.accept_older:
        servers, brokers = [], []
    found = finalizing.hindrances(level, members, servers, brokers) if level > before else []
    response = pb.FinalizeUpgradeResponse(
        cluster_version_before=before,
        cluster_version=max(level, before),
        auto_finalize=driver.settings.auto_finalize,
    )
    if request.dry_run:
        response.hindrances.extend(found[: finalizing.LISTED_MAX])
        return response
    if found:
        more = f", and {len(found) - finalizing.LISTED_MAX} more" if len(found) > finalizing.LISTED_MAX else ""
        listed = "; ".join(found[: finalizing.LISTED_MAX])
        raise PreconditionFailed(f"the cluster version stays {before}: {listed}{more}")
    if level > before:
        await driver.raise_cluster_version(level)
        with driver.state() as state:
            if state.cluster_version < level:
                raise OutcomeUnknown(
                    f"the cluster version is {state.cluster_version}, not {level} yet: repeat the call"
                )
    return response


def _failed_copies(driver: Driver, state: State, keys: Iterable[RangeKey]) -> list[tuple[RangeKey, str]]:
    """Return the ranges whose new members fail to copy them, and their last error."""
    failed = []
    for key in keys:
        found = state.ranges[key]
        for each in found.replicas:
            error = driver.tasks.last_error(task_id_of("copy", found, each.server))
            if error:
                failed.append((key, f"{each.server} fails to copy it: {error}"))
                break
    return failed


def _trouble(state: State, key: RangeKey, reason: str, copies: int = 0) -> pb.RangeTrouble:
    stream = state.streams.find(key[0])
    name = stream.name if stream is not None else ""
    return pb.RangeTrouble(stream_id=key[0], stream_name=name, range_index=key[1], reason=reason, copies=copies)


def _listed_max(wanted: int) -> int:
    return min(wanted or LISTED_DEFAULT, LISTED_MAX)


CALLS = (
    Call("SetServerMode", set_server_mode, ADMINS, audit=audited.named("server", "server")),
    Call("RemoveServer", remove_server, ADMINS, audit=audited.named("server", "server")),
    Call("DescribeDrain", describe_drain, ADMINS),
    Call("CheckImpact", check_impact, frozenset({Role.PD, Role.RANGE_SERVER, Role.ADMIN})),
    Call("FinalizeUpgrade", finalize_upgrade, ADMINS, audit=audited.cluster),
)
