"""A partition of a table filled to its documented limit, its log trimmed, its owner killed: the next one has every row."""

from __future__ import annotations

import asyncio
import re

import pytest

import rangelog
from rangelog.errors import StorageFull
from rangelog_broker.tables.machine import BYTES_MAX, ROW_OVERHEAD_BYTES
from rangelog_cli.local.processes import Cluster
from rangelog_core.ids import shard_stream_name
from rangelog_core.limits import TABLE_VALUE_BYTES_MAX
from rangelog_proto.v1 import broker_pb2
from tests.integration.conftest import ClusterFactory
from tests.support.waiting import Seen, until

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

SETTINGS = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": str(256 * 1024 * 1024)}
ACKED_S = 120.0


def registrations(cluster: Cluster) -> int:
    """How often brokers have registered in all: one that is silent for too long is lost, and registers again."""
    return sum(len(re.findall("registered as", each.log_path.read_text())) for each in cluster.brokers.values())


async def put_all(table: rangelog.Table, rows: dict[bytes, bytes], at_once: int) -> None:
    """Put rows, so many commands at a time."""
    places = iter(rows.items())

    async def one() -> None:
        for key, value in places:
            await table.put(key, value, timeout_s=ACKED_S)

    await asyncio.gather(*(one() for _ in range(at_once)))


@pytest.mark.parametrize(
    ("value_bytes", "count"),
    [
        pytest.param(
            TABLE_VALUE_BYTES_MAX, BYTES_MAX // (TABLE_VALUE_BYTES_MAX + ROW_OVERHEAD_BYTES + 8), id="few-large-rows"
        ),
        pytest.param(1_000, 120_000, id="many-small-rows"),
    ],
)
async def test_a_full_partition_is_opened_again(cluster_factory: ClusterFactory, value_bytes: int, count: int) -> None:
    """All rows are read after the owner's death, and no other broker is taken for lost meanwhile."""
    cluster = await asyncio.to_thread(cluster_factory, pds=1, brokers=2, env=SETTINGS)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.tables.create("full", partitions=1)
        table = client.table("full")
        rows = {b"%08d" % number: b"%d" % number * (value_bytes // len(b"%d" % number)) for number in range(count)}
        at_once = max(2, min(64, (4 << 20) // value_bytes))
        await put_all(table, rows, at_once)
        if value_bytes == TABLE_VALUE_BYTES_MAX:
            with pytest.raises(StorageFull):
                await table.put(b"one more", bytes(value_bytes))
        topic_id = (await client.tables.describe("full")).table_id

        async def trimmed() -> Seen:
            found = await client.metadata.describe_stream(shard_stream_name(topic_id, 0))
            return Seen(found.trim_offset > 0, found.trim_offset)

        for _ in range(4):
            if (await trimmed()).holds:
                break
            await put_all(table, dict(list(rows.items())[: count // 2]), at_once)
        await until(trimmed, "the log of the partition is trimmed", 60)
        wanted = broker_pb2.FindOwnersRequest(shards=[broker_pb2.OwnedShard(topic_id=topic_id, shard_id=0)])
        (owner,) = (await client.metadata.pd.call(wanted, broker_pb2.FindOwnersResponse, timeout_s=10)).brokers
        before = registrations(cluster)
        cluster.kill(owner.name)

        async def opened() -> bool:
            return await table.get(b"%08d" % (count - 1), timeout_s=5) is not None

        await until(opened, "the partition is opened again", 240)
        for number in range(0, count, max(1, count // 500)):
            found = await table.get(b"%08d" % number)
            assert found is not None and found.value == rows[b"%08d" % number], number
        assert registrations(cluster) == before, "another broker was taken for lost"
