"""The graph of shards: what is a cut, what precedes what, and which shards take each other's place together."""

from __future__ import annotations

import pytest

from rangelog import errors
from rangelog._topics.shard_graph import ShardGraph, Succession
from rangelog._topics.values import ShardInfo
from tests.support.shard_history import UNITS, unit_range


def shard(
    shard_id: int, low: int, high: int, before: tuple[int, ...], after: tuple[int, ...], end: int | None = 5
) -> ShardInfo:
    """A shard of some parts of the key space; `end`: None of a current one."""
    ended = 0 if end is None else 2
    return ShardInfo(shard_id, unit_range(low, high), shard_id, 1, ended, before, after, end)


@pytest.fixture
def merged_and_split() -> ShardGraph:
    """0 and 1 are halves, 2 the merge of both, 3 and 4 the same halves again."""
    half = UNITS // 2
    return ShardGraph(
        [
            shard(0, 0, half, (), (2,)),
            shard(1, half, UNITS, (), (2,)),
            shard(2, 0, UNITS, (0, 1), (3, 4)),
            shard(3, 0, half, (2,), (), None),
            shard(4, half, UNITS, (2,), (), None),
        ]
    )


def test_shards_that_tile_are_no_cut_where_one_precedes_another(merged_and_split: ShardGraph) -> None:
    """Though they share no key: all records of 0 lie before the first of 4."""
    for offsets in ({0: 1, 1: 0}, {2: 5}, {3: 9, 4: 0}):
        merged_and_split.check_cut(offsets)
    with pytest.raises(errors.InvalidArgument, match="precedes"):
        merged_and_split.check_cut({0: 1, 4: 0})


def test_what_is_no_cut_has_its_own_error(merged_and_split: ShardGraph) -> None:
    """Unknown shards, keys without a shard, keys with two, offsets beyond an end."""
    with pytest.raises(errors.ShardNotFound):
        merged_and_split.check_cut({7: 0})
    with pytest.raises(errors.KeyRangeGap):
        merged_and_split.check_cut({3: 0})
    with pytest.raises(errors.KeyRangeOverlap):
        merged_and_split.check_cut({2: 0, 3: 0})
    with pytest.raises(errors.OffsetOutOfRange) as caught:
        merged_and_split.check_cut({0: 6, 1: 0})
    assert caught.value.offset == 5


def test_a_graph_knows_its_ends(merged_and_split: ShardGraph) -> None:
    """What nothing precedes, and what is current."""
    assert (merged_and_split.first(), merged_and_split.current()) == ([0, 1], [3, 4])
    assert set(merged_and_split.ancestors([3])) == {0, 1, 2}


def test_shards_that_share_a_follower_are_replaced_together() -> None:
    """One scale of four shards: two parents over three children, and apart from them a split."""
    graph = ShardGraph(
        [
            shard(0, 0, 4, (), (3, 4)),
            shard(1, 4, 8, (), (4, 5)),
            shard(2, 8, UNITS, (), (6, 7)),
            shard(3, 0, 2, (0,), (), None),
            shard(4, 2, 6, (0, 1), (), None),
            shard(5, 6, 8, (1,), (), None),
            shard(6, 8, 10, (2,), (), None),
            shard(7, 10, UNITS, (2,), (), None),
        ]
    )
    assert graph.succession(0) == graph.succession(1) == Succession((0, 1), (3, 4, 5))
    assert graph.succession(2) == Succession((2,), (6, 7))
    assert graph.succession(3) is None


def test_a_succession_that_is_not_known_wholly_is_none() -> None:
    """Until the rows of all its shards are there."""
    graph = ShardGraph([shard(0, 0, UNITS, (), (1, 2)), shard(1, 0, 4, (0,), (), None)])
    assert graph.succession(0) is None
    graph.update([shard(2, 4, UNITS, (0,), (), None)])
    assert graph.succession(0) == Succession((0,), (1, 2))
