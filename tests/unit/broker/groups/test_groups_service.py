"""The service for groups over real journals, on a cluster in memory: members, time-outs, takeovers, facts of topics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_broker.groups.group_owner import GroupOwner
from rangelog_core.errors import (
    GroupNotFound,
    InvalidArgument,
    MemberFenced,
    MemberNotFound,
    NotOwner,
    OutcomeUnknown,
    PreconditionFailed,
    SessionExpired,
    ShardNotFound,
    Unavailable,
)
from rangelog_core.net.owner_calls import journal_of
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from tests.support.group_cluster import Broker, FakeTopic, GroupCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

GROUP = "orders"
JOURNAL = journal_of(GROUP)[1]
SESSION_MS = 10_000


class Caller:
    """Calls one broker's handlers, under one session."""

    def __init__(self, cluster: GroupCluster, broker: Broker, topic: FakeTopic) -> None:
        self.cluster, self.broker, self.topic = cluster, broker, topic
        self.session = self.sequence = 0

    @property
    def owner(self) -> GroupOwner:
        """The owner's side."""
        return self.broker.service.owner_of(JOURNAL)

    async def open(self) -> None:
        """Open a session."""
        response = await self.broker.service.OpenGroupSession(pb.OpenGroupSessionRequest(journal=JOURNAL), None)
        self.session, self.sequence = response.session, 0

    def proposal(self) -> pb.GroupProposal:
        """The next command's."""
        self.sequence += 1
        return pb.GroupProposal(session=self.session, sequence=self.sequence, settled=self.sequence)

    async def join(self, member: str) -> pb.JoinGroupResponse:
        """Join."""
        join = group_pb2.GroupJoin(member=member, session_ms=SESSION_MS, topic_ids=[self.topic.topic_id])
        request = pb.JoinGroupRequest(proposal=self.proposal(), group=GROUP, join=join)
        return await self.broker.service.JoinGroup(request, None)

    async def heartbeat(self, member: str, token: int = 0, wait_ms: int = 0, ended: Any = (), joined: int = 0) -> Any:
        """Send a heartbeat."""
        shards = [group_pb2.GroupShard(topic_id=self.topic.topic_id, shard_id=each) for each in ended]
        request = pb.HeartbeatGroupRequest(
            group=GROUP, member=member, token=token, wait_ms=wait_ms, ended=shards, joined=joined
        )
        return await self.broker.service.HeartbeatGroup(request, None)

    async def commit(self, member: str, *assigned: group_pb2.GroupAssigned, offset: int) -> Any:
        """Commit one offset for shards."""
        positions = [group_pb2.GroupPosition(shard=each.shard, offset=offset, since=each.since) for each in assigned]
        commit = group_pb2.GroupCommit(member=member, positions=positions)
        request = pb.CommitPositionsRequest(proposal=self.proposal(), group=GROUP, commit=commit)
        return await self.broker.service.CommitPositions(request, None)

    async def describe(self) -> group_pb2.GroupState:
        """Describe the group."""
        return (await self.broker.service.DescribeGroup(pb.DescribeGroupRequest(group=GROUP), None)).state


@pytest.fixture
async def cluster() -> AsyncIterator[GroupCluster]:
    """A cluster."""
    async with GroupCluster() as cluster:
        yield cluster


@pytest.fixture
async def caller(cluster: GroupCluster) -> Caller:
    """A broker that owns the group's journal, a topic of four shards, a session."""
    caller = Caller(cluster, await cluster.broker(JOURNAL), cluster.topics.create("default/flights", 4))
    await caller.open()
    return caller


def ids(view: group_pb2.GroupView) -> list[int]:
    """The shards of a view that are not to be released."""
    return [each.shard.shard_id for each in view.assigned if not each.release]


