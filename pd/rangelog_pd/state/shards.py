"""Shards: how one begins, how one ends, and the scale of a topic: start, cancel, commit.

What holds:

* A shard ends in the entry that takes its end: there its stream is still at the epoch that the owner names, its last range is
  sealed at that end, and none follows. The same entry seals the stream for good, so the end never moves.
* The entry that ends the parents of a scale makes the children current. Before it, no child and no stream of one exists.
* Children and parents whose key ranges overlap are each other's successors and predecessors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rangelog_core.errors import (
    InvalidArgument,
    PreconditionFailed,
    ShardEnded,
    StaleMapVersion,
    WriterFenced,
)
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_ranges import KeyRange, check_tiling, key_range_from_bytes, overlapping
from rangelog_core.limits import COMMAND_SHARDS_MAX, TOPIC_SHARDS_MAX
from rangelog_pd.state.side_logs import check_side_log, fence_side_log
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.topic_config import stream_config_of
from rangelog_pd.state.topic_states import ACTIVE, SCALING, SEALED, SEALING, check_legal, enter
from rangelog_pd.state.topic_tables import key_range_of
from rangelog_proto.v1 import common_pb2, pd_state_pb2, topic_pb2

REASON_LENGTH_MAX = 300


def parse_key_ranges(sent: Iterable[topic_pb2.KeyRange]) -> list[KeyRange]:
    """Return key ranges as they were sent. Raises InvalidArgument."""
    return [key_range_from_bytes(each.low, each.high) for each in sent]


def encode_key_range(key_range: KeyRange) -> topic_pb2.KeyRange:
    """Return a key range as it is stored and sent."""
    low, high = key_range.to_bytes()
    return topic_pb2.KeyRange(low=low, high=high)


def begin_shard(
    state: State, topic: topic_pb2.Topic, key_range: KeyRange, predecessors: Sequence[int], now_ms: int
) -> topic_pb2.Shard:
    """Make the next shard of a topic current, with a stream of its own. `topic` is a copy, which the caller puts."""
    shard = topic_pb2.Shard(
        topic_id=topic.topic_id,
        shard_id=topic.next_shard_id,
        key_range=encode_key_range(key_range),
        stream_id=state.next_stream_id,
        created_version=topic.map_version,
        predecessors=predecessors,
    )
    state.put_stream(
        common_pb2.Stream(
            stream_id=state.next_stream_id,
            name=shard_stream_name(topic.topic_id, shard.shard_id),
            config=stream_config_of(topic.config, shard.shard_id),
            created_ms=now_ms,
            version=1,
        )
    )
    state.next_stream_id += 1
    state.topics.put_shard(shard)
    topic.next_shard_id += 1
    topic.current_shard_count += 1
    return shard


def start_own_scale(state: State, command: pd_state_pb2.StartOwnScale, now_ms: int) -> topic_pb2.StartScaleResponse:
    """Keep the plan of a scale that the leader wants by itself, with its reason. Raises as `start_scale`."""
    return start_scale(state, command.request, now_ms, command.reason or "unknown")


def start_scale(
    state: State, request: topic_pb2.StartScaleRequest, now_ms: int, reason: str = ""
) -> topic_pb2.StartScaleResponse:
    """Keep the plan of a scale. Raises TopicNotFound, TopicStateForbids, StaleMapVersion, ShardNotFound, ShardEnded,
    KeyRangeGap, KeyRangeOverlap, InvalidArgument."""
    topic = copy_of(state.topics.referred(request.topic))
    check_legal(topic, "start the scale of")
    if request.map_version != topic.map_version:
        raise StaleMapVersion(
            f"the shard map of topic {topic.name!r} has version {topic.map_version}, not {request.map_version}"
        )
    for count in (len(request.parents), len(request.key_ranges)):
        if not 1 <= count <= COMMAND_SHARDS_MAX:
            raise InvalidArgument(f"{count} shards on one side of a scale; 1 to {COMMAND_SHARDS_MAX} are allowed")
    parents = sorted(request.parents)
    if len(dict.fromkeys(parents)) != len(parents):
        raise InvalidArgument("a scale names a parent twice")
    left = topic.current_shard_count - len(parents) + len(request.key_ranges)
    if left > TOPIC_SHARDS_MAX:
        raise InvalidArgument(f"the scale would leave {left} current shards; the limit is {TOPIC_SHARDS_MAX}")
    cover = [key_range_of(_current(state, topic, shard_id)) for shard_id in parents]
    key_ranges = check_tiling(parse_key_ranges(request.key_ranges), cover)
    enter(topic, "start the scale of", SCALING, now_ms)
    topic.scale_id += 1
    work = state.topics.work_of(topic.topic_id)
    work.scale.CopyFrom(
        topic_pb2.ScalePlan(
            scale_id=topic.scale_id,
            map_version=topic.map_version,
            parents=parents,
            key_ranges=[encode_key_range(each) for each in key_ranges],
            started_ms=now_ms,
            reason=reason[:REASON_LENGTH_MAX],
        )
    )
    state.topics.put_work(work)
    state.topics.put_topic(topic)
    return topic_pb2.StartScaleResponse(topic=topic)


def cancel_scale(state: State, request: topic_pb2.CancelScaleRequest, now_ms: int) -> topic_pb2.CancelScaleResponse:
    """Drop the plan of a scale. A repeat changes nothing. Raises TopicNotFound, TopicStateForbids, PreconditionFailed."""
    topic = copy_of(state.topics.topic(request.topic_id))
    if topic.state == ACTIVE and request.scale_id == topic.scale_id > topic.committed_scale_id:
        return topic_pb2.CancelScaleResponse(topic=topic)
    check_legal(topic, "cancel the scale of")
    work = _planned(state, topic, request.scale_id)
    work.ClearField("scale")
    enter(topic, "cancel the scale of", ACTIVE, now_ms)
    topic.last_scale_ms = now_ms
    state.topics.put_work(work)
    state.topics.put_topic(topic)
    return topic_pb2.CancelScaleResponse(topic=topic)


def commit_scale(state: State, request: topic_pb2.CommitScaleRequest, now_ms: int) -> topic_pb2.CommitScaleResponse:
    """End the parents of a scale and make the children current: all of it, or nothing. A repeat changes nothing.

    Raises TopicNotFound, TopicStateForbids, InvalidArgument (an end is missing), WriterFenced (a parent has another epoch),
    PreconditionFailed (another plan; a parent has not ended so).
    """
    topic = copy_of(state.topics.topic(request.topic_id))
    if request.scale_id and request.scale_id == topic.committed_scale_id:
        return topic_pb2.CommitScaleResponse(topic=topic)
    check_legal(topic, "commit the scale of")
    work = _planned(state, topic, request.scale_id)
    plan = work.scale
    ends = sorted(request.ends, key=lambda end: end.shard_id)
    if [end.shard_id for end in ends] != list(plan.parents):
        raise InvalidArgument(f"the commit of a scale names the end of each of its {len(plan.parents)} parents, once")
    for end in ends:
        _check_end(state, state.topics.shard(topic.topic_id, end.shard_id), end)
    topic.map_version += 1
    parents = sorted((state.topics.shards.copy((topic.topic_id, each)) for each in plan.parents), key=key_range_of)
    key_ranges = parse_key_ranges(plan.key_ranges)
    predecessors: list[list[int]] = [[] for _ in key_ranges]
    followers: list[list[int]] = [[] for _ in parents]
    for old, new in overlapping([key_range_of(each) for each in parents], key_ranges):
        predecessors[new].append(parents[old].shard_id)
        followers[old].append(topic.next_shard_id + new)
    for parent, successors in zip(parents, followers, strict=True):
        parent.successors.extend(successors)
        _end_shard(state, topic, parent)
    for key_range, before in zip(key_ranges, predecessors, strict=True):
        begin_shard(state, topic, key_range, sorted(before), now_ms)
    work.ClearField("scale")
    enter(topic, "commit the scale of", ACTIVE, now_ms)
    topic.committed_scale_id = request.scale_id
    topic.last_scale_ms = now_ms
    state.topics.put_work(work)
    state.topics.put_topic(topic)
    return topic_pb2.CommitScaleResponse(topic=topic)


def end_shard(state: State, request: topic_pb2.EndShardRequest, now_ms: int) -> topic_pb2.EndShardResponse:
    """End one shard of a topic that is being sealed; the last one makes it sealed. A repeat changes nothing.

    Raises TopicNotFound, ShardNotFound, TopicStateForbids, ShardEnded, WriterFenced, PreconditionFailed, InvalidArgument.
    """
    topic = copy_of(state.topics.topic(request.topic_id))
    shard = copy_of(state.topics.shard(topic.topic_id, request.end.shard_id))
    if shard.ended_version and not shard.successors and request.end.end_offset == shard.end_offset:
        return topic_pb2.EndShardResponse(topic=topic)
    check_legal(topic, "end a shard of")
    _current(state, topic, shard.shard_id)
    _check_end(state, shard, request.end)
    topic.map_version += 1
    _end_shard(state, topic, shard)
    enter(topic, "end a shard of", SEALING if topic.current_shard_count else SEALED, now_ms)
    state.topics.put_topic(topic)
    return topic_pb2.EndShardResponse(topic=topic)


def _current(state: State, topic: topic_pb2.Topic, shard_id: int) -> topic_pb2.Shard:
    """Return a current shard. Raises ShardNotFound, ShardEnded."""
    shard = state.topics.shard(topic.topic_id, shard_id)
    if shard.ended_version:
        raise ShardEnded(f"shard {shard_id} of topic {topic.name!r} ended in map version {shard.ended_version}")
    return shard


def _planned(state: State, topic: topic_pb2.Topic, scale_id: int) -> topic_pb2.TopicWork:
    """Return a copy of the topic's work if it has this plan. Raises PreconditionFailed."""
    work = state.topics.work_of(topic.topic_id)
    if scale_id != work.scale.scale_id:
        raise PreconditionFailed(f"topic {topic.name!r} is in scale {work.scale.scale_id}, not {scale_id}")
    return work


