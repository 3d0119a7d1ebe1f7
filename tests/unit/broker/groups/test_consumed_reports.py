"""Groups that retain: their committed positions reach the placement driver, and are taken back, whoever owns the journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_broker.groups import consumed_reports
from rangelog_core.errors import InvalidArgument, PreconditionFailed, Unavailable
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from tests.support.group_cluster import GroupCluster
from tests.support.waiting import until
from tests.unit.broker.groups.test_groups_service import GROUP, JOURNAL, Caller

pytestmark = pytest.mark.virtual


@pytest.fixture
async def caller(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    """A group with a member that has two shards; reports follow at once."""
    monkeypatch.setattr(consumed_reports, "INTERVAL_S", 0.001)
    async with GroupCluster() as cluster:
        caller = Caller(cluster, await cluster.broker(JOURNAL), cluster.topics.create("default/flights", 2))
        await caller.open()
        yield caller


async def retain(caller: Caller, *, retains: bool = True) -> None:
    """Order it."""
    request = pb.RetainGroupRequest(proposal=caller.proposal(), group=GROUP, retains=retains)
    await caller.broker.service.RetainGroup(request, None)


async def delete(caller: Caller) -> None:
    """Delete the group."""
    request = pb.DeleteGroupRequest(proposal=caller.proposal(), group=GROUP)
    await caller.broker.service.DeleteGroup(request, None)


async def leave(caller: Caller, member: str) -> None:
    """Take the member out."""
    request = pb.LeaveGroupRequest(proposal=caller.proposal(), group=GROUP, member=member)
    await caller.broker.service.LeaveGroup(request, None)


async def move(caller: Caller, offsets: dict[int, int]) -> None:
    """Reset the group."""
    topic_id = caller.topic.topic_id
    positions = [
        group_pb2.GroupPosition(shard=group_pb2.GroupShard(topic_id=topic_id, shard_id=each), offset=offset)
        for each, offset in offsets.items()
    ]
    reset = group_pb2.GroupReset(positions=positions)
    request = pb.ResetGroupRequest(proposal=caller.proposal(), group=GROUP, reset=reset)
    await caller.broker.service.ResetGroup(request, None)


def consumed(caller: Caller) -> dict[int, int] | None:
    """What the placement driver knows."""
    return caller.cluster.topics.consumed.get((caller.topic.topic_id, GROUP))


async def test_what_is_committed_is_reported(caller: Caller) -> None:
    """From the first answer on; nothing of a group that does not retain."""
    joined = await caller.join("a")
    await caller.commit("a", *joined.view.assigned, offset=3)
    assert not caller.cluster.topics.reports
    await retain(caller)
    assert consumed(caller) == {0: 3, 1: 3}
    await caller.commit("a", joined.view.assigned[0], offset=8)
    await until(lambda: consumed(caller) == {0: 8, 1: 3})
    count = len(caller.cluster.topics.reports)
    await caller.commit("a", joined.view.assigned[0], offset=8)
    await retain(caller)
    assert len(caller.cluster.topics.reports) == count, "nothing has moved"


async def test_what_a_transaction_is_about_to_commit_is_not(caller: Caller) -> None:
    """Only by the word of its coordinator."""
    joined = await caller.join("a")
    await retain(caller)
    each = joined.view.assigned[0]
    position = group_pb2.GroupPosition(shard=each.shard, since=each.since, offset=9)
    stage = group_pb2.GroupStage(
        transactional_id="t", producer_id=7, number=1, commit=group_pb2.GroupCommit(member="a", positions=[position])
    )
    request = pb.StagePositionsRequest(proposal=caller.proposal(), group=GROUP, stage=stage)
    assert not (await caller.broker.service.StagePositions(request, None)).refused
    await caller.commit("a", joined.view.assigned[1], offset=4)
    await until(lambda: consumed(caller) == {0: 0, 1: 4})
    await caller.broker.service.MergePositions(pb.MergePositionsRequest(group=GROUP, producer_id=7, number=1), None)
    await until(lambda: consumed(caller) == {0: 9, 1: 4})


async def test_a_report_that_fails_is_made_again(caller: Caller) -> None:
    """And what was committed meanwhile with it."""
    joined = await caller.join("a")
    await retain(caller)
    caller.cluster.topics.report_errors = [Unavailable("nobody leads"), Unavailable("nobody leads")]
    await caller.commit("a", *joined.view.assigned, offset=5)
    await until(lambda: consumed(caller) == {0: 5, 1: 5})


async def test_what_the_placement_driver_refuses_is_told(caller: Caller) -> None:
    """As there are too many groups that retain the topic."""
    await caller.join("a")
    caller.cluster.topics.report_errors = [InvalidArgument("100 groups have subscribed")] * 10_000
    with pytest.raises(InvalidArgument, match="100 groups"):
        await retain(caller)


async def test_the_next_owner_reports_all_that_retain(caller: Caller) -> None:
    """A report may have been lost with the one before."""
    joined = await caller.join("a")
    await retain(caller)
    caller.cluster.topics.report_errors = [Unavailable("nobody leads")] * 1_000
    await caller.commit("a", *joined.view.assigned, offset=5)
    caller.broker = await caller.cluster.broker(JOURNAL)
    caller.cluster.topics.report_errors = []
    assert caller.owner is not None
    await until(lambda: consumed(caller) == {0: 5, 1: 5})


async def test_a_reset_moves_what_is_kept(caller: Caller) -> None:
    """Also back."""
    joined = await caller.join("a")
    await retain(caller)
    await caller.commit("a", *joined.view.assigned, offset=5)
    await move(caller, {0: 2, 1: 2})
    await until(lambda: consumed(caller) == {0: 2, 1: 2})


async def test_what_is_kept_is_known_before_a_group_moves_back(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the placement driver does not answer, it does not move; nor does a report of before arrive behind."""
    joined = await caller.join("a")
    await retain(caller)
    await caller.commit("a", *joined.view.assigned, offset=5)
    await until(lambda: consumed(caller) == {0: 5, 1: 5})
    monkeypatch.setattr(consumed_reports, "INTERVAL_S", 3_600)
    await until(lambda: not caller.owner.reports._noted)
    caller.cluster.topics.report_errors = [Unavailable("nobody leads")]
    with pytest.raises(Unavailable):
        await move(caller, {0: 2})
    assert {each.offset for each in (await caller.describe()).shards} == {5}
    topics, positions = caller.cluster.topics, []
    report = topics.report_consumed

    async def reported(request: Any, *, timeout_s: float) -> Any:
        positions.append({each.shard_id: each.offset for each in request.cut})
        assert {each.offset for each in caller.owner.journal.machine.group(GROUP).shards.values()} == {5}
        return await report(request, timeout_s=timeout_s)

    monkeypatch.setattr(topics, "report_consumed", reported)
    await move(caller, {0: 2, 1: 9})
    assert positions == [{0: 2, 1: 5}], "the lower of where it is and where it goes"
    assert [each.offset for each in (await caller.describe()).shards] == [2, 9]