async def test_members_share_a_topic(caller: Caller) -> None:
    """Who waits learns at once that it is to give something up, and that it gets something."""
    first = await caller.join("a")
    assert ids(first.view) == [0, 1, 2, 3]
    waiting = asyncio.create_task(caller.heartbeat("a", first.token, 4_000))
    second = await caller.join("b")
    assert ids(second.view) == []
    changed = await waiting
    given_up = [each for each in changed.view.assigned if each.release]
    assert len(given_up) == 2
    waiting = asyncio.create_task(caller.heartbeat("b", second.token, 4_000))
    positions = [group_pb2.GroupPosition(shard=each.shard, since=each.since) for each in given_up]
    release = group_pb2.GroupRelease(member="a", positions=positions)
    await caller.broker.service.ReleaseShards(
        pb.ReleaseShardsRequest(proposal=caller.proposal(), group=GROUP, release=release), None
    )
    assert ids((await waiting).view) == [each.shard.shard_id for each in given_up]


async def test_a_heartbeat_that_learns_nothing_has_no_view(caller: Caller) -> None:
    """Neither after its time, nor when positions were committed meanwhile."""
    joined = await caller.join("a")
    waiting = asyncio.create_task(caller.heartbeat("a", joined.token, 100))
    await caller.commit("a", *joined.view.assigned, offset=5)
    response = await waiting
    assert not response.HasField("view")
    assert response.token == joined.token
    assert {each.offset for each in (await caller.describe()).shards} == {5}


async def test_a_heartbeat_that_waits_is_not_answered_with_what_a_twin_has(caller: Caller) -> None:
    """Nor is an answer to the earlier of two that join at once."""
    joined = await caller.join("a")
    waiting = asyncio.create_task(caller.heartbeat("a", joined.token, 4_000, joined=joined.joined))
    await until(lambda: bool(caller.owner._parked))
    later = await caller.join("a")
    with pytest.raises(MemberFenced):
        await waiting
    assert ids((await caller.heartbeat("a", joined=later.joined)).view) == [0, 1, 2, 3]
    answers = await asyncio.gather(caller.join("a"), caller.join("a"), return_exceptions=True)
    assert [type(each).__name__ for each in answers] == ["MemberFenced", "JoinGroupResponse"]


async def test_a_silent_member_loses_its_shards(caller: Caller) -> None:
    """By the time of entries; what it commits later is refused, and it learns that it is no member."""
    clock = [caller.owner.journal.now_ms]
    caller.broker.clock_ms = lambda: clock[0]
    first, second = await caller.join("a"), await caller.join("b")
    clock[0] += SESSION_MS - 1
    token = (await caller.heartbeat("b", second.token)).token
    waiting = asyncio.create_task(caller.heartbeat("b", token, 4_000))
    await until(lambda: bool(caller.owner._parked))
    clock[0] += 1
    caller.owner.look_for_silent_members()
    assert ids((await waiting).view) == [0, 1, 2, 3]
    with pytest.raises(MemberNotFound):
        await caller.commit("a", *first.view.assigned, offset=9)
    with pytest.raises(MemberNotFound):
        await caller.heartbeat("a")
    assert not any(each.has_position for each in (await caller.describe()).shards)


async def test_the_timer_finds_silent_members(cluster: GroupCluster, caller: Caller) -> None:
    """Without any call of a member."""
    join = group_pb2.GroupJoin(member="a", session_ms=500, topic_ids=[caller.topic.topic_id])
    await caller.broker.service.JoinGroup(pb.JoinGroupRequest(proposal=caller.proposal(), group=GROUP, join=join), None)
    group = caller.owner.journal.machine.group(GROUP)
    await until(lambda: not group.members)


async def test_a_takeover_gives_members_their_time_anew(cluster: GroupCluster, caller: Caller) -> None:
    """The group goes on at the next owner: sessions, members, positions; the old owner answers nothing that could be wrong."""
    joined = await caller.join("a")
    await caller.commit("a", joined.view.assigned[0], offset=5)
    sequence = caller.sequence
    later = caller.owner.journal.now_ms + 50 * SESSION_MS
    second = await cluster.broker()
    second.clock_ms = lambda: later
    await second.take(JOURNAL)
    with pytest.raises(OutcomeUnknown):
        await caller.heartbeat("a")
    with pytest.raises(NotOwner):
        await caller.describe()
    caller.broker, caller.sequence = second, sequence
    caller.owner.look_for_silent_members()
    response = await caller.heartbeat("a", joined.token)
    assert not response.HasField("view"), "the token of an unchanged view is the same at each owner"
    assert [each.offset for each in (await caller.describe()).shards] == [5, 0, 0, 0]


