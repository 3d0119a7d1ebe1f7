"""The job `iceberg` on real clusters, the tier in a directory and on S3: a table has the rows of the SDK's reader."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog, load_catalog

import rangelog
from rangelog import Client, Cut, StreamConfig, TopicConfig
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import ObjectNotFound, PreconditionFailed, StreamNotFound, TopicNotFound, Unavailable
from rangelog_core.manifest import StreamManifest
from rangelog_core.net.manifest_calls import fetch_manifest
from rangelog_demo.s3_server import BUCKET, CREDENTIALS, REGION, S3Server
from rangelog_jobs import ClusterAddress
from rangelog_jobs.command import main
from rangelog_jobs.iceberg import RegisteredTable, register
from rangelog_tier import open_object_store
from tests.integration.conftest import ClusterFactory
from tests.integration.test_docs_reading_the_tier import Row, read, row, sdk_rows
from tests.support.page_examples import PageRunner
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

STREAM_CONFIG = StreamConfig(range_size_bytes_max=1 << 16, hot_retention_seconds=0)
SETTINGS = {"RANGELOG_PD_DELETE_GRACE_MS": "1000", "RANGELOG_PD_REPACK_TARGET_BYTES": "0"}  # objects are counted
PART = 300
ROUND = 3 * PART
DAY, A_DAY = date(2026, 1, 31), timedelta(days=1)
T0_MS = 1_769_860_800_000  # noon; a record each two minutes: an object has ten hours, two of six span midnight
PATIENCE_S = 60.0
PAGE = Path(__file__).resolve().parents[2] / "docs" / "iceberg.md"


class Lake:
    """A catalog in SQLite with its warehouse, and the job run against it."""

    def __init__(self, folder: Path, cluster: Cluster, warehouse: str) -> None:
        self.cluster = cluster
        self.properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse}
        self.read_with: dict[str, str] = {}

    def command(self, *arguments: str) -> list[str]:
        """The job as a command: `rangelog-spark iceberg …`."""
        given = [f"--catalog-property={name}={value}" for name, value in self.properties.items()]
        pd = ["--pd", self.cluster.connect_string]
        return [sys.executable, "-m", "rangelog_jobs", "iceberg", *pd, "--catalog", "lake", *given, *arguments]

    async def update(self, **what: str) -> RegisteredTable:
        """Bring one table up to date, in this process."""
        address = ClusterAddress(self.cluster.connect_string)
        done = await asyncio.to_thread(register, address, "lake", catalog_properties=self.properties, **what)
        assert not done.failures
        (table,) = done.tables
        return table

    async def update_by_command(self, *arguments: str) -> RegisteredTable:
        """The same by the command, in a process of its own."""
        command = self.command(*arguments, "-o", "json")
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S)
        assert (done.returncode, done.stderr) == (0, ""), done
        (table,) = json.loads(done.stdout)["tables"]
        return RegisteredTable(**table)

    def catalog(self) -> Catalog:
        """The catalog, as its readers open it."""
        return load_catalog("lake", **self.properties, **self.read_with)

    def rows(self, name: str) -> list[Any]:
        """What pyiceberg reads of a table."""
        return self.catalog().load_table(name).scan().to_arrow().to_pylist()

    def stream_rows(self, name: str) -> list[Row]:
        """The rows of a stream's table."""
        return sorted(row(*list(each.values())[1:]) for each in self.rows(name))


async def append(client: Client, name: str, first: int, count: int) -> None:
    """Append records, which go over several days; seal after each part, so that it becomes an object soon."""
    for start in range(first, first + count, PART):
        async with client.writer(name) as writer:
            for number in range(start, start + PART):
                key = None if number % 3 == 0 else b"k%d" % (number % 7)
                headers = {"n": b"%d" % number} if number % 2 else None
                timestamp = T0_MS + number * 120_000
                writer.append_nowait(b"v%d" % number * 20, key=key, headers=headers, timestamp=timestamp)
            await writer.flush()
        await client.seal_stream(name)


