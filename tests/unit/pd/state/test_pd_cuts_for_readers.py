"""The client's graph of shards and the placement driver agree: on what is a cut, and on what follows what."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rangelog._consume.core import TopicReading
from rangelog._topics.messages import shard_info
from rangelog._topics.shard_graph import ShardGraph
from rangelog_core.errors import RangelogError
from tests.support.pd_topics import TopicCalls, part

UNITS = 16
TOPICS_OF_A_LEADER = 4
"""Each of its commands validates all of them."""


def outcome(call: Callable[[], object]) -> type[RangelogError] | None:
    """The class of the error, if any."""
    try:
        call()
    except RangelogError as error:
        return type(error)
    return None


def graph_of(topics: TopicCalls, topic_id: int) -> ShardGraph:
    """All shards as the client gets them."""
    count = topics.topic(topic_id).next_shard_id
    return ShardGraph(shard_info(topics.shard(topic_id, each)) for each in range(count))


def scale_somehow(topics: TopicCalls, topic_id: int, draw: random.Random) -> None:
    """Neighbours become other neighbours, with borders anywhere; some have records before."""
    current = topics.current(topic_id)
    first = draw.randrange(len(current))
    parents = current[first : first + draw.randint(1, 3)]
    for shard_id in parents:
        if draw.random() < 0.5:
            topics.write(topic_id, shard_id, draw.randint(1, 3))
    unit = 1 << 124
    graph = graph_of(topics, topic_id)
    low = graph.shards[parents[0]].key_range.low // unit
    high = graph.shards[parents[-1]].key_range.high // unit
    inner = range(low + 1, high)
    ends = sorted(draw.sample(inner, min(len(inner), draw.randint(0, 2))))
    topics.scale(topic_id, parents, *(part(*pair) for pair in zip([low, *ends], [*ends, high], strict=True)))


def drawn_offsets(graph: ShardGraph, draw: random.Random) -> Mapping[int, int]:
    """A cut, or shards that tile the key space but precede one another, or any shards."""
    kind = draw.choice(["cut", "tiling", "any"])
    if kind == "any":
        ids = draw.sample(sorted(graph.shards), draw.randint(1, min(4, len(graph.shards))))
    elif kind == "tiling":
        ids, key = [], 0
        while key < 1 << 128:
            fits = [each for each, shard in graph.shards.items() if shard.key_range.low == key]
            ids.append(draw.choice(fits))
            key = graph.shards[ids[-1]].key_range.high
    else:
        reading = TopicReading(graph.shards.values(), dict.fromkeys(graph.first(), 0))
        for _ in range(draw.randint(0, 12)):
            ended = [each for each in reading.position() if (graph.shards[each].end_offset or 0) > 0]
            if ended:
                shard_id = draw.choice(ended)
                reading.read(shard_id, graph.shards[shard_id].end_offset or 0)
        return reading.position()
    return {each: draw.choice([0, 0, graph.shards[each].end_offset or 0, 4]) for each in ids}


@pytest.mark.parametrize("first", range(0, 80, 40))
def test_what_is_a_cut_for_one_is_a_cut_for_the_other(make_pd: Callable[[], Any], first: int) -> None:
    """A truncation is refused with the class of error that a reader has, and accepted where a reader starts."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 40):
        if seed % TOPICS_OF_A_LEADER == 0:
            topics = TopicCalls(make_pd())
        draw = random.Random(seed)
        topic_id = topics.create(f"t{seed}", shards=draw.choice([1, 2, 4])).topic_id
        for _ in range(draw.randint(0, 6)):
            scale_somehow(topics, topic_id, draw)
        graph = graph_of(topics, topic_id)
        offsets = drawn_offsets(graph, draw)
        beyond = any(graph.shards[each].is_current and offset > 0 for each, offset in offsets.items())
        expected = outcome(lambda graph=graph, offsets=offsets: graph.check_cut(offsets))
        found = outcome(lambda topics=topics, topic_id=topic_id, offsets=offsets: topics.truncate(topic_id, offsets))
        if not (beyond and expected is None):  # a current shard's end is not in the map
            assert found == expected, (seed, offsets)
        seen[found.__name__ if found else "accepted"] += 1
    assert {"accepted", "KeyRangeGap", "KeyRangeOverlap"} <= set(seen)


def test_shards_that_tile_but_precede_one_another_are_refused_by_both(topics: TopicCalls) -> None:
    """Halves, merged and split again: the first half of before and the second half of now."""
    topic_id = topics.create(shards=2).topic_id
    topics.scale(topic_id, [0, 1], part(0, UNITS))
    topics.scale(topic_id, [2], part(0, UNITS // 2), part(UNITS // 2, UNITS))
    graph = graph_of(topics, topic_id)
    assert outcome(lambda: graph.check_cut({0: 0, 4: 0})) is outcome(lambda: topics.truncate(topic_id, {0: 0, 4: 0}))
    assert outcome(lambda: graph.check_cut({0: 0, 4: 0})) is not None
