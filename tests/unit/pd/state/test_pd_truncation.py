"""What may be trimmed: nothing that no snapshot covers; retention sets and the positions of groups, as rows of the state."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rangelog_core.errors import (
    InvalidArgument,
    KeyRangeGap,
    OffsetOutOfRange,
    ShardNotFound,
    TopicNotFound,
    TopicStateForbids,
)
from rangelog_pd.state import cut_tables
from rangelog_pd.state.cut_tables import cut_of
from rangelog_pd.state.cuts import check_cut, cut_of_now, earlier_of, left_to_trim, positions
from rangelog_pd.state.topic_states import ACTIVE, SCALING, TRUNCATING
from rangelog_proto.v1 import pd_pb2, pd_state_pb2, topic_pb2
from tests.support.pd_topics import TopicCalls, part, refer


def split_topic(topics: TopicCalls) -> int:
    """Shard 0 with 7 records, split into 1 (5 records) and 2 (6 records)."""
    topic_id = topics.create().topic_id
    topics.write(topic_id, 0, 7)
    topics.scale(topic_id, [0], part(0, 8), part(8, 16))
    topics.write(topic_id, 1, 5)
    topics.write(topic_id, 2, 6)
    return topic_id


def trims(topics: TopicCalls, topic_id: int) -> list[int]:
    return [topics.stream(topic_id, each).trim_offset for each in range(topics.topic(topic_id).next_shard_id)]


def test_nothing_is_trimmed_that_no_snapshot_covers(topics: TopicCalls) -> None:
    """Neither of current shards nor of ended ones; each goes once it is covered, and the last one ends the truncation."""
    topic_id = split_topic(topics)
    assert topics.truncate(topic_id, {1: 3, 2: 4}, covered=False).state == TRUNCATING
    assert trims(topics, topic_id) == [0, 0, 0]
    topics.go_on(topic_id, {})
    topics.go_on(topic_id, {0: 6, 1: 2, 2: 3})
    assert trims(topics, topic_id) == [0, 0, 0], "a part of what goes is not enough"
    topics.go_on(topic_id, {1: 3})
    assert trims(topics, topic_id) == [0, 3, 0]
    topics.pd.reload()
    topics.go_on(topic_id, {0: 7})
    assert trims(topics, topic_id) == [7, 3, 0]
    assert topics.topic(topic_id).state == TRUNCATING
    topics.go_on(topic_id, {2: 9})
    assert trims(topics, topic_id) == [7, 3, 4]
    assert topics.topic(topic_id).state == ACTIVE
    assert topic_id not in topics.pd.state.topics.unfinished


def test_what_has_no_records_needs_no_snapshot(topics: TopicCalls) -> None:
    """A truncation at 0, or where it is trimmed already, is done at once."""
    topic_id = split_topic(topics)
    assert topics.truncate(topic_id, {0: 0}, covered=False).state == ACTIVE
    topics.truncate(topic_id, {1: 3, 2: 4})
    assert topics.truncate(topic_id, {1: 2, 2: 4}, covered=False).state == ACTIVE


def test_a_truncation_waits_with_its_date(topics: TopicCalls) -> None:
    """So that it can be listed; the date goes with it."""
    topic_id = split_topic(topics)
    topics.truncate(topic_id, {1: 3, 2: 4}, covered=False)
    assert topics.topic(topic_id).state_since_ms == topics.pd.wall_ms
    topics.go_on(topic_id)
    assert topic_id not in topics.pd.state.topics.work


def take(topics: TopicCalls, *topic_ids: int) -> None:
    command = pd_state_pb2.TakeCuts(topic_ids=topic_ids)
    topics.pd.do(pd_pb2.CreateStreamResponse, take_cuts=command)


def cuts(topics: TopicCalls, topic_id: int) -> list[dict[int, int]]:
    return [cut_of(each) for each in topics.pd.state.cuts.of(topic_id)]


def test_a_cut_is_taken_at_the_sealed_ends_of_the_current_shards(topics: TopicCalls) -> None:
    """It is dated, consistent at any time later, and taken again only when it is another one."""
    topic_id = topics.create().topic_id
    take(topics, topic_id, 99)
    assert cuts(topics, topic_id) == [], "there is nothing to trim"
    topics.write(topic_id, 0, 7)
    take(topics, topic_id)
    take(topics, topic_id)
    assert cuts(topics, topic_id) == [{0: 7}]
    assert topics.pd.state.cuts.of(topic_id)[0].taken_ms == topics.pd.wall_ms
    topics.scale(topic_id, [0], part(0, 8), part(8, 16))
    topics.write(topic_id, 2, 6)
    topics.pd.pass_ms(1_000)
    take(topics, topic_id)
    assert cuts(topics, topic_id) == [{0: 7}, {1: 0, 2: 6}]
    topics.pd.reload()
    assert cuts(topics, topic_id) == [{0: 7}, {1: 0, 2: 6}]


def test_no_cut_is_taken_while_the_time_is_not_confirmed(topics: TopicCalls) -> None:
    """Its date could be days too early, and what is below it would be trimmed as if it were old."""
    topic_id = split_topic(topics)
    topics.pd.provisional = True
    take(topics, topic_id)
    assert cuts(topics, topic_id) == []


def test_cuts_that_a_truncation_has_passed_are_forgotten(topics: TopicCalls) -> None:
    """Nothing is left to trim before them."""
    topic_id = split_topic(topics)
    take(topics, topic_id)
    topics.write(topic_id, 1, 5)
    take(topics, topic_id)
    topics.truncate(topic_id, {1: 5, 2: 6})
    assert cuts(topics, topic_id) == [{1: 10, 2: 6}]


def test_a_topic_keeps_a_bounded_number_of_cuts_spread_in_time(
    topics: TopicCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest and the newest stay; between them the gaps are even, as far as can be."""
    monkeypatch.setattr(cut_tables, "CUTS_MAX", 8)
    topic_id = topics.create().topic_id
    for _ in range(40):
        topics.write(topic_id, 0, 1)
        topics.pd.pass_ms(100)
        take(topics, topic_id)
    dates = [each.taken_ms for each in topics.pd.state.cuts.of(topic_id)]
    assert len(dates) == 8
    assert dates[-1] == topics.pd.wall_ms and dates[-1] - dates[0] == 3_900
    gaps = [later - earlier for earlier, later in pairwise(dates)]
    assert max(gaps) <= 1_300


