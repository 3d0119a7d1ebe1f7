"""Calls on the cluster as a whole. Every member replies to DescribeCluster with its own view, also without a majority."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice

from rangelog_core.errors import RangelogError
from rangelog_core.net.principals import ADMINS, WITH_PD
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import needs
from rangelog_pd.handlers.call import Call
from rangelog_pd.handlers.servers import describe_servers
from rangelog_pd.handlers.tier import tier_checks
from rangelog_pd.reconcile.health import NAMES_MAX, FirstNames, cluster_health
from rangelog_pd.reconcile.topic_tasks import topic_tasks
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_pd.state.tier_stores import tier_url
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1 import restore_pb2


async def describe_cluster(driver: Driver, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
    """Return the cluster as this member knows it. The leader's reply is up to date; a follower names the leader, if any."""
    status = driver.consensus.status()
    if status.leader is not None and status.has_majority:
        try:
            await driver.barrier()
        except RangelogError as error:
            if getattr(error, "address", None):
                raise
    members = [
        pb.PdMember(
            name=member.name,
            address=driver.api_address_of(member.name),
            leader=member.leader,
            reachable=member.reachable,
            term=status.term if member.name == status.name else 0,
            applied_index=status.applied_index if member.name == status.name else 0,
            feature_level=member.feature_level,
        )
        for member in status.members
    ]
    wall_ms = driver.wall_ms()
    failing = driver.tasks.listing(wall_ms, failing_only=True)
    with driver.state() as state:
        failing += driver.view.upkeep.repacks.tasks(state, driver.time_ms())
        repairs, orphans = driver.view.upkeep.repairs, driver.view.upkeep.orphans
        driver.shortfalls.follow(state, wall_ms)
        short = driver.shortfalls.count(state, driver.view, driver.now_ms(), wall_ms)
        url = tier_url(state, driver.settings.tier_url)
        described = pb.DescribeClusterResponse(
            cluster_id=state.cluster_id,
            cluster_version=state.cluster_version,
            members=members,
            stream_count=len(state.streams),
            range_count=len(state.ranges),
            open_range_count=state.hosted.open_count,
            object_count=state.range_objects.committed_count,
            servers=describe_servers(driver, state),
            tier_url=url,
            has_majority=status.has_majority,
            failing_task_count=len(failing) + driver.view.upkeep.held.untiered_count(),
            under_replicated_range_count=short.count,
            under_replicated_since_ms=short.since_ms,
            blocked_repair_count=len(repairs.blocked) - len(repairs.lost),
            lost_range_count=len(repairs.lost) + len(orphans.lost),
            tier_snapshot=_tier_snapshot(driver, has_tier=bool(url)) if driver.consensus.is_leader() else None,
            restore=state.restore if state.restore.phase else None,
        )
        tier_errors = [(each.name, each.error) for each in tier_checks(driver, state)] if described.tier_url else []
        names = FirstNames(
            short=_names(state, short.first),
            lost=_names(state, islice(chain(repairs.lost, orphans.lost), NAMES_MAX)),
            open_short_count=short.open_count,
            exact=short.exact,
            failing=failing,
            tier_errors=[(name, error) for name, error in tier_errors if error],
        )
    described.health, reasons = cluster_health(described, names)
    described.reasons.extend(reasons)
    return described


def _names(state: State, keys: Iterable[RangeKey]) -> list[str]:
    return [f"{state.streams[key[0]].name}/{key[1]}" for key in keys if key[0] in state.streams]


def _tier_snapshot(driver: Driver, *, has_tier: bool) -> restore_pb2.TierSnapshotStatus:
    """Return what this leader wrote last to the tier."""
    schedule = driver.tier_snapshots
    written_ms = schedule.written_ms
    return restore_pb2.TierSnapshotStatus(
        enabled=bool(has_tier and schedule.interval_ms),
        snapshot_id=str(schedule.written_index) if written_ms else "",
        written_ms=written_ms,
        age_ms=max(0, driver.time_ms() - written_ms) if written_ms else 0,
        size_bytes=schedule.size_bytes,
        last_error=schedule.last_error,
        current=bool(written_ms) and driver.machine.applied.changing <= schedule.written_index,
    )


async def list_tasks(driver: Driver, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
    """Return what topics have left to do, what retention keeps, and the leader's directives that are not done yet.

    Work of topics does not fail.
    """
    await driver.barrier()
    found = driver.tasks.listing(driver.wall_ms(), failing_only=request.failing_only)
    with driver.state() as state:
        time_ms = driver.time_ms()
        kept = driver.view.upkeep.held.tasks(state, time_ms, failing_only=request.failing_only)
        kept += driver.view.upkeep.repacks.tasks(state, time_ms)
        found = [*([] if request.failing_only else topic_tasks(state, time_ms)), *kept, *found]
    return pb.ListTasksResponse(tasks=found)


CALLS = (
    Call("DescribeCluster", describe_cluster, WITH_PD, needs=needs.nothing),
    Call("ListTasks", list_tasks, ADMINS),
)
