"""Topics: create, update, truncate, seal, delete; in several entries where one has many shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rangelog_core.errors import (
    InvalidArgument,
    KeyRangeGap,
    KeyRangeOverlap,
    NamespaceExists,
    NamespaceNotFound,
    OffsetOutOfRange,
    PreconditionFailed,
    RangelogError,
    ShardEnded,
    ShardNotFound,
    StreamNotFound,
    TopicExists,
    TopicKindForbids,
    TopicNotFound,
    TopicStateForbids,
    WriterFenced,
)
from rangelog_core.key_ranges import equal_key_ranges
from rangelog_pd.state import topic_work
from rangelog_pd.state.topic_states import (
    ACTIVE,
    DELETING,
    OF_RECORDS,
    SCALING,
    SEALED,
    SEALING,
    STATES,
    TRANSITIONS,
    TRUNCATING,
)
from rangelog_pd.state.topic_tables import key_range_of
from rangelog_proto.v1 import common_pb2, pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part


def table_config(**fields: Any) -> topic_pb2.TopicConfig:
    return topic_pb2.TopicConfig(kind=topic_pb2.TOPIC_KIND_TABLE, **fields)


def test_a_topic_is_created_with_its_shards_and_their_streams(topics: TopicCalls) -> None:
    """In one entry; a repeat of the request makes no other one."""
    topic = topics.create("orders", shards=3, request_id="c", tags={"team": "b", "area": "a"})
    assert topics.create("orders", shards=3, request_id="c", tags={"team": "b", "area": "a"}) == topic
    assert (topic.topic_id, topic.state, topic.map_version, topic.current_shard_count) == (1, ACTIVE, 1, 3)
    shards = [topics.shard(1, each) for each in range(3)]
    assert [key_range_of(each) for each in shards] == equal_key_ranges(3)
    assert [topics.stream(1, each).name for each in range(3)] == [f"_topic-1-shard-{each}" for each in range(3)]
    assert topics.pd.state.topics.topics[1] == topic
    topics.pd.reload()
    assert topics.create("other").topic_id == 2


def test_the_answer_has_the_same_bytes_on_every_member(topics: TopicCalls) -> None:
    """Results are part of the state, and protobuf writes a map in any order unless it is told not to."""
    tags = {f"{number}": "x" for number in range(50)}
    request = topic_pb2.CreateTopicRequest(namespace="ns", name="t", tags=tags)
    command = pd_state_pb2.Command(create_topic=request)
    result = pd_state_pb2.CommandResult.FromString(topics.pd.apply(command))
    made = topic_pb2.CreateTopicResponse.FromString(result.response)
    assert len(made.topic.tags) == 50
    assert result.response == made.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"key_ranges": [part(0, 8)]}, KeyRangeGap),
        ({"key_ranges": [part(0, 9), part(8, 16)]}, KeyRangeOverlap),
        ({"shards": 1_001}, InvalidArgument),
        ({"shards": 1, "key_ranges": [part(0, 16)]}, InvalidArgument),
        ({"name": "a/b"}, InvalidArgument),
        ({"name": ""}, InvalidArgument),
        ({"tags": {"": "x"}}, InvalidArgument),
        ({"tags": {"k": "x" * 2_048}}, InvalidArgument),
        ({"tags": {f"k{n}": "" for n in range(51)}}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(stream=common_pb2.StreamConfig(replicas=9))}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(stream=common_pb2.StreamConfig(retention_ms=9))}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(retention=topic_pb2.Retention(age_ms=-1))}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(target_per_s=5))}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(kind=2))}, InvalidArgument),  # type: ignore[arg-type]
        ({"config": topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(factor=1))}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(shards_min=3_001))}, InvalidArgument),
        ({"config": topic_pb2.TopicConfig(kind=9)}, InvalidArgument),  # type: ignore[arg-type]
        ({"config": table_config(stream=common_pb2.StreamConfig(tiered=True))}, InvalidArgument),
        ({"config": table_config(retention=topic_pb2.Retention(age_ms=1))}, InvalidArgument),
        ({"config": table_config(retention=topic_pb2.Retention(shard_size_bytes=1))}, InvalidArgument),
        ({"config": table_config(scaling=topic_pb2.ScalingPolicy(kind=2, target_per_s=5))}, InvalidArgument),  # type: ignore[arg-type]
        ({"name": "taken"}, TopicExists),
    ],
)
def test_a_topic_that_cannot_be_is_refused(topics: TopicCalls, fields: Any, error: type[RangelogError]) -> None:
    """With the reason, and without a trace."""
    topics.create("taken")
    before = topics.pd.machine.snapshot()
    with pytest.raises(error):
        topics.create(**fields)
    assert topics.pd.machine.snapshot() == before


def test_namespaces(topics: TopicCalls) -> None:
    """A topic needs one; one with a topic in it cannot be deleted."""
    request = topic_pb2.CreateTopicRequest(namespace="none", name="t")
    with pytest.raises(NamespaceNotFound):
        topics.pd.do(topic_pb2.CreateTopicResponse, create_topic=request)
    with pytest.raises(NamespaceExists):
        topics.create_namespace("ns")
    for bad in ("", "a/b", "_x"):
        with pytest.raises(InvalidArgument):
            topics.create_namespace(bad)
    topic = topics.create()
    remove = topic_pb2.DeleteNamespaceRequest(name="ns")
    topics.create_namespace("ns2")
    with pytest.raises(PreconditionFailed, match="ns/t"):
        topics.pd.do(topic_pb2.DeleteNamespaceResponse, delete_namespace=remove)
    topics.delete(topic.topic_id, force=True)
    topics.pd.do(topic_pb2.DeleteNamespaceResponse, delete_namespace=remove)
    with pytest.raises(NamespaceNotFound):
        topics.pd.do(topic_pb2.DeleteNamespaceResponse, delete_namespace=remove)


def test_the_stream_of_a_shard_is_not_a_users_stream(topics: TopicCalls) -> None:
    """No user can create one of such a name, nor change, trim or delete it by its name; a writer opens it by its name."""
    name = topics.stream(topics.create().topic_id, 0).name
    pd = topics.pd
    with pytest.raises(InvalidArgument):
        pd.create_stream("_topic-9-shard-0")
    update = pd_pb2.UpdateStreamRequest(name=name, config=common_pb2.StreamConfig(acks=1), fields=["acks"])
    for call in (
        lambda: pd.delete_stream(name),
        lambda: pd.trim(0, name),
        lambda: pd.do(pd_pb2.UpdateStreamResponse, update_stream=update),
    ):
        with pytest.raises(PreconditionFailed, match="belongs to a topic"):
            call()
    assert pd.open_writer(name).stream.epoch == 1
    assert pd.state.names.page("", "", 9) == []


def test_an_update_reaches_the_streams_of_all_shards(topics: TopicCalls) -> None:
    """Ended shards too; only what was named changes. Ranges of different shards do not reach their age together."""
    config = topic_pb2.TopicConfig(stream=common_pb2.StreamConfig(range_age_ms_max=64_000_000, tiered=True))
    topic = topics.create(config=config)
    topics.scale(topic.topic_id, [0], part(0, 8), part(8, 16))
    ages = [topics.stream(topic.topic_id, each).config.range_age_ms_max for each in range(3)]
    assert ages == [64_000_000, 63_900_000, 63_800_000]
    wanted = topic_pb2.TopicConfig(
        stream=common_pb2.StreamConfig(hot_retention_ms=5), retention=topic_pb2.Retention(age_ms=7, shard_size_bytes=8)
    )
    updated = topics.update(
        topic.topic_id, "stream.hot_retention_ms", "retention", config=wanted, set_tags={"a": "1", "b": "2"}
    )
    assert updated.version > topics.create("other").version
    for each in range(3):
        found = topics.stream(topic.topic_id, each).config
        assert (found.hot_retention_ms, found.retention_ms, found.retention_bytes, found.tiered) == (5, 0, 8, True)
    assert topics.update(topic.topic_id, remove_tags=["a"]).tags == {"b": "2"}
    topics.pd.reload()
    scaled = topics.scale(topic.topic_id, [1, 2], part(0, 16))
    assert topics.stream(topic.topic_id, scaled.next_shard_id - 1).config.retention_bytes == 8


def test_an_update_that_cannot_be_is_refused(topics: TopicCalls) -> None:
    """An unknown field, another version, nothing to do, an unknown topic."""
    topic = topics.create()
    before = topics.pd.machine.snapshot()
    for fields, more, error in (
        (["stream.retention_ms"], {}, InvalidArgument),
        (["name"], {}, InvalidArgument),
        ([], {}, InvalidArgument),
        (["scaling"], {"expected_version": topic.version + 1}, PreconditionFailed),
        ([], {"set_tags": {"": "x"}}, InvalidArgument),
    ):
        with pytest.raises(error):
            topics.update(topic.topic_id, *fields, **more)
    with pytest.raises(TopicNotFound):
        topics.update(99, "scaling")
    with pytest.raises(TopicNotFound):
        request = topic_pb2.UpdateTopicRequest(topic=topic_pb2.TopicReference(namespace="ns", name="x"))
        topics.pd.do(topic_pb2.UpdateTopicResponse, update_topic=request)
    assert topics.pd.machine.snapshot() == before


def test_a_truncation_trims_the_cut_and_all_before_it(topics: TopicCalls) -> None:
    """The shards of the cut below their offsets, their predecessors wholly; the entries stay."""
    topic_id = topics.create().topic_id
    topics.write(topic_id, 0, 7)
    topics.scale(topic_id, [0], part(0, 8), part(8, 16))
    topics.write(topic_id, 1, 5)
    topics.write(topic_id, 2, 6)
    topics.scale(topic_id, [2], part(8, 12), part(12, 16))
    topics.truncate(topic_id, {1: 3, 2: 4})
    assert trims(topics, topic_id) == [7, 3, 4, 0, 0]
    assert [topics.shard(topic_id, each).truncated for each in range(5)] == [True, False, False, False, False]
    topics.truncate(topic_id, {1: 4, 3: 0, 4: 0})
    assert trims(topics, topic_id) == [7, 4, 6, 0, 0]
    assert topics.topic(topic_id).state == ACTIVE
    topics.truncate(topic_id, {0: 1})
    assert trims(topics, topic_id) == [7, 4, 6, 0, 0], "to trim less than before changes nothing"


def trims(topics: TopicCalls, topic_id: int) -> list[int]:
    """The trim offset of each shard's stream."""
    count = topics.topic(topic_id).next_shard_id
    return [topics.stream(topic_id, each).trim_offset for each in range(count)]


