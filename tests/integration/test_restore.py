"""A cluster of real processes is lost but for its bucket, and restored from it: what was tiered, and a list of the rest."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import Client, StreamConfig, TopicConfig
from rangelog.errors import StreamNotFound, Unavailable
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.pd_client import PdClient
from rangelog_demo.s3_server import CREDENTIALS, S3Server
from rangelog_tier import open_object_store
from rangelog_tier.restore import applying
from rangelog_tier.restore.plan import RestoreOptions
from rangelog_tier.restore.reading import BucketReading, read_bucket, read_plan, read_snapshot
from tests.integration.conftest import ClusterFactory
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

RECORDS, LATER, ORDERS = 3_000, 70, 200
ENV = {"RANGELOG_PD_TIER_SNAPSHOT_SOON_MS": "200", "RANGELOG_PD_TIER_SNAPSHOT_INTERVAL_MS": "1000"}
CONFIG = StreamConfig(range_size_bytes_max=1 << 16, hot_retention_seconds=0)
Rows = list[tuple[int, bytes]]


async def append(client: Client, stream: str, first: int, count: int) -> Rows:
    """Append and seal; return what was acked."""
    async with client.writer(stream) as writer:
        acks = [await writer.append(b"%s %d" % (stream.encode(), n) + b"." * 60) for n in (first,)]
        assert acks[0].offset == first
        for n in range(first + 1, first + count):
            writer.append_nowait(b"%s %d" % (stream.encode(), n) + b"." * 60)
            if n % 200 == 0:
                await writer.ready()
        await writer.flush()
    await client.seal_stream(stream)
    return [(n, b"%s %d" % (stream.encode(), n) + b"." * 60) for n in range(first, first + count)]


async def rows_of(client: Client, stream: str, count: int) -> Rows:
    """The first records of a stream."""
    found: Rows = []
    async for record in client.reader(stream, start="earliest"):
        found.append((record.offset, record.value))
        if len(found) == count:
            break
    return found


async def orders_of(client: Client, count: int) -> dict[bytes, list[bytes]]:
    """The values of a topic's records by key, in their order."""
    found: dict[bytes, list[bytes]] = {}
    number = 0
    async for record in client.topic_reader("shop/orders"):
        found.setdefault(record.key or b"", []).append(record.value)
        number += 1
        if number == count:
            break
    return found


async def send(client: Client, first: int, count: int) -> dict[bytes, list[bytes]]:
    """Send orders; return them by key."""
    sent: dict[bytes, list[bytes]] = {}
    async with client.producer("shop/orders") as producer:
        for n in range(first, first + count):
            key = b"table %d" % (n % 9)
            await producer.send(b"order %d" % n, key=key)
            sent.setdefault(key, []).append(b"order %d" % n)
    return sent


