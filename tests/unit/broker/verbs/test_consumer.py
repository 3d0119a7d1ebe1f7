"""The core of a consumer, against a plain model: nothing that was not handed out is committed, and nothing is skipped."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rangelog import GroupRecord, ShardOfTopic
from rangelog.errors import PreconditionFailed
from rangelog_broker.verbs.consumer import ConsumerCore, named

SHARDS = [ShardOfTopic("default/t", 0), ShardOfTopic("default/t", 1), ShardOfTopic("default/u", 0)]


def record(shard: ShardOfTopic, offset: int, value: bytes = b"v") -> GroupRecord:
    """A record."""
    return GroupRecord(shard.topic, shard.shard_id, offset, 7, b"k", value, {})


def test_a_batch_is_one_until_it_is_committed() -> None:
    """Its number stays; a repeat of the commit is known, also behind the next batch."""
    core = ConsumerCore()
    with pytest.raises(PreconditionFailed):
        core.settled(0)
    for offset in (0, 1):
        core.took(record(SHARDS[0], offset))
    assert (core.number, core.settled(1), core.sizes()) == (1, None, {"default/t": 4})
    assert core.committed({SHARDS[0]: 2}) == [] == core.settled(1)
    core.took(record(SHARDS[0], 2))
    assert (core.number, core.settled(1), core.settled(2)) == (2, [], None)
    for number in (0, 3, -1):
        with pytest.raises(PreconditionFailed):
            core.settled(number)
    assert core.committed({SHARDS[0]: 3}) == []
    core.took(record(SHARDS[0], 3))
    with pytest.raises(PreconditionFailed):
        core.settled(1)


def test_what_others_have_is_dropped_and_told() -> None:
    """At the next answer, or at the commit; the rest stays."""
    core = ConsumerCore()
    for shard in SHARDS:
        core.took(record(shard, 5))
    assert core.drop_lost({SHARDS[0]: 6, SHARDS[2]: 6}) == [SHARDS[1]]
    assert [each.topic for each in core.records] == ["default/t", "default/u"]
    assert core.committed({SHARDS[0]: 6}) == [SHARDS[1], SHARDS[2]] == core.settled(1)
    core.took(record(SHARDS[0], 6))
    assert core.drop_lost({SHARDS[0]: 3}) == [SHARDS[0]], "it was given again"
    assert (core.is_open, core.settled(2)) == (False, [SHARDS[0]])


def test_what_is_not_wanted_is_committed_and_not_handed_out() -> None:
    """It has bytes for nobody."""
    core = ConsumerCore()
    core.took(record(SHARDS[0], 0), wanted=False)
    assert (core.is_open, core.records, core.size_bytes, core.settled(1)) == (True, [], 0, None)
    core.took(record(SHARDS[0], 1))
    assert core.committed({SHARDS[0]: 2}) == [] and not core.is_open


def test_names_of_shards() -> None:
    """A few of many."""
    assert named(SHARDS * 3).endswith(" and 4 more")


class Consumed(RuleBasedStateMachine):
    """A group that gives and takes shards; its positions are behind what was answered to the client, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.core = ConsumerCore()
        self.committed = dict.fromkeys(SHARDS, 0)
        self.held: dict[ShardOfTopic, int] = {}
        self.seen: dict[ShardOfTopic, int] = dict.fromkeys(SHARDS, 0)
        self.answered = 0

    @rule(shard=st.sampled_from(SHARDS))
    def gain(self, shard: ShardOfTopic) -> None:
        """It begins at the committed position."""
        self.held.setdefault(shard, self.committed[shard])

    @rule(shard=st.sampled_from(SHARDS))
    def lose(self, shard: ShardOfTopic) -> None:
        """Another member reads it, or did in between."""
        self.held.pop(shard, None)

    @rule(count=st.integers(1, 5), is_lost=st.booleans(), data=st.data())
    def dequeue(self, count: int, is_lost: bool, data: st.DataObject) -> None:
        """A new batch, or the same again; the answer may be lost on its way."""
        self.core.drop_lost(self.held)
        if not self.core.is_open:
            for _ in range(count if self.held else 0):
                shard = data.draw(st.sampled_from(sorted(self.held)))
                self.core.took(record(shard, self.held[shard]))
                self.held[shard] += 1
        if not is_lost and self.core.records:
            self.answered = self.core.number
            for each in self.core.records:
                shard = ShardOfTopic(each.topic, each.shard_id)
                assert each.offset <= self.seen[shard], "records before it were never answered"
                self.seen[shard] = max(self.seen[shard], each.offset + 1)

    @precondition(lambda self: self.answered)
    @rule()
    def commit(self) -> None:
        """The client names the batch that it has seen last."""
        try:
            if self.core.settled(self.answered) is not None:
                return
        except PreconditionFailed:
            return
        for shard, offset in self.held.items():
            self.committed[shard] = max(self.committed[shard], offset)
        self.core.committed(self.held)

    @invariant()
    def nothing_is_skipped(self) -> None:
        """What is committed was answered."""
        for shard in SHARDS:
            assert self.committed[shard] <= self.seen[shard]


TestConsumed = Consumed.TestCase
TestConsumed.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
