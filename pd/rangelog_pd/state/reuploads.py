"""Objects that the store has lost or damaged are given up, so that their records are uploaded again from the hot copies.

What holds: an object is given up only as long as it counts (compare-and-set on its id), and only if each range whose records it
has still has hot copies; in the same command these ranges count as tiered up to its start, so no offset of the tier is without
an object, and no hot copy may be dropped before the records are in the tier again.
"""

from __future__ import annotations

from rangelog_core.errors import ObjectNotFound, PreconditionFailed
from rangelog_pd.state.repacks import ranges_of_object
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_proto.v1 import common_pb2, tier_pb2


def reupload_object(
    state: State, request: tier_pb2.ReuploadObjectRequest, now_ms: int
) -> tier_pb2.ReuploadObjectResponse:
    """Give up a committed object and those behind it in its range. Raises ObjectNotFound, PreconditionFailed."""
    found = _object_to_reupload(state, request.object_id)
    ranges = [each for each in ranges_of_object(state, found) if each.end_offset > each.start_offset]
    for each in ranges:
        if each.hot_dropped or not each.replicas:
            raise PreconditionFailed(
                f"range {each.index} has no hot copies: object {found.object_id} is all that there is of it"
            )
    later = [
        each
        for each in state.objects_of(found.stream_id, found.range_index)
        if each.state == common_pb2.OBJECT_STATE_COMMITTED and each.start_offset >= found.start_offset
    ]
    for given_up in later:
        state.bury(given_up.object_id)
    for each in ranges:
        rewound = copy_of(each)
        rewound.tiered_end_offset = max(each.start_offset, found.start_offset)
        rewound.ClearField("packed_in")
        if rewound.tiered_end_offset == each.start_offset:
            rewound.tiered_ms = 0
        state.put_range(rewound)
    stream = copy_of(state.stream_by_id(found.stream_id))
    # The revision of the stream's manifest rises, although the tier has fewer records now.
    stream.repack_count += 1 + sum(each.end_offset - each.start_offset for each in later)
    state.put_stream(stream)
    return tier_pb2.ReuploadObjectResponse(objects=later)


def _object_to_reupload(state: State, object_id: int) -> common_pb2.Object:
    """Return a committed object of a stream that is tiered. Raises ObjectNotFound, PreconditionFailed."""
    found = state.objects.find(object_id)
    if found is None:
        raise ObjectNotFound(f"there is no object {object_id} in the state")
    if found.state != common_pb2.OBJECT_STATE_COMMITTED:
        raise PreconditionFailed(f"object {object_id} does not count any more: it was trimmed, repacked or given up")
    stream = state.stream_by_id(found.stream_id)
    if not stream.config.tiered:
        raise PreconditionFailed(f"stream {stream.name!r} is not tiered: its records would not be uploaded again")
    return found