def test_the_rows_of_a_topic_go_with_it(topics: TopicCalls) -> None:
    """Cuts and groups, as soon as it is deleted."""
    topic_id = split_topic(topics)
    take(topics, topic_id)
    report(topics, topic_id, {1: 1, 2: 1})
    topics.delete(topic_id, force=True)
    assert not topics.pd.state.cuts.cuts and not topics.pd.state.cuts.consumed


def report(
    topics: TopicCalls, topic_id: int, cut: dict[int, int], group: str = "g", *, unsubscribe: bool = False
) -> None:
    request = topic_pb2.ReportConsumedRequest(
        topic=refer(topic_id), group=group, cut=positions(cut), unsubscribe=unsubscribe
    )
    topics.pd.do(topic_pb2.ReportConsumedResponse, report_consumed=request)


def test_a_group_subscribes_with_its_first_report(topics: TopicCalls) -> None:
    """A further one replaces it, also by an earlier position; it is gone after it unsubscribes, which may be repeated."""
    topic_id = split_topic(topics)
    report(topics, topic_id, {1: 99, 2: 1})
    report(topics, topic_id, {0: 2}, "h")
    report(topics, topic_id, {0: 3})
    topics.pd.reload()
    assert [(each.group, cut_of(each)) for each in topics.pd.state.cuts.consumed_of(topic_id)] == [
        ("g", {0: 3}),
        ("h", {0: 2}),
    ]
    for _ in range(2):
        report(topics, topic_id, {}, unsubscribe=True)
    assert [each.group for each in topics.pd.state.cuts.consumed_of(topic_id)] == ["h"]


