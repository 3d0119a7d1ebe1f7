"""Calls on the audit log itself: it is switched, and described with the entries that are not in its stream yet."""

from __future__ import annotations

from itertools import islice

from rangelog_core.errors import RoleForbids
from rangelog_core.ids import AUDIT_STREAM_NAME
from rangelog_core.net.principals import ADMINS, Principal, Role
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.call import Call
from rangelog_proto.v1 import audit_pb2 as pb
from rangelog_proto.v1 import pd_pb2

PENDING_MAX = 1_000
"""Entries of one answer."""

_WRITERS = (Role.PD, Role.RANGE_SERVER)
"""Range servers seal what a placement driver that died has left open."""


def check_writer(
    driver: Driver, request: pd_pb2.OpenWriterRequest | pd_pb2.OpenWritersRequest, caller: Principal
) -> None:
    """Raise RoleForbids where somebody else would write to the log's stream, which would fence the placement driver."""
    if caller.role in _WRITERS:
        return
    items = request.writers if isinstance(request, pd_pb2.OpenWritersRequest) else [request]
    with driver.state() as state:
        stream_id = state.audit.stream_id
    if any(each.name == AUDIT_STREAM_NAME or (stream_id and each.stream_id == stream_id) for each in items):
        raise RoleForbids(f"{caller} may not write to the audit log: placement drivers do")


async def set_audit(
    driver: Driver, request: pb.SetAuditRequest, caller: tuple[str, str] = ("", "")
) -> pb.SetAuditResponse:
    """Switch the audit log on or off. `caller`: its principal and host. Raises Unavailable (the cluster version is too low)."""
    principal, peer = caller
    note = pb.AuditNote(principal=principal, peer=peer, call="SetAudit", resource="cluster", outcome="OK")
    note.detail = "enabled" if request.enabled else "disabled"
    command = pb.PlacedSetAudit(request=request, note=note, tiered=bool(driver.tier_url()))
    return await driver.propose_request(pb.SetAuditResponse, request.request_id, set_audit=command)


async def describe_audit(driver: Driver, request: pb.DescribeAuditRequest) -> pb.DescribeAuditResponse:
    """Return where the log ends, and entries that are not known to be in its stream."""
    await driver.barrier()
    with driver.state() as state:
        first = max(request.pending_from, state.audit.written_sequence + 1)
        pending = [
            state.audit.pending[sequence]
            for sequence in islice(range(first, state.audit.last_sequence + 1), PENDING_MAX)
        ]
        return pb.DescribeAuditResponse(state=state.audit.row(), pending=pending, problem=driver.audit_problem)


CALLS = (
    Call("SetAudit", set_audit, ADMINS, tells_caller=True),
    Call("DescribeAudit", describe_audit, ADMINS),
)
