"""Calls on placement: why a range would be put where it would be."""

from __future__ import annotations

from rangelog_pd.driver import Driver
from rangelog_pd.placement import Candidate
from rangelog_pd.reconcile.explaining import explain
from rangelog_pd.reconcile.fleet import used_percent
from rangelog_pd.reconcile.view import HEALTH
from rangelog_pd.state.store import State
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
        labels=sorted(candidate.labels),
        health=HEALTH[candidate.health],
        chosen=chosen,
        reason=candidate.reason,
        open_ranges=len(hosted.open),
        replicas=len(hosted),
    )
    view = driver.view.servers.get(candidate.server)
    if view is not None and view.incarnation == candidate.incarnation:
        row.bytes_per_s = int(view.writes.bytes_per_s)
        row.used_percent = used_percent(view.used_bytes, view.capacity_bytes)
    return row
