"""A loop over a group's records that is left in the midst of a chunk: the next loop goes on behind the last record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog import Client
from rangelog.errors import InvalidArgument
from rangelog.testing import FakeCluster
from tests.support.threads import within

COUNT = 20


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster whose topic "t" has one shard with the values 0 to 19."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as made:
            await made.topics.create("t")
            async with made.producer("t") as producer:
                await producer.send_batch([b"%d" % number for number in range(COUNT)])
            yield made


async def test_a_loop_that_is_left_loses_no_record(client: Client) -> None:
    """Each record is handed out once, whether something is awaited between two loops or not, and commits lie behind it."""
    seen: list[int] = []
    async with client.group("g", "t") as member:
        for awaits in (True, False, False):
            async for record in member:
                seen.append(int(record.value))
                if len(seen) % 5 == 0:
                    break
            if awaits:
                await member.commit()
        assert list(member.position().values()) == [15]
    async with client.group("g", "t") as member:
        async for record in member:
            seen.append(int(record.value))
            if len(seen) == 15 + COUNT - 5:  # those that the first commit did not cover come again
                break
    assert seen == [*range(15), *range(5, COUNT)]


async def test_chunks_after_a_loop_that_was_left(client: Client) -> None:
    """The first chunk is what the loop left of its own."""
    async with client.group("g", "t") as member:
        async for record in member:
            if record.offset == 7:
                break
        async for chunk in member.chunks():
            assert [each.offset for each in chunk.records] == list(range(8, COUNT))
            break


async def test_two_tasks_cannot_iterate(client: Client) -> None:
    """The second one is refused as before, and the first one goes on."""
    async with client.group("g", "t") as member:
        records = aiter(member)
        assert (await anext(records)).offset == 0
        with pytest.raises(InvalidArgument, match="one task at a time"):
            await anext(aiter(member))
        assert (await anext(records)).offset == 1


def test_blocking_loops_lose_no_record_either() -> None:
    """As the asynchronous ones."""

    def work() -> list[int]:
        seen: list[int] = []
        with FakeCluster(brokers=1) as cluster, cluster.sync_client() as client:
            client.topics.create("t")
            with client.producer("t") as producer:
                producer.send_batch([b"%d" % number for number in range(COUNT)])
            with client.group("g", "t") as member:
                while len(seen) < COUNT:
                    for record in member:
                        seen.append(int(record.value))
                        if len(seen) % 5 == 0:
                            break
        return seen

    assert within(work) == list(range(COUNT))


async def test_a_shard_that_was_lost_meanwhile_is_not_gone_on_with(client: Client) -> None:
    """What the loop left of a shard that the member was handed anew is read again from the commit on."""
    async with client.group("g", "t") as member:
        async for record in member:
            if record.offset == 7:
                break
        member.rewind()
        async with asyncio.timeout(20):
            async for record in member:
                assert record.offset == 0
                break
