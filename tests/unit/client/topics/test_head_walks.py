"""The cut at the head of a topic whose shards were split, merged and truncated in any order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from rangelog._topics.cuts import CutFinder
from rangelog._topics.values import ShardInfo
from rangelog_core.key_ranges import KeyRange, check_tiling, overlapping
from rangelog_proto.v1 import common_pb2, pd_pb2
from tests.support.pd_calls import CallsByName

pytestmark = pytest.mark.virtual

KEYS = 32
RECORDS = 5
"""In each shard that has ended."""


class Rows(CallsByName):
    """Metadata of streams of which nothing is trimmed."""

    @property
    def pd(self) -> Rows:
        return self

    async def list_ranges(self, request: pd_pb2.ListRangesRequest, *, timeout_s: float) -> pd_pb2.ListRangesResponse:
        assert request.stream_id and request.last_only and timeout_s
        return pd_pb2.ListRangesResponse(stream=common_pb2.Stream(stream_id=request.stream_id))


@dataclass
class Row:
    """A shard of the model below."""

    shard_id: int
    keys: KeyRange
    truncated: bool = False
    predecessors: list[int] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)


class Topic:
    """Shards that are scaled and truncated at random."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.rows: dict[int, Row] = {}
        self.current: list[int] = []
        for part in self.parts(KeyRange(0, KEYS)):
            self.begin(part, [])

    def parts(self, whole: KeyRange) -> list[KeyRange]:
        """One to three parts of a key range."""
        count = min(self.dice.choice((1, 2, 3)), whole.high - whole.low)
        ends = sorted(self.dice.sample(range(whole.low + 1, whole.high), count - 1))
        return [KeyRange(low, high) for low, high in zip([whole.low, *ends], [*ends, whole.high], strict=True)]

    def begin(self, keys: KeyRange, parents: list[int]) -> None:
        row = Row(len(self.rows), keys, predecessors=parents)
        self.rows[row.shard_id] = row
        self.current.append(row.shard_id)
        for each in parents:
            self.rows[each].successors.append(row.shard_id)

    def scale(self) -> None:
        """Give one or two runs of neighbours other shards in their place, in one scale."""
        ordered = sorted(self.current, key=lambda each: self.rows[each].keys)
        first = self.dice.randrange(len(ordered))
        runs = [ordered[first : first + self.dice.choice((1, 2, 3))]]
        if first >= 2 and self.dice.random() < 0.5:
            runs.append(ordered[:1])
        parents = [each for run in sorted(runs, key=lambda run: self.rows[run[0]].keys) for each in run]
        children = [
            part
            for run in sorted(runs, key=lambda run: self.rows[run[0]].keys)
            for part in self.parts(KeyRange(self.rows[run[0]].keys.low, self.rows[run[-1]].keys.high))
        ]
        before: list[list[int]] = [[] for _ in children]
        for old, new in overlapping([self.rows[each].keys for each in parents], children):
            before[new].append(parents[old])
        self.current = [each for each in self.current if each not in parents]
        for keys, predecessors in zip(children, before, strict=True):
            self.begin(keys, predecessors)

    def truncate(self) -> None:
        """Trim up to a cut at or behind the head: what precedes it is removed, and what ended at its offset there."""
        cut = list(self.oracle())
        for _ in range(self.dice.randrange(4)):
            moved = self.forward(cut, self.dice.choice(cut))
            cut = moved or cut
        for each in self.preceding(cut):
            self.rows[each].truncated = True
        for each in cut:
            if self.rows[each].successors and self.dice.random() < 0.5:
                self.rows[each].truncated = True

    async def head(self) -> dict[int, int]:
        """What is found, in place of the rows' own truth."""
        shards = [
            ShardInfo(
                row.shard_id,
                row.keys,
                stream_id=row.shard_id + 1,
                created_version=1,
                ended_version=2 if row.successors else 0,
                predecessors=tuple(row.predecessors),
                successors=tuple(row.successors),
                end_offset=RECORDS if row.successors else None,
                truncated=row.truncated,
            )
            for row in self.rows.values()
        ]
        nothing: Any = None
        metadata: Any = Rows()
        return await CutFinder(metadata, nothing, nothing, 7, shards).head()

    def forward(self, cut: list[int], shard_id: int) -> list[int] | None:
        """The cut with all that is connected to a shard replaced by what follows, or None."""
        parents, children = {shard_id}, set(self.rows[shard_id].successors)
        while True:
            more = {before for each in children for before in self.rows[each].predecessors}
            after = {each for before in more for each in self.rows[before].successors}
            if not children or not more <= set(cut):
                return None
            if (more, after) == (parents, children):
                return sorted((set(cut) - parents) | children)
            parents, children = more, after

    def oracle(self) -> list[int]:
        """The cut at the head, by trying each step from the first shards on."""
        cut = [each for each, row in self.rows.items() if not row.predecessors]
        while True:
            for each in cut:
                moved = self.forward(cut, each)
                if moved is not None and all(self.rows[gone].truncated for gone in set(cut) - set(moved)):
                    cut = moved
                    break
            else:
                return sorted(cut)

    def preceding(self, cut: list[int]) -> set[int]:
        found: set[int] = set()
        pending = list(cut)
        while pending:
            for before in self.rows[pending.pop()].predecessors:
                if before not in found:
                    found.add(before)
                    pending.append(before)
        return found


@pytest.mark.parametrize("seed", range(40))
async def test_the_head_is_consistent_and_leaves_nothing_out(seed: int) -> None:
    """It tiles the key space, none of it precedes another, no record that is left lies before it; it is the last such cut."""
    topic = Topic(random.Random(seed))
    for _ in range(40):
        (topic.scale if topic.dice.random() < 0.7 else topic.truncate)()
        head = sorted(await topic.head())
        check_tiling([topic.rows[each].keys for each in head], [KeyRange(0, KEYS)])
        before = topic.preceding(head)
        assert not before & set(head)
        assert all(topic.rows[each].truncated for each in before)
        assert head == topic.oracle()
