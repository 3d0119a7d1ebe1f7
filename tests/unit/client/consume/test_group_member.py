"""Members of a group over the production service and journals: what each reads, commits, gives back and loses."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog._consume.group import GroupMember
from rangelog._consume.group_calls import GroupCalls
from rangelog._consume.group_records import GroupListener, GroupRecord, ReachedCheckpoint, ShardOfTopic
from rangelog._consume.group_shards import GroupShards
from rangelog._consume.groups import Groups
from rangelog_core.errors import (
    GroupNotFound,
    InvalidArgument,
    MemberNotFound,
    PreconditionFailed,
    RequestTimeout,
    ShardLost,
    ShardNotFound,
    TopicNotFound,
    WriterClosed,
)
from rangelog_core.net.owner_calls import journal_of
from tests.support.group_cluster import GroupCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

GROUP, TOPIC = "billing", "default/flights"
JOURNAL = journal_of(GROUP)[1]


class Members:
    """A cluster, its clients, and members that are read in the background."""

    def __init__(self, cluster: GroupCluster) -> None:
        self.cluster = cluster
        self.calls = GroupCalls(cluster.calls)
        client: Any = cluster.client
        self.shards = GroupShards(cluster.topics, client.metadata, client.connections, client._group_reader)
        self.groups = Groups(self.calls, self.shards)
        self._members: list[GroupMember] = []

    def member(self, *topics: str, **options: Any) -> GroupMember:
        """Return a member of the group."""
        defaults = {
            "member_id": None, "start": "earliest", "session_s": 10.0, "auto_commit_s": None,
            "checkpoint_every_s": None, "skip_trimmed": False, "listener": None,
        }  # fmt: skip
        member = GroupMember(self.calls, self.shards, GROUP, topics or (TOPIC,), **(defaults | options))
        self._members.append(member)
        return member

    async def close(self) -> None:
        """Close all members."""
        for member in self._members:
            await member.close()


@pytest.fixture
async def members() -> AsyncIterator[Members]:
    """A cluster with one broker."""
    async with GroupCluster() as cluster:
        await cluster.broker(JOURNAL)
        members = Members(cluster)
        yield members
        await members.close()


async def take(iterator: AsyncIterator[GroupRecord], count: int) -> list[GroupRecord]:
    """Return the next records."""
    async with asyncio.timeout(20):
        return [await anext(iterator) for _ in range(count)]


class Reading:
    """A member that reads in the background, and commits each record unless it is told not to."""

    def __init__(self, member: GroupMember, *, commits: bool = True) -> None:
        self.member, self.commits = member, commits
        self.records: list[GroupRecord] = []
        self.committed_count = 0
        self.errors: list[Exception] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for record in self.member:
            self.records.append(record)
            if self.commits:
                try:
                    await self.member.commit()
                    self.committed_count += 1
                except (MemberNotFound, ShardLost) as error:
                    self.errors.append(error)

    async def stop(self) -> None:
        """Read no more, and leave."""
        await self.member.close()
        await self.task

    @property
    def values(self) -> list[bytes]:
        """What it has read."""
        return [each.value for each in self.records]


async def started(member: GroupMember, *, commits: bool = True) -> Reading:
    """Return a member that reads in the background."""
    await member.open()
    return Reading(member, commits=commits)


async def test_a_member_reads_and_the_next_one_goes_on(members: Members) -> None:
    """From the last commit; what was handed out and not committed comes again."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, *(b"%d" % number for number in range(10)), keys=[b"k"] * 10)
    async with members.member() as member:
        records = aiter(member)
        found = await take(records, 4)
        assert found[0] == (TOPIC, 0, 0, found[0].timestamp_ms, b"k", b"0", {})
        await member.commit(metadata=b"note")
        assert (await take(records, 1))[0].value == b"4"
        assert member.position() == {ShardOfTopic(TOPIC, 0): 5}
    async with members.member() as member:
        assert [each.value for each in await take(aiter(member), 6)] == [b"%d" % number for number in range(4, 10)]
    shard = (await members.groups.describe(GROUP)).shards[0]
    assert (shard.offset, shard.metadata, shard.member_id) == (4, b"note", "")