def test_a_bad_report_is_refused(topics: TopicCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything changes."""
    monkeypatch.setattr("rangelog_pd.state.retention.GROUPS_MAX", 1)
    topic_id = split_topic(topics)
    report(topics, topic_id, {0: 0})
    before = topics.pd.machine.snapshot()
    for error, args in (
        (TopicNotFound, (99, {0: 0})),
        (ShardNotFound, (topic_id, {7: 0})),
        (KeyRangeGap, (topic_id, {1: 0})),
        (OffsetOutOfRange, (topic_id, {0: 8})),
        (InvalidArgument, (topic_id, {})),
        (InvalidArgument, (topic_id, {0: 0}, "")),
        (InvalidArgument, (topic_id, {0: 0}, "one too many")),
        (InvalidArgument, (topic_id, {0: 0}, "h")),
    ):
        with pytest.raises(error):
            report(topics, *args)
    with pytest.raises(InvalidArgument):
        report(topics, topic_id, {0: 0}, unsubscribe=True)
    assert topics.pd.machine.snapshot() == before


def test_the_earlier_of_two_cuts_lies_behind_neither(topics: TopicCalls) -> None:
    """Across splits and merges, also where each is ahead of the other in a part of the keys."""
    topic_id = topics.create(key_ranges=[part(0, 8), part(8, 16)]).topic_id
    for each in (0, 1):
        topics.write(topic_id, each, 7)
    topics.scale(topic_id, [0], part(0, 4), part(4, 8))  # 2, 3
    topics.scale(topic_id, [1, 3], part(4, 16))  # 4
    topics.write(topic_id, 4, 5)
    state = topics.pd.state
    for first, second, wanted in (
        ({0: 3, 1: 6}, {0: 4, 1: 2}, {0: 3, 1: 2}),
        ({0: 3, 1: 6}, {2: 0, 4: 5}, {0: 3, 1: 6}),
        ({2: 0, 3: 0, 1: 4}, {0: 5, 1: 7}, {0: 5, 1: 4}),
        ({2: 1, 4: 2}, {2: 0, 3: 0, 1: 4}, {2: 0, 3: 0, 1: 4}),
    ):
        for one, other in ((first, second), (second, first)):
            found = earlier_of(state, topic_id, one, other)
            assert found == wanted
            check_cut(state, topic_id, positions(found))
    topics.truncate(topic_id, {2: 0, 4: 2})
    assert earlier_of(state, topic_id, {0: 3, 1: 6}, {2: 0, 4: 5}) == {0: 3, 1: 6}, "as without the truncation"
    assert left_to_trim(state, topic_id, {0: 3, 1: 6}) == {}


def test_a_topic_that_is_being_sealed_is_cut_at_its_last_shards(topics: TopicCalls) -> None:
    """Those without successors, ended or not."""
    topic_id = split_topic(topics)
    topics.seal(topic_id)
    for each in (1, 2):
        assert cut_of_now(topics.pd.state, topics.topic(topic_id)) == {1: 5, 2: 6}
        topics.end(topic_id, each)
    assert cut_of_now(topics.pd.state, topics.topic(topic_id)) == {1: 5, 2: 6}


def test_a_plan_of_the_leader_has_a_reason_and_each_scale_leaves_a_date(topics: TopicCalls) -> None:
    """The reason tells it from a plan that was requested; the date is that of the commit, or of the cancellation."""
    topic_id = split_topic(topics)
    assert topics.pd.state.topics.plans == {}
    request = topic_pb2.StartScaleRequest(
        topic=refer(topic_id), map_version=2, parents=[1], key_ranges=[part(0, 4), part(4, 8)]
    )
    own = pd_state_pb2.StartOwnScale(request=request, reason="it is hot")
    assert topics.pd.do(topic_pb2.StartScaleResponse, start_own_scale=own).topic.state == SCALING
    assert topics.pd.state.topics.work_of(topic_id).scale.reason == "it is hot"
    assert topics.pd.state.topics.plans == {topic_id: None}
    topics.pd.pass_ms(50)
    assert topics.cancel_scale(topic_id, 2).last_scale_ms == topics.pd.wall_ms
    assert topics.pd.state.topics.plans == {}
    with pytest.raises(TopicStateForbids):
        topics.commit_scale(topic_id, [], scale_id=2)
