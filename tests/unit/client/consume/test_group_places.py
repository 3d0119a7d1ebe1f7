"""Places that a group is moved to: where its shards begin by now, and no place where a shard has nothing yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rangelog._consume.group_records import ShardOfTopic
from rangelog_core.errors import PreconditionFailed, RequestTimeout
from tests.support.group_cluster import GroupCluster
from tests.unit.client.consume.test_group_member import GROUP, JOURNAL, TOPIC, Members, take

pytestmark = pytest.mark.virtual


@pytest.fixture
async def members() -> AsyncIterator[Members]:
    """A cluster with one broker."""
    async with GroupCluster() as cluster:
        await cluster.broker(JOURNAL)
        members = Members(cluster)
        yield members
        await members.close()


async def test_earliest_is_where_a_trimmed_shard_begins(members: Members) -> None:
    """A group whose position was trimmed is moved there, and reads on: the guide names this reset as the cure."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    await members.cluster.append(topic, 0, b"a", b"b", b"c")
    async with members.member() as member:
        await take(aiter(member), 1)
        await member.commit()
    await members.cluster.trim(topic, 0, 2)
    await members.groups.reset(GROUP, "earliest")
    first, second = (await members.groups.describe(GROUP)).shards
    assert (first.offset, second.offset) == (2, 0)
    assert [each.records for each in await members.groups.lag(GROUP)] == [1, 0]
    async with members.member() as member:
        assert [each.value for each in await take(aiter(member), 1)] == [b"c"]


async def test_earliest_is_behind_a_shard_that_ended_and_is_gone(members: Members) -> None:
    """Its follower is read at once."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a")
    await members.cluster.trim(topic, 0, 1)
    (child,) = await members.cluster.scale(topic, [0], 1)
    await members.cluster.append(topic, child, b"b")
    async with members.member() as member:
        await take(aiter(member), 1)
        await member.commit()
    await members.groups.reset(GROUP, "earliest")
    parent, follower = (await members.groups.describe(GROUP)).shards
    assert (parent.offset, parent.is_finished, follower.offset) == (1, True, 0)
    async with members.member() as member:
        assert [each.value for each in await take(aiter(member), 1)] == [b"b"]


async def test_a_checkpoint_has_a_name_of_its_own(members: Members) -> None:
    """A known name is no way to the positions of an earlier day; once it is deleted it is free."""
    topic = await members.cluster.create_topic(TOPIC)
    await members.cluster.append(topic, 0, b"a", b"b")
    async with members.member() as member:
        records = aiter(member)
        await take(records, 1)
        await member.commit()
    first = await members.groups.checkpoint(GROUP, "end-of-day")
    async with members.member() as member:
        await take(aiter(member), 1)
        await member.commit()
    with pytest.raises(PreconditionFailed, match=r"has a checkpoint 'end-of-day', of .*delete it first"):
        await members.groups.checkpoint(GROUP, "end-of-day")
    assert await members.groups.checkpoint_positions(GROUP, "end-of-day") == first == {ShardOfTopic(TOPIC, 0): 1}
    await members.groups.delete_checkpoint(GROUP, "end-of-day")
    assert await members.groups.checkpoint(GROUP, "end-of-day") == {ShardOfTopic(TOPIC, 0): 2}


async def test_a_checkpoint_that_waits_is_not_begun_again(members: Members) -> None:
    """Its positions may be of long ago; the error says how to get them."""
    await members.cluster.create_topic(TOPIC)
    async with members.member():  # without a record it meets no checkpoint
        with pytest.raises(RequestTimeout):
            await members.groups.checkpoint(GROUP, "slow", timeout_s=0.1)
        with pytest.raises(PreconditionFailed, match=r"waits for shards \(1\): ask for its positions"):
            await members.groups.checkpoint(GROUP, "slow")


async def test_a_request_that_is_repeated_finds_its_own_checkpoint(members: Members) -> None:
    """Its first answer was lost: that is no other checkpoint of the name."""
    await members.cluster.create_topic(TOPIC)
    async with members.member():
        pass
    lost: list[str] = []

    def lose(name: str) -> bool:
        lost.append(name)
        return lost.count(name) == 1 and name == "RequestCheckpoint"

    members.cluster.calls.lose_answers = lose
    assert await members.groups.checkpoint(GROUP, "c") == {ShardOfTopic(TOPIC, 0): 0}
    assert lost.count("RequestCheckpoint") == 2