async def tiered(client: Client, name: str, end: int) -> StreamManifest:
    """The manifest of a stream once everything up to `end` is in the tier: a later range may be there before an earlier one."""

    async def complete() -> StreamManifest | None:
        found = await fetch_manifest(client.metadata.pd, 10, name=name)
        return found if found.tiered == [(found.trim_offset, end)] else None

    return await until(complete, f"{name} is not tiered")  # type: ignore[no-any-return]


async def expected(client: Client, name: str, first: int, end: int) -> list[Row]:
    """What the SDK reads from `first` on."""
    return sdk_rows(await read(client.reader(name, start="earliest"), end - first))


async def follow_a_stream(client: Client, lake: Lake, tier_url: str) -> None:
    """Tier, tier more, trim inside an object, trim whole ones, have them deleted: a run after each, and with nothing new."""
    table = "rangelog.flights"
    await client.create_stream("flights", STREAM_CONFIG)
    assert (await lake.update(stream="flights")).made
    assert lake.stream_rows(table) == []
    for end in (ROUND, 2 * ROUND):
        await append(client, "flights", end - ROUND, ROUND)
        manifest = await tiered(client, "flights", end)
        done = await lake.update(stream="flights")
        assert (
            done.added == 3 and done.object_count == len(manifest.objects) == end // PART and done.record_count == end
        )
        assert lake.stream_rows(table) == await expected(client, "flights", 0, end)
    assert (await lake.update_by_command("--stream", "flights")).snapshot_id is None
    files = lake.catalog().load_table(table).inspect.files().to_pylist()
    days = sorted((each["partition"]["timestamp_day"] or DAY, each["spec_id"]) for each in files)
    assert days == [(DAY, 0), (DAY, 1), (DAY, 1), (DAY + A_DAY, 0), (DAY + 2 * A_DAY, 0), (DAY + 2 * A_DAY, 0)]
    inside = manifest.objects[1].start_offset + 7
    for trim in (inside, inside + 5, manifest.objects[2].end_offset, manifest.objects[3].start_offset + 1):
        await client.trim_stream("flights", trim)
        done = await lake.update(stream="flights")
        live = [each for each in manifest.objects if each.end_offset > trim]
        assert done.snapshot_id and done.object_count == len(live)
        assert done.hidden_count == max(0, trim - live[0].start_offset)
        assert lake.stream_rows(table) == await expected(client, "flights", trim, 2 * ROUND)
    store = open_object_store(tier_url)
    gone = {each.key for each in manifest.objects[:3]}

    async def deleted() -> bool:
        return not gone & {each.key for each in await asyncio.to_thread(lambda: list(store.list("streams/")))}

    await until(deleted, "what was trimmed stays")
    assert (await lake.update(stream="flights")).snapshot_id is None
    assert lake.stream_rows(table) == await expected(client, "flights", trim, 2 * ROUND)
    assert not [
        each.key for each in store.list("") if not each.key.startswith(("streams/", "manifests/", "probe/", "_pd/"))
    ]
    operations = [
        each.summary and each.summary.operation.value for each in lake.catalog().load_table(table).snapshots()
    ]
    assert operations == ["append", "append", *["delete"] * 4]
    with lake.catalog().load_table(table).scan().to_duckdb("flights") as connection:
        by_day = (
            "SELECT stream, CAST(timezone('UTC', timestamp) AS DATE), count(*) FROM flights GROUP BY ALL ORDER BY ALL"
        )
        found = connection.execute(by_day).fetchall()
    days = [each.timestamp.date() for each in await read(client.reader("flights", start="earliest"), 2 * ROUND - trim)]
    assert found == [("flights", day, days.count(day)) for day in sorted(set(days))] and len(found) == 2


