"""Retention by consumption on real processes: what a group has not committed stays, what it has goes, whoever dies."""

from __future__ import annotations

import pytest

from rangelog import Client, Retention, StreamConfig, TopicConfig, connect
from rangelog._topics.topic_calls import by_name
from rangelog.errors import RangelogError
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1 import topic_pb2
from tests.integration.conftest import ClusterFactory
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC, GROUP = "shop/orders", "billing"
QUICK = {"RANGELOG_PD_RETENTION_INTERVAL_MS": "200"}


async def head_of(client: Client) -> int:
    """The first offset of the one shard that is not trimmed."""
    cut = await client.topics.cut(TOPIC, "head")
    return sum(cut.offsets.values())


async def commit_to(client: Client, count: int) -> None:
    """A member reads up to a number of records, commits, and ends."""
    async with client.group(GROUP, TOPIC, auto_commit_s=None) as member:
        async for record in member:
            if record.offset + 1 == count:
                await member.commit()
                return


@pytest.mark.hasty
async def test_a_topic_keeps_what_a_group_has_not_committed(cluster_factory: ClusterFactory) -> None:
    """It is trimmed up to the commit and no further; also after the broker that knows of it is gone."""
    cluster = cluster_factory(brokers=2, env=QUICK)
    async with await connect(cluster.connect_string) as client:
        await client.topics.create_namespace("shop")
        config = TopicConfig(retention=Retention(consumed=True), stream=StreamConfig(range_size_bytes_max=64 << 10))
        await client.topics.create(TOPIC, config)
        async with client.producer(TOPIC) as producer:
            for number in range(30):
                await producer.send(b"%d " % number + bytes(16 << 10))  # several ranges: only what is sealed is trimmed
        await commit_to(client, 10)
        await client.groups.retain(GROUP)
        assert (await client.groups.describe(GROUP)).retains

        async def trimmed(least: int) -> bool:
            return least < await head_of(client) <= least + 10

        await until(lambda: trimmed(0), "the head is not between 1 and 10")
        cluster.kill("broker1")
        await commit_to(client, 20)
        before = await head_of(client)
        assert before <= 20
        await until(lambda: trimmed(10), "the head is not between 11 and 20")
        rest = [int(record.value.split()[0]) async for record in client.topic_reader(TOPIC)]
        assert rest == list(range(30 - len(rest), 30)) and rest[0] <= 20
        await deleted(client)
        request = topic_pb2.DescribeTopicRequest(topic=by_name(parse_topic_name(TOPIC)))
        described = await client.metadata.pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=10)
        assert not described.consuming_groups


async def deleted(client: Client) -> None:
    """Delete the group, whose member has just left."""

    async def gone() -> bool:
        try:
            await client.groups.delete(GROUP)
        except RangelogError:
            return False
        return True

    await until(gone, "the group cannot be deleted")
