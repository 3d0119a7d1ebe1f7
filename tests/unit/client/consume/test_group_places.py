"""Places that a group is moved to: where its shards begin by now, and no place where a shard has nothing yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from rangelog._consume import group_shards
from rangelog._consume.group_records import ShardOfTopic
from rangelog._read.proof import ProvedEnd
from rangelog_core.errors import OffsetOutOfRange, PreconditionFailed, RequestTimeout, Unavailable
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


async def test_a_cut_beyond_the_end_is_refused(members: Members) -> None:
    """With the end of the shard, and nothing moved: else all that is appended up to there would be passed over."""
    topic = await members.cluster.create_topic(TOPIC, 2)
    await members.cluster.append(topic, 0, b"a", b"b")
    (ended,) = await members.cluster.scale(topic, [0], 1)

    def cut(**offsets: int) -> SimpleNamespace:
        named = {int(name.removeprefix("shard")): offset for name, offset in offsets.items()}
        return SimpleNamespace(topic_id=topic.topic_id, offsets=named)

    async with members.member(member_id="first") as member:
        await take(aiter(member), 1)
        await member.commit()
    before = (await members.groups.describe(GROUP)).shards
    for place, shard_id, end_offset in ((cut(shard0=1_002, shard1=0), 0, 2), (cut(shard0=2, shard1=1), 1, 0)):
        with pytest.raises(OffsetOutOfRange, match=rf"shard {shard_id}, which is {end_offset}") as caught:
            await members.groups.reset(GROUP, place)
        assert caught.value.offset == end_offset
    assert (await members.groups.describe(GROUP)).shards == before
    await members.groups.reset(GROUP, cut(shard0=2, shard1=0))
    await members.groups.delete(GROUP)
    with pytest.raises(OffsetOutOfRange):
        await members.member(start=cut(**{f"shard{ended}": 5, "shard1": 0})).open()


async def test_an_end_that_cannot_be_proved_refuses_nothing_for_good(
    members: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acked records may lie beyond what the replicas that answer know: the cut may be right, and is tried again."""
    topic = await members.cluster.create_topic(TOPIC)
    async with members.member():
        pass

    async def at_least(*_: object) -> ProvedEnd:
        return ProvedEnd(3, exact=False)

    monkeypatch.setattr(group_shards, "confirmed_end", at_least)
    await members.groups.reset(GROUP, SimpleNamespace(topic_id=topic.topic_id, offsets={0: 3}))
    with pytest.raises(Unavailable, match="too few replicas answer") as caught:
        await members.groups.reset(GROUP, SimpleNamespace(topic_id=topic.topic_id, offsets={0: 4}))
    assert caught.value.retriable