async def follow_a_topic(client: Client, lake: Lake) -> None:
    """Shards that ended and those that took their place are one table, told apart by its column `shard`."""
    await client.topics.create_namespace("shop")
    await client.topics.create("shop/new-orders", TopicConfig(stream=STREAM_CONFIG), shards=2)
    for part in range(2):
        async with client.producer("shop/new-orders") as producer:
            for number in range(200):
                await producer.send(b"order %d %d" % (part, number), key=b"table %d" % (number % 97))
        if not part:
            await client.topics.scale("shop/new-orders", [0], 2)
    current = {each.shard_id: 3 for each in await client.topics.shards("shop/new-orders")}
    await client.topics.seal("shop/new-orders")
    records = await read(client.topic_reader("shop/new-orders"), 400)
    shards = {each.shard_id for each in records}
    assert len(records) == 400

    async def complete() -> RegisteredTable | None:
        done = await lake.update(topic="shop/new-orders")
        return done if done.record_count == len(records) else None

    await until(complete, "the topic is not tiered")
    check_topic(lake, records)
    assert len(shards) > 2 and (await lake.update(topic="shop/new-orders")).snapshot_id is None
    cut = Cut((await client.topics.describe("shop/new-orders")).topic_id, current)
    await client.topics.truncate("shop/new-orders", cut)
    left = [each for each in records if each.offset >= current.get(each.shard_id, 1 << 60)]

    async def truncated() -> RegisteredTable | None:
        done = await lake.update(topic="shop/new-orders")
        return done if done.record_count == len(left) else None

    done = await until(truncated, "the topic is not truncated")
    assert done.hidden_count == done.partly_trimmed * 3 and done.partly_trimmed == len(current)
    found = await read(client.topic_reader("shop/new-orders"), len(left))
    assert sorted(sdk_rows(found)) == sorted(sdk_rows(left)) != []
    check_topic(lake, left)


def check_topic(lake: Lake, records: Sequence[Any]) -> None:
    """The topic's table has these records, each with its shard."""
    found = lake.rows("shop.new_orders")
    assert {(each["topic"], each["shard"]) for each in found} == {
        ("shop/new-orders", each.shard_id) for each in records
    }
    for shard in {each.shard_id for each in records}:
        rows = sorted(row(*list(each.values())[2:]) for each in found if each["shard"] == shard)
        assert rows == sdk_rows([each for each in records if each.shard_id == shard])


async def follow_at_once(client: Client, lake: Lake, warehouse: Path) -> None:
    """A process that is killed in the middle leaves nothing wrong, and two at once add each object once."""
    await client.create_stream("busy", STREAM_CONFIG)
    await append(client, "busy", 0, ROUND)
    await tiered(client, "busy", ROUND)
    await client.trim_stream("busy", 10)
    before = len([*warehouse.rglob("*")])
    with subprocess.Popen(lake.command("--stream", "busy"), stdout=subprocess.DEVNULL) as process:

        async def written() -> bool:
            return len([*warehouse.rglob("*")]) > before

        await until(written, "the job writes nothing")
        process.send_signal(signal.SIGKILL)
    await asyncio.gather(*(lake.update_by_command("--stream", "busy") for _ in range(2)))
    plan = [each.file.file_path for each in lake.catalog().load_table("rangelog.busy").scan().plan_files()]
    assert len(plan) == len(set(plan)) == ROUND // PART
    assert lake.stream_rows("rangelog.busy") == await expected(client, "busy", 10, ROUND)


async def errors_are_sentences(
    client: Client, lake: Lake, run: Callable[[Sequence[str]], tuple[int, str, str]]
) -> None:
    """What cannot be done is said in one line; one stream of a prefix does not stop the others."""
    pd = lake.cluster.connect_string
    cluster = ClusterAddress(pd)

    def registers(**what: Any) -> Any:
        return asyncio.to_thread(register, cluster, lake.catalog(), **what)

    with pytest.raises(StreamNotFound):
        await registers(stream="nobody")
    with pytest.raises(StreamNotFound, match="no stream has a name that starts with 'nobody'"):
        await registers(prefix="nobody")
    with pytest.raises(TopicNotFound):
        await registers(topic="shop/nobody")
    with pytest.raises(PreconditionFailed, match=r"rangelog\.flights is of stream flights: give another name"):
        await registers(topic="shop/new-orders", namespace="rangelog", table="flights")
    for name in ("air.a-b", "air.a.b", "air.c"):  # the first two want the same table
        await client.create_stream(name, STREAM_CONFIG)
    result = await registers(prefix="air.")
    assert [each.table for each in result.tables] == ["rangelog.air_a_b", "rangelog.air_c"]
    assert {name: error.code for name, error in result.failures.items()} == {"air.a.b": "PRECONDITION_FAILED"}
    code, out, said = await asyncio.to_thread(run, lake.command("--prefix", "air.")[3:])
    assert code == 1 and out.count("\n") == 2 and said.count("\n") == 1 and "give another name with --table" in said, (
        said
    )
    await client.delete_stream("air.c")
    await client.create_stream("air.c", STREAM_CONFIG)
    with pytest.raises(PreconditionFailed, match=r"of an earlier stream air.c, which was deleted: drop it"):
        await registers(stream="air.c")
    code, out, said = await asyncio.to_thread(
        run, ["iceberg", "--pd", pd, "--stream", "flights", "--catalog-property", "type=no"]
    )
    assert (code, out) == (2, "") and said.count("\n") == 1, said
    away = {**lake.properties, "uri": "sqlite:////no/such/folder/catalog.db"}
    with pytest.raises(Unavailable, match="the catalog 'lake' does not answer"):
        await asyncio.to_thread(register, cluster, "lake", stream="flights", catalog_properties=away)


