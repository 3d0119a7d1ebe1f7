"""Ranges: create and seal, with epochs checked, the first seal wins; the proposer has chosen the replicas.

What holds: a range is created where the last one ended; every later seal gets the end of the first; no range ends below its
floor, up to which readers may have seen records. A new range takes the place of the empty sealed ranges that it follows, so a
stream that is opened again and again without an append does not grow.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_core.errors import InvalidArgument, NoPlacement, PreconditionFailed, RangeNotFound, SealBelowFloor
from rangelog_core.limits import OFFSET_MAX
from rangelog_pd.state.store import State
from rangelog_pd.state.streams import check_not_sealed
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.versions import LEVEL_EMPTY_RANGES
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2


def create_range(state: State, command: pd_state_pb2.PlacedCreateRange, now_ms: int) -> pd_pb2.CreateRangeResponse:
    """Create the next range.

    Raises StreamNotFound, WriterFenced, StreamSealed, PreconditionFailed (another start offset), NoPlacement.
    """
    request = command.request
    stream = state.stream_by_id(request.stream_id)
    state.check_epoch(stream, request.epoch)
    last = state.ranges.of(stream.stream_id).last()
    is_open = last is not None and last.state == common_pb2.RANGE_STATE_OPEN
    if is_open or request.start_offset != stream.next_offset:
        created = _made_before(state, request)
        if created is not None:
            return pd_pb2.CreateRangeResponse(range=created)
    check_not_sealed(stream)
    if last is not None and is_open:
        raise PreconditionFailed(f"range {last.index} is still open: seal it first")
    if request.start_offset != stream.next_offset:
        raise PreconditionFailed(f"the next range starts at {stream.next_offset}, not {request.start_offset}")
    return pd_pb2.CreateRangeResponse(range=_append_range(state, stream, request.epoch, command.replicas, now_ms))


def seal_range(state: State, command: pd_state_pb2.PlacedSealRange, now_ms: int) -> pd_pb2.SealRangeResponse:
    """Seal a range, and create the next one if requested: both or neither.

    For a sealed range the result is the end in force, and the next range if it is the caller's own or is created now. A floor
    binds every seal except the failover seal of a range with durability memory, whose replicas may have lost records.
    Raises StreamNotFound, RangeNotFound, WriterFenced, InvalidArgument, SealBelowFloor, NoPlacement; StreamSealed where a next
    range is requested.
    """
    request = command.request
    stream = state.stream_by_id(request.stream_id)
    state.check_epoch(stream, request.epoch)
    sealed = state.ranges.find((request.stream_id, request.range_index))
    follower = state.ranges.of(request.stream_id).first_from(request.range_index + 1)
    if sealed is None:
        return _sealed_and_replaced(request, follower)
    if sealed.state == common_pb2.RANGE_STATE_SEALED:
        if request.create_next and follower is None and request.end_offset == sealed.end_offset:
            follower = _append_range(state, stream, request.epoch, command.replicas, now_ms)
        if follower is not None and follower.epoch != request.epoch:
            follower = None
        return pd_pb2.SealRangeResponse(range=sealed, next_range=follower)
    if not sealed.start_offset <= request.end_offset <= OFFSET_MAX:
        raise InvalidArgument(f"an end of {request.end_offset} for a range that starts at {sealed.start_offset}")
    durability = sealed.durability or stream.config.durability
    lossy = durability == common_pb2.DURABILITY_MEMORY and not request.create_next
    if request.end_offset < sealed.floor_offset and not lossy:
        raise SealBelowFloor(
            f"range {sealed.index} cannot end at {request.end_offset}: readers were shown up to {sealed.floor_offset}",
            offset=sealed.floor_offset,
        )
    if request.create_next:
        _check_placed(state, stream, command.replicas)
    sealed = copy_of(sealed)
    sealed.state = common_pb2.RANGE_STATE_SEALED
    sealed.end_offset = request.end_offset
    sealed.floor_offset = min(sealed.floor_offset, request.end_offset)
    sealed.sealed_ms = state.date()
    sealed.tiered_end_offset = sealed.start_offset
    state.put_range(sealed)
    stream = copy_of(stream)
    stream.next_offset = request.end_offset
    state.put_stream(stream)
    if request.create_next:
        follower = _append_range(state, stream, request.epoch, command.replicas, now_ms)
    return pd_pb2.SealRangeResponse(range=sealed, next_range=follower)


def prove_end(state: State, request: pd_pb2.ProveEndRequest, now_ms: int) -> pd_pb2.ProveEndResponse:
    """Put a floor under an open range: A members hold all records below it durably, so these count as acked.

    An active seal could end the range at the acks that its writer has received, which may be fewer. The first of the two to be
    applied decides: for a sealed range the result is its end. Raises StreamNotFound, RangeNotFound,
    InvalidArgument, PreconditionFailed (the holders are not A members of the replica set).
    """
    found = state.range(request.stream_id, request.range_index)
    if found.state == common_pb2.RANGE_STATE_SEALED:
        return pd_pb2.ProveEndResponse(range=found)
    if not found.start_offset <= request.end_offset <= OFFSET_MAX:
        raise InvalidArgument(f"an end of {request.end_offset} for a range that starts at {found.start_offset}")
    members = {(each.server, each.incarnation): None for each in found.replicas}
    holders = {(each.server, each.incarnation): None for each in request.holders}
    if len(holders) < found.acks or not all(each in members for each in holders):
        raise PreconditionFailed(f"an end of range {found.index} is proved by {found.acks} of its replicas, no others")
    if request.end_offset > found.floor_offset:
        found = copy_of(found)
        found.floor_offset = request.end_offset
        state.put_range(found)
    return pd_pb2.ProveEndResponse(range=found)


def drop_hot(state: State, command: pd_state_pb2.DropHot, now_ms: int) -> None:
    """Give up the hot replicas of a range that objects cover wholly. Raises RangeNotFound, PreconditionFailed."""
    found = state.range(command.stream_id, command.range_index)
    if found.state != common_pb2.RANGE_STATE_SEALED or found.tiered_end_offset != found.end_offset:
        raise PreconditionFailed(f"range {found.index} is not wholly in the tier: its hot copies stay")
    dropped = copy_of(found)
    del dropped.replicas[:]
    dropped.hot_dropped = True
    state.put_range(dropped)


def replace_replica(state: State, command: pd_state_pb2.ReplaceReplica, now_ms: int) -> None:
    """Replace a lost replica of a sealed range, or fill a free place, by another server, which then copies the range.

    An open range is never repaired: its writer seals and leaves it. Raises RangeNotFound, PreconditionFailed.
    """
    found = state.range(command.stream_id, command.range_index)
    if found.state != common_pb2.RANGE_STATE_SEALED or found.hot_dropped:
        raise PreconditionFailed(f"range {found.index} is not a sealed hot range")
    lost = (command.lost.server, command.lost.incarnation)
    others = [each.server for each in found.replicas if (each.server, each.incarnation) != lost]
    if command.replacement.server in others:
        raise PreconditionFailed(f"{command.replacement.server} holds range {found.index} already")
    changed = copy_of(found)
    if not command.lost.server and len(others) < state.streams[found.stream_id].config.replicas:
        changed.replicas.append(command.replacement)
        state.put_range(changed)
        return
    for replica in changed.replicas:
        if (replica.server, replica.incarnation) == lost:
            replica.CopyFrom(command.replacement)
            state.put_range(changed)
            return
    raise PreconditionFailed(f"range {found.index} has no place for {command.replacement.server}")


def _made_before(state: State, request: pd_pb2.CreateRangeRequest) -> common_pb2.Range | None:
    """Return the range that an earlier try of the same request created, sealed meanwhile or not."""
    ranges = state.ranges.of(request.stream_id)
    for index in reversed(ranges):
        each = ranges[index]
        if each.start_offset < request.start_offset or each.epoch < request.epoch:
            return None
        if each.start_offset == request.start_offset:
            return each
    return None


def _sealed_and_replaced(
    request: pd_pb2.SealRangeRequest, follower: common_pb2.Range | None
) -> pd_pb2.SealRangeResponse:
    """Answer a repeated seal of a range whose place the next one took: the result of the first try may be forgotten.

    Only the holder of an epoch creates ranges of that epoch, and it does so where its own seal ended the range. The epoch
    in which the removed range was created is not known: the reply leaves it 0. Raises RangeNotFound.
    """
    follows = follower is not None and (follower.epoch, follower.start_offset) == (request.epoch, request.end_offset)
    if not follows or not request.create_next:
        raise RangeNotFound(f"stream {request.stream_id} has no range {request.range_index}: it is gone, or never was")
    replaced = common_pb2.Range(
        stream_id=request.stream_id,
        index=request.range_index,
        start_offset=request.end_offset,
        end_offset=request.end_offset,
        tiered_end_offset=request.end_offset,
        state=common_pb2.RANGE_STATE_SEALED,
    )
    return pd_pb2.SealRangeResponse(range=replaced, next_range=follower)


def _check_placed(
    state: State, stream: common_pb2.Stream, replicas: Iterable[common_pb2.Replica]
) -> list[common_pb2.Replica]:
    """Check the proposer's choice against the state it is applied to."""
    placed = list(replicas)
    if not stream.config.acks <= len(placed) <= stream.config.replicas:
        raise NoPlacement(
            f"{len(placed)} range servers were chosen; {stream.config.acks} to {stream.config.replicas} are needed"
        )
    names: dict[str, None] = {}
    for replica in placed:
        registered = state.servers.get(replica.server)
        if registered is None or registered.server.incarnation != replica.incarnation or replica.server in names:
            raise NoPlacement(f"range server {replica.server} changed meanwhile: try again")
        names[replica.server] = None
    return placed


def _append_range(
    state: State,
    stream: common_pb2.Stream,
    epoch: int,
    replicas: Iterable[common_pb2.Replica],
    now_ms: int,
) -> common_pb2.Range:
    check_not_sealed(stream)
    placed = _check_placed(state, stream, replicas)
    if state.cluster_version >= LEVEL_EMPTY_RANGES:
        state.forget_empty(stream.stream_id)
    added = common_pb2.Range(
        stream_id=stream.stream_id,
        index=stream.range_count,
        epoch=epoch,
        start_offset=stream.next_offset,
        state=common_pb2.RANGE_STATE_OPEN,
        replicas=[
            common_pb2.Replica(server=each.server, incarnation=each.incarnation, reason=each.reason) for each in placed
        ],
        acks=stream.config.acks,
        durability=stream.config.durability,
        tiered_end_offset=stream.next_offset,
        created_ms=now_ms,
    )
    stream = copy_of(stream)
    stream.range_count += 1
    stream.version += 1
    state.put_range(added)
    state.put_stream(stream)
    state.forget_trimmed(stream)
    return added
