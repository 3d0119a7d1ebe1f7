"""Members of a group whose topics are deleted under them, over a whole broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog import Client, GroupRecord
from rangelog.errors import TopicNotFound
from tests.support.whole_broker import client_of_whole_broker


async def made(client: Client, *topics: str) -> None:
    """Create topics of one record each."""
    for topic in topics:
        await client.topics.create(topic, shards=2)
        async with client.producer(topic) as producer:
            await producer.send(topic.encode(), key=b"k")


async def values(records: AsyncIterator[GroupRecord], count: int) -> list[bytes]:
    """The values of the next records."""
    return sorted([(await anext(records)).value for _ in range(count)])


async def test_a_member_without_any_topic_ends() -> None:
    """With an error that names the topic, not with a wait that never ends."""
    async with client_of_whole_broker() as client, asyncio.timeout(30):
        await made(client, "t")
        async with client.group("g", "t") as member:
            records = aiter(member)
            assert await values(records, 1) == [b"t"]
            reading = asyncio.create_task(values(records, 1))
            await asyncio.sleep(0)
            await client.topics.delete("t", force=True)
            with pytest.raises(TopicNotFound, match="default/t"):
                await reading


async def test_a_member_reads_the_topics_that_are_left() -> None:
    """One that was deleted is no reason to stop."""
    async with client_of_whole_broker() as client, asyncio.timeout(30):
        await made(client, "gone", "kept")
        async with client.group("g", "gone", "kept") as member:
            records = aiter(member)
            assert await values(records, 2) == [b"gone", b"kept"]
            await client.topics.delete("gone", force=True)
            reading = asyncio.create_task(values(records, 1))
            while any(shard.topic == "default/gone" for shard in member.shards):
                await asyncio.sleep(0.01)
            async with client.producer("kept") as producer:
                await producer.send(b"more", key=b"k")
            assert await reading == [b"more"]


async def test_the_lag_of_what_is_left_is_measured() -> None:
    """A topic that was deleted is marked, and has no lag: its records are gone. No name of the inside is told."""
    async with client_of_whole_broker() as client, asyncio.timeout(30):
        await made(client, "gone", "kept")
        async with client.group("g", "gone", "kept") as member:
            await values(aiter(member), 2)
            await member.commit()
        for topic in ("gone", "kept"):
            async with client.producer(topic) as producer:
                await producer.send(b"more", key=b"k")
        await client.topics.delete("gone", force=True)
        found = await client.groups.lag("g")
        assert [each.topic for each in found if not each.is_deleted] == ["default/kept"] * 2
        assert sum(each.records for each in found) == sum(each.records for each in found if not each.is_deleted) == 1
        deleted = [each for each in found if each.is_deleted]
        assert {each.shard_id for each in deleted} == {0, 1} and {each.topic for each in deleted} == {"default/gone"}
        assert all(each.offset == each.end_offset for each in deleted)


async def test_a_reset_moves_what_is_left() -> None:
    """In all topics of the group that are still there; where none is, or a deleted one is named, that is said."""
    async with client_of_whole_broker() as client, asyncio.timeout(30):
        await made(client, "gone", "kept")
        async with client.group("g", "gone", "kept") as member:
            await values(aiter(member), 2)
            await member.commit()
        await client.topics.delete("gone", force=True)
        await client.groups.reset("g", "earliest")
        assert sum(each.records for each in await client.groups.lag("g")) == 1
        with pytest.raises(TopicNotFound):
            await client.groups.reset("g", "earliest", topics=["gone"])
        await client.topics.delete("kept", force=True)
        with pytest.raises(TopicNotFound, match="every topic that the group reads was deleted"):
            await client.groups.reset("g", "latest")
