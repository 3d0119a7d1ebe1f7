"""Scales: plan, cancel, commit; what a commit requires of the parents, and what a sealed stream refuses."""

from __future__ import annotations

from typing import Any

import pytest

from rangelog_core.errors import (
    InvalidArgument,
    KeyRangeGap,
    KeyRangeOverlap,
    PreconditionFailed,
    RangelogError,
    ShardEnded,
    ShardNotFound,
    StaleMapVersion,
    StreamSealed,
    TopicStateForbids,
    WriterFenced,
)
from rangelog_core.limits import COMMAND_BYTES_MAX
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part


def test_a_split_ends_the_parent_and_makes_the_children_current(topics: TopicCalls) -> None:
    """One entry does it: the map version rises by one, and each side names the other."""
    topic = topics.create(shards=2)
    topics.write(topic.topic_id, 0, 7)
    planned = topics.start_scale(topic.topic_id, [0], part(4, 8), part(0, 4))
    assert (planned.state, planned.map_version, planned.scale_id) == (topic_pb2.TOPIC_STATE_SCALING, 1, 1)
    assert len(topics.pd.state.topics.shards) == 2, "no child before the commit"
    assert len(topics.pd.state.streams) == 2
    topics.pd.reload()
    scaled = topics.commit_scale(topic.topic_id)
    assert (scaled.state, scaled.map_version, scaled.current_shard_count) == (topic_pb2.TOPIC_STATE_ACTIVE, 2, 3)
    parent, left, right = (topics.shard(topic.topic_id, each) for each in (0, 2, 3))
    assert (parent.ended_version, parent.end_offset, list(parent.successors)) == (2, 7, [2, 3])
    assert (left.key_range, right.key_range) == (part(0, 4), part(4, 8))
    for child in (left, right):
        assert (child.created_version, child.ended_version, list(child.predecessors)) == (2, 0, [0])
        assert topics.stream(topic.topic_id, child.shard_id).epoch == 0
    assert topics.current(topic.topic_id) == [2, 3, 1]
    assert topics.stream(topic.topic_id, 0).sealed_for_good


def test_a_merge_and_a_division_into_other_parts(topics: TopicCalls) -> None:
    """A child's predecessors are the parents that it shares keys with, no others."""
    topic = topics.create(key_ranges=[part(0, 4), part(4, 8), part(8, 16)])
    topics.scale(topic.topic_id, [1, 0, 2], part(0, 6), part(6, 16))
    assert [list(topics.shard(topic.topic_id, each).predecessors) for each in (3, 4)] == [[0, 1], [1, 2]]
    assert [list(topics.shard(topic.topic_id, each).successors) for each in (0, 1, 2)] == [[3], [3, 4], [4]]
    topics.scale(topic.topic_id, [4, 3], part(0, 16))
    assert list(topics.shard(topic.topic_id, 5).predecessors) == [3, 4]
    assert topics.current(topic.topic_id) == [5]


@pytest.mark.parametrize(
    ("parents", "parts", "error"),
    [
        ([1], [part(4, 6)], KeyRangeGap),
        ([1], [part(5, 8)], KeyRangeGap),
        ([1], [part(4, 5), part(6, 8)], KeyRangeGap),
        ([0, 2], [part(0, 4)], KeyRangeGap),
        ([1], [part(4, 7), part(6, 8)], KeyRangeOverlap),
        ([1], [part(4, 9)], KeyRangeOverlap),
        ([1], [part(4, 8), part(8, 9)], KeyRangeOverlap),
        ([0, 2], [part(0, 16)], KeyRangeOverlap),
        ([7], [part(4, 8)], ShardNotFound),
        ([1, 1], [part(4, 8)], InvalidArgument),
        ([], [part(4, 8)], InvalidArgument),
        ([1], [], InvalidArgument),
        ([1], [topic_pb2.KeyRange(low=b"\1")], InvalidArgument),
        ([1], [part(4, 8)] * 1_001, InvalidArgument),
    ],
)
def test_a_plan_must_tile_what_its_parents_cover(
    topics: TopicCalls, parents: list[int], parts: list[topic_pb2.KeyRange], error: type[RangelogError]
) -> None:
    """The error names what is wrong, and nothing changes."""
    topic = topics.create(key_ranges=[part(0, 4), part(4, 8), part(8, 16)])
    before = topics.pd.machine.snapshot()
    with pytest.raises(error):
        topics.start_scale(topic.topic_id, parents, *parts)
    assert topics.pd.machine.snapshot() == before


