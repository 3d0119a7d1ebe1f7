"""Calls on the tier: its checks, objects by their ids, and objects that are to be uploaded again."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.net.principals import ADMINS, WITH_PD
from rangelog_core.tier_stores import check_url
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited, needs
from rangelog_pd.handlers.call import RANGE_SERVERS, Call
from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.directives import Planner
from rangelog_pd.state.objects import without_row_groups
from rangelog_pd.state.repacks import ranges_of_object
from rangelog_pd.state.store import State
from rangelog_pd.state.tier_stores import tier_url
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import tier_pb2 as pb

OBJECTS_MAX = 1_000


async def describe_tier(driver: Driver, request: pb.DescribeTierRequest) -> pb.DescribeTierResponse:
    """Return what the leader and the living range servers found when they checked the tier."""
    await driver.barrier()
    time_ms = driver.time_ms()
    with driver.state() as state:
        url = tier_url(state, driver.settings.tier_url)
        prepared = [state.objects[object_id] for object_id in state.range_objects.prepared]
        return pb.DescribeTierResponse(
            tier_url=url,
            checks=tier_checks(driver, state) if url else [],
            prepared_count=len(prepared),
            expired_count=sum(each.prepare_deadline_ms < time_ms for each in prepared),
            deleted_count=len(state.range_objects.tombstones),
        )


def tier_checks(driver: Driver, state: State) -> list[pb.TierCheck]:
    """Return what the leader and the living range servers found when they checked the tier."""
    found = [pb.TierCheck(name=driver.settings.name, placement_driver=True, error=driver.tier_watch.error)]
    now_ms = driver.now_ms()
    for name in sorted(state.servers):
        incarnation = state.servers[name].server.incarnation
        view = driver.view.of(name, incarnation)
        if view is not None and driver.view.health(state, name, incarnation, now_ms) is not ServerHealth.DEAD:
            found.append(pb.TierCheck(name=name, error=view.tier_error))
    return found


async def set_tier(driver: Driver, request: pb.SetTierRequest) -> pb.SetTierResponse:
    """Store later objects elsewhere, once that store is found to work. Raises InvalidArgument, PreconditionFailed."""
    check_url(request.url)
    await driver.barrier()
    await driver.tier_trials.passed(request.url)
    await driver.propose_request(pb.SetTierResponse, request.request_id, set_tier=request)
    driver.tier_watch.recheck()
    return pb.SetTierResponse(tier_url=driver.tier_url())


async def find_objects(driver: Driver, request: pb.FindObjectsRequest) -> pb.FindObjectsResponse:
    """Return objects by their ids, whatever their state. Raises InvalidArgument."""
    if len(request.object_ids) > OBJECTS_MAX:
        raise InvalidArgument(f"{len(request.object_ids)} objects: ask for at most {OBJECTS_MAX:,} at a time")
    await driver.barrier()
    with driver.state() as state:
        rows = [state.objects.find(object_id) for object_id in request.object_ids]
        return pb.FindObjectsResponse(
            objects=[without_row_groups(each) for each in rows if each is not None],
            next_object_id=state.next_object_id,
            time_ms=driver.time_ms(),
            tier_url=tier_url(state, driver.settings.tier_url),
        )


async def reupload_object(driver: Driver, request: pb.ReuploadObjectRequest) -> pb.ReuploadObjectResponse:
    """Give an object up for a new upload. Raises ObjectNotFound, PreconditionFailed (no whole hot copy on a living server)."""
    await driver.barrier()
    with driver.state() as state:
        found = state.objects.find(request.object_id)
        if found is not None and found.state == common_pb2.OBJECT_STATE_COMMITTED:  # else a repeat, or refused below
            _check_hot_copies(driver, state, found)
    return await driver.propose_request(pb.ReuploadObjectResponse, request.request_id, reupload_object=request)


def _check_hot_copies(driver: Driver, state: State, found: common_pb2.Object) -> None:
    """Raise PreconditionFailed unless each range of an object is whole on a living server, by what that reports."""
    planner = Planner(state, driver.view, True, driver.now_ms(), driver.time_ms())
    for each in ranges_of_object(state, found):
        empty = each.start_offset == each.end_offset
        if not empty and not any(planner.is_whole(each, replica) for replica in each.replicas):
            raise PreconditionFailed(
                f"no living range server reports a whole copy of range {each.index}: object {found.object_id} is kept"
            )


CALLS = (
    Call("DescribeTier", describe_tier, WITH_PD, needs=needs.nothing),
    Call("FindObjects", find_objects, RANGE_SERVERS | ADMINS),
    Call("ReuploadObject", reupload_object, ADMINS, audit=lambda request: f"object {request.object_id}"),
    Call("SetTier", set_tier, ADMINS, audit=audited.cluster, secret=True),
)
