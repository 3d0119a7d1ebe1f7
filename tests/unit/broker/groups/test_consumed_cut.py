"""What a group has consumed of a topic: a cut that is consistent, with no record behind a committed position before it."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.groups.consumed_cut import consumed_cut
from rangelog_broker.groups.group import Group, Shard
from rangelog_proto.v1 import group_pb2


class Of(NamedTuple):
    """A shard: its predecessors, its end if it has ended, the committed position, and what is trimmed."""

    predecessors: tuple[int, ...] = ()
    end: int | None = None
    at: int | None = None
    start: int = 0


def group_of(**shards: Of) -> Group:
    """Shards s0, s1, … of topic 1."""
    group = Group(topics={1: 1})
    for name, of in shards.items():
        facts = group_pb2.GroupShardFacts(
            shard_id=int(name[1:]),
            predecessors=of.predecessors,
            ended=of.end is not None,
            end_offset=of.end or 0,
            start_offset=of.start,
        )
        group.shards[ShardKey(1, facts.shard_id)] = Shard(facts, of.at)
    return group


@pytest.mark.parametrize(
    ("group", "cut"),
    [
        (group_of(s0=Of(at=5), s1=Of()), {0: 5, 1: 0}),
        (group_of(s0=Of(start=7)), {0: 7}),
        # what was trimmed behind a position was not consumed
        (group_of(s0=Of(end=9, at=2, start=9), s1=Of((0,), at=1)), {0: 2}),
        (group_of(s0=Of(end=9, start=9), s1=Of((0,), at=1)), {1: 1}),
        # a split: its parent stands for both children until it is finished
        (group_of(s0=Of(end=9, at=8), s1=Of((0,)), s2=Of((0,))), {0: 8}),
        (group_of(s0=Of(end=9, at=9), s1=Of((0,), at=3), s2=Of((0,))), {1: 3, 2: 0}),
        (group_of(s0=Of(end=9, at=9)), {0: 9}),
        # a merge: a parent that is finished waits at its end for the other one
        (group_of(s0=Of(end=9, at=9), s1=Of(end=4, at=2), s2=Of((0, 1))), {0: 9, 1: 2}),
        (group_of(s0=Of(end=9, at=9), s1=Of(end=4, at=4), s2=Of((0, 1))), {2: 0}),
        # two into three: no child counts before all parents are finished
        (
            group_of(s0=Of(end=9, at=9), s1=Of(end=4, at=2), s2=Of((0,), at=6), s3=Of((0, 1)), s4=Of((1,))),
            {0: 9, 1: 2},
        ),
        # an ended shard without records behind one that is not finished
        (group_of(s0=Of(end=9, at=2), s1=Of((0,), end=0), s2=Of((1,))), {0: 2}),
        # what precedes is trimmed, and not listed any more
        (group_of(s7=Of((3, 4), at=1)), {7: 1}),
    ],
)
def test_the_cut_of_a_group(group: Group, cut: dict[int, int]) -> None:
    """As committed, over splits and merges."""
    assert consumed_cut(group, 1) == cut


def test_nothing_is_said_of_shards_that_are_not_known() -> None:
    """A position without facts, and a topic without shards."""
    group = group_of(s0=Of(at=5))
    assert consumed_cut(group, 2) is None
    group.shards[ShardKey(1, 1)] = Shard(None, 3)
    assert consumed_cut(group, 1) is None
