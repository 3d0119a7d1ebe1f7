"""The invariants of topics, asserted by `State.validate`: for tests and the simulator.

* The shards without successors tile the key space, at every moment before the deletion; so do the current ones until the topic
  is sealed shard by shard.
* Each shard has a stream of its own, and each other stream with an internal name is the side log of a shard, or a journal's. A
  shard has ended if and only if its stream is sealed for good, and its end is the stream's.
* Predecessors and successors are each other's counterparts, with overlapping key ranges, of one scale.
* Each cut of a retention set, and of a subscribed group, is consistent.
* A plan is kept if and only if the topic is scaling; something is left to trim if and only if it is truncating.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangelog_core.ids import AUDIT_STREAM_NAME, is_internal_name, journal_stream_name, shard_stream_name, side_log_name
from rangelog_core.key_ranges import KEY_SPACE, check_tiling
from rangelog_pd.state.cut_tables import cut_of
from rangelog_pd.state.cuts import check_cut, positions
from rangelog_pd.state.owner_tables import JOURNALS
from rangelog_pd.state.topic_states import ACTIVE, DELETING, SCALING, SEALED, SEALING, TRUNCATING
from rangelog_pd.state.topic_tables import full_name, key_range_of
from rangelog_proto.v1 import topic_pb2

if TYPE_CHECKING:
    from rangelog_pd.state.store import State


def validate_topics(state: State) -> None:
    """Assert the invariants."""
    topics = state.topics
    internal = {each.name for each in state.streams.values() if is_internal_name(each.name)}
    expected = {shard_stream_name(*key) for key in topics.shards}
    allowed = {side_log_name(*key) for key in topics.shards} | {journal_stream_name(each) for each in range(JOURNALS)}
    allowed.add(AUDIT_STREAM_NAME)
    assert expected <= internal <= expected | allowed, (
        "each internal stream belongs to a shard, a journal or the audit log"
    )
    assert sum(len(topics.maps.of(topic_id).ids) for topic_id in topics.topics) == len(topics.shards)
    assert all(topic_id in topics.topics for topic_id in topics.work)
    for topic_id in (*state.cuts.numbers, *state.cuts.groups):
        assert topics.topics[topic_id].state != DELETING
        cuts = [cut_of(each) for each in state.cuts.of(topic_id)] + [
            cut_of(each) for each in state.cuts.consumed_of(topic_id)
        ]
        for cut in cuts:
            check_cut(state, topic_id, positions(cut))
    for topic_id, topic in topics.topics.items():
        assert topic_id < topics.next_topic_id
        assert topics.names.get(full_name(topic.namespace, topic.name)) == topic_id
        assert topic.namespace in topics.namespaces
        shards = [topics.shards[topic_id, shard_id] for shard_id in topics.maps.of(topic_id).ids]
        for shard in shards:
            _validate_shard(state, topic, shard)
        if topic.state != DELETING:
            _validate_map(topic, shards)
            for shard in shards:
                _validate_links(state, shard)
        work = topics.work_of(topic_id)
        assert work.HasField("scale") == (topic.state == SCALING)
        assert bool(work.to_trim) == (topic.state == TRUNCATING)


def _validate_shard(state: State, topic: topic_pb2.Topic, shard: topic_pb2.Shard) -> None:
    stream = state.streams[shard.stream_id]
    assert stream.name == shard_stream_name(topic.topic_id, shard.shard_id)
    assert shard.shard_id < topic.next_shard_id
    assert stream.sealed_for_good == bool(shard.ended_version)
    assert 0 < shard.created_version <= topic.map_version
    assert shard.ended_version <= topic.map_version
    assert not shard.successors or shard.ended_version
    if shard.ended_version:
        assert shard.created_version < shard.ended_version
        assert shard.end_offset == stream.next_offset
    assert not shard.truncated or stream.trim_offset == shard.end_offset


def _validate_map(topic: topic_pb2.Topic, shards: list[topic_pb2.Shard]) -> None:
    current = [shard for shard in shards if not shard.ended_version]
    assert [shard.shard_id for shard in shards] == list(range(topic.next_shard_id)), "no shard is lost"
    assert topic.current_shard_count == len(current)
    check_tiling([key_range_of(shard) for shard in shards if not shard.successors], [KEY_SPACE])
    if topic.state in (ACTIVE, SCALING):
        check_tiling([key_range_of(shard) for shard in current], [KEY_SPACE])
    if topic.state != TRUNCATING:
        assert (topic.state == SEALED) == (not current)
        assert topic.state == SEALING or len(current) in (0, sum(not shard.successors for shard in shards))


def _validate_links(state: State, shard: topic_pb2.Shard) -> None:
    for successor in (state.topics.shards[shard.topic_id, each] for each in shard.successors):
        assert shard.shard_id in successor.predecessors
        assert successor.created_version == shard.ended_version
        assert key_range_of(successor).overlaps(key_range_of(shard))
    for predecessor in (state.topics.shards[shard.topic_id, each] for each in shard.predecessors):
        assert shard.shard_id in predecessor.successors