async def test_automatic_commits_follow_what_is_processed(members: Members) -> None:
    """The record in hand is not committed: who dies with it has it read again."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b", b"c")
    async with members.member(auto_commit_s=0.01) as member:
        records = aiter(member)
        await take(records, 2)
        async with asyncio.timeout(20):
            while (await members.groups.describe(GROUP)).shards[0].offset != 1:
                await asyncio.sleep(0.005)
    assert (await members.groups.describe(GROUP)).shards[0].offset == 1, "closing commits no more than is processed"


async def test_shards_are_shared_and_given_back_committed(members: Members) -> None:
    """A member that joins gets shards of one that lives; nothing is read twice, and nothing is lost."""
    topic = await members.cluster.create_topic(TOPIC, 4)
    for shard_id in range(4):
        await members.cluster.append(topic, shard_id, *(b"%d:%d" % (shard_id, number) for number in range(20)))
    one = await started(members.member())
    await until(lambda: len(one.records) > 10)
    two = await started(members.member())
    await until(lambda: len(two.member.shards) == 2 and len(one.member.shards) == 2)
    for shard_id in range(4):
        await members.cluster.append(topic, shard_id, *(b"%d:%d" % (shard_id, number) for number in range(20, 30)))
    await until(lambda: len(one.records) + len(two.records) >= 120)
    await one.stop()
    await two.stop()
    assert sorted(one.values + two.values) == sorted(b"%d:%d" % (at, each) for at in range(4) for each in range(30))
    assert {each.value.split(b":")[1] for each in two.records} >= {b"29"}


async def test_a_member_that_does_not_commit_gives_back_after_its_time(members: Members) -> None:
    """What it had is read again by the other, and its next commit says so."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    await members.cluster.append(topic, 0, b"a")
    await members.cluster.append(topic, 1, b"b")
    one = await started(members.member(session_s=0.5), commits=False)
    await until(lambda: len(one.records) == 2)
    two = await started(members.member())
    await until(lambda: len(two.records) == 1)
    with pytest.raises(ShardLost, match="default/flights/"):
        await one.member.commit()
    await one.member.commit()
    await one.stop()
    await two.stop()


async def test_a_stalled_member_learns_that_others_have_its_shards(members: Members) -> None:
    """By its commit; nothing of it is committed, and it goes on as a new member."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, *(b"%d" % number for number in range(4)))
    member = members.member(session_s=0.3)
    await member.open()
    records = aiter(member)
    await take(records, 2)
    await members.calls.leave(GROUP, member.member_id, member._membership.joined)  # as its expiry does
    other = await started(members.member())
    with pytest.raises((MemberNotFound, ShardLost)):
        await member.commit()
    await until(lambda: other.values == [b"0", b"1", b"2", b"3"])
    await other.stop()
    await members.cluster.append(topic, 0, b"4")
    assert [each.value for each in await take(records, 1)] == [b"4"], "it has joined again"
    await member.commit()
    assert (await members.groups.describe(GROUP)).shards[0].offset == 5


async def test_nothing_is_handed_out_while_the_group_may_have_given_it_away(members: Members) -> None:
    """A member that stood still for its session's time hears the group before it hands out another record."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b")
    member = members.member()
    await member.open()
    records = aiter(member)
    await take(records, 1)
    member._membership._heard_s -= 10.0  # as if the process had stood still
    before = members.cluster.calls.names.count("HeartbeatGroup")
    await take(records, 1)
    assert members.cluster.calls.names.count("HeartbeatGroup") > before


async def test_successors_follow_their_predecessors(members: Members) -> None:
    """Over a split and a merge, with two members: each key in order, each record once."""
    topic = await members.cluster.create_topic(TOPIC)
    readings = [await started(members.member()) for _ in range(2)]
    await members.cluster.append(topic, 0, *(b"%d" % number for number in range(10)))
    left, right = await members.cluster.scale(topic, [0], 2)
    for shard_id in (left, right):
        await members.cluster.append(topic, shard_id, *(b"%d" % number for number in range(10, 20)))
    (merged,) = await members.cluster.scale(topic, [left, right], 1)
    await members.cluster.append(topic, merged, *(b"%d" % number for number in range(20, 30)))

    def found() -> list[GroupRecord]:
        return [each for reading in readings for each in reading.records]

    await until(lambda: len(found()) >= 40)
    for reading in readings:
        await reading.stop()
    assert Counter((each.shard_id, each.offset) for each in found()) == Counter(
        [(at, each) for at in range(4) for each in range(10)]
    )
    info = await members.groups.describe(GROUP)
    assert [(each.offset, each.is_finished) for each in info.shards] == [(10, True)] * 3 + [(10, False)]


class Noting(GroupListener):
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def gained(self, shards: Sequence[ShardOfTopic]) -> None:
        self.calls.append(("gained", sorted(each.shard_id for each in shards)))

    async def releasing(self, shards: Sequence[ShardOfTopic]) -> None:
        self.calls.append(("releasing", sorted(each.shard_id for each in shards)))

    async def lost(self, shards: Sequence[ShardOfTopic]) -> None:
        self.calls.append(("lost", sorted(each.shard_id for each in shards)))

    async def checkpoint(self, checkpoint: ReachedCheckpoint) -> None:
        self.calls.append((checkpoint.name, sorted(checkpoint.positions.values())))