async def test_a_topic_that_a_group_joins_is_kept_from_the_answer_on(caller: Caller) -> None:
    """Of a group that retains; what others have consumed of it may be trimmed before."""
    await caller.join("a")
    await retain(caller)
    other = caller.cluster.topics.create("default/other", 1)
    join = group_pb2.GroupJoin(member="b", session_ms=10_000, topic_ids=[other.topic_id])
    await caller.broker.service.JoinGroup(pb.JoinGroupRequest(proposal=caller.proposal(), group=GROUP, join=join), None)
    assert caller.cluster.topics.consumed[other.topic_id, GROUP] == {0: 0}


@pytest.mark.parametrize("how", ["no more", "deleted", "another topic"])
async def test_what_is_kept_is_given_up(caller: Caller, how: str) -> None:
    """When the answer is there, or soon after; a deleted group leaves nothing behind."""
    await caller.join("a")
    await retain(caller)
    assert consumed(caller) == {0: 0, 1: 0}
    if how == "no more":
        await retain(caller, retains=False)
        assert consumed(caller) is None
    elif how == "deleted":
        await leave(caller, "a")
        await delete(caller)
        assert consumed(caller) is None
        assert GROUP not in caller.owner.journal.machine.groups
    else:
        request = pb.UnsubscribeGroupRequest(proposal=caller.proposal(), group=GROUP, topic_ids=[caller.topic.topic_id])
        await caller.broker.service.UnsubscribeGroup(request, None)
        await until(lambda: consumed(caller) is None)
        await until(lambda: not caller.owner.journal.machine.group(GROUP).leaving)


async def test_what_is_given_up_outlives_its_owner(caller: Caller) -> None:
    """The placement driver has not heard of it when the owner dies: the next one tells it; until then nothing is deleted."""
    await caller.join("a")
    await leave(caller, "a")
    await retain(caller)
    caller.cluster.topics.report_errors = [Unavailable("nobody leads")] * 10_000
    command = group_pb2.GroupCommand(group=GROUP, retain=group_pb2.GroupRetain(retains=False))
    await caller.owner.own(command)
    with pytest.raises(PreconditionFailed):
        await caller.owner.own(group_pb2.GroupCommand(group=GROUP, delete=group_pb2.GroupDelete()))
    caller.broker = await caller.cluster.broker(JOURNAL)
    caller.cluster.topics.report_errors = []
    owner: Any = caller.owner
    await until(lambda: consumed(caller) is None)
    await until(lambda: not owner.journal.machine.group(GROUP).leaving)
    await delete(caller)
