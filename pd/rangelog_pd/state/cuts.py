"""Cuts of a topic: whether one is consistent, what lies before it, and the earlier one of two. Pure functions of the rows.

What holds: a consistent cut names shards that tile the key space, none of which precedes another, so it divides all records of
the topic into those before it and those behind it; a reader that has read up to it has read whole pasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rangelog_core.errors import InvalidArgument, OffsetOutOfRange
from rangelog_core.key_ranges import KEY_SPACE, check_tiling
from rangelog_core.limits import TOPIC_SHARDS_MAX
from rangelog_pd.state.topic_tables import key_range_of
from rangelog_proto.v1 import topic_pb2

if TYPE_CHECKING:
    from rangelog_pd.state.store import State

Cut = Mapping[int, int]
"""Offsets by shard id."""


def check_cut(state: State, topic_id: int, cut: Sequence[topic_pb2.ShardPosition]) -> list[topic_pb2.Shard]:
    """Return the shards of a cut, in its order, if it is consistent. Offsets are not checked.

    Raises ShardNotFound, KeyRangeGap, KeyRangeOverlap, InvalidArgument.
    """
    if not 1 <= len(cut) <= TOPIC_SHARDS_MAX:
        raise InvalidArgument(f"a cut of {len(cut)} shards; 1 to {TOPIC_SHARDS_MAX} are allowed")
    shards = [state.topics.shard(topic_id, each.shard_id) for each in cut]
    check_tiling([key_range_of(shard) for shard in shards], [KEY_SPACE])
    before = preceding(state, topic_id, (shard.shard_id for shard in shards))
    for shard in shards:
        if shard.shard_id in before:
            raise InvalidArgument(
                f"shard {shard.shard_id} precedes another shard of the cut, so it lies wholly before it"
            )
    return shards


def check_position(state: State, shard: topic_pb2.Shard, offset: int) -> None:
    """Raise OffsetOutOfRange for an offset beyond the sealed ranges of a shard."""
    end = state.streams[shard.stream_id].next_offset
    if offset > end:
        raise OffsetOutOfRange(
            f"shard {shard.shard_id} cannot be cut at {offset}: its sealed ranges end at {end}", offset=end
        )


def preceding(state: State, topic_id: int, shard_ids: Iterable[int], *, untrimmed: bool = True) -> dict[int, None]:
    """Return all shards that precede these. `untrimmed`: without what a truncation has trimmed wholly and what precedes it."""
    found: dict[int, None] = {}
    pending = list(shard_ids)
    while pending:
        for shard_id in state.topics.shard(topic_id, pending.pop()).predecessors:
            if shard_id not in found and not (untrimmed and state.topics.shard(topic_id, shard_id).truncated):
                found[shard_id] = None
                pending.append(shard_id)
    return found


def whole_of(state: State, topic_id: int, cut: Cut) -> dict[int, int]:
    """Return what a truncation to a cut trims: its shards up to their offsets, and what precedes them up to their ends."""
    before = preceding(state, topic_id, cut)
    return {**cut, **{each: state.topics.shard(topic_id, each).end_offset for each in sorted(before)}}


def left_to_trim(state: State, topic_id: int, cut: Cut) -> dict[int, int]:
    """Return the part of `whole_of` that is not trimmed yet."""
    left: dict[int, int] = {}
    for shard_id, offset in whole_of(state, topic_id, cut).items():
        shard = state.topics.shard(topic_id, shard_id)
        if offset > state.streams[shard.stream_id].trim_offset:
            left[shard_id] = offset
    return left


def cut_of_now(state: State, topic: topic_pb2.Topic) -> dict[int, int]:
    """Return the cut at the ends of the sealed ranges, which are in the state: a little before what is acked."""
    shard_map = state.topics.maps.of(topic.topic_id)
    ids: Iterable[int] = (shard_id for _, shard_id in shard_map.current)
    if topic.current_shard_count == 0 or topic.state == topic_pb2.TOPIC_STATE_SEALING:
        ids = (each for each in shard_map.ids if not state.topics.shards[topic.topic_id, each].successors)
    return {each: state.streams[state.topics.shards[topic.topic_id, each].stream_id].next_offset for each in ids}


def clipped(state: State, topic_id: int, cut: Cut) -> dict[int, int]:
    """Return a cut with no offset beyond what is sealed."""
    return {
        each: min(offset, state.streams[state.topics.shard(topic_id, each).stream_id].next_offset)
        for each, offset in cut.items()
    }


def earlier_of(state: State, topic_id: int, first: Cut, second: Cut) -> dict[int, int]:
    """Return the last cut that lies behind neither of two consistent ones; it is consistent, too."""
    before_first = preceding(state, topic_id, first, untrimmed=False)
    before_second = preceding(state, topic_id, second, untrimmed=False)
    found: dict[int, int] = {}
    for cut, other, before_other in ((first, second, before_second), (second, first, before_first)):
        for shard_id, offset in cut.items():
            if shard_id in other:
                found[shard_id] = min(offset, other[shard_id])
            elif shard_id in before_other:
                found[shard_id] = offset
    return found


def positions(cut: Cut) -> list[topic_pb2.ShardPosition]:
    """Return a cut as it is sent."""
    return [topic_pb2.ShardPosition(shard_id=each, offset=offset) for each, offset in cut.items()]
