"""Random walks of readers over a topic that is written, split and merged meanwhile: the core of topic readers (T4).

A reader learns of maps late, and several versions at once; it is stopped anywhere, and another one begins at its position.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from rangelog._consume.core import CloseShard, OpenShard, TopicReading
from rangelog._topics.shard_graph import ShardGraph
from rangelog.errors import InvalidArgument
from tests.support.shard_history import Entry, ShardHistory


class WalkingReader:
    """A reader: the core, and what it has open."""

    def __init__(
        self, topic: ShardHistory, draw: random.Random, start: Mapping[int, int], end: Mapping[int, int] | None
    ) -> None:
        self.topic, self.draw, self.end = topic, draw, end
        self.core = TopicReading(topic.shards, start, end)
        self.known = topic.version
        self.open: dict[int, int] = {}
        self.limits: dict[int, int | None] = {}
        self.opened: set[int] = set()
        self.got: list[Entry] = []
        self.take()

    def take(self) -> None:
        """Do what the core wants."""
        for effect in self.core.effects():
            if isinstance(effect, OpenShard):
                assert effect.shard_id not in self.opened, "a shard is opened once"
                assert self.core.is_open(effect.shard_id)
                self.opened.add(effect.shard_id)
                self.open[effect.shard_id] = effect.offset
                self.limits[effect.shard_id] = effect.end_offset
            else:
                assert isinstance(effect, CloseShard)
                del self.open[effect.shard_id]
        position = self.core.position()
        assert self.topic.is_cut(position), "the position is a cut at every moment"
        assert self.open.keys() <= position.keys() and all(map(self.core.is_open, self.open))

    def learn(self) -> None:
        self.core.mapped(self.topic.shards)
        self.known = self.topic.version
        self.take()

    def step(self) -> bool:
        """Read a few records of some open shard; return whether there were any."""
        ready = [each for each, offset in self.open.items() if offset < self._readable(each)]
        if not ready:
            return False
        shard_id = self.draw.choice(ready)
        offset = self.open[shard_id]
        after = self.draw.randint(offset + 1, self._readable(shard_id))
        self.got += self.topic.logs[shard_id][offset:after]
        self.open[shard_id] = after
        self.core.read(shard_id, after)
        self.take()
        return True

    def _readable(self, shard_id: int) -> int:
        """Readers stop at the limit that they were opened with, not at one that is known since."""
        limit = self.limits[shard_id]
        there = len(self.topic.logs[shard_id])
        return there if limit is None else min(there, limit)

    def finish(self) -> None:
        """Read all that there is."""
        self.learn()
        while self.step():
            pass


def check_order(entries: list[Entry]) -> None:
    """Each record once; those of a key in the order in which they were appended."""
    last: dict[int, int] = {}
    for entry in entries:
        assert entry.order > last.get(entry.key, -1), f"{entry} is repeated or out of order"
        last[entry.key] = entry.order


def walk(seed: int, seen: Counter[str]) -> None:
    """One topic, a line of readers each of which begins where the one before was stopped, and a reader up to a cut."""
    draw = random.Random(seed)
    topic = ShardHistory(seed)
    for _ in range(draw.randint(0, 30)):
        draw.choices([topic.append, topic.scale], [5, 1])[0]()
    start = draw.choice([topic.head(), topic.tail()])
    first_start = dict(start)
    reader = WalkingReader(topic, draw, start, None)
    got: list[Entry] = []
    cuts = [topic.head(), topic.tail()]
    for _ in range(150):
        action = draw.choices(["append", "scale", "learn", "read", "restart", "seal"], [8, 1, 2, 12, 1, 0.05])[0]
        if action == "append":
            topic.append()
        elif action == "scale" and not topic.sealed:
            topic.scale()
        elif action == "seal":
            topic.seal()
        elif action == "learn":
            reader.learn()
        elif action == "read":
            reader.step()
        elif action == "restart":
            got += reader.got
            position = reader.core.position()
            seen["position between a shard and its follower"] += any(
                offset == topic.shards[each].end_offset for each, offset in position.items()
            )
            cuts.append(position)
            reader = WalkingReader(topic, draw, position, None)
    reader.finish()
    got += reader.got
    check_order(got)
    assert set(got) == topic.before(topic.tail()) - topic.before(first_start)
    assert topic.before(reader.core.position()) == topic.before(topic.tail())
    assert reader.core.is_over == (topic.sealed and not reader.open)
    cuts += [topic.tail()]
    _check_between_cuts(topic, draw, cuts, seen)


def _check_between_cuts(
    topic: ShardHistory, draw: random.Random, cuts: list[dict[int, int]], seen: Counter[str]
) -> None:
    """From any cut to any other one: exactly what lies between them, and then it is over."""
    graph = ShardGraph(topic.shards)
    for _ in range(4):
        start, end = draw.choice(cuts), draw.choice(cuts)
        reader = WalkingReader(topic, draw, start, end)
        while reader.step():
            pass
        assert reader.core.is_over and not reader.open
        check_order(reader.got)
        assert set(reader.got) == topic.before(end) - topic.before(start)
        seen["end behind start" if reader.got else "nothing between"] += 1
        earlier = graph.earlier(start, end)
        assert topic.is_cut(earlier)
        assert topic.before(earlier) == topic.before(start) & topic.before(end)
        later = graph.later(start, end)
        assert topic.is_cut(later)
        assert topic.before(later) == topic.before(start) | topic.before(end)
        _check_parts_between(topic, graph, start, end)


def _check_parts_between(topic: ShardHistory, graph: ShardGraph, start: dict[int, int], end: dict[int, int]) -> None:
    """All at once: the same records, shard by shard; an error where the end does not hold all that the start holds."""
    if topic.before(start) - topic.before(end):
        with pytest.raises(InvalidArgument, match="behind the end"):
            graph.between(start, end)
        return
    parts = graph.between(start, end)
    found = [entry for shard_id, (low, high) in parts.items() for entry in topic.logs[shard_id][low:high]]
    check_order(found)
    assert set(found) == topic.before(end) - topic.before(start)


@pytest.mark.parametrize("first", range(0, 400, 40))
def test_walks(first: int) -> None:
    """Every record once and in order of its key, over scales of any form; nothing lost or repeated by a restart anywhere."""
    seen: Counter[str] = Counter()
    for seed in range(first, first + 40):
        walk(seed, seen)
    assert set(seen) == {"position between a shard and its follower", "end behind start", "nothing between"}