async def test_listeners_are_called_between_records(members: Members) -> None:
    """On getting shards, giving them back, losing them, and at a checkpoint."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    await members.cluster.append(topic, 0, b"a", b"b")
    noting = Noting()
    one = await started(members.member(listener=noting))
    await until(lambda: len(one.records) == 2)
    positions = await members.groups.checkpoint(GROUP, "nightly")
    assert positions == {ShardOfTopic(TOPIC, 0): 2, ShardOfTopic(TOPIC, 1): 0}
    two = await started(members.member())
    await until(lambda: len(two.member.shards) == 1)
    await members.calls.leave(GROUP, one.member.member_id, one.member._membership.joined)
    await until(lambda: len(noting.calls) >= 5)
    released = noting.calls[2][1]
    kept = sorted({0, 1} - set(released))
    assert noting.calls[:4] == [("gained", [0, 1]), ("nightly", [0, 2]), ("releasing", released), ("lost", kept)]
    await one.stop()
    await two.stop()


async def test_checkpoints_come_at_intervals_and_a_group_returns_to_one(members: Members) -> None:
    """All records behind the checkpoint are read again, and none before it."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    for shard_id in range(2):
        await members.cluster.append(topic, shard_id, b"a", b"b")
    one = await started(members.member(checkpoint_every_s=0.05))
    await until(lambda: len(one.records) == 4)
    async with asyncio.timeout(20):
        while not (await members.groups.describe(GROUP)).checkpoints:
            await asyncio.sleep(0.01)
    await one.stop()
    name = (await members.groups.describe(GROUP)).checkpoints[-1]
    positions = await members.groups.checkpoint_positions(GROUP, name)
    for shard_id in range(2):
        await members.cluster.append(topic, shard_id, b"c")
    two = await started(members.member())
    await until(lambda: len(two.records) == 2)
    await members.groups.reset(GROUP, f"checkpoint:{name}")
    await until(lambda: len(two.records) == 2 + sum(3 - each for each in positions.values()))
    await two.stop()
    await members.groups.delete_checkpoint(GROUP, name)
    with pytest.raises(PreconditionFailed):
        await members.groups.reset(GROUP, f"checkpoint:{name}")


async def test_starts_and_resets(members: Members) -> None:
    """At the end, at a time, at a cut: for a new group, and for one that reads already."""
    topic = await members.cluster.create_topic(TOPIC, 1)
    clock = members.cluster.fake.clock
    await members.cluster.append(topic, 0, b"0", b"1")
    clock.advance(timedelta(hours=1))
    hour = clock.now
    await members.cluster.append(topic, 0, b"2")
    left, right = await members.cluster.scale(topic, [0], 2)
    await members.cluster.append(topic, left, b"3")
    one = await started(members.member(start="latest"))
    await members.cluster.append(topic, right, b"4")
    await until(lambda: one.values == [b"4"])

    async def after(to: Any) -> list[bytes]:
        one.records.clear()
        await members.groups.reset(GROUP, to)
        async with asyncio.timeout(20):
            while any(each.records for each in await members.groups.lag(GROUP)):
                await asyncio.sleep(0.01)
        return sorted(one.values)

    assert await after("earliest") == [b"0", b"1", b"2", b"3", b"4"]
    assert await after(hour) == [b"2", b"3", b"4"]
    assert await after(datetime(2100, 1, 1, tzinfo=UTC)) == []
    assert await after(SimpleNamespace(topic_id=topic.topic_id, offsets={0: 1})) == [b"1", b"2", b"3", b"4"]
    assert await after(SimpleNamespace(topic_id=topic.topic_id, offsets={left: 1, right: 0})) == [b"4"]
    with pytest.raises(InvalidArgument, match="precedes"):
        await members.groups.reset(GROUP, SimpleNamespace(topic_id=topic.topic_id, offsets={0: 1, left: 0}))
    with pytest.raises(ShardNotFound):
        await members.groups.reset(GROUP, SimpleNamespace(topic_id=topic.topic_id, offsets={9: 1}))
    with pytest.raises(InvalidArgument, match="bad place"):
        await members.groups.reset(GROUP, "yesterday")
    with pytest.raises(TopicNotFound):
        await members.groups.reset(GROUP, "earliest", topics=["other"])
    await one.stop()


