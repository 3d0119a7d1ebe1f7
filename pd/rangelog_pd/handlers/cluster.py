"""Calls on the cluster as a whole. Every member replies to DescribeCluster with its own view, also without a majority."""

from __future__ import annotations

from rangelog_core.errors import RangelogError
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.servers import describe_servers
from rangelog_pd.reconcile.topic_tasks import topic_tasks
from rangelog_proto.v1 import pd_pb2 as pb


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
    with driver.state() as state:
        return pb.DescribeClusterResponse(
            cluster_id=state.cluster_id,
            cluster_version=state.cluster_version,
            members=members,
            stream_count=len(state.streams),
            range_count=len(state.ranges),
            open_range_count=state.hosted.open_count,
            object_count=state.range_objects.committed_count,
            servers=describe_servers(driver, state),
            tier_url=driver.settings.tier_url,
            has_majority=status.has_majority,
            failing_task_count=len(driver.tasks.listing(driver.wall_ms(), failing_only=True)),
        )


async def list_tasks(driver: Driver, request: pb.ListTasksRequest) -> pb.ListTasksResponse:
    """Return what topics have left to do, and the leader's directives that are not done yet. Work of topics does not fail."""
    await driver.barrier()
    found = driver.tasks.listing(driver.wall_ms(), failing_only=request.failing_only)
    if not request.failing_only:
        with driver.state() as state:
            found = [*topic_tasks(state, driver.time_ms()), *found]
    return pb.ListTasksResponse(tasks=found)