def _check_end(state: State, shard: topic_pb2.Shard, end: topic_pb2.ShardEnd) -> None:
    """Check an end against the stream. Raises InvalidArgument, WriterFenced, PreconditionFailed."""
    if end.stream_id != shard.stream_id:
        raise InvalidArgument(f"the stream of shard {shard.shard_id} is {shard.stream_id}, not {end.stream_id}")
    check_side_log(state, shard.topic_id, shard.shard_id)
    stream = state.streams[shard.stream_id]
    if end.epoch != stream.epoch:
        raise WriterFenced(
            f"epoch {end.epoch} is not the current one of shard {shard.shard_id}, which is {stream.epoch}",
            epoch=stream.epoch,
        )
    last = state.ranges.of(stream.stream_id).last()
    if last is None:
        holds = not end.HasField("last_range_index") and not end.end_offset
    else:
        is_last = end.HasField("last_range_index") and end.last_range_index == last.index
        sealed_there = last.state == common_pb2.RANGE_STATE_SEALED and end.end_offset == last.end_offset
        holds = is_last and sealed_there
    if not holds:
        raise PreconditionFailed(
            f"shard {shard.shard_id} has not ended at {end.end_offset}: " + _end_in_words(stream, last)
        )


def _end_in_words(stream: common_pb2.Stream, last: common_pb2.Range | None) -> str:
    if last is None:
        return "its stream has no range, so its end is 0"
    if last.state == common_pb2.RANGE_STATE_OPEN:
        return f"range {last.index} is still open"
    return f"its last range is {last.index}, sealed at {stream.next_offset}"


def _end_shard(state: State, topic: topic_pb2.Topic, shard: topic_pb2.Shard) -> None:
    """End a shard in the topic's present map version. `topic` and `shard` are copies; the caller puts the topic."""
    stream = state.streams.copy(shard.stream_id)
    stream.sealed_for_good = True
    stream.version += 1
    state.put_stream(stream)
    fence_side_log(state, shard.topic_id, shard.shard_id)
    shard.ended_version = topic.map_version
    shard.end_offset = stream.next_offset
    state.topics.put_shard(shard)
    topic.current_shard_count -= 1
