"""Places that a group is moved to: where its shards begin by now, and no place where a shard has nothing yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

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
