"""Losses: ranges of which no copy can come back, and the acceptance of that by an operator.

What holds: a loss is accepted only once those that could bring the records back are gone for good: their servers were wiped,
or were removed. It is never taken back, and what the tier or a member has stays readable.

*A sealed range* keeps its end; every member must be gone, or have reported that it lacks a whole copy, as one does that has
just taken a place; and something must not be in the tier.

*An open range* can be sealed as long as so many members are left that each acked record is on one of them. With fewer, it is
unknown where its acked records end. A member whose copy is quarantined counts as gone if the operator says so: none of its
records is trusted, and it takes no others, so it acks nothing either. The records of the members that are left are kept as a
sealed range; a lost range follows it that is longer than the open one can have been, so that no offset is ever given to two
records. Its members can ack nothing more, for too many are gone; the stream's epoch rises, so a writer that is still there
learns it.
"""

from __future__ import annotations

from collections.abc import Collection

from rangelog_core.errors import InvalidArgument, PreconditionFailed
from rangelog_core.limits import OFFSET_MAX, OFFSETS_GIVEN_UP
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, repair_pb2


def is_gone(state: State, member: common_pb2.Replica) -> bool:
    """Whether a member never returns: its server has another incarnation, or is no longer registered."""
    registered = state.servers.find(member.server)
    return registered is None or registered.server.incarnation != member.incarnation


def may_be_lost(state: State, found: common_pb2.Range, lacking: Collection[str] = ()) -> bool:
    """Whether no member of a sealed range can come back with a whole copy, and the tier has not all of it.

    `lacking`: servers of members that are there, and have none.
    """
    if found.state != common_pb2.RANGE_STATE_SEALED or found.hot_dropped or found.lost:
        return False
    if found.tiered_end_offset >= found.end_offset:
        return False
    return all(member.server in lacking for member in left_of(state, found))


def left_of(state: State, found: common_pb2.Range) -> list[common_pb2.Replica]:
    """Return the members that are not gone for good."""
    return [member for member in found.replicas if not is_gone(state, member)]


def has_no_end(state: State, found: common_pb2.Range, given_up: Collection[str] = ()) -> bool:
    """Whether an open range has too few members left to say where its acked records end, even if all of them answer.

    `given_up`: servers whose copy counts as gone.
    """
    if found.state != common_pb2.RANGE_STATE_OPEN:
        return False
    left = sum(member.server not in given_up for member in left_of(state, found))
    return left <= len(found.replicas) - found.acks


def accept_loss(state: State, request: repair_pb2.AcceptLossRequest, now_ms: int) -> repair_pb2.AcceptLossResponse:
    """Accept that the records outside the tier are lost.

    Raises StreamNotFound, RangeNotFound, PreconditionFailed; InvalidArgument for an end that no member can have.
    """
    found = state.range(request.stream_id, request.range_index)
    if found.lost:
        return repair_pb2.AcceptLossResponse(range=found)
    if found.state == common_pb2.RANGE_STATE_OPEN:
        return _accept_open(state, found, request, now_ms)
    if found.tiered_end_offset >= found.end_offset:
        raise PreconditionFailed(f"range {found.index} is wholly in the tier, or empty: nothing of it is lost")
    left = [member.server for member in left_of(state, found) if member.server not in request.lacking_servers]
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


def _accept_open(
    state: State, found: common_pb2.Range, request: repair_pb2.AcceptLossRequest, now_ms: int
) -> repair_pb2.AcceptLossResponse:
    given_up = {*request.given_up_servers}
    left = [member.server for member in left_of(state, found) if member.server not in given_up]
    if not has_no_end(state, found, given_up):
        raise PreconditionFailed(
            f"range {found.index} is open, and {', '.join(left)} can say where it ends: it is sealed once its writer is gone, "
            "by the next one or with `pdctl range seal`; bring back those that are silent, or remove them for good with "
            "`pdctl server remove`"
        )
    start, end = found.start_offset, request.survivor_end_offset if left else found.start_offset
    if not request.HasField("survivor_end_offset"):
        raise PreconditionFailed(f"nobody has said what is left of range {found.index}")
    after = max(end, found.floor_offset) + OFFSETS_GIVEN_UP
    if not start <= end <= after <= OFFSET_MAX:
        raise InvalidArgument(f"an end of {end} for a range that starts at {start}")
    kept = _sealed_at(state, found, end) if end > start else None
    lost = copy_of(found)
    del lost.replicas[:]
    lost.lost, lost.state, lost.sealed_ms = True, common_pb2.RANGE_STATE_SEALED, state.date()
    lost.start_offset = lost.tiered_end_offset = lost.floor_offset = end
    lost.end_offset = after
    stream = copy_of(state.streams[found.stream_id])
    stream.epoch += 1
    stream.version += 1
    stream.next_offset = after
    if kept is not None:
        state.put_range(kept)
        lost.index, lost.epoch, lost.created_ms = stream.range_count, stream.epoch, now_ms
        stream.range_count += 1
    state.put_range(lost)
    state.put_stream(stream)
    return repair_pb2.AcceptLossResponse(range=lost, kept=kept)


def _sealed_at(state: State, found: common_pb2.Range, end_offset: int) -> common_pb2.Range:
    sealed = copy_of(found)
    sealed.state = common_pb2.RANGE_STATE_SEALED
    sealed.end_offset = end_offset
    sealed.floor_offset = min(sealed.floor_offset, end_offset)
    sealed.sealed_ms = state.date()
    sealed.tiered_end_offset = sealed.start_offset
    return sealed
