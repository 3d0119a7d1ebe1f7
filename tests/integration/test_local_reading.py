"""Reading where replicas do not agree: one that is behind, and ranges that nobody has written to."""

from __future__ import annotations

import asyncio

import pytest

import rangelog
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_proto.v1 import pd_pb2

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


async def first_replica(client: rangelog.Client, stream: str) -> str:
    """Name of the range server that readers of the stream's last range try first."""
    ranges = await client._pd.call(pd_pb2.ListRangesRequest(name=stream), pd_pb2.ListRangesResponse, timeout_s=10)
    return ranges.ranges[-1].replicas[0].server


@pytest.mark.hasty
async def test_reader_gets_past_a_replica_that_is_behind(cluster: Cluster) -> None:
    """After kill -9 of everything with one replica far behind, a reader still sees each acked record, soon."""
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("s")
        writer = client.writer("s")
        await writer.open()
        await writer.append_batch([b"%d" % number for number in range(100)])
        cluster.pause(await first_replica(client, "s"))
        await writer.append_batch([b"%d" % number for number in range(100, 200)])
        cluster.kill_all()
        await writer.close(flush=False)
    cluster.start()
    wait_healthy(cluster)
    async with await rangelog.connect(cluster.connect_string) as client, asyncio.timeout(15):
        assert [record.value async for record in client.reader("s")] == [b"%d" % number for number in range(200)]


async def test_open_range_without_appends_reads_as_empty(cluster: Cluster) -> None:
    """A range that a writer opened and did not append to has no replica yet: readers see its predecessors and no error."""
    async with await rangelog.connect(cluster.connect_string) as client, asyncio.timeout(30):
        await client.create_stream("s")
        async with client.writer("s") as writer:
            assert [record async for record in client.reader("s", timeout_s=1)] == []
            tail = aiter(client.reader("s", follow=True, timeout_s=1))
            waiting = asyncio.ensure_future(anext(tail))
            done, _ = await asyncio.wait([waiting], timeout=3)
            assert not done, "a tail reader gave up on an idle stream"
            await writer.append(b"first")
            assert (await waiting).value == b"first"
        async with client.writer("s"):
            assert [record.value async for record in client.reader("s", timeout_s=1)] == [b"first"]