async def follow_the_page(client: Client, lake: Lake, folder: Path) -> None:
    """The example of docs/iceberg.md, in a catalog of its own."""
    (folder / "page").mkdir()
    replaced = {
        "sqlite:///catalog.db": f"sqlite:///{folder}/page/catalog.db",
        "file:///tmp/warehouse": f"file://{folder}/page/warehouse",
    }
    runner = PageRunner(PAGE, lake.cluster.connect_string, folder / "page", replaced)
    assert await runner.run() == 1
    found, wanted = runner.names["rows"].to_pylist(), lake.rows("rangelog.flights")
    assert sorted(found, key=itemgetter("offset")) == sorted(wanted, key=itemgetter("offset")) != []


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[[Sequence[str]], tuple[int, str, str]]:
    """The command in this process: its exit code, and what it printed."""

    def call(arguments: Sequence[str]) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        return code, *capsys.readouterr()

    return call


async def test_on_a_directory(
    cluster_factory: ClusterFactory, tmp_path: Path, run: Callable[[Sequence[str]], tuple[int, str, str]]
) -> None:
    """A stream, a topic, processes at once and killed, and errors."""
    url = f"file://{tmp_path}/tier"
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    cluster = cluster_factory(pds=1, brokers=1, tier_url=url, env=SETTINGS)
    lake = Lake(tmp_path, cluster, f"file://{warehouse}")
    async with await rangelog.connect(cluster.connect_string) as client:
        await follow_a_stream(client, lake, url)
        await follow_the_page(client, lake, tmp_path)
        await follow_a_topic(client, lake)
        await follow_at_once(client, lake, warehouse)
        await errors_are_sentences(client, lake, run)


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server, and its credentials in the environment."""
    server = S3Server(tmp_path)
    server.start()
    for name, value in (CREDENTIALS | {"AWS_EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(name, value)
    yield server
    server.process.kill()


@pytest.mark.long
async def test_on_s3(cluster_factory: ClusterFactory, tmp_path: Path, s3: S3Server) -> None:
    """The same stream; the warehouse is in the bucket as well, and the endpoint is that of the tier's URL."""
    cluster = cluster_factory(pds=1, tier_url=s3.tier_url, env=SETTINGS)
    lake = Lake(tmp_path, cluster, f"s3://{BUCKET}/warehouse")
    lake.read_with = {"s3.endpoint": s3.endpoint, "s3.region": REGION}
    async with await rangelog.connect(cluster.connect_string) as client:
        await follow_a_stream(client, lake, s3.tier_url)
        lost = (await fetch_manifest(client.metadata.pd, 10, name="flights")).objects[-1].key
        await asyncio.to_thread(open_object_store(s3.tier_url).delete, lost)
        with pytest.raises(ObjectNotFound, match=f"a file of table rangelog.again is missing .*{lost}"):
            await lake.update(stream="flights", table="again")


async def test_without_a_tier(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """There is nothing to make a table of."""
    cluster = cluster_factory(pds=1, tier_url="")
    lake = Lake(tmp_path, cluster, f"file://{tmp_path}")
    with pytest.raises(PreconditionFailed, match="this cluster has no tier: give the placement drivers a tier_url"):
        await asyncio.to_thread(register, ClusterAddress(cluster.connect_string), lake.catalog(), stream="flights")
