"""docs/recipes.md: its commands run in the order of the page on a cluster that has what the recipes speak of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rangelog
from rangelog import StreamConfig, TopicConfig
from tests.integration.conftest import ClusterFactory
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.page_examples import PageRunner
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
RECORDS = 2_000
SETTINGS = {"RANGELOG_PD_ORPHAN_QUIET_MS": "1000"}  # a drain waits that long for a range whose writer is gone
PLACED = StreamConfig(range_size_bytes_max=1 << 16)


async def fill(addresses: str) -> None:
    """A stream of several ranges, a topic of three shards, and a group that is behind in it."""
    async with rangelog.connect(addresses) as client:
        await client.create_stream("clicks", PLACED)
        async with client.writer("clicks") as writer:
            await writer.append_all(b"click %d" % number * 10 for number in range(RECORDS))
        await client.topics.create("orders", TopicConfig(stream=PLACED), shards=3)
        async with client.producer("orders") as producer:
            for number in range(30):
                await producer.send(b"order %d" % number, key=b"table %d" % number)
        async with client.group("billing", "orders") as member:
            async for _ in member:
                await member.commit()
                break


async def test_the_recipes(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """Servers are drained and removed, shards merged, the leader moved, the state saved: each command ends with success."""
    cluster = await asyncio.to_thread(cluster_factory, range_servers=5, brokers=2, env=SETTINGS)
    await asyncio.to_thread(Pdctl(cluster).ok, "audit", "enable")
    await fill(cluster.connect_string)
    async with asyncio.timeout(240):
        replaced = {"/backup": str(tmp_path)}
        assert await PageRunner(PAGE, cluster.connect_string, tmp_path, replaced).run() >= 9
    pdctl = Pdctl(cluster)
    await asyncio.to_thread(
        eventually, lambda: pdctl("upgrade", "check").returncode == 0, "something is left to upgrade"
    )
    assert (tmp_path / "pd.state").stat().st_size > 1_000
    async with rangelog.connect(cluster.connect_string) as client:
        servers = await asyncio.to_thread(
            lambda: sorted(path.parent.name for path in cluster.directory.glob("rs*/wal"))
        )
        assert servers == ["rs1", "rs2", "rs3", "rs4", "rs5"]  # the removed ones keep their directories
        read = [record.offset async for record in client.reader("clicks", start="earliest", follow=False)]
    assert read == list(range(RECORDS))
