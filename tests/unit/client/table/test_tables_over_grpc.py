"""A whole client over gRPC: tables whose brokers die, and the blocking forms."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rangelog import Client, TablePut, sync
from rangelog._loop_thread import LoopThread
from rangelog.errors import PreconditionFailed, TopicNotFound, Unavailable
from tests.support.table_cluster import TableCluster


def client_of(cluster: TableCluster) -> Client:
    """A client as `connect` makes it, but for the placement driver."""
    return Client("memory:1", token=None, tls=None, tier_url=None, pd=cluster.pd)


async def test_a_broker_that_dies_is_replaced(tmp_path: Path) -> None:
    """Its partitions go on at another one; commands under way are done once."""
    async with TableCluster(tmp_path) as cluster, client_of(cluster) as client:
        await cluster.serve()
        await client.tables.create("t", partitions=2)
        table = client.table("t")
        assert await table.put(b"k", b"0") == 1
        first = next(iter(cluster.owned_by.values()))
        puts = [asyncio.create_task(table.put_if_absent(b"%d" % number, b"v")) for number in range(100)]
        await asyncio.sleep(0)
        await first.close()
        versions = await asyncio.gather(*puts)
        assert all(versions)
        assert [row.key async for row in table.scan(prefix=b"1")] == sorted(
            b"%d" % number for number in range(100) if str(number)[0] == "1"
        )
        with pytest.raises(PreconditionFailed):
            await table.put_if_absent(b"7", b"w")


async def test_a_closed_client_answers_nothing(tmp_path: Path) -> None:
    """Whatever waits ends with a typed error."""
    async with TableCluster(tmp_path) as cluster:
        await cluster.serve()
        client = client_of(cluster)
        await client.tables.create("t")
        table = client.table("t")
        await table.put(b"k", b"v")
        waiting = asyncio.create_task(anext((await table.watch()).changes()))
        async with asyncio.timeout(5):
            while not cluster.brokers[0].service._calls:
                await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(Unavailable):
            await table.get(b"k")
        with pytest.raises(Unavailable):
            await waiting


def test_the_blocking_forms(tmp_path: Path) -> None:
    """Have the same arguments, results and errors."""
    loop = LoopThread()

    async def start() -> tuple[TableCluster, sync.Client]:
        cluster = await TableCluster(tmp_path).__aenter__()
        await cluster.serve()
        return cluster, sync.Client(loop, client_of(cluster))

    cluster, client = loop.run(start())
    try:
        made = client.tables.create("t", partitions=2)
        assert client.tables.describe("t") == made
        assert [each.name for each in client.tables.list()] == ["default/t"]
        table = client.table("t")
        assert table.name == "t"
        position = table.position()
        version = table.put_if_absent(b"a", b"1")
        with pytest.raises(PreconditionFailed):
            table.put_if_version(b"a", b"2", version + 5)
        table.put(b"b", b"2", family=b"f")
        table.update([TablePut(b"b", b"3"), TablePut(b"c", b"4")], family=b"f")
        row = table.get(b"b", family=b"f")
        assert row is not None and row.value == b"3"
        assert [row.value if row else None for row in table.get_many([b"a", b"z"])] == [b"1", None]
        assert [row.key for row in table.scan(family=b"f")] == [b"b", b"c"]
        assert [row.key for row in table.scan_all()] == [b"a", b"b", b"c"]
        assert table.delete(b"a")
        watch = table.watch(since=position)
        for change in watch:
            assert (change.key, change.value) == (b"a", None)
            break
        assert sum(watch.position().values()) > sum(position.values())
        client.tables.delete("t")
        with pytest.raises(TopicNotFound):
            client.tables.describe("t")
    finally:
        loop.run(cluster.__aexit__())
        client.close()