async def test_a_repeat_has_the_first_answer(caller: Caller) -> None:
    """A join that is repeated does not hand out anew; a reset that is repeated moves nothing back again."""
    join = group_pb2.GroupJoin(member="a", session_ms=SESSION_MS, topic_ids=[caller.topic.topic_id])
    request = pb.JoinGroupRequest(proposal=caller.proposal(), group=GROUP, join=join)
    request.proposal.settled = 0
    first = await caller.broker.service.JoinGroup(request, None)
    assert await caller.broker.service.JoinGroup(request, None) == first
    shard = first.view.assigned[0].shard
    positions = [group_pb2.GroupPosition(shard=shard, offset=3)]
    reset = pb.ResetGroupRequest(proposal=caller.proposal(), group=GROUP, reset={"positions": positions})
    reset.proposal.settled = 0
    generation = (await caller.broker.service.ResetGroup(reset, None)).generation
    view = (await caller.heartbeat("a")).view
    assert view.assigned[0].offset == 3
    proposal = caller.proposal()
    proposal.settled = 0
    commit = group_pb2.GroupCommit(
        member="a", positions=[group_pb2.GroupPosition(shard=shard, offset=8, since=view.assigned[0].since)]
    )
    await caller.broker.service.CommitPositions(
        pb.CommitPositionsRequest(proposal=proposal, group=GROUP, commit=commit), None
    )
    assert (await caller.broker.service.ResetGroup(reset, None)).generation == generation
    assert (await caller.describe()).shards[0].offset == 8
    assert (await caller.describe()).generation == generation


async def test_successors_are_handed_out_when_the_end_is_committed(cluster: GroupCluster, caller: Caller) -> None:
    """A member names the shard that it found ended; the owner reads the topic's shards, page by page."""
    cluster.topics.page_size = 2
    joined = await caller.join("a")
    cluster.topics.scale(caller.topic, {0: 7, 1: 0}, 2)
    by_id = {each.shard.shard_id: each for each in joined.view.assigned}
    assert not (await caller.heartbeat("a", joined.token)).HasField("view"), "nobody has named it"
    response = await caller.heartbeat("a", joined.token, ended=[0])
    assert ids(response.view) == [0, 2, 3], "an empty shard is finished"
    await caller.commit("a", by_id[0], offset=7)
    assert ids((await caller.heartbeat("a")).view) == [2, 3, 4, 5]
    before = cluster.topics.list_count
    await caller.heartbeat("a", ended=[0, 1])
    assert cluster.topics.list_count == before, "their ends are known"


async def test_facts_follow_when_the_placement_driver_answers_again(cluster: GroupCluster, caller: Caller) -> None:
    """A member may join meanwhile; it gets its shards without another call of anybody."""
    cluster.topics.error = Unavailable("no leader")
    joining = asyncio.create_task(caller.join("a"))
    await until(lambda: cluster.topics.list_count > 0)
    cluster.topics.error = None
    joined = await joining
    view = joined.view if joined.view.assigned else (await caller.heartbeat("a", joined.token, 4_000)).view
    assert ids(view) == [0, 1, 2, 3]


async def test_facts_follow_at_the_next_owner(cluster: GroupCluster, caller: Caller) -> None:
    """A member has joined, and its broker is lost before it knows the topic's shards: nobody joins again."""
    cluster.topics.error = Unavailable("no leader")
    joining = asyncio.create_task(caller.join("a"))
    await until(lambda: cluster.topics.list_count > 0)
    second = await cluster.broker()
    await second.take(JOURNAL)
    assert not (await joining).view.assigned
    caller.broker = second
    cluster.topics.error = None
    assert ids((await caller.heartbeat("a", (await caller.heartbeat("a")).token, 4_000)).view) == [0, 1, 2, 3]