async def fill(cluster: Cluster) -> tuple[dict[str, Rows], dict[bytes, list[bytes]]]:
    """Streams that are tiered, partly tiered and not at all; a topic that is tiered. Returns what was acked and is tiered."""
    pdctl = Pdctl(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        await client.create_stream("flights", CONFIG)
        await client.create_stream("partly", CONFIG)
        await client.create_stream("hot", StreamConfig(tiered=False))
        acked = {name: await append(client, name, 0, RECORDS) for name in ("flights", "partly")}
        await append(client, "hot", 0, LATER)
        for name in acked:
            await asyncio.to_thread(
                eventually, lambda name=name: tiered(pdctl, name) == RECORDS, f"{name} is tiered", 90
            )
        await client.update_stream("partly", rangelog.StreamConfigChange(tiered=False))
        await append(client, "partly", RECORDS, LATER)
        await client.topics.create_namespace("shop")
        config = TopicConfig(stream=StreamConfig(range_age_seconds=1, hot_retention_seconds=0))
        await client.topics.create("shop/orders", config, shards=2)
        orders = await send(client, 0, ORDERS)
        await asyncio.to_thread(eventually, lambda: tiered(pdctl, "shop/orders") == ORDERS, "the topic is tiered", 90)
        await asyncio.to_thread(
            eventually, lambda: in_manifests(pdctl) == ORDERS, "the manifests of its shards are stored", 90
        )
    eventually(lambda: snapshot_of(pdctl)["current"], "a snapshot has all changes", 90)
    return acked, orders


def tiered(pdctl: Pdctl, name: str) -> int:
    """The records of a stream or topic in objects."""
    document = pdctl.json("object", "manifest", name)
    return sum(each["record_count"] for each in document.get("shards", [document]))


def in_manifests(pdctl: Pdctl) -> int:
    """The records of topics that manifests in the store have, which are written soon after a commit."""
    return sum(each["record_count"] for each in pdctl.json("object", "streams") if each["topic"])


def snapshot_of(pdctl: Pdctl) -> Any:
    """The last snapshot in the tier, as the status has it."""
    run = pdctl("cluster", "status", "-o", "json")
    import json

    return json.loads(run.stdout)["tier_snapshot"]


def check_lost(report: Any) -> None:
    """The lost list is exactly what was not tiered; shards had an empty open range each, perhaps."""
    lost = {(each["stream"], each["start_offset"], each["end_offset"]) for each in report["lost"] if each["records"]}
    of_streams = {each for each in lost if not each[0].startswith("_")}
    assert of_streams == {("partly", RECORDS, RECORDS + LATER), ("hot", 0, LATER)}
    assert not {each["kind"] for each in report["lost"] if each["records"]} - {"stream", "journal", "side-log"}
    assert report["missing"] == report["holes"] == report["doubtful"] == report["problems"] == []


def fresh(cluster_factory: ClusterFactory, name: str, tier_url: str, env: dict[str, str]) -> Cluster:
    """A cluster on this tier, with one broker."""
    return cluster_factory(name, pds=1, range_servers=3, brokers=1, tier_url=tier_url, env=ENV | env)


def lose(cluster: Cluster) -> None:
    """Kill every process and remove all directories."""
    cluster.kill_all()
    for each in cluster.directory.iterdir():
        if each.is_dir():
            shutil.rmtree(each)


def attempt(cluster: Cluster, reading: BucketReading, url: str) -> None:
    """Restore, and be killed after some rows."""
    store = open_object_store(url)
    plan = read_plan(store, reading, RestoreOptions())
    store.close()

    class Killed(Exception):
        """The end of this attempt."""

    def die(rows: int) -> None:
        raise Killed

    async def run() -> None:
        pd = PdClient(cluster.pd_addresses)
        try:
            await applying.apply_plan(
                pd, plan, source_cluster_id=reading.cluster_id, snapshot_id=reading.snapshot_id, timeout_s=30, show=die
            )
        finally:
            await pd.close()

    with pytest.raises(Killed):
        asyncio.run(run())


async def check_restored(cluster: Cluster, acked: dict[str, Rows], orders: dict[bytes, list[bytes]]) -> None:
    """All that was tiered is read; appends and sends go on behind it."""
    async with await rangelog.connect(cluster.connect_string) as client:
        for name, rows in acked.items():
            assert await rows_of(client, name, RECORDS) == rows
            more = await append(client, name, RECORDS, 10)
            assert (await rows_of(client, name, RECORDS + 10))[RECORDS:] == more
        assert (await client.describe_stream("hot")).next_offset == 0
        await append(client, "hot", 0, 5)
        assert await orders_of(client, ORDERS) == orders
        later = await send(client, ORDERS, 50)
        both = {key: orders.get(key, []) + later.get(key, []) for key in orders | later}
        assert await orders_of(client, ORDERS + 50) == both
        async with client.group("kitchen", "shop/orders", auto_commit_s=0.2) as member:
            async for _ in member:
                break


@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_a_cluster_comes_back_from_its_bucket(
    kind: str, cluster_factory: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the first attempt is killed in between, and the placement driver with it; a second restore is refused."""
    env: dict[str, str] = {}
    url = f"file://{tmp_path / 'tier'}"
    server = S3Server(tmp_path)
    if kind == "s3":
        env = CREDENTIALS
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        server.start()
        url = server.tier_url
    try:
        old = fresh(cluster_factory, "old", url, env)
        acked, orders = asyncio.run(fill(old))
        lose(old)
        new = fresh(cluster_factory, "new", url, env)
        pdctl = Pdctl(new)
        check_lost(pdctl.json("restore", "--from", url, "--dry-run"))
        if kind == "directory":
            check_half(new, pdctl, url, monkeypatch)
        report = pdctl.json("restore", "--from", url, "--yes", "--verify")
        assert report["restored"]
        check_lost(report)
        asyncio.run(check_restored(new, acked, orders))
        assert "was restored already" in pdctl.fails(5, "restore", "--from", url, "--cluster-id", report["cluster_id"])
        eventually(lambda: snapshot_of(pdctl)["snapshot_id"], "the restored cluster has a snapshot of its own", 90)
        assert Pdctl().json("restore", "--from", url, "--dry-run")["cluster_id"] != report["cluster_id"]
    finally:
        server.process.kill()


def test_a_tier_of_two_stores_comes_back(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """The last store's snapshot names both; the placement drivers need both, and with the first one alone it is refused."""
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    old = fresh(cluster_factory, "old", f"file://{first}", {})
    pdctl = Pdctl(old)

    async def write(names: tuple[str, ...]) -> dict[str, Rows]:
        async with await rangelog.connect(old.connect_string) as client:
            for name in names:
                await client.create_stream(name, CONFIG)
            return {name: await append(client, name, 0, RECORDS) for name in names}

    def are_tiered(names: tuple[str, ...]) -> None:
        for name in names:
            eventually(lambda name=name: tiered(pdctl, name) == RECORDS, f"{name} is tiered", 90)

    acked = asyncio.run(write(("before", "quiet")))
    are_tiered(("before", "quiet"))
    both = pdctl.json("cluster", "set-tier", f"file://{second}", "--yes")["tier_url"]
    acked |= asyncio.run(write(("after",)))
    are_tiered(("after",))
    eventually(lambda: snapshot_of(pdctl)["current"], "a snapshot has all changes", 90)
    lose(old)
    new = fresh(cluster_factory, "new", both, {})
    pdctl = Pdctl(new)
    assert "the tier of this cluster is" in pdctl.fails(5, "restore", "--from", f"file://{first}", "--yes")
    report = pdctl.json("restore", "--from", f"file://{second}", "--yes", "--verify")
    assert report["tier_url"] == both
    assert report["restored"]
    assert not [each for each in report["lost"] if each["records"]]
    assert report["missing"] == report["holes"] == report["problems"] == []

    async def read() -> None:
        async with await rangelog.connect(new.connect_string) as client:
            for name, rows in acked.items():
                assert await rows_of(client, name, RECORDS) == rows
            await append(client, "quiet", RECORDS, 10)

    asyncio.run(read())


def check_half(new: Cluster, pdctl: Pdctl, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore that is interrupted: clients get a retriable error, it is shown, and survives a restart."""
    store = open_object_store(url)
    reading = read_bucket(store, read_snapshot(store, cluster_id=None, snapshot_id=None))
    store.close()
    monkeypatch.setattr(applying, "ROWS_PER_CALL", 3)
    attempt(new, reading, url)
    new.kill("pd1")
    new.start_member("pd1")
    wait_healthy(new)
    run = pdctl("cluster", "status")
    assert run.returncode == 1
    assert b"3 of " in run.stdout
    assert b"run `pdctl restore` until it is done" in run.stdout

    async def ask() -> None:
        async with await rangelog.connect(new.connect_string) as client:
            with pytest.raises((Unavailable, StreamNotFound)) as raised:
                async with asyncio.timeout(20):
                    await client.describe_stream("flights")
            assert isinstance(raised.value, Unavailable)
            assert "being restored" in raised.value.message

    asyncio.run(ask())
