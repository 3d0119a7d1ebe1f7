"""What a takeover asks the placement driver: the answer of its claim names the ranges of what it reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rangelog_broker.shards.finished import FinishedShards, PlacementRows
from rangelog_broker.shards.shard import OwnedShard
from rangelog_core.batch_extension import Producer
from rangelog_proto.v1 import pd_pb2
from tests.support.owner_cluster import OwnerCluster, Replies, owner_cluster

pytestmark = pytest.mark.virtual


class Owners:
    """The owners of one shard in turn, each a broker with a client of its own."""

    def __init__(self, cluster: OwnerCluster, topic_id: int, closing: AsyncExitStack) -> None:
        self.cluster, self.replies = cluster, Replies()
        self._topic_id, self._closing = topic_id, closing

    async def open(self) -> OwnedShard:
        """Take the shard over; the calls that this takes are counted."""
        client, row = self.cluster.client(), await self.cluster.shard(self._topic_id, 0)
        finished = FinishedShards(client, client.metadata.pd, PlacementRows(client.metadata.pd))
        self.cluster.calls.clear()
        made = await OwnedShard.open(client, client.metadata.pd, finished, row)
        self._closing.push_async_callback(made.close)
        return made

    async def produce(self, owner: OwnedShard, number: int) -> int:
        """Send the producer's batch of this number; return its offset."""
        return await self.replies.produce(owner, Producer(7, 0, number), b"a")


@pytest.fixture
async def owners() -> AsyncIterator[Owners]:
    """Of the only shard of a topic."""
    async with owner_cluster() as cluster, AsyncExitStack() as closing:
        yield Owners(cluster, await cluster.create_topic(), closing)


@pytest.mark.parametrize("earlier", [1, 4])
async def test_a_takeover_asks_for_no_ranges(owners: Owners, earlier: int) -> None:
    """Neither for those of the log nor for those of the side log, of which it needs no description either."""
    for number in range(earlier):
        owner = await owners.open()
        assert await owners.produce(owner, number) == number
        await owner.settle_snapshot()
    last = await owners.open()
    assert owners.cluster.calls["ListRanges"] == 0
    assert owners.cluster.calls["DescribeStream"] == 1  # the proof at the end, since there is a side log
    assert [await owners.produce(last, number) for number in range(earlier + 1)] == list(range(earlier + 1))


async def test_an_earlier_placement_driver_names_no_ranges(owners: Owners) -> None:
    """They are asked for where the last one does not cover what is to be read."""
    answer = owners.cluster.handlers["OpenWriter"]

    async def of_before(request: pd_pb2.OpenWriterRequest, context: object) -> pd_pb2.OpenWriterResponse:
        opened: pd_pb2.OpenWriterResponse = await answer(request, context)
        opened.ClearField("earlier_ranges")
        return opened

    owners.cluster.handlers["OpenWriter"] = of_before
    for number in range(3):
        assert await owners.produce(await owners.open(), number) == number
    last = await owners.open()
    assert owners.cluster.calls["ListRanges"] == 1
    assert [await owners.produce(last, number) for number in range(4)] == [0, 1, 2, 3]
