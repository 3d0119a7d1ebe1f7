"""Calls of a restore: each is a log entry; `pdctl restore` makes the plan and sends its rows."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument
from rangelog_core.net.principals import ADMINS
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import Call
from rangelog_proto.v1 import restore_pb2 as pb


async def begin_restore(driver: Driver, request: pb.BeginRestoreRequest) -> pb.RestoreResponse:
    """Begin a restore, or go on with it. Raises PreconditionFailed (the cluster is not empty, has no tier, another plan)."""
    if not driver.tier_url():
        raise InvalidArgument(
            "this cluster has no tier: give the placement drivers the tier_url that is to be restored from"
        )
    return await driver.propose_request(pb.RestoreResponse, request.request_id, begin_restore=request)


async def restore_rows(driver: Driver, request: pb.RestoreRowsRequest) -> pb.RestoreResponse:
    """Put the next rows. A repeat is recognized by the number of its first row, so no result is kept."""
    return await driver.propose(pb.RestoreResponse, "", restore_rows=request)


async def end_restore(driver: Driver, request: pb.EndRestoreRequest) -> pb.RestoreResponse:
    """End a restore: from here on the cluster serves."""
    return await driver.propose(pb.RestoreResponse, "", end_restore=request)


async def describe_restore(driver: Driver, request: pb.DescribeRestoreRequest) -> pb.RestoreResponse:
    """Return how far a restore is, and what a plan must fit to."""
    await driver.barrier()
    tier_url = driver.tier_url()
    with driver.state() as state:
        return pb.RestoreResponse(
            mark=state.restore,
            cluster_id=state.cluster_id,
            cluster_version=state.cluster_version,
            tier_url=tier_url,
        )


CALLS = (
    Call("BeginRestore", begin_restore, ADMINS, audit=audited.cluster),
    Call("RestoreRows", restore_rows, ADMINS),
    Call("EndRestore", end_restore, ADMINS, audit=audited.cluster),
    Call("DescribeRestore", describe_restore, ADMINS),
)
