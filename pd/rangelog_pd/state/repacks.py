"""Repacks: one object takes the place of the objects of neighbouring ranges, so that a stream has few large ones.

What holds: a repack covers whole ranges, all of them sealed and wholly in the tier; the new object counts from the same command
on in which the replaced ones cease to, and only if all of these still count; so each offset of the tier is in exactly one
committed object at all times. The object is kept with the last of its ranges: it stays while one of them does. Replaced objects
become tombstones like trimmed ones, so that readers which know them can read them until the delete grace is over. An object
that leaves rows out leaves out such as were trimmed when it was prepared, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rangelog_core.errors import InvalidArgument, ObjectNotFound, PreconditionFailed
from rangelog_core.limits import REPACKED_OBJECTS_MAX, REPACKED_RANGES_MAX
from rangelog_core.object_keys import object_key
from rangelog_pd.state.objects import committed, is_repeated, without_row_groups
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.tier_stores import tier_id_now
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2


def prepare_repack(state: State, command: pd_state_pb2.TimedPrepareRepack, now_ms: int) -> pd_pb2.PrepareRepackResponse:
    """Assign a key for the object that will replace others. Raises InvalidArgument, StreamNotFound, PreconditionFailed."""
    request = command.request
    if not request.packer:
        raise InvalidArgument("a repack names its packer: without it two of them would write to one key")
    state.stream_by_id(request.stream_id)
    replaced = _replaced(state, request)
    last = _last_range(state, replaced)
    for other in state.objects_of(request.stream_id, last.index):
        if other.state != common_pb2.OBJECT_STATE_PREPARED:
            continue
        mine = (other.server, other.incarnation) == (request.packer, request.incarnation)
        same = list(other.replaces) == list(request.object_ids)
        if mine and same and other.object_id != request.spoiled_object_id:
            extended = copy_of(other)
            extended.prepare_deadline_ms = command.deadline_ms
            state.put_object(extended)
            return pd_pb2.PrepareRepackResponse(object=extended)
        if not mine and other.prepare_deadline_ms > now_ms:
            raise PreconditionFailed(f"range {last.index} is being repacked by {other.server}")
        state.bury(other.object_id)
    start, end = replaced[0].start_offset, replaced[-1].end_offset
    if request.drops_trimmed:
        start = min(max(start, state.streams[request.stream_id].trim_offset), end)
    if start == end:
        raise PreconditionFailed(f"all of [{replaced[0].start_offset}, {end}) was trimmed: there is nothing to repack")
    prepared = common_pb2.Object(
        object_id=state.next_object_id,
        stream_id=request.stream_id,
        range_index=last.index,
        epoch=last.epoch,
        start_offset=start,
        end_offset=end,
        key=object_key(request.stream_id, last.index, start, end, state.next_object_id),
        state=common_pb2.OBJECT_STATE_PREPARED,
        server=request.packer,
        incarnation=request.incarnation,
        prepare_deadline_ms=command.deadline_ms,
        tier_id=tier_id_now(state),
        replaces=request.object_ids,
    )
    state.next_object_id += 1
    state.put_object(prepared)
    return pd_pb2.PrepareRepackResponse(object=prepared)


def commit_repack(state: State, request: pd_pb2.CommitRepackRequest, now_ms: int) -> pd_pb2.CommitRepackResponse:
    """Put an uploaded and verified object in the place of others. Raises ObjectNotFound, PreconditionFailed, InvalidArgument.

    A repeat of a commit gets its result again.
    """
    found = state.objects.find(request.object_id)
    if found is None:
        raise ObjectNotFound(f"object {request.object_id} was never prepared, or is collected")
    if found.server != request.packer:
        raise PreconditionFailed(f"object {request.object_id} was prepared for {found.server}")
    if is_repeated(found, request):
        return pd_pb2.CommitRepackResponse(object=without_row_groups(found))
    if found.state != common_pb2.OBJECT_STATE_PREPARED or not found.replaces:
        raise PreconditionFailed(f"object {request.object_id} was given up: prepare a new one")
    for object_id in found.replaces:
        replaced = state.objects.find(object_id)
        if replaced is None or replaced.state != common_pb2.OBJECT_STATE_COMMITTED:
            raise PreconditionFailed(f"object {object_id} is not live any more: it was trimmed, or repacked by another")
    made = committed(found, request, now_ms)
    last = state.range(made.stream_id, made.range_index)
    for object_id in found.replaces:
        state.bury(object_id)
    state.put_object(made)
    for each in _ranges(state, made, last):
        if each.index != last.index and (not each.HasField("packed_in") or each.packed_in != last.index):
            changed = copy_of(each)
            changed.packed_in = last.index
            state.put_range(changed)
    stream = copy_of(state.stream_by_id(found.stream_id))
    stream.repack_count += 1
    state.put_stream(stream)
    return pd_pb2.CommitRepackResponse(object=without_row_groups(made))


def check_count(request: pd_pb2.PrepareRepackRequest) -> None:
    """Raise InvalidArgument for too few or too many objects: one is enough where its trimmed rows are left out, or where it
    gets another key."""
    count, least = len(request.object_ids), 1 if request.drops_trimmed or request.encrypted else 2
    if not least <= count <= REPACKED_OBJECTS_MAX:
        raise InvalidArgument(f"{count} objects to repack: {least} to {REPACKED_OBJECTS_MAX:,} are repacked at a time")


def _replaced(state: State, request: pd_pb2.PrepareRepackRequest) -> list[common_pb2.Object]:
    """Return the objects that are to be replaced, after a check that they are live and contiguous."""
    check_count(request)
    found: list[common_pb2.Object] = []
    for object_id in request.object_ids:
        each = state.objects.find(object_id)
        live = each is not None and each.state == common_pb2.OBJECT_STATE_COMMITTED
        if each is None or not live or each.stream_id != request.stream_id:
            raise PreconditionFailed(f"object {object_id} is no live object of stream {request.stream_id}")
        found.append(each)
    for before, after in pairwise(found):
        if after.start_offset != before.end_offset:
            raise InvalidArgument(
                f"object {after.object_id} starts at {after.start_offset}, the one before it ends at {before.end_offset}: "
                "neighbouring objects are repacked, in order of offset"
            )
    return found


def _last_range(state: State, replaced: Sequence[common_pb2.Object]) -> common_pb2.Range:
    """Return the last range of a repack, after a check that the objects cover whole ranges."""
    first, last = replaced[0], replaced[-1]
    found = state.range(last.stream_id, last.range_index)
    ranges = _ranges(state, last, found, first.start_offset)
    before = [
        each
        for each in state.objects_of(first.stream_id, ranges[0].index)
        if each.state == common_pb2.OBJECT_STATE_COMMITTED and each.end_offset <= first.start_offset
    ]
    trimmed_before = first.start_offset <= state.streams[first.stream_id].trim_offset and not before
    cut = ranges[0].start_offset < first.start_offset and not trimmed_before
    if len(ranges) > REPACKED_RANGES_MAX:
        raise InvalidArgument(f"{len(ranges)} ranges to repack; the limit is {REPACKED_RANGES_MAX:,}")
    sealed = found.state == common_pb2.RANGE_STATE_SEALED
    if cut or not sealed or last.end_offset != found.end_offset:
        raise PreconditionFailed(
            f"objects {first.object_id} to {last.object_id} do not cover whole ranges: all objects of a range are repacked, "
            "once it is wholly in the tier"
        )
    return found


def ranges_of_object(state: State, found: common_pb2.Object) -> list[common_pb2.Range]:
    """Return the ranges whose records a committed object has, in order."""
    return _ranges(state, found, state.range(found.stream_id, found.range_index))


def _ranges(
    state: State, covering: common_pb2.Object, last: common_pb2.Range, start_offset: int | None = None
) -> list[common_pb2.Range]:
    """Return the ranges that end beyond a start offset, by default the object's, up to `last`."""
    ranges = state.ranges.of(covering.stream_id)
    start = covering.start_offset if start_offset is None else start_offset
    found: list[common_pb2.Range] = []
    for index in ranges.indexes_from(ranges.index_beyond(start)):
        if index > last.index or len(found) > REPACKED_RANGES_MAX:
            break
        found.append(ranges[index])
    return found
