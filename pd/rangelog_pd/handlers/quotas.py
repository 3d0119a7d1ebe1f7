"""Calls on quotas: administrators change them, servers fetch them when a heartbeat's answer names another version."""

from __future__ import annotations

from rangelog_core.net.principals import ADMINS
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import SERVERS, Call
from rangelog_pd.state.versions import LEVEL_QUOTAS
from rangelog_proto.v1 import quotas_pb2 as pb


async def set_quota(driver: Driver, request: pb.SetQuotaRequest) -> pb.SetQuotaResponse:
    """Set a quota. Raises InvalidArgument, PreconditionFailed, Unavailable (the cluster version is too low)."""
    driver.check_level(LEVEL_QUOTAS, "quotas")
    return await driver.propose_request(pb.SetQuotaResponse, request.request_id, set_quota=request)


async def remove_quota(driver: Driver, request: pb.RemoveQuotaRequest) -> pb.RemoveQuotaResponse:
    """Remove a quota. Raises InvalidArgument, PreconditionFailed (there is none), Unavailable."""
    driver.check_level(LEVEL_QUOTAS, "quotas")
    return await driver.propose_request(pb.RemoveQuotaResponse, request.request_id, remove_quota=request)


async def list_quotas(driver: Driver, request: pb.ListQuotasRequest) -> pb.ListQuotasResponse:
    """Return all quotas, by principal and prefix; their number is bounded."""
    await driver.barrier()
    with driver.state() as state:
        table = state.quotas
        return pb.ListQuotasResponse(quotas=[table.quotas[key] for key in sorted(table.quotas)], version=table.version)


CALLS = (
    Call("SetQuota", set_quota, ADMINS, audit=audited.of_quota),
    Call("RemoveQuota", remove_quota, ADMINS, audit=audited.of_quota),
    Call("ListQuotas", list_quotas, SERVERS),
)
