"""Calls on ranges that lack copies: what is being repaired, what is blocked or lost, and the acceptance of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from rangelog_pd.driver import Driver
from rangelog_pd.reconcile.repair_progress import RepairProgress
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import repair_pb2 as pb

PAGE_SIZE_MAX = 1_000

Found = Iterable[tuple[RangeKey, str]]


async def list_repairs(driver: Driver, request: pb.ListRepairsRequest) -> pb.ListRepairsResponse:
    """Return how far the repairs are, and one page of the ranges, the most urgent state first."""
    await driver.barrier()
    size = min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
    with driver.state() as state:
        upkeep = driver.view.upkeep
        upkeep.follow(state)
        repairs = upkeep.repairs
        all_of = (
            (state_of, key, reason)
            for state_of, found in _by_state(repairs, upkeep.orphans.found).items()
            if request.state in (pb.REPAIR_STATE_UNSPECIFIED, state_of)
            for key, reason in found
        )
        page = list(islice(all_of, size + 1))
        return pb.ListRepairsResponse(
            repairs=[_describe(driver, state, *each) for each in page[:size]],
            more=len(page) > size,
            waiting_count=len(repairs.waiting),
            copying_count=sum(1 for _ in _copying(repairs)),
            blocked_count=len(repairs.blocked) - len(repairs.lost),
            orphaned_count=len(upkeep.orphans.found),
            lost_count=len(repairs.lost),
            done_count=repairs.done_count,
            copied_bytes=repairs.copied_bytes,
            since_ms=repairs.since_ms,
            took_ms=repairs.took_ms,
        )


async def accept_loss(driver: Driver, request: pb.AcceptLossRequest) -> pb.AcceptLossResponse:
    """Accept the loss of a range. Raises StreamNotFound, RangeNotFound, PreconditionFailed."""
    response = await driver.propose_request(pb.AcceptLossResponse, request.request_id, accept_loss=request)
    driver.fill_in(response.range)
    return response


def _by_state(repairs: RepairProgress, orphaned: dict[RangeKey, str]) -> dict[pb.RepairState, Found]:
    return {
        pb.REPAIR_STATE_LOST: ((key, repairs.blocked[key]) for key in repairs.lost),
        pb.REPAIR_STATE_BLOCKED: ((key, why) for key, why in repairs.blocked.items() if key not in repairs.lost),
        pb.REPAIR_STATE_ORPHANED: orphaned.items(),
        pb.REPAIR_STATE_WAITING: ((key, "") for key in repairs.waiting),
        pb.REPAIR_STATE_COPYING: _copying(repairs),
    }


def _copying(repairs: RepairProgress) -> Iterator[tuple[RangeKey, str]]:
    for key, servers in repairs.copying.items():
        if key not in repairs.waiting and key not in repairs.blocked:
            yield key, f"to {', '.join(servers)}"


def _describe(driver: Driver, state: State, state_of: pb.RepairState, key: RangeKey, reason: str) -> pb.Repair:
    repair = pb.Repair(state=state_of, reason=reason)
    found, stream = state.ranges.find(key), state.streams.find(key[0])
    if found is None or stream is None:
        return repair  # it went a moment ago
    now_ms = driver.now_ms()
    repair.range.CopyFrom(driver.view.fill_in(state, [found], now_ms)[0])
    repair.stream_name = stream.name
    repair.copies = len(driver.view.holders(state, found, now_ms))
    repair.wanted = max(len(found.replicas), stream.config.replicas)
    return repair
