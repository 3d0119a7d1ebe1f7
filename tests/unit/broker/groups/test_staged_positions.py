"""Positions of a group that are committed with a transaction: staged as they are checked, settled by the coordinator's word."""

from __future__ import annotations

import pytest

from rangelog_broker.groups.checkpoints import ShardKey
from rangelog_broker.groups.machine import GroupCoordinator
from rangelog_broker.groups.staged_positions import TRANSACTIONS_MAX
from rangelog_core.errors import MemberNotFound, Overloaded, PreconditionFailed
from rangelog_proto.v1 import group_pb2 as pb
from tests.support.journal_machines import restored
from tests.unit.broker.groups.test_group_machine import GROUP, TOPIC, Machine, joined, position


def stage(one: Machine, member: str, *positions: pb.GroupPosition, number: int = 1, since: int = 0) -> pb.GroupResult:
    """Stage for transaction `number`."""
    commit = pb.GroupCommit(member=member, positions=positions)
    return one.apply(stage=pb.GroupStage(transactional_id="t", producer_id=9, number=number, commit=commit))


def settle(one: Machine, *, committed: bool, number: int = 1) -> None:
    """The coordinator's word."""
    one.apply(settle=pb.GroupSettle(producer_id=9, number=number, committed=committed))


def since_of(one: Machine, shard_id: int) -> int:
    """The generation that handed a shard out."""
    return one.machine.group(GROUP).shards[ShardKey(TOPIC, shard_id)].since


def offset_of(one: Machine, shard_id: int) -> int | None:
    """The committed position."""
    return one.machine.group(GROUP).shards[ShardKey(TOPIC, shard_id)].offset


def test_staged_positions_count_once_the_transaction_is_committed() -> None:
    """Whoever has the shard by then; they move forward only, and a repeat changes nothing."""
    one = joined("a", shards=1)
    assert not stage(one, "a", position(0, 7, since_of(one, 0))).refused
    assert offset_of(one, 0) is None
    settle(one, committed=True)
    assert offset_of(one, 0) == 7
    one.apply(commit=pb.GroupCommit(member="a", positions=[position(0, 9, since_of(one, 0))]))
    settle(one, committed=True)
    assert offset_of(one, 0) == 9
    stage(one, "a", position(0, 8, since_of(one, 0)), number=2)
    settle(one, committed=True, number=2)
    assert offset_of(one, 0) == 9, "the larger one stays"
    stage(one, "a", position(0, 12, since_of(one, 0)), number=3)
    settle(one, committed=False, number=3)
    settle(one, committed=True, number=3)
    assert offset_of(one, 0) == 9, "what was dropped never counts"


@pytest.mark.parametrize("committed", [True, False])
def test_a_shard_is_handed_to_nobody_while_a_position_is_staged(committed: bool) -> None:
    """Who gets it begins behind the staged position, or before it: which of both is not known sooner."""
    one = joined("a", "b", shards=1)
    holder = one.machine.group(GROUP).shards[ShardKey(TOPIC, 0)].member
    other = "b" if holder == "a" else "a"
    assert not stage(one, holder, position(0, 7, since_of(one, 0))).refused
    one.apply(leave=pb.GroupLeave(member=holder))
    assert not one.machine.views(GROUP)[other].assigned
    copy = GroupCoordinator()
    restored(copy, one.machine.snapshot())
    assert copy.groups == one.machine.groups
    one.machine = copy
    settle(one, committed=committed)
    (view,) = one.machine.views(GROUP)[other].assigned
    assert view.offset == (7 if committed else 0)


def test_if_one_position_is_refused_none_is_staged() -> None:
    """A transaction whose member has lost a shard is not committed with the rest of its positions."""
    one = joined("a", shards=2)
    result = stage(one, "a", position(0, 7, since_of(one, 0)), position(1, 7, since_of(one, 1) - 1), position(5, 1))
    assert [(each.shard.shard_id, each.why) for each in result.refused] == [
        (1, pb.GROUP_REFUSAL_NOT_ASSIGNED),
        (5, pb.GROUP_REFUSAL_NOT_READ),
    ]
    settle(one, committed=True)
    assert offset_of(one, 0) is None
    with pytest.raises(MemberNotFound):
        stage(one, "nobody", position(0, 7, since_of(one, 0)))


def test_later_positions_of_one_transaction_replace_its_earlier_ones() -> None:
    """A transaction may read on after it has named its positions."""
    one = joined("a", shards=2)
    stage(one, "a", position(0, 7, since_of(one, 0)))
    stage(one, "a", position(0, 9, since_of(one, 0)), position(1, 2, since_of(one, 1)))
    settle(one, committed=True)
    assert (offset_of(one, 0), offset_of(one, 1)) == (9, 2)


def test_what_would_cross_a_decision_waits_for_it() -> None:
    """A reset, and the deletion of the group; a topic that is read no more takes its positions along."""
    one = joined("a", shards=1)
    stage(one, "a", position(0, 7, since_of(one, 0)))
    with pytest.raises(PreconditionFailed, match="once they are decided"):
        one.apply(reset=pb.GroupReset(positions=[position(0, 0)]))
    one.apply(leave=pb.GroupLeave(member="a"))
    with pytest.raises(PreconditionFailed, match="try again"):
        one.apply(delete=pb.GroupDelete())
    one.apply(forget=pb.GroupForget(topic_ids=[TOPIC]))
    settle(one, committed=True)
    one.apply(delete=pb.GroupDelete())
    assert one.machine.groups == {} and one.machine.size_bytes == 0


def test_the_number_of_transactions_is_bounded() -> None:
    """More than the limit are refused; those that have staged something go on."""
    one = joined("a", shards=1)
    for number in range(TRANSACTIONS_MAX):
        stage(one, "a", position(0, number, since_of(one, 0)), number=number)
    with pytest.raises(Overloaded):
        stage(one, "a", position(0, 1, since_of(one, 0)), number=TRANSACTIONS_MAX)
    stage(one, "a", position(0, 5, since_of(one, 0)), number=0)
    settle(one, committed=True, number=0)
    assert offset_of(one, 0) == 5
    stage(one, "a", position(0, 6, since_of(one, 0)), number=TRANSACTIONS_MAX)