async def test_lag_counts_records_and_seconds(members: Members) -> None:
    """Per shard, from the committed position to the end; finished shards have none."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    clock = members.cluster.fake.clock
    clock.advance(datetime.fromtimestamp(time.time(), UTC) - clock.now - timedelta(minutes=2))
    await members.cluster.append(topic, 0, b"a", b"b", b"c")
    async with members.member() as member:
        await take(aiter(member), 1)
        await member.commit()
    first, second = await members.groups.lag(GROUP)
    assert (first.topic, first.shard_id, first.offset, first.end_offset, first.records) == (TOPIC, 0, 1, 3, 2)
    assert 120 <= first.seconds < 121
    assert (second.records, second.seconds) == (0, 0)


async def test_chunks_are_processed_as_a_whole(members: Members) -> None:
    """When the next one is asked for."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b")
    async with members.member() as member:
        found = 0
        async for chunk in member.chunks():
            assert (chunk.topic, chunk.shard_id) == (TOPIC, 0)
            found += len(chunk.records)
            await member.commit()
            if found == 2:
                break
    assert (await members.groups.describe(GROUP)).shards[0].offset == 2


async def test_a_group_outlives_its_broker(members: Members) -> None:
    """Members find the next owner, and keep their shards."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    one = await started(members.member())
    await members.cluster.append(topic, 0, b"a")
    await until(lambda: len(one.records) == 1)
    generation = (await members.groups.describe(GROUP)).generation
    old = members.cluster.brokers.pop()
    await members.cluster.broker(JOURNAL)
    await members.cluster.append(topic, 0, b"b")
    await until(lambda: one.committed_count == 2)
    info = await members.groups.describe(GROUP)
    assert (info.generation, info.shards[0].offset, one.errors) == (generation, 2, [])
    await one.stop()
    await old.close()


async def test_lost_answers_are_asked_for_again(members: Members) -> None:
    """Each command has its effect once: a join that is repeated hands nothing out anew."""
    topic = await members.cluster.create_topic(TOPIC)
    seen: Counter[str] = Counter()

    def lose(name: str) -> bool:
        seen[name] += 1
        return seen[name] % 2 == 1

    members.cluster.calls.lose_answers = lose
    await members.cluster.append(topic, 0, b"a", b"b")
    async with members.member() as member:
        await take(aiter(member), 2)
        await member.commit()
        info = await members.groups.describe(GROUP)
        assert (info.generation, info.shards[0].offset) == (2, 2)


async def test_administration(members: Members) -> None:
    """Groups are listed over all journals, described, and deleted when nobody is in."""
    await members.cluster.brokers[0].close()
    members.cluster.brokers.clear()
    await members.cluster.broker(*range(16))
    await members.cluster.create_topic(TOPIC, 2)
    async with members.member(member_id="m-1") as member:
        assert [each async for each in members.groups.list("bil")] == [(GROUP, 2, 1)]
        assert [each async for each in members.groups.list("x")] == []
        assert [each async for each in members.groups.list(after=GROUP)] == []
        assert [each.name async for each in members.groups.list(after=GROUP[:-1])] == [GROUP]
        info = await members.groups.describe(GROUP)
        assert (info.name, info.topics, [each.member_id for each in info.members]) == (GROUP, (TOPIC,), ["m-1"])
        assert list(info.members[0].shards) == member.shards == [ShardOfTopic(TOPIC, 0), ShardOfTopic(TOPIC, 1)]
        with pytest.raises(PreconditionFailed):
            await members.groups.delete(GROUP)
    await members.groups.unsubscribe(GROUP, [TOPIC])
    assert (await members.groups.describe(GROUP)).shards == ()
    await members.groups.delete(GROUP)
    with pytest.raises(GroupNotFound):
        await members.groups.describe(GROUP)


async def test_bad_input(members: Members) -> None:
    """Is refused before anything is sent, or with a typed error."""
    for options in ({"session_s": 0}, {"auto_commit_s": -1}, {"member_id": "a/b"}, {"checkpoint_every_s": "1"}):
        with pytest.raises(InvalidArgument):
            members.member(**options)
    with pytest.raises(TopicNotFound):
        await members.member("default/none").open()
    with pytest.raises(InvalidArgument):
        await members.member("a/b/c").open()
    await members.cluster.create_topic(TOPIC)
    with pytest.raises(InvalidArgument, match="bad start"):
        await members.member(start="yesterday").open()
    member = members.member()
    with pytest.raises(WriterClosed):
        await member.commit()
    await member.open()
    with pytest.raises(InvalidArgument, match="64"):
        await member.commit(metadata=bytes(65))
    with pytest.raises(InvalidArgument, match="once"):
        await member.open()
    with pytest.raises(RequestTimeout):
        await members.groups.checkpoint(GROUP, "c", timeout_s=0.1)
    await member.close()
    await member.close()
