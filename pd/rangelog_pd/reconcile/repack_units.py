"""The parts of a stream's tier around one of its ranges, as repacks see them. Reads the neighbourhood only, not the stream.

What holds: the units are contiguous, in order of offset, and the range's own is among them; the walk ends in both directions at
what is not wholly in the tier, at a large object, at one that is being repacked already, and beyond what one repack may join.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

from rangelog_core.limits import REPACKED_OBJECTS_MAX
from rangelog_core.repack_choice import RepackUnit
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2


def units_around(
    state: State, stream_id: int, index: int, target_bytes: int, busy: Container[int]
) -> tuple[list[RepackUnit], bool]:
    """Return the units around a range, and whether one that is being repacked ended the walk. `busy`: ids of objects."""
    center = unit_of(state, stream_id, index)
    if center is None:
        return [], False
    if _is_busy(center, busy):
        return [], True
    found = deque([center])
    met_busy = False
    if not center.is_small(target_bytes):
        return [center], False
    for forward in (False, True):
        size_bytes = 0
        while size_bytes <= target_bytes and len(found) < REPACKED_OBJECTS_MAX * (1 + forward):
            each = _next(state, found[-1]) if forward else _previous(state, found[0])
            if each is None or not each.is_small(target_bytes):
                break
            if _is_busy(each, busy):
                met_busy = True
                break
            size_bytes += each.size_bytes
            if forward:
                found.append(each)
            else:
                found.appendleft(each)
    return list(found), met_busy


def unit_of(state: State, stream_id: int, index: int) -> RepackUnit | None:
    """Return the unit that has the records of a range; None: they are not wholly in the tier, or the range is empty."""
    stream = state.streams.find(stream_id)
    of = state.ranges.find((stream_id, index))
    if stream is None or of is None or not _is_tiered(of):
        return None
    holder = of.packed_in if of.HasField("packed_in") else index
    objects = [
        each
        for each in state.objects_of(stream_id, holder)
        if each.state == common_pb2.OBJECT_STATE_COMMITTED and each.end_offset > each.start_offset
    ]
    if not objects:
        return None
    objects.sort(key=lambda each: each.start_offset)
    ranges = state.ranges.of(stream_id)
    range_count = ranges.count(ranges.index_beyond(objects[0].start_offset), holder)
    return RepackUnit.of(objects, range_count, stream.trim_offset)


def _is_tiered(of: common_pb2.Range) -> bool:
    return of.state == common_pb2.RANGE_STATE_SEALED and of.tiered_end_offset == of.end_offset


def _is_busy(unit: RepackUnit, busy: Container[int]) -> bool:
    return any(each.object_id in busy for each in unit.objects)


def _previous(state: State, unit: RepackUnit) -> RepackUnit | None:
    stream_id, start = unit.objects[0].stream_id, unit.start_offset
    if not start:
        return None
    found = unit_of(state, stream_id, state.ranges.of(stream_id).index_beyond(start - 1))
    return found if found is not None and found.end_offset == start else None


def _next(state: State, unit: RepackUnit) -> RepackUnit | None:
    stream_id, end = unit.objects[0].stream_id, unit.end_offset
    found = unit_of(state, stream_id, state.ranges.of(stream_id).index_beyond(end))
    return found if found is not None and found.start_offset == end else None
