"""The work that one command leaves for a large topic, done in parts: each entry changes a bounded number of streams and ranges.

What holds: a part done twice is the same as done once. The state itself holds what is left, so any later leader goes on from
there. A shard is trimmed only up to where a durable snapshot has its producers, so none of their batches is forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from rangelog_pd.state.side_logs import remove_side_log
from rangelog_pd.state.store import State
from rangelog_pd.state.streams import trim
from rangelog_pd.state.tables import copy_of
from rangelog_pd.state.topic_config import stream_config_of
from rangelog_pd.state.topic_states import ACTIVE, DELETING, SEALED, TRUNCATING, enter
from rangelog_proto.v1 import topic_pb2

STREAMS_PER_ENTRY = 1_000
RANGES_PER_ENTRY = 10_000
"""Beyond it an entry takes no further stream; the ranges of one stream are never divided."""


@dataclass(slots=True)
class _Budget:
    """The streams and ranges that one entry may still change."""

    streams: int
    ranges: int

    @property
    def is_left(self) -> bool:
        return self.streams > 0 and self.ranges > 0

    def spend(self, state: State, stream_id: int) -> None:
        """Count a stream with its ranges."""
        self.streams -= 1
        self.ranges -= len(state.ranges.of(stream_id))


NOTHING_COVERED: Mapping[int, int] = {}


def go_on(state: State, topic_id: int, now_ms: int, covered: Mapping[int, int] = NOTHING_COVERED) -> None:
    """Do the next part of what is left for a topic. `covered`: up to where snapshots have the producers of shards."""
    topic = state.topics.topics.find(topic_id)
    if topic is None:
        return
    budget = _Budget(STREAMS_PER_ENTRY, RANGES_PER_ENTRY)
    if topic.state == DELETING:
        _delete(state, topic, budget)
        return
    if topic.state == TRUNCATING:
        _truncate(state, topic, budget, now_ms, covered)
    _configure(state, state.topics.topics[topic_id], budget)


def _delete(state: State, topic: topic_pb2.Topic, budget: _Budget) -> None:
    """Delete shards with their streams; after the last one, the topic."""
    shard_map = state.topics.maps.of(topic.topic_id)
    for shard_id in list(islice(shard_map.ids, STREAMS_PER_ENTRY)):
        if not budget.is_left:
            return
        key = (topic.topic_id, shard_id)
        stream_id = state.topics.shards[key].stream_id
        budget.spend(state, stream_id)
        state.remove_stream(stream_id)
        remove_side_log(state, *key)
        state.topics.shards.remove(key)
    if not shard_map.ids:
        state.topics.topics.remove(topic.topic_id)


def _truncate(state: State, topic: topic_pb2.Topic, budget: _Budget, now_ms: int, covered: Mapping[int, int]) -> None:
    """Trim shards, each once it is covered; after the last one, the topic is what it was before."""
    work = state.topics.work_of(topic.topic_id)
    left: list[topic_pb2.ShardPosition] = []
    for each in work.to_trim:
        shard = state.topics.shards[topic.topic_id, each.shard_id]
        stream = state.streams[shard.stream_id]
        is_covered = each.offset <= max(stream.trim_offset, covered.get(each.shard_id, 0))
        if not budget.is_left or not is_covered:
            left.append(each)
            continue
        budget.spend(state, shard.stream_id)
        trim(state, stream, each.offset)
        if shard.ended_version and each.offset == shard.end_offset and not shard.truncated:
            shard = copy_of(shard)
            shard.truncated = True
            state.topics.put_shard(shard)
    if left and len(left) == len(work.to_trim):
        return
    del work.to_trim[:]
    work.to_trim.extend(left)
    state.topics.put_work(work)
    if not left:
        topic = copy_of(topic)
        enter(topic, "finish the truncation of", ACTIVE if topic.current_shard_count else SEALED, now_ms)
        state.topics.put_topic(topic)


def _configure(state: State, topic: topic_pb2.Topic, budget: _Budget) -> None:
    """Give the streams of further shards the configuration that follows from the topic's."""
    work = state.topics.work_of(topic.topic_id)
    if not work.HasField("configure_from"):
        return
    while work.configure_from < topic.next_shard_id and budget.is_left:
        shard = state.topics.shards[topic.topic_id, work.configure_from]
        stream = state.streams.copy(shard.stream_id)
        budget.spend(state, stream.stream_id)
        config = stream_config_of(topic.config, shard.shard_id)
        if stream.config != config:
            stream.config.CopyFrom(config)
            stream.version += 1
            state.put_stream(stream)
        work.configure_from += 1
    if work.configure_from == topic.next_shard_id:
        work.ClearField("configure_from")
        work.ClearField("configure_since_ms")
    state.topics.put_work(work)