def test_a_plan_for_another_map_or_an_ended_shard_is_refused(topics: TopicCalls) -> None:
    """Who has not seen the last scale reads the map again."""
    topic = topics.create()
    topics.scale(topic.topic_id, [0], part(0, 8), part(8, 16))
    with pytest.raises(StaleMapVersion):
        topics.start_scale(topic.topic_id, [1], part(0, 8), map_version=1)
    with pytest.raises(ShardEnded):
        topics.start_scale(topic.topic_id, [0], part(0, 16))


def test_a_cancelled_plan_cannot_be_committed(topics: TopicCalls) -> None:
    """Nor can it take the place of the one that was started afterwards."""
    topic = topics.create()
    first = topics.start_scale(topic.topic_id, [0], part(0, 8), part(8, 16))
    topics.cancel_scale(topic.topic_id, first.scale_id)
    with pytest.raises(TopicStateForbids, match="it is active"):
        topics.commit_scale(topic.topic_id, [topics.end_of(topic.topic_id, 0)], first.scale_id)
    assert topics.cancel_scale(topic.topic_id, first.scale_id).state == topic_pb2.TOPIC_STATE_ACTIVE, "a repeat"
    second = topics.start_scale(topic.topic_id, [0], part(0, 4), part(4, 16))
    assert second.scale_id > first.scale_id
    for call in (
        lambda: topics.commit_scale(topic.topic_id, [topics.end_of(topic.topic_id, 0)], first.scale_id),
        lambda: topics.cancel_scale(topic.topic_id, first.scale_id),
    ):
        with pytest.raises(PreconditionFailed, match="scale 2, not 1"):
            call()
    topics.commit_scale(topic.topic_id)
    assert len(topics.current(topic.topic_id)) == 2


def test_a_commit_holds_only_for_the_end_that_the_stream_has(topics: TopicCalls) -> None:
    """Epoch, last range and end are compared when the command is applied; an open range or another writer prevents it."""
    topic = topics.create()
    topics.write(topic.topic_id, 0, 7)
    topics.start_scale(topic.topic_id, [0], part(0, 8), part(8, 16))
    before = topics.pd.machine.snapshot()
    for change, error in (
        ({"epoch": 0}, WriterFenced),
        ({"epoch": 2}, WriterFenced),
        ({"end_offset": 6}, PreconditionFailed),
        ({"end_offset": 8}, PreconditionFailed),
        ({"last_range_index": 1}, PreconditionFailed),
        ({"last_range_index": None}, PreconditionFailed),
        ({"stream_id": 9}, InvalidArgument),
        ({"shard_id": 1}, InvalidArgument),
    ):
        with pytest.raises(error):
            topics.commit_scale(topic.topic_id, [topics.end_of(topic.topic_id, 0, **change)])
    for ends in ([], [topics.end_of(topic.topic_id, 0)] * 2):
        with pytest.raises(InvalidArgument):
            topics.commit_scale(topic.topic_id, ends)
    assert topics.pd.machine.snapshot() == before
    known = topics.end_of(topic.topic_id, 0)
    topics.open(topic.topic_id, 0)
    with pytest.raises(WriterFenced) as fenced:
        topics.commit_scale(topic.topic_id, [known])
    assert fenced.value.epoch == 2
    with pytest.raises(PreconditionFailed, match="still open"):
        topics.commit_scale(topic.topic_id, [topics.end_of(topic.topic_id, 0)])
    topics.pd.seal(topics.shard(topic.topic_id, 0).stream_id, 1, 2, 9)
    with pytest.raises(PreconditionFailed, match="its last range is 1, sealed at 9"):
        topics.commit_scale(topic.topic_id, [topics.end_of(topic.topic_id, 0, last_range_index=0, end_offset=7)])
    topics.commit_scale(topic.topic_id)
    assert topics.shard(topic.topic_id, 0).end_offset == 9


