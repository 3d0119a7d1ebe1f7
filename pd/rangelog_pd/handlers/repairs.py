"""Calls on ranges that lack copies: what is being repaired, what is blocked or lost, and the acceptance of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from rangelog_core.errors import PreconditionFailed
from rangelog_core.net.principals import ADMINS
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import Call
from rangelog_pd.reconcile.orphans import Orphans
from rangelog_pd.reconcile.repair_progress import RepairProgress
from rangelog_pd.state.losses import left_of
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_pb2
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
            for state_of, found in _by_state(repairs, upkeep.orphans).items()
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
            orphaned_count=len(upkeep.orphans.found) - len(upkeep.orphans.lost),
            lost_count=len(repairs.lost) + len(upkeep.orphans.lost),
            done_count=repairs.done_count,
            copied_bytes=repairs.copied_bytes,
            since_ms=repairs.since_ms,
            took_ms=repairs.took_ms,
        )


async def accept_loss(driver: Driver, request: pb.AcceptLossRequest) -> pb.AcceptLossResponse:
    """Accept the loss of a range. Raises StreamNotFound, RangeNotFound, PreconditionFailed."""
    await driver.barrier()
    request.ClearField("survivor_end_offset")
    request.ClearField("given_up_servers")
    request.ClearField("lacking_servers")
    if not driver.is_repeat("accept_loss", request.request_id):
        with driver.state() as state:
            found = state.range(request.stream_id, request.range_index)
            if found.state == common_pb2.RANGE_STATE_OPEN:
                _add_survivor_end(driver, state, found, request)
            elif not driver.view.holders(state, found, driver.now_ms()):
                request.lacking_servers.extend(driver.view.lacking(found, driver.now_ms(), driver.time_ms()))
    response = await driver.propose_request(pb.AcceptLossResponse, request.request_id, accept_loss=request)
    driver.fill_in(response.range)
    if response.HasField("kept"):
        driver.fill_in(response.kept)
    return response


def _add_survivor_end(driver: Driver, state: State, found: common_pb2.Range, request: pb.AcceptLossRequest) -> None:
    """Add what the members that are left have reported. The range is quiet, so that is what they hold.

    Of a damaged tail that was cut, the intact part counts: no member can bring the rest back.

    Raises PreconditionFailed: the range is not known to be lost, a member that is left does not report, or its copy is
    quarantined and is not given up.
    """
    key = (found.stream_id, found.index)
    driver.view.upkeep.follow(state)
    if key not in driver.view.upkeep.orphans.lost:
        raise PreconditionFailed(
            f"range {found.index} is open, and is not known to be lost: `pdctl repair list` shows it once too few of its "
            f"members can come back and nobody has written to it for {driver.settings.orphan_quiet_ms / 1000:g} s"
        )
    left = left_of(state, found)
    if silent := [member.server for member in left if _is_silent(driver, member.server)]:
        raise PreconditionFailed(
            f"{', '.join(silent)} may have records of range {found.index}, but does not report: bring it back, or remove it "
            "for good with `pdctl server remove`"
        )
    quarantined = driver.view.quarantined(found)
    if quarantined and not request.give_up_quarantined:
        raise PreconditionFailed(
            f"{', '.join(quarantined)} may have records of range {found.index}, but none of them is trusted: give them up as "
            "well with `pdctl repair accept-loss … --give-up-quarantined`"
        )
    request.given_up_servers.extend(quarantined)
    reports = (driver.view.report(member.server, member.incarnation, key) for member in left)
    ends = [
        each.durable_offset for each in reports if each is not None and each.state != pd_pb2.REPLICA_STATE_QUARANTINED
    ]
    request.survivor_end_offset = max(ends, default=found.start_offset)


def _is_silent(driver: Driver, server: str) -> bool:
    view = driver.view.servers.get(server)
    return view is None or not view.complete or driver.view.silent_ms(server, driver.now_ms()) > driver.view.dead_ms


def _by_state(repairs: RepairProgress, orphans: Orphans) -> dict[pb.RepairState, Found]:
    return {
        pb.REPAIR_STATE_LOST: _lost(repairs, orphans),
        pb.REPAIR_STATE_BLOCKED: ((key, why) for key, why in repairs.blocked.items() if key not in repairs.lost),
        pb.REPAIR_STATE_ORPHANED: (
            (key, each.reason) for key, each in orphans.found.items() if key not in orphans.lost
        ),
        pb.REPAIR_STATE_WAITING: ((key, "") for key in repairs.waiting),
        pb.REPAIR_STATE_COPYING: _copying(repairs),
    }


def _lost(repairs: RepairProgress, orphans: Orphans) -> Iterator[tuple[RangeKey, str]]:
    for key in repairs.lost:
        yield key, repairs.blocked[key]
    for key in orphans.lost:
        yield key, orphans.found[key].reason


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


CALLS = (
    Call("ListRepairs", list_repairs, ADMINS),
    Call("AcceptLoss", accept_loss, ADMINS, audit=audited.of_stream),
)