def test_a_cut_must_be_consistent(topics: TopicCalls) -> None:
    """Its shards tile the key space, none precedes another, and each offset is within what is sealed."""
    topic_id = topics.create(key_ranges=[part(0, 4), part(4, 16)]).topic_id
    topics.write(topic_id, 0, 7)
    topics.scale(topic_id, [0, 1], part(0, 2), part(2, 16))  # 2, 3
    topics.scale(topic_id, [3], part(2, 4), part(4, 16))  # 4, 5
    before = topics.pd.machine.snapshot()
    cases: list[tuple[dict[int, int], type[RangelogError]]] = [
        ({0: 8, 1: 0}, OffsetOutOfRange),
        ({2: 0}, KeyRangeGap),
        ({2: 0, 3: 0, 4: 0, 5: 0}, KeyRangeOverlap),
        ({0: 0, 9: 0}, ShardNotFound),
        ({}, InvalidArgument),
        ({0: 3, 5: 0}, InvalidArgument),  # they tile, but shard 0 is read before 3, and 3 before 5
    ]
    for cut, error in cases:
        with pytest.raises(error):
            topics.truncate(topic_id, cut)
    assert topics.pd.machine.snapshot() == before


def test_a_topic_is_sealed_shard_by_shard(topics: TopicCalls) -> None:
    """Each with the conditions of a scale's commit; the last makes it sealed. A repeat of an end changes nothing."""
    topic_id = topics.create(shards=2).topic_id
    topics.write(topic_id, 0, 7)
    with pytest.raises(TopicStateForbids):
        topics.end(topic_id, 0)
    assert topics.seal(topic_id).state == SEALING
    with pytest.raises(WriterFenced):
        topics.end(topic_id, 0, epoch=0)
    with pytest.raises(PreconditionFailed):
        topics.end(topic_id, 0, end_offset=3)
    assert topics.end(topic_id, 0).state == SEALING
    ended = topics.pd.machine.snapshot()
    assert topics.end(topic_id, 0).map_version == 2
    assert topics.pd.machine.snapshot() == ended
    with pytest.raises(ShardEnded):
        topics.end(topic_id, 0, end_offset=3)
    assert topics.end(topic_id, 1).state == SEALED
    topics.pd.reload()
    assert topics.end(topic_id, 1).state == SEALED
    assert [topics.shard(topic_id, each).end_offset for each in (0, 1)] == [7, 0]
    topics.truncate(topic_id, {0: 2, 1: 0})
    assert topics.topic(topic_id).state == SEALED
    topics.delete(topic_id)
    assert not topics.pd.state.streams