def test_all_parents_end_or_none(topics: TopicCalls) -> None:
    """One parent that has another writer by now keeps the others from ending."""
    topic = topics.create(shards=2)
    topics.start_scale(topic.topic_id, [0, 1], part(0, 16))
    ends = [topics.end_of(topic.topic_id, each) for each in (0, 1)]
    topics.open(topic.topic_id, 1)
    before = topics.pd.machine.snapshot()
    with pytest.raises(WriterFenced):
        topics.commit_scale(topic.topic_id, ends)
    assert topics.pd.machine.snapshot() == before


def test_a_parent_that_was_never_opened_ends_at_0(topics: TopicCalls) -> None:
    """Also one that was opened and has no range yet; the writer that opened it learns of the end."""
    topic = topics.create(shards=2)
    opened = topics.pd.open_writer(topics.stream(topic.topic_id, 1).name).stream
    topics.scale(topic.topic_id, [0, 1], part(0, 16))
    assert [topics.shard(topic.topic_id, each).end_offset for each in (0, 1)] == [0, 0]
    with pytest.raises(StreamSealed) as sealed:
        topics.pd.create_range(opened.stream_id, opened.epoch, 0, "rs1", "rs2")
    assert sealed.value.offset == 0


def test_a_stream_that_is_sealed_for_good_has_no_writer_again(topics: TopicCalls) -> None:
    """Neither an opening nor a range, alone or with a seal; the end stays readable, and nobody trims it past its topic."""
    topic = topics.create()
    topics.write(topic.topic_id, 0, 7)
    topics.scale(topic.topic_id, [0], part(0, 8), part(8, 16))
    topics.pd.reload()
    stream = topics.stream(topic.topic_id, 0)
    before = topics.pd.machine.snapshot()
    for call in (
        lambda: topics.pd.open_writer(stream.name),
        lambda: topics.pd.create_range(stream.stream_id, 1, 7, "rs1", "rs2"),
        lambda: topics.pd.create_range(stream.stream_id, 1, 3, "rs1", "rs2"),
        lambda: topics.pd.seal(stream.stream_id, 0, 1, 7, *["rs1", "rs2"]),
    ):
        with pytest.raises(StreamSealed) as sealed:
            call()
        assert sealed.value.offset == 7
    opened = topics.pd.do(
        pd_pb2.OpenWritersResponse,
        open_writers=pd_pb2.OpenWritersRequest(writers=[pd_pb2.OpenWriterRequest(name=stream.name)]),
    )
    assert opened.results[0].error.code == "STREAM_SEALED"
    assert topics.pd.machine.snapshot() == before
    assert topics.pd.seal(stream.stream_id, 0, 1, 5).range.end_offset == 7, "the end in force"
    with pytest.raises(PreconditionFailed):
        topics.pd.do(
            pd_pb2.TrimStreamResponse, trim_stream=pd_pb2.TrimStreamRequest(stream_id=stream.stream_id, trim_offset=3)
        )


def test_a_repeated_commit_gets_the_first_answer_or_finds_it_done(topics: TopicCalls) -> None:
    """By its request id, and after the results are forgotten by the id of the scale; no shard is added twice."""
    topic = topics.create()
    topics.start_scale(topic.topic_id, [0], part(0, 8), part(8, 16))
    ends = [topics.end_of(topic.topic_id, 0)]
    first = topics.commit_scale(topic.topic_id, ends, request_id="c")
    assert topics.commit_scale(topic.topic_id, ends, request_id="c") == first
    assert topics.commit_scale(topic.topic_id, ends, request_id="another") == first
    assert len(topics.pd.state.topics.shards) == 3