async def test_a_topic_that_is_gone_is_forgotten(cluster: GroupCluster, caller: Caller) -> None:
    """With its shards and positions, when the next member joins."""
    other = cluster.topics.create("default/other", 2)
    await caller.join("a")
    join = group_pb2.GroupJoin(member="b", session_ms=SESSION_MS, topic_ids=[other.topic_id])
    await caller.broker.service.JoinGroup(pb.JoinGroupRequest(proposal=caller.proposal(), group=GROUP, join=join), None)
    assert len((await caller.describe()).shards) == 6
    del cluster.topics.topics[caller.topic.topic_id]
    await caller.join("c")
    assert {each.shard.topic_id for each in (await caller.describe()).shards} == {other.topic_id}


async def test_who_asks_in_the_same_moment_shares_a_reading(cluster: GroupCluster, caller: Caller) -> None:
    """A hundred members that join together cost a few lists of the topic."""
    await asyncio.gather(*(caller.join(f"m{number}") for number in range(100)))
    assert cluster.topics.list_count < 10


async def test_groups_are_listed_by_page(caller: Caller) -> None:
    """Those of one journal, by name, with members and topics."""
    names = [name for name in (f"g{number}" for number in range(200)) if journal_of(name)[1] == JOURNAL]
    for name in names:
        join = group_pb2.GroupJoin(member="a", session_ms=SESSION_MS, topic_ids=[caller.topic.topic_id])
        await caller.broker.service.JoinGroup(
            pb.JoinGroupRequest(proposal=caller.proposal(), group=name, join=join), None
        )
    await caller.join("a")
    found: list[pb.GroupSummary] = []
    request = pb.ListGroupsRequest(journal=JOURNAL, prefix="g", page_size=2)
    while True:
        response = await caller.broker.service.ListGroups(request, None)
        found += response.groups
        request.page_token = response.next_page_token
        if not request.page_token:
            break
    assert [each.group for each in found] == sorted(names)
    assert {(each.member_count, *each.topic_ids) for each in found} == {(1, caller.topic.topic_id)}


async def test_checkpoints_are_requested_described_and_deleted(caller: Caller) -> None:
    """A member that waits learns of it at once."""
    joined = await caller.join("a")
    waiting = asyncio.create_task(caller.heartbeat("a", joined.token, 4_000))
    await caller.broker.service.RequestCheckpoint(
        pb.RequestCheckpointRequest(proposal=caller.proposal(), group=GROUP, checkpoint={"name": "c"}), None
    )
    view = (await waiting).view
    assert (view.checkpoint, view.checkpoint_name) == (1, "c")
    described = pb.DescribeCheckpointRequest(group=GROUP, name="c")
    checkpoint = (await caller.broker.service.DescribeCheckpoint(described, None)).checkpoint
    assert len(checkpoint.waiting) == 4
    positions = [group_pb2.GroupPosition(shard=each.shard, offset=2, since=each.since) for each in view.assigned]
    await caller.broker.service.ReachCheckpoint(
        pb.ReachCheckpointRequest(
            proposal=caller.proposal(), group=GROUP, reach={"member": "a", "number": 1, "positions": positions}
        ),
        None,
    )
    checkpoint = (await caller.broker.service.DescribeCheckpoint(described, None)).checkpoint
    assert [each.offset for each in checkpoint.positions] == [2, 2, 2, 2] and not checkpoint.waiting
    assert [each.name for each in (await caller.describe()).checkpoints] == ["c"]
    await caller.broker.service.DeleteCheckpoint(
        pb.DeleteCheckpointRequest(proposal=caller.proposal(), group=GROUP, name="c"), None
    )
    with pytest.raises(PreconditionFailed, match="no checkpoint"):
        await caller.broker.service.DescribeCheckpoint(described, None)


async def test_bad_input(caller: Caller) -> None:
    """Each has a typed error."""
    service = caller.broker.service
    with pytest.raises(GroupNotFound):
        await caller.describe()
    with pytest.raises(GroupNotFound):
        await caller.heartbeat("a")
    await caller.join("a")
    with pytest.raises(MemberNotFound):
        await caller.heartbeat("b")
    await service.OpenGroupSession(pb.OpenGroupSessionRequest(journal=16, group=GROUP), None)  # which the name decides
    with pytest.raises(InvalidArgument, match="there are 16"):
        await service.OpenGroupSession(pb.OpenGroupSessionRequest(journal=16), None)
    with pytest.raises(InvalidArgument, match="limit is 1000"):
        await service.ListGroups(pb.ListGroupsRequest(journal=JOURNAL, page_size=1001), None)
    with pytest.raises(PreconditionFailed, match="stop them first"):
        await service.DeleteGroup(pb.DeleteGroupRequest(proposal=caller.proposal(), group=GROUP), None)
    other = (JOURNAL + 1) % 16
    with pytest.raises(NotOwner):
        await service.ListGroups(pb.ListGroupsRequest(journal=other), None)
    caller.session = 77
    with pytest.raises(SessionExpired):
        await caller.join("a")