def test_a_deletion_frees_the_name_and_leaves_nothing(topics: TopicCalls) -> None:
    """Streams, ranges, plan and tags are gone; ids are not used again."""
    topic_id = topics.create(shards=3, tags={"a": "1"}).topic_id
    topics.open(topic_id, 0)
    topics.write(topic_id, 1, 4)
    topics.start_scale(topic_id, [2], topics.shard(topic_id, 2).key_range)
    with pytest.raises(TopicStateForbids, match="it is scaling, and must be sealed"):
        topics.delete(topic_id)
    topics.delete(topic_id, force=True)
    state = topics.pd.state
    assert not state.streams and not state.ranges and not state.topics.work and not state.topics.tags.all()
    with pytest.raises(TopicNotFound):
        topics.delete(topic_id, force=True)
    again = topics.create()
    assert again.topic_id > topic_id
    assert topics.stream(again.topic_id, 0).stream_id == 4
    with pytest.raises(StreamNotFound):
        topics.pd.open_writer(f"_topic-{topic_id}-shard-0")


def test_a_table_keeps_its_shards_and_their_logs(topics: TopicCalls) -> None:
    """It is neither scaled, truncated nor sealed, gets no retention and no tier, and never becomes a topic of records."""
    topic = topics.create(shards=2, config=table_config())
    assert topic.config.kind == topic_pb2.TOPIC_KIND_TABLE
    assert not topics.stream(topic.topic_id, 0).config.tiered
    before = topics.pd.machine.snapshot()
    for operation in OF_RECORDS:
        with pytest.raises(TopicKindForbids, match=rf"cannot {operation} ns/t: it is a table"):
            OPERATIONS[operation](topics, topic.topic_id)
    retention = topic_pb2.TopicConfig(retention=topic_pb2.Retention(age_ms=7))
    tiered = topic_pb2.TopicConfig(stream=common_pb2.StreamConfig(tiered=True))
    scaling = topic_pb2.TopicConfig(scaling=topic_pb2.ScalingPolicy(kind=topic_pb2.SCALING_KIND_BYTES, target_per_s=5))
    for field, config in (
        ("retention", retention),
        ("stream.tiered", tiered),
        ("scaling", scaling),
        ("kind", topic_pb2.TopicConfig(kind=topic_pb2.TOPIC_KIND_RECORDS)),
    ):
        with pytest.raises(InvalidArgument):
            topics.update(topic.topic_id, field, config=config)
    assert topics.pd.machine.snapshot() == before
    updated = topics.update(
        topic.topic_id, "stream.acks", config=topic_pb2.TopicConfig(stream=common_pb2.StreamConfig(acks=3))
    )
    assert (updated.config.kind, updated.config.stream.acks) == (topic_pb2.TOPIC_KIND_TABLE, 3)
    topics.pd.reload()
    assert topics.topic(topic.topic_id).config.kind == topic_pb2.TOPIC_KIND_TABLE
    topics.delete(topic.topic_id, force=True)
    assert not topics.pd.state.streams


