"""Calls on quotas: administrators change them, servers fetch them when a heartbeat's answer names another version."""

from __future__ import annotations

from rangelog_core.net.principals import ADMINS
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited
from rangelog_pd.handlers.call import SERVERS, Call, proposing
from rangelog_proto.v1 import quotas_pb2 as pb

set_quota = proposing("set_quota", pb.SetQuotaResponse)
"""Set a quota. Raises InvalidArgument, PreconditionFailed, Unavailable (the cluster version is too low)."""

remove_quota = proposing("remove_quota", pb.RemoveQuotaResponse)
"""Remove a quota. Raises InvalidArgument, PreconditionFailed (no such quota), Unavailable."""


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
