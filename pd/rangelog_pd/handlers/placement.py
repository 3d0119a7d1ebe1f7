"""Calls on placement: why a range would be put where it would be, and rebalances."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.net.principals import ADMINS
from rangelog_pd.driver import REQUEST_ID_LENGTH_MAX, Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import Call
from rangelog_pd.placement import Candidate
from rangelog_pd.reconcile.explaining import explain
from rangelog_pd.reconcile.fleet import used_percent
from rangelog_pd.reconcile.rebalance import Rebalance
from rangelog_pd.reconcile.rebalancing import Move, plan_rebalance
from rangelog_pd.reconcile.view import HEALTH
from rangelog_pd.state.store import State
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import placement_pb2 as pb


async def explain_placement(driver: Driver, request: pb.ExplainPlacementRequest) -> pb.ExplainPlacementResponse:
    """Return where a new range of a stream would be put, and why not elsewhere. Raises StreamNotFound."""
    await driver.barrier()
    with driver.state() as state:
        stream = state.stream(request.name)
        candidates = driver.view.fleet.placer(state, driver.now_ms()).candidates()
        chosen, others, refusal = explain(candidates, stream.config)
        by_name = {each.server: each for each in candidates}
        rows = [_row(driver, state, each, chosen=True) for each in chosen]
        for name, why_not in others.items():
            row = _row(driver, state, by_name[name], chosen=False)
            row.why_not = why_not
            rows.append(row)
        return pb.ExplainPlacementResponse(stream=stream, refusal=refusal, servers=rows)


def _row(driver: Driver, state: State, candidate: Candidate, *, chosen: bool) -> pb.ExplainedServer:
    hosted = state.hosted.of(candidate.server, candidate.incarnation)
    row = pb.ExplainedServer(
        server=candidate.server,
        zone=candidate.zone,
        rack=candidate.rack,
        host=candidate.host,
        labels=sorted(candidate.labels),
        health=HEALTH[candidate.health],
        chosen=chosen,
        reason=candidate.reason,
        open_ranges=len(hosted.open),
        replicas=len(hosted),
    )
    view = driver.view.of(candidate.server, candidate.incarnation)
    if view is not None:
        row.bytes_per_s = int(view.writes.bytes_per_s)
        row.used_percent = used_percent(view.used_bytes, view.capacity_bytes)
    return row


async def plan(driver: Driver, request: pb.PlanRebalanceRequest) -> pb.PlanRebalanceResponse:
    """Return what a rebalance would move now. Nothing is changed."""
    await driver.barrier()
    with driver.state() as state:
        found = plan_rebalance(state, driver.view, driver.now_ms(), bytes_max=request.bytes_max)
        shares = [
            pb.ServerShare(
                server=name,
                zone=state.servers[name].server.zone,
                before_bytes=before,
                after_bytes=found.after[name],
                capacity_bytes=found.capacity.get(name, 0),
            )
            for name, before in sorted(found.before.items())
        ]
        return pb.PlanRebalanceResponse(
            moves=[_move(state, each) for each in found.moves],
            shares=shares,
            bytes=found.size_bytes,
            refusal=found.refusal,
        )


async def apply(driver: Driver, request: pb.ApplyRebalanceRequest) -> pb.ApplyRebalanceResponse:
    """Plan a rebalance and begin to carry it out. Raises PreconditionFailed while repairs or another one go on, Unavailable."""
    if not 0 < len(request.request_id) <= REQUEST_ID_LENGTH_MAX:
        raise InvalidArgument(f"a rebalance needs a request id of at most {REQUEST_ID_LENGTH_MAX} characters")
    await driver.barrier()
    driver.check_level(LEVEL_OPERATIONS, "a rebalance")
    known = driver.rebalance
    if known is None or known.rebalance_id != request.request_id:
        if known is not None and not known.done:
            raise PreconditionFailed("another rebalance is being carried out: wait until it is done")
        with driver.state() as state:
            found = plan_rebalance(state, driver.view, driver.now_ms(), bytes_max=request.bytes_max)
        if found.refusal:
            raise PreconditionFailed(f"nothing is moved now: {found.refusal}")
        known = driver.rebalance = Rebalance(request.request_id, found)
    return pb.ApplyRebalanceResponse(rebalance=known.describe())


async def describe_rebalance(driver: Driver, request: pb.DescribeRebalanceRequest) -> pb.DescribeRebalanceResponse:
    """Return how far the last rebalance is; nothing where this leader was asked for none."""
    await driver.barrier()
    known = driver.rebalance
    return pb.DescribeRebalanceResponse(rebalance=known.describe() if known is not None else None)


def _move(state: State, move: Move) -> pb.ReplicaMove:
    source, target = (
        common_pb2.Replica(server=each.server, incarnation=each.incarnation) for each in (move.source, move.target)
    )
    return pb.ReplicaMove(
        stream_id=move.key[0],
        stream_name=state.streams[move.key[0]].name,
        range_index=move.key[1],
        source=source,
        target=target,
        size_bytes=move.size_bytes,
    )


CALLS = (
    Call("ExplainPlacement", explain_placement, ADMINS),
    Call("PlanRebalance", plan, ADMINS),
    Call("ApplyRebalance", apply, ADMINS, audit=audited.cluster),
    Call("DescribeRebalance", describe_rebalance, ADMINS),
)