def test_the_owner_of_a_tables_shard_trims_its_stream(topics: TopicCalls) -> None:
    """By the stream's id, below a snapshot; by its name nobody does."""
    topic_id = topics.create(config=table_config()).topic_id
    topics.write(topic_id, 0, 7)
    stream = topics.stream(topic_id, 0)
    request = pd_pb2.TrimStreamRequest(name=stream.name, stream_id=stream.stream_id, trim_offset=5)
    assert topics.pd.do(pd_pb2.TrimStreamResponse, trim_stream=request).stream.trim_offset == 5


def test_a_large_topic_is_changed_in_bounded_parts(topics: TopicCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update, a truncation and a deletion go on where they were, also after a restart; the name is free at the end."""
    monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 2)
    topic_id = topics.create(shards=5).topic_id
    retention = topic_pb2.TopicConfig(retention=topic_pb2.Retention(shard_size_bytes=7))
    topics.update(topic_id, "retention", config=retention)

    def configured() -> list[int]:
        return [topics.stream(topic_id, each).config.retention_bytes for each in range(5)]

    assert configured() == [7, 7, 0, 0, 0]
    topics.pd.reload()
    until_done(topics, topic_id)
    assert configured() == [7] * 5
    for each in range(5):
        topics.write(topic_id, each, 9)
    topics.truncate(topic_id, dict.fromkeys(range(5), 4))
    assert topics.topic(topic_id).state == TRUNCATING
    assert trims(topics, topic_id) == [4, 4, 0, 0, 0]
    topics.pd.reload()
    until_done(topics, topic_id)
    assert trims(topics, topic_id) == [4] * 5
    assert topics.topic(topic_id).state == ACTIVE
    assert topics.delete(topic_id, force=True).state == DELETING
    assert len(topics.pd.state.streams) == 3
    with pytest.raises(TopicExists):
        topics.create()
    topics.pd.reload()
    until_done(topics, topic_id)
    assert not topics.pd.state.streams
    topics.create()


def until_done(topics: TopicCalls, topic_id: int) -> None:
    """Take part after part; each leaves less to do."""
    for _ in range(10):
        if topic_id not in topics.pd.state.topics.unfinished:
            return
        before = topics.pd.machine.snapshot()
        topics.go_on(topic_id)
        assert topics.pd.machine.snapshot() != before
    raise AssertionError("it does not end")


def test_what_has_nothing_left_to_do_is_not_changed(topics: TopicCalls) -> None:
    """Nor is a topic that is gone: the part was proposed before the last one was applied."""
    topics.create()
    before = topics.pd.machine.snapshot()
    topics.go_on(1)
    topics.go_on(99)
    assert topics.pd.machine.snapshot() == before


def in_state(topics: TopicCalls, state: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A topic of two shards in this state."""
    topic_id = topics.create(shards=2).topic_id
    if state == SCALING:
        topics.start_scale(topic_id, [0, 1], part(0, 16))
    elif state in (SEALING, SEALED):
        topics.seal(topic_id)
        for each in range(2 * (state == SEALED)):
            topics.end(topic_id, each)
    elif state in (TRUNCATING, DELETING):
        monkeypatch.setattr(topic_work, "STREAMS_PER_ENTRY", 1)
        if state == TRUNCATING:
            topics.truncate(topic_id, {0: 0, 1: 0})
        else:
            topics.delete(topic_id, force=True)
    assert topics.topic(topic_id).state == state
    return topic_id


OPERATIONS: dict[str, Callable[[TopicCalls, int], Any]] = {
    "update": lambda topics, topic_id: topics.update(topic_id, "scaling"),
    "start the scale of": lambda topics, topic_id: topics.start_scale(topic_id, [0, 1], part(0, 16)),
    "cancel the scale of": lambda topics, topic_id: topics.cancel_scale(topic_id, 1),
    "commit the scale of": lambda topics, topic_id: topics.commit_scale(topic_id, scale_id=1),
    "truncate": lambda topics, topic_id: topics.truncate(topic_id, {0: 0, 1: 0}),
    "seal": lambda topics, topic_id: topics.seal(topic_id),
    "end a shard of": lambda topics, topic_id: topics.end(topic_id, 1),
    "delete": lambda topics, topic_id: topics.delete(topic_id),
    "force the deletion of": lambda topics, topic_id: topics.delete(topic_id, force=True),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_the_table_does_not_list_is_refused_with_the_states_name(
    topics: TopicCalls, operation: str, state: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each operation in each state: legal ones lead to a listed state, all others name the state and change nothing."""
    topic_id = in_state(topics, state, monkeypatch)
    legal = {int(each): targets for each, targets in TRANSITIONS[operation].items()}
    before = topics.pd.machine.snapshot()
    if state in legal:
        OPERATIONS[operation](topics, topic_id)
        now = topics.pd.state.topics.topics.find(topic_id)
        assert now is None or now.state in legal[state]
        return
    if operation == "end a shard of" and state == SEALED:
        return  # a repeat
    with pytest.raises(TopicStateForbids) as refused:
        OPERATIONS[operation](topics, topic_id)
    assert topic_pb2.TopicState.Name(state).split("_")[-1].lower() in refused.value.message  # type: ignore[arg-type]
    assert topics.pd.machine.snapshot() == before


def test_every_operation_of_the_table_is_tried() -> None:
    """But for the end of a truncation, which no caller asks for."""
    assert set(TRANSITIONS) == {*OPERATIONS, "finish the truncation of"}
