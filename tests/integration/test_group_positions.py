"""Positions of groups on real processes: what is named, moved, refused and measured where topics were trimmed or deleted."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

import rangelog
from rangelog import Client, Cut, StreamConfig, TopicConfig
from rangelog.errors import OffsetOutOfRange, PreconditionFailed
from rangelog_cli.local.processes import Cluster
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture
async def client(broker_cluster: Cluster) -> AsyncIterator[Client]:
    """A client of the cluster with brokers."""
    async with await rangelog.connect(broker_cluster.connect_string) as made:
        yield made


async def filled(client: Client, topic: str, count: int) -> Cut:
    """A topic of one shard with some large records, so that all but the last few lie in sealed ranges; return its end."""
    await client.topics.create(topic, TopicConfig(stream=StreamConfig(range_size_bytes_max=64 << 10)))
    async with client.producer(topic) as producer:
        for number in range(count):
            await producer.send(b"%d " % number + bytes(16 << 10))
    return await client.topics.cut(topic, "tail")


async def commit_to(client: Client, group: str, topic: str, count: int) -> None:
    """A member reads up to a number of records, commits, and ends."""
    async with client.group(group, topic) as member:
        async for record in member:
            if record.offset + 1 == count:
                await member.commit()
                return


async def test_a_reset_to_earliest_cures_a_trimmed_position(client: Client) -> None:
    """The topic was trimmed behind the group's position; after the reset it reads what is left, from its first record on."""
    topic, group = "positions-trimmed", "positions-trimmed"
    end = await filled(client, topic, 20)
    await commit_to(client, group, topic, 2)
    await client.topics.truncate(topic, Cut(end.topic_id, {0: 8}))

    async def trimmed() -> bool:
        return (await client.topics.cut(topic, "head")).offsets[0] == 8

    await until(trimmed, "the topic is not trimmed")
    await client.groups.reset(group, "earliest")
    assert [(each.offset, each.records) for each in await client.groups.lag(group)] == [(8, 12)]
    async with client.group(group, topic) as member:
        records = aiter(member)
        found = [(await anext(records)).offset for _ in range(12)]
    assert found == list(range(8, 20))


async def test_a_checkpoint_of_a_known_name_is_refused(client: Client) -> None:
    """Nobody gets the positions of the former one for the present ones; a deleted name is free."""
    topic, group = "positions-checkpoint", "positions-checkpoint"
    await filled(client, topic, 3)
    await commit_to(client, group, topic, 1)
    first = await client.groups.checkpoint(group, "end-of-day")
    await commit_to(client, group, topic, 3)
    with pytest.raises(PreconditionFailed, match="delete it first"):
        await client.groups.checkpoint(group, "end-of-day")
    assert list((await client.groups.checkpoint_positions(group, "end-of-day")).values()) == list(first.values()) == [1]
    await client.groups.delete_checkpoint(group, "end-of-day")
    assert list((await client.groups.checkpoint(group, "end-of-day")).values()) == [3]


async def test_the_lag_of_a_group_with_a_deleted_topic(client: Client, broker_cluster: Cluster) -> None:
    """Is that of its other topics; the deleted one is marked by the SDK, by pdctl and by REST."""
    gone, kept, group = "positions-gone", "positions-kept", "positions-lag"
    for topic in (gone, kept):
        await filled(client, topic, 3)
    async with client.group(group, gone, kept) as member:
        await anext(aiter(member))
        await member.commit()
    await client.topics.delete(gone, force=True)
    found = {each.is_deleted: (each.offset, each.records) for each in await client.groups.lag(group)}
    assert found[True][1] == 0 and sum(found[False]) == 3
    printed = await asyncio.to_thread(Pdctl(broker_cluster), "group", "lag", group)
    assert printed.returncode == 0, printed
    assert b"topic deleted" in printed.stdout and b"_topic-" not in printed.stdout + printed.stderr
    rest = broker_cluster.brokers["broker1"].endpoint()["rest_address"]
    answer = await asyncio.to_thread(_get, f"http://{rest}/v1/groups/{group}/lag")
    assert answer["records"] == found[False][1]
    assert sorted(each["is_deleted"] for each in answer["shards"]) == [False, True]


async def test_a_reset_beyond_the_end_is_refused(client: Client) -> None:
    """The error says the end; the group stays where it was, and reads on."""
    topic, group = "positions-beyond", "positions-beyond"
    end = await filled(client, topic, 3)
    await commit_to(client, group, topic, 1)
    with pytest.raises(OffsetOutOfRange, match="which is 3") as caught:
        await client.groups.reset(group, Cut(end.topic_id, {0: end.offsets[0] + 1_000}))
    assert caught.value.offset == 3
    assert [(each.offset, each.records) for each in await client.groups.lag(group)] == [(1, 2)]
    await client.groups.reset(group, end)
    assert [(each.offset, each.records) for each in await client.groups.lag(group)] == [(3, 0)]


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.load(response)
