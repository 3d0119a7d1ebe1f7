"""What becomes of positions that a transaction has staged and nobody settles: the group's owner asks the coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rangelog_broker.groups import staged_inquiries
from rangelog_broker.transactions.coordinator import ABORTED, COMMITTED, COMMITTING, OPEN, UNKNOWN
from rangelog_proto.v1 import group_pb2, transaction_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from tests.support.group_cluster import GroupCluster
from tests.support.waiting import until
from tests.unit.broker.groups.test_groups_service import GROUP, JOURNAL, Caller

pytestmark = pytest.mark.virtual

PROGRAM = "billing"


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GroupCluster]:
    """A cluster whose owners ask soon."""
    monkeypatch.setattr(staged_inquiries, "AFTER_S", 0.01)
    async with GroupCluster() as cluster:
        yield cluster


@pytest.fixture
async def caller(cluster: GroupCluster) -> Caller:
    """A broker that owns the group's journal, a topic of one shard, a session."""
    caller = Caller(cluster, await cluster.broker(JOURNAL), cluster.topics.create("default/flights", 1))
    await caller.open()
    return caller


async def stage(caller: Caller, number: int, offset: int) -> pb.StagePositionsResponse:
    """Member a stages the position of all that it has."""
    view = (await caller.join("a")).view if number == 1 else (await caller.heartbeat("a")).view
    positions = [group_pb2.GroupPosition(shard=each.shard, offset=offset, since=each.since) for each in view.assigned]
    commit = group_pb2.GroupCommit(member="a", positions=positions)
    staged = group_pb2.GroupStage(transactional_id=PROGRAM, producer_id=5, number=number, commit=commit)
    request = pb.StagePositionsRequest(proposal=caller.proposal(), group=GROUP, stage=staged)
    return await caller.broker.service.StagePositions(request, None)


@pytest.mark.parametrize("state", [ABORTED, UNKNOWN, COMMITTED])
async def test_what_the_coordinator_is_done_with_is_dropped(
    caller: Caller, state: transaction_pb2.TransactionState
) -> None:
    """Of a commit that is merged everywhere these positions were no part, or they were settled before."""
    caller.broker.coordinators.states[PROGRAM, 1] = OPEN
    assert not (await stage(caller, 1, 7)).refused
    await until(lambda: caller.broker.coordinators.asked > 2)
    (staged,) = (await caller.describe()).staged
    assert (staged.transactional_id, staged.number, staged.positions[0].offset) == (PROGRAM, 1, 7)
    caller.broker.coordinators.states[PROGRAM, 1] = state
    await until(lambda: not len(caller.owner.journal.machine.group(GROUP).staged))
    assert not (await caller.describe()).shards[0].has_position
    asked = caller.broker.coordinators.asked
    assert not (await stage(caller, 2, 9)).refused, "the next one is asked for, too"
    await until(lambda: caller.broker.coordinators.asked > asked)


async def test_the_next_owner_goes_on_asking(caller: Caller, cluster: GroupCluster) -> None:
    """A commit that is decided waits for the coordinator's order; the order commits the positions, once or again."""
    caller.broker.coordinators.states[PROGRAM, 1] = COMMITTING
    assert not (await stage(caller, 1, 7)).refused
    following = await cluster.broker(JOURNAL)
    following.coordinators.states[PROGRAM, 1] = COMMITTING
    caller.broker = following
    assert caller.owner.journal.machine.group(GROUP).staged.rows == 1
    await until(lambda: following.coordinators.asked > 2)
    for _ in range(2):
        request = pb.MergePositionsRequest(group=GROUP, producer_id=5, number=1)
        await following.service.MergePositions(request, None)
    state = await caller.describe()
    assert (state.shards[0].offset, len(state.staged)) == (7, 0)
