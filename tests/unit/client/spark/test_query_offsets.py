"""Offsets of streaming queries: their text for checkpoints, how far a micro-batch goes, and what is refused."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from rangelog import Cut, errors
from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.values import ShardInfo
from rangelog._topics.watches import TopicShards
from rangelog.spark.admission import advance, share_out
from rangelog.spark.following import Ends, go_on, until
from rangelog.spark.following_topics import TopicEnd
from rangelog.spark.offsets import QueryOffsets, StreamOffset
from rangelog.spark.stream_options import StreamOptions, parse_stream_options
from rangelog_core.key_ranges import KEY_SPACE, KeyRange


def shards_of_a_split() -> list[ShardInfo]:
    """Shard 0 has ended at 100 and became shards 1 and 2."""
    middle = KEY_SPACE.high // 2
    halves = (KeyRange(0, middle), KeyRange(middle, KEY_SPACE.high))
    return [
        ShardInfo(0, KEY_SPACE, 10, 1, 2, successors=(1, 2), end_offset=100),
        *(ShardInfo(number, half, 10 + number, 2, predecessors=(0,)) for number, half in enumerate(halves, 1)),
    ]


def options(**given: Any) -> StreamOptions:
    """Of a query on two streams."""
    return parse_stream_options({"pd": "a:1", "stream": "a,b", **given})


def at(stream_id: int, first: int, offset: int) -> StreamOffset:
    """A position."""
    return StreamOffset(stream_id, first, offset)


def test_offsets_survive_their_text() -> None:
    """As JSON of plain values, the same for equal offsets."""
    offsets = QueryOffsets({"b": at(7, 0, 250), "a": at(3, 5, 5)}, {"default/rides": Cut(3, {0: 120, 1: 80})}, 17)
    text = json.dumps(offsets.to_dict())
    assert QueryOffsets.from_dict(json.loads(text)) == offsets
    assert json.loads(text) == {
        "rangelog": 1,
        "skipped": 17,
        "streams": {"a": {"id": 3, "from": 5, "offset": 5}, "b": {"id": 7, "from": 0, "offset": 250}},
        "topics": {"default/rides": {"id": 3, "cut": {"0": 120, "1": 80}}},
    }


@pytest.mark.parametrize(
    ("kept", "error", "text"),
    [
        ({"index": 3}, errors.InvalidArgument, "not one of rangelog"),
        ([], errors.InvalidArgument, "not one of rangelog"),
        ({"rangelog": 2, "streams": {}}, errors.UnsupportedVersion, "version 2"),
        ({"rangelog": "1"}, errors.InvalidArgument, "'rangelog' is no number"),
        ({"rangelog": 1, "streams": []}, errors.InvalidArgument, "streams are damaged"),
        ({"rangelog": 1, "streams": {"a": 3}}, errors.InvalidArgument, "streams are damaged"),
        ({"rangelog": 1, "streams": {"a": {"id": 3, "from": 0}}}, errors.InvalidArgument, "'offset' is no number"),
        ({"rangelog": 1, "streams": {"a": {"id": 3, "from": 0, "offset": -1}}}, errors.InvalidArgument, "'offset'"),
        ({"rangelog": 1, "topics": {"t": {"id": 3, "cut": {"x": 1}}}}, errors.InvalidArgument, "have no cut"),
        ({"rangelog": 1, "topics": {"t": {"id": 3, "cut": {"\u00b2": 1}}}}, errors.InvalidArgument, "have no cut"),
        ({"rangelog": 1, "topics": {"t": {"id": 3, "cut": {}}}}, errors.InvalidArgument, "1 to"),
    ],
)
def test_checkpoints_that_are_not_read(kept: Any, error: type[Exception], text: str) -> None:
    """Of other sources, of later versions, damaged."""
    with pytest.raises(error, match=text):
        QueryOffsets.from_dict(kept)


@pytest.mark.parametrize("seed", range(50))
def test_a_budget_is_shared_out(seed: int) -> None:
    """Not more than it, all of it, nothing that does not wait; and in the end everything has been read."""
    draw = random.Random(seed)
    waiting = {key: draw.choice([0, 1, 3, 1_000, 123_456]) for key in range(draw.randrange(1, 8))}
    budget = draw.choice([1, 2, 10, 999, 10_000])
    for _ in range(1_000_000):
        shared = share_out(waiting, budget)
        assert sum(shared.values()) == min(budget, sum(waiting.values()))
        assert all(0 <= shared[key] <= count for key, count in waiting.items())
        waiting = {key: count - shared[key] for key, count in waiting.items()}
        if not any(waiting.values()):
            return
    raise AssertionError("something is never read")


def test_how_far_a_batch_goes() -> None:
    """Up to the ends, or as far as the budget reaches."""
    start = QueryOffsets({"a": at(1, 0, 10), "b": at(2, 0, 0)})
    ends = Ends({"a": at(1, 0, 110), "b": at(2, 0, 300)}, {})
    assert go_on(options(), start, ends, None).streams == {"a": at(1, 0, 110), "b": at(2, 0, 300)}
    assert go_on(options(), start, ends, 100).streams == {"a": at(1, 0, 35), "b": at(2, 0, 75)}
    target = QueryOffsets({"a": at(1, 0, 50), "b": at(2, 0, 300)})
    assert until(ends, start, go_on(options(), start, ends, None), target) == target


def test_a_target_that_is_behind_the_query() -> None:
    """Found while a replica was silent: the query stays where it is, else records would come twice."""
    start = QueryOffsets({"a": at(1, 0, 60), "b": at(2, 0, 0)}, {})
    ends = Ends({"a": at(1, 0, 110), "b": at(2, 0, 300)}, {})
    target = QueryOffsets({"a": at(1, 0, 50), "b": at(2, 0, 300)})
    assert until(ends, start, go_on(options(), start, ends, None), target).streams == {
        "a": at(1, 0, 60),
        "b": at(2, 0, 300),
    }
    behind = QueryOffsets(topics={"default/t": Cut(1, {1: 10, 2: 5})})
    topics = Ends({}, {"default/t": topic_end(1, {1: 30, 2: 30}, {0: 0})})
    for target_cut in ({0: 90}, {1: 7, 2: 8}):
        target = QueryOffsets(topics={"default/t": Cut(1, target_cut)})
        reached = until(topics, behind, go_on(of_topics(topic="t"), behind, topics, None), target)
        assert reached.topics == {"default/t": Cut(1, {1: 10, 2: 8 if 1 in target_cut else 5})}


def test_what_was_trimmed_unread_is_an_error_or_counted() -> None:
    """With failOnDataLoss=false the query goes on at the first record that is left."""
    start = QueryOffsets({"a": at(1, 0, 10), "b": at(2, 0, 0)}, skipped=1)
    ends = Ends({"a": at(1, 30, 110), "b": at(2, 0, 5)}, {})
    with pytest.raises(errors.OffsetTrimmed, match=r"records 10 to 29 were trimmed .* failOnDataLoss=false"):
        go_on(options(), start, ends, None)
    found = go_on(options(failOnDataLoss="false"), start, ends, None)
    assert (found.streams["a"], found.skipped) == (at(1, 0, 110), 21)


def test_streams_of_other_ids_and_names() -> None:
    """A name that was used again is another stream; a checkpoint of other streams is not one of this query."""
    start = QueryOffsets({"a": at(1, 0, 10), "b": at(2, 0, 0)})
    with pytest.raises(errors.StreamNotFound, match="'a' of the checkpoint was deleted"):
        go_on(options(), start, Ends({"a": at(9, 0, 110), "b": at(2, 0, 5)}, {}), None)
    with pytest.raises(errors.InvalidArgument, match="the checkpoint is one of stream 'a'"):
        go_on(options(stream="b,c"), start, Ends({"b": at(2, 0, 5), "c": at(3, 0, 5)}, {}), None)


def test_a_pattern_takes_new_streams_from_their_beginnings() -> None:
    """And a deleted one is an error unless losses are accepted."""
    by_pattern = parse_stream_options({"pd": "a:1", "streamPattern": "a|b"})
    start = QueryOffsets({"a": at(1, 0, 10)})
    found = go_on(by_pattern, start, Ends({"a": at(1, 0, 10), "b": at(2, 3, 5)}, {}), None)
    assert found.streams == {"a": at(1, 0, 10), "b": at(2, 3, 5)}
    assert go_on(by_pattern, start, Ends({"a": at(1, 0, 10), "b": at(2, 3, 5)}, {}), 1).streams["b"] == at(2, 3, 4)
    gone = Ends({"b": at(2, 3, 5)}, {})
    with pytest.raises(errors.StreamNotFound, match="'a', which the query reads, was deleted"):
        go_on(by_pattern, found, gone, None)
    assert go_on(replace(by_pattern, fails_on_loss=False), found, gone, None).streams == {"b": at(2, 3, 5)}


def test_a_cut_goes_through_a_split() -> None:
    """Its parent first, to its end; then its children; never more than the budget."""
    graph = ShardGraph(shards_of_a_split())
    ends = {1: 30, 2: 40}
    assert advance(graph, {0: 5}, ends, 10) == {0: 15}
    assert advance(graph, {0: 90}, ends, 10) == {1: 0, 2: 0}
    assert advance(graph, {0: 90}, ends, 24) == {1: 6, 2: 8}
    assert advance(graph, {0: 0}, ends, 1 << 62) == {1: 30, 2: 40}


def topic_end(topic_id: int, tail: dict[int, int], head: dict[int, int]) -> TopicEnd:
    """Of a topic whose shard was split."""
    known = TopicShards(topic_id, 2, {shard.shard_id: shard for shard in shards_of_a_split()})
    return TopicEnd(known, Cut(topic_id, tail), Cut(topic_id, head))


def of_topics(**given: Any) -> StreamOptions:
    """Of a query on two topics."""
    return parse_stream_options({"pd": "a:1", "topic": "t,other/u", **given})


def test_a_batch_of_several_topics() -> None:
    """The bound is one of all of them, shared out by what waits, through splits."""
    start = QueryOffsets(topics={"default/t": Cut(1, {0: 60}), "other/u": Cut(2, {0: 0})})
    ends = Ends(
        {}, {"default/t": topic_end(1, {1: 30, 2: 30}, {0: 0}), "other/u": topic_end(2, {1: 400, 2: 400}, {0: 0})}
    )
    assert [each.waiting(start.topics[name]) for name, each in ends.topics.items()] == [100, 900]
    found = go_on(of_topics(), start, ends, 500)
    assert found.topics == {"default/t": Cut(1, {1: 5, 2: 5}), "other/u": Cut(2, {1: 175, 2: 175})}
    assert go_on(of_topics(), start, ends, None) == ends.offsets()


def test_a_topic_that_is_added_and_one_that_is_left_out() -> None:
    """The one is taken from its first records that are there, the other is not one of the query."""
    start = QueryOffsets(topics={"default/t": Cut(1, {0: 60})})
    ends = Ends({}, {"default/t": topic_end(1, {1: 0, 2: 0}, {0: 60}), "other/u": topic_end(2, {1: 5, 2: 5}, {0: 70})})
    found = go_on(of_topics(), start, ends, 40)
    assert found.topics == {"default/t": Cut(1, {0: 80}), "other/u": Cut(2, {0: 90})}
    assert found.skipped == 0
    with pytest.raises(errors.InvalidArgument, match="the checkpoint is one of topic 'default/t'"):
        go_on(of_topics(topic="other/u"), start, Ends({}, {"other/u": topic_end(2, {1: 9, 2: 9}, {0: 70})}), None)


def test_what_was_trimmed_unread_of_a_topic_is_counted() -> None:
    """Of a shard, and of one that was trimmed wholly and its followers; or it is an error."""
    lenient = of_topics(topic="t", failOnDataLoss="false")
    start = QueryOffsets(topics={"default/t": Cut(1, {0: 60})}, skipped=1)
    found = go_on(lenient, start, Ends({}, {"default/t": topic_end(1, {1: 30, 2: 30}, {0: 75})}), 10)
    assert (found.topics["default/t"], found.skipped) == (Cut(1, {0: 85}), 16)
    found = go_on(lenient, start, Ends({}, {"default/t": topic_end(1, {1: 30, 2: 30}, {1: 20, 2: 0})}), None)
    assert (found.topics["default/t"], found.skipped) == (Cut(1, {1: 30, 2: 30}), 61)
    with pytest.raises(errors.OffsetTrimmed, match=r"shard 0: records 60 to 74 were trimmed .* failOnDataLoss=false"):
        go_on(of_topics(topic="t"), start, Ends({}, {"default/t": topic_end(1, {1: 30, 2: 30}, {0: 75})}), 10)
    behind = Ends({}, {"default/t": topic_end(1, {1: 30, 2: 30}, {0: 10})})
    assert go_on(lenient, start, behind, 10) == QueryOffsets({}, {"default/t": Cut(1, {0: 70})}, 1)


CUT = Cut(3, {0: 120, 1: 80})


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({"stream": "a"}, {"a": "latest"}),
        ({"stream": "a", "startingOffsets": "250"}, {"a": 250}),
        ({"stream": "a", "startingOffsets": '{"a": 250}'}, {"a": 250}),
        ({"stream": "a,b", "startingOffsets": "earliest"}, {"a": "earliest", "b": "earliest"}),
        ({"stream": "a,b", "startingOffsets": '{"a": 7, "b": "latest"}'}, {"a": 7, "b": "latest"}),
        ({"streamPattern": ".*", "startingOffsets": '{"a": "earliest"}'}, {"a": "earliest", "c": "latest"}),
        ({"topic": "t", "startingOffsets": CUT.to_json()}, {"default/t": CUT}),
        (
            {"topic": "t,n/u", "startingOffsets": f'{{"t": {CUT.to_json()}, "n/u": "earliest"}}'},
            {"default/t": CUT, "n/u": "earliest"},
        ),
    ],
)
def test_where_each_begins(given: dict[str, str], starts: dict[str, Any]) -> None:
    """One position for all, or one for each by name."""
    found = parse_stream_options({"pd": "a:1", **given})
    assert {name: found.start_of(name) for name in starts} == starts


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ({"stream": "a", "startingOffsets": "{"}, errors.ConfigInvalid, "no JSON"),
        ({"stream": "a", "startingOffsets": "{" * 5_000}, errors.ConfigInvalid, "no JSON"),
        (
            {"stream": "a", "startingOffsets": '{"b": 1}'},
            errors.ConfigInvalid,
            "names 'b', which the query does not read",
        ),
        ({"stream": "a,b", "startingOffsets": '{"a": 1}'}, errors.ConfigInvalid, "does not name 'b'"),
        ({"stream": "a", "startingOffsets": '{"a": -1}'}, errors.ConfigInvalid, "of 'a': option startingOffsets"),
        ({"stream": "a", "startingOffsets": '{"a": [1]}'}, errors.ConfigInvalid, "of 'a': option startingOffsets"),
        ({"topic": "t,u", "startingOffsets": CUT.to_json()}, errors.ConfigInvalid, "a cut is of one topic"),
        ({"topic": "t", "startingOffsets": '{"t": 5}'}, errors.ConfigInvalid, "a cut as JSON"),
        ({"topic": "t", "stream": "s"}, errors.ConfigInvalid, "both a stream and a topic"),
        ({"stream": "a", "start": "5"}, errors.ConfigInvalid, "option start is for spark.read"),
        ({"streamPattern": "("}, errors.ConfigInvalid, "no regular expression"),
        ({"streamPattern": "a", "stream": "b"}, errors.ConfigInvalid, "one of the options"),
        ({"stream": "a,b c"}, errors.InvalidArgument, "b c"),
        ({"stream": "a", "maxRecordsPerTrigger": "0"}, errors.ConfigInvalid, "maxRecordsPerTrigger"),
        ({"stream": "a", "maxBytesPerTrigger": "x"}, errors.ConfigInvalid, "maxBytesPerTrigger"),
        ({"stream": "a", "failOnDataLoss": "maybe"}, errors.ConfigInvalid, "failOnDataLoss"),
        ({"stream": "a", "startingOffsets": "never"}, errors.ConfigInvalid, "startingOffsets"),
        ({"stream": "a", "maxOffsetsPerTrigger": "5"}, errors.ConfigInvalid, "unknown option 'maxoffsetspertrigger'"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], error: type[Exception], text: str) -> None:
    """By name."""
    with pytest.raises(error, match=text):
        parse_stream_options({"pd": "a:1", **given})