def test_a_hundred_splits_of_a_thousand_shards_leave_twelve_hundred_entries(topics: TopicCalls) -> None:
    """The map has one entry per shard: its history costs what it changed. A follower reads the changes only."""
    topic = topics.create(shards=1_000)
    for parent in range(100):
        low = int.from_bytes(topics.shard(topic.topic_id, parent).key_range.low, "big")
        high = int.from_bytes(topics.shard(topic.topic_id, parent).key_range.high, "big")
        middle = ((low + high) // 2).to_bytes(16, "big")
        whole = topics.shard(topic.topic_id, parent).key_range
        halves = (topic_pb2.KeyRange(low=whole.low, high=middle), topic_pb2.KeyRange(low=middle, high=whole.high))
        apply_quickly(
            topics,
            "start_scale",
            topic_pb2.StartScaleRequest(
                topic=topic_pb2.TopicReference(topic_id=1), map_version=parent + 1, parents=[parent], key_ranges=halves
            ),
        )
        apply_quickly(
            topics,
            "commit_scale",
            topic_pb2.CommitScaleRequest(topic_id=1, scale_id=parent + 1, ends=[topics.end_of(topic.topic_id, parent)]),
        )
    topics.pd.state.validate()
    topics.pd.state.validate_indexes()
    shard_map = topics.pd.state.topics.maps.of(topic.topic_id)
    assert (len(topics.pd.state.topics.shards), len(shard_map.current)) == (1_200, 1_100)
    changed = shard_map.changed_since(100, (0, 0), 1_000)
    assert changed == [(101, 99), (101, 1_198), (101, 1_199)], "one scale: its parent and its children"


def apply_quickly(topics: TopicCalls, action: str, request: Any) -> None:
    """Apply a command without the checks of the whole state."""
    command = pd_state_pb2.Command(version=4, now_ms=1, **{action: request})
    assert not pd_state_pb2.CommandResult.FromString(topics.pd.machine.apply(1, command.SerializeToString())).error_code


def test_the_largest_scale_is_one_command(topics: TopicCalls) -> None:
    """A thousand parents become a thousand others: plan and commit each fit in one entry of the log."""
    topic = topics.create(shards=1_000)
    parents = [topics.shard(topic.topic_id, each) for each in range(1_000)]
    plan = topic_pb2.StartScaleRequest(
        request_id="r" * 100,
        topic=topic_pb2.TopicReference(topic_id=topic.topic_id),
        map_version=1,
        parents=range(1_000),
        key_ranges=[each.key_range for each in parents],
    )
    assert pd_state_pb2.Command(version=4, start_scale=plan).ByteSize() < COMMAND_BYTES_MAX
    topics.pd.do(topic_pb2.StartScaleResponse, start_scale=plan)
    ends = [topics.end_of(topic.topic_id, each) for each in range(1_000)]
    for end in ends:  # as large as numbers of a cluster get
        end.last_range_index = 1 << 20
        end.stream_id += 1 << 30
        end.epoch += 1 << 20
        end.end_offset += 1 << 50
    sizes = topic_pb2.CommitScaleRequest(topic_id=1, scale_id=1, ends=ends)
    assert pd_state_pb2.Command(version=4, commit_scale=sizes).ByteSize() < COMMAND_BYTES_MAX
    scaled = topics.commit_scale(topic.topic_id)
    assert (scaled.current_shard_count, scaled.next_shard_id) == (1_000, 2_000)
    restored = Machine()
    restored.restore(topics.pd.machine.snapshot())
    assert restored.snapshot() == topics.pd.machine.snapshot()
