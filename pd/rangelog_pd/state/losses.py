"""Losses: ranges of which no copy can come back, and the acceptance of that by an operator.

What holds: a loss is accepted only for a sealed range of which something is not in the tier, and only once every member of
its replica set is gone for good: its server was wiped, or was removed. An accepted loss is never taken back, the range keeps
its end, and what the tier has of it stays readable.
"""

from __future__ import annotations

from rangelog_core.errors import PreconditionFailed
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, repair_pb2


def is_gone(state: State, member: common_pb2.Replica) -> bool:
    """Whether a member never returns: its server has another incarnation, or is no longer registered."""
    registered = state.servers.find(member.server)
    return registered is None or registered.server.incarnation != member.incarnation


def may_be_lost(state: State, found: common_pb2.Range) -> bool:
    """Whether no member of a sealed range can come back, and the tier has not all of it."""
    if found.state != common_pb2.RANGE_STATE_SEALED or found.hot_dropped or found.lost:
        return False
    if found.tiered_end_offset >= found.end_offset:
        return False
    return all(is_gone(state, member) for member in found.replicas)


def accept_loss(state: State, request: repair_pb2.AcceptLossRequest, now_ms: int) -> repair_pb2.AcceptLossResponse:
    """Accept that the records outside the tier are lost. Raises StreamNotFound, RangeNotFound, PreconditionFailed."""
    found = state.range(request.stream_id, request.range_index)
    if found.lost:
        return repair_pb2.AcceptLossResponse(range=found)
    if found.state != common_pb2.RANGE_STATE_SEALED:
        raise PreconditionFailed(f"range {found.index} is open: seal it first with `pdctl range seal`")
    if found.tiered_end_offset >= found.end_offset:
        raise PreconditionFailed(f"range {found.index} is wholly in the tier, or empty: nothing of it is lost")
    left = [member.server for member in found.replicas if not is_gone(state, member)]
    if left:
        raise PreconditionFailed(
            f"range {found.index} may still have a copy on {', '.join(left)}: bring it back, or remove it for good "
            "with `pdctl server remove`"
        )
    lost = copy_of(found)
    lost.lost = True
    del lost.replicas[:]
    state.put_range(lost)
    return repair_pb2.AcceptLossResponse(range=lost)