async def test_a_member_begins_in_shards_that_exist(cluster: GroupCluster, caller: Caller) -> None:
    """Refused before anything is proposed; of a topic that the group reads, or that is gone, starts count for nothing."""
    new = cluster.topics.create("default/new", 2)

    async def join(member: str, topic_ids: list[int], *starts: tuple[int, int]) -> dict[tuple[int, int], int]:
        shards = [group_pb2.GroupShard(topic_id=topic, shard_id=shard) for topic, shard in starts]
        positions = [group_pb2.GroupPosition(shard=each, offset=7) for each in shards]
        one = group_pb2.GroupJoin(member=member, session_ms=SESSION_MS, topic_ids=topic_ids, starts=positions)
        request = pb.JoinGroupRequest(proposal=caller.proposal(), group=GROUP, join=one)
        view = (await caller.broker.service.JoinGroup(request, None)).view
        return {(each.shard.topic_id, each.shard.shard_id): each.offset for each in view.assigned}

    old = caller.topic.topic_id
    with pytest.raises(ShardNotFound, match="topic 1 has no shard 4, which the start names"):
        await join("a", [old], (old, 3), (old, 4), (old, 9))
    with pytest.raises(GroupNotFound):
        await caller.describe()
    assert await join("a", [old], (old, 3)) == {(old, 0): 0, (old, 1): 0, (old, 2): 0, (old, 3): 7}
    with pytest.raises(ShardNotFound):
        await join("a", [old, new.topic_id], (new.topic_id, 1), (new.topic_id, 2))
    assert [each.topic_id for each in (await caller.describe()).topics] == [old]
    found = await join("a", [old, new.topic_id, 77], (old, 9), (new.topic_id, 1), (77, 0))
    assert found == {**dict.fromkeys([(old, 0), (old, 1), (old, 2), (2, 0)], 0), (old, 3): 7, (2, 1): 7}


@pytest.mark.parametrize("bad", ["", "a b", "_internal", "\x01" * 70_000, "x" * 300])
async def test_a_name_against_the_rules_is_not_proposed(caller: Caller, bad: str) -> None:
    """Of a group or a member, in any call: refused before the journal has an entry that would quote it."""
    service, proposal = caller.broker.service, caller.proposal()
    await caller.join("a")
    journal = caller.owner.journal
    before = journal.applied_offset
    for call in (
        service.JoinGroup(
            pb.JoinGroupRequest(proposal=proposal, group=GROUP, join=group_pb2.GroupJoin(member=bad)), None
        ),
        service.HeartbeatGroup(pb.HeartbeatGroupRequest(group=GROUP, member=bad), None),
        service.HeartbeatGroup(pb.HeartbeatGroupRequest(group=bad, member="a"), None),
        service.LeaveGroup(pb.LeaveGroupRequest(proposal=proposal, group=GROUP, member=bad), None),
        service.LeaveGroup(pb.LeaveGroupRequest(proposal=proposal, group=bad, member="a"), None),
        service.CommitPositions(
            pb.CommitPositionsRequest(proposal=proposal, group=GROUP, commit=group_pb2.GroupCommit(member=bad)), None
        ),
        service.StagePositions(
            pb.StagePositionsRequest(
                proposal=proposal, group=GROUP, stage=group_pb2.GroupStage(commit=group_pb2.GroupCommit(member=bad))
            ),
            None,
        ),
        service.DescribeGroup(pb.DescribeGroupRequest(group=bad), None),
        service.DeleteGroup(pb.DeleteGroupRequest(proposal=proposal, group=bad), None),
    ):
        with pytest.raises(InvalidArgument):
            await call
    assert journal.applied_offset == before and journal.closed is None
