"""Side logs of shards and streams of journals: created once, under their own names, gone with the topic."""

from __future__ import annotations

import pytest

from rangelog_core.errors import (
    PreconditionFailed,
    RangelogError,
    ShardNotFound,
    TopicNotFound,
    WriterFenced,
)
from rangelog_proto.v1 import common_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part


def ensure(topics: TopicCalls, topic_id: int, shard_id: int) -> common_pb2.Stream:
    request = topic_pb2.EnsureLogRequest(topic_id=topic_id, shard_id=shard_id)
    return topics.pd.do(topic_pb2.EnsureLogResponse, ensure_log=request).stream


def test_a_side_log_is_created_once_and_goes_with_its_topic(topics: TopicCalls) -> None:
    """A second call returns the same stream; the deletion of the topic removes it with the shard's records."""
    topic = topics.create(shards=2)
    made = ensure(topics, topic.topic_id, 1)
    assert made.name == "_topic-1-shard-1-side"
    assert not made.config.tiered
    topics.pd.reload()
    assert ensure(topics, topic.topic_id, 1).stream_id == made.stream_id
    assert len(topics.pd.state.streams) == 3
    topics.delete(topic.topic_id, force=True)
    topics.go_on(topic.topic_id)
    assert not topics.pd.state.streams


def test_the_stream_of_a_journal_stays(topics: TopicCalls) -> None:
    """Each coordinator journal has one stream."""
    assert ensure(topics, 0, 15).name == "_journal-15"
    assert ensure(topics, 0, 15).stream_id == ensure(topics, 0, 15).stream_id
    topics.pd.state.validate()


@pytest.mark.parametrize(
    ("topic_id", "shard_id", "error"), [(0, 16, ShardNotFound), (1, 2, ShardNotFound), (9, 0, TopicNotFound)]
)
def test_what_does_not_exist_has_no_side_log(
    topics: TopicCalls, topic_id: int, shard_id: int, error: type[RangelogError]
) -> None:
    """An unknown topic, shard or journal is refused."""
    topics.create(shards=2)
    with pytest.raises(error):
        ensure(topics, topic_id, shard_id)


def test_a_topic_that_is_deleted_gets_no_side_log(topics: TopicCalls) -> None:
    """Otherwise the stream would stay behind."""
    topic = topics.create()
    topics.delete(topic.topic_id, force=True)
    with pytest.raises(TopicNotFound):
        ensure(topics, topic.topic_id, 0)


def test_a_shard_ends_with_its_side_log(topics: TopicCalls) -> None:
    """A scale is committed only where the parent's side log has no open range, and fences whoever had it open."""
    topic = topics.create(shards=2)
    topics.write(topic.topic_id, 0, 3)
    side = ensure(topics, topic.topic_id, 0)
    epoch = topics.pd.open_writer(side.name).stream.epoch
    made = topics.pd.create_range(side.stream_id, epoch, 0, "rs1", "rs2", "rs3")
    topics.start_scale(topic.topic_id, [0], part(0, 4), part(4, 8))
    with pytest.raises(PreconditionFailed, match="side log"):
        topics.commit_scale(topic.topic_id)
    topics.pd.seal(side.stream_id, made.index, epoch, 2)
    topics.commit_scale(topic.topic_id)
    with pytest.raises(WriterFenced):
        topics.pd.create_range(side.stream_id, epoch, 2, "rs1", "rs2", "rs3")
    assert ensure(topics, topic.topic_id, 0).stream_id == side.stream_id
    assert topics.pd.open_writer(side.name).stream.epoch == epoch + 2


def test_a_shard_that_has_ended_gets_a_side_log_for_its_last_snapshot(topics: TopicCalls) -> None:
    """It may have had none; nothing else can be added, since the shard itself has no owner any more."""
    topic = topics.create()
    topics.write(topic.topic_id, 0, 1)
    topics.scale(topic.topic_id, [0], part(0, 4), part(4, 16))
    side = ensure(topics, topic.topic_id, 0)
    assert topics.pd.open_writer(side.name).stream.epoch == 1
