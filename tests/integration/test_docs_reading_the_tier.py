"""The examples of docs/reading-the-tier.md run as they stand on a directory and on S3; each has the rows of the SDK."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rangelog
from rangelog import Client, StreamConfig, TopicConfig, Writer
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import ObjectNotFound
from rangelog_core.manifest import StreamManifest, parse_manifest
from rangelog_demo.s3_server import CREDENTIALS, REGION, S3Server
from rangelog_tier import open_object_store
from rangelog_tier.opening import store_location
from tests.integration.conftest import ClusterFactory
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.page_examples import PageRunner
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reading-the-tier.md"
STREAM_CONFIG = StreamConfig(range_size_bytes_max=1 << 16, hot_retention_seconds=0)
RECORDS = 6_000
TRIM_OFFSET = 700
GRACE_MS = 3_000
SETTINGS = {"RANGELOG_PD_DELETE_GRACE_MS": str(GRACE_MS), "RANGELOG_PD_REPACK_TARGET_BYTES": "0"}  # objects are named
WITHOUT_EXTENSION = "## DuckDB alone"


class Row(NamedTuple):
    """A record, as each of the libraries has it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def row(offset: int, timestamp: Any, key: bytes | None, value: bytes, headers: Any, *_: Any) -> Row:
    """A row in the order of the columns; headers are a dictionary, or pairs, or what Polars has."""
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Row(offset, round(timestamp.timestamp() * 1000), key, value, tuple((k, v) for k, v in pairs))


def rows_of(name: str, found: Any) -> list[Row]:
    """What an example found, by the name that it has on the page."""
    if name == "by_pandas":
        found = found.itertuples(index=False, name=None)
    elif name == "by_polars":
        found = found.rows()
    elif not isinstance(found, list):
        found = [each.values() for each in found.to_pylist()]
    return sorted(row(*each) for each in found)


async def read(records: Any, count: int) -> list[Any]:
    """The next `count` records of a reader of the SDK."""
    found: list[Any] = []
    async for record in records:
        found.append(record)
        if len(found) == count:
            break
    return found


def sdk_rows(records: Iterable[Any]) -> list[Row]:
    """Records of the SDK as rows."""
    return [
        Row(each.offset, round(each.timestamp.timestamp() * 1000), each.key, each.value, tuple(each.headers.items()))
        for each in records
    ]


async def _write(writer: Writer, numbers: Iterable[int]) -> None:
    for number in numbers:
        key = None if number % 3 == 0 else b"k%d" % (number % 7)
        headers = {"source": b"docs", "empty": b""} if number % 2 else None
        writer.append_nowait(b"" if number % 10 == 0 else b"v%d" % number * 20, key=key, headers=headers)
        if number % 100 == 0:
            await writer.flush()
    await writer.flush()


async def fill(client: Client) -> tuple[list[Row], dict[int, list[Row]]]:
    """A stream and a topic whose records are all sealed; return the rows of both, the topic's by shard."""
    await client.create_stream("flights", STREAM_CONFIG)
    for part in range(4):  # each writer begins a range, however long it takes to leave a full one
        async with client.writer("flights") as writer:
            await _write(writer, range(part * RECORDS // 4, (part + 1) * RECORDS // 4))
    await client.seal_stream("flights")
    await client.trim_stream("flights", TRIM_OFFSET)
    stream = sdk_rows(await read(client.reader("flights", start="earliest"), RECORDS - TRIM_OFFSET))
    await client.topics.create_namespace("shop")
    await client.topics.create("shop/orders", TopicConfig(stream=STREAM_CONFIG), shards=2)
    async with client.producer("shop/orders") as producer:
        for number in range(400):
            await producer.send(b"order %d" % number, key=b"table %d" % (number % 9))
    await client.topics.seal("shop/orders")
    topic: dict[int, list[Row]] = {}
    for record in await read(client.topic_reader("shop/orders"), 400):
        topic.setdefault(record.shard_id, []).extend(sdk_rows([record]))
    return stream, topic


class Tier:
    """The object store of the cluster, beside it."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.store = open_object_store(url, create=True)
        self.pdctl = Pdctl(cluster)
        self.url = url

    def stored(self, stream_id: int) -> StreamManifest | None:
        """The manifest of a stream in the store."""
        with suppress(ObjectNotFound):  # deleted meanwhile
            for info in self.store.list(f"manifests/{stream_id}/"):
                return parse_manifest(self.store.get(info.key), info.key)
        return None

    def complete(self, name: str, count: int) -> list[StreamManifest] | None:
        """The stored manifests of a stream or topic once they have as many records, and are what pdctl has."""
        document = self.pdctl.json("object", "manifest", name)
        wanted = document.get("shards", [document])
        if sum(each["record_count"] for each in wanted) < count:
            return None
        found = [self.stored(each["stream_id"]) for each in wanted]
        if [each and (each.revision, each.document()["objects"]) for each in found] != [
            (each["revision"], each["objects"]) for each in wanted
        ]:
            return None
        return [each for each in found if each is not None]


async def examples_hold(cluster: Cluster, tier_url: str, tmp_path: Path, page: Path) -> None:
    """Run the page on a filled cluster and compare; then trim and delete."""
    async with await rangelog.connect(cluster.connect_string) as client:
        stream, topic = await fill(client)
        tier = Tier(cluster, tier_url)
        found = await asyncio.to_thread(
            eventually, lambda: tier.complete("flights", RECORDS - TRIM_OFFSET), "flights has no manifest"
        )
        assert len(found[0].objects) >= 3 and found[0].objects[0].start_offset < TRIM_OFFSET
        await asyncio.to_thread(eventually, lambda: tier.complete("shop/orders", 400), "shop/orders has no manifests")
        location = store_location(tier_url)
        location = location if "://" in location else f"file://{location}"
        replaced = {
            "file:///var/lib/rangelog/tier": location,
            "sqlite:///catalog.db": f"sqlite:///{tmp_path}/catalog.db",
            "file:///tmp/warehouse": f"file://{tmp_path}/warehouse",
        }
        runner = PageRunner(page, cluster.connect_string, tmp_path, replaced)
        assert await runner.run() >= 7
        results = {name: value for name, value in runner.names.items() if re.match("by_", name)}
        topic_rows = results.pop("by_shard").rows()
        assert len(results) == page.read_text().count("\nby_") - 1 >= 5
        for name, value in results.items():
            assert rows_of(name, value) == stream, name
        assert {each[-1] for each in topic_rows} == set(topic)
        for shard_id, rows in topic.items():
            assert sorted(row(*each[:5]) for each in topic_rows if each[-1] == shard_id) == rows
        rows = json.loads(
            await asyncio.to_thread(tier.pdctl.ok, "object", "streams", "--tier-url", tier_url, "-o", "json")
        )
        assert [(each["stream"] if each["topic"] is None else each["topic"]) for each in rows] == [
            "flights", "shop/orders", "shop/orders",
        ]  # fmt: skip
        await trim_and_delete(client, tier, found[0])


def trimmed(found: StreamManifest | None) -> int | None:
    """The trim offset in a manifest."""
    return found.trim_offset if found is not None else None


async def trim_and_delete(client: Client, tier: Tier, known: StreamManifest) -> None:
    """A trim is in the manifest soon, whether objects are deleted for it or not; with the stream the manifest goes."""
    await client.trim_stream("flights", TRIM_OFFSET + 10)
    await asyncio.to_thread(
        eventually, lambda: trimmed(tier.stored(known.stream_id)) == TRIM_OFFSET + 10, "a trim is not in the manifest"
    )
    cut = known.objects[1].end_offset
    await client.trim_stream("flights", cut)
    gone = {each.key for each in known.objects[:2]}

    def deleted() -> bool:
        left = {each.key for each in tier.store.list("streams/")}
        if gone & left != gone:
            found = tier.stored(known.stream_id)
            assert found is not None and not gone & {each.key for each in found.objects}
            assert found.trim_offset == cut and found.revision > known.revision
        return not gone & left

    await asyncio.to_thread(eventually, deleted, "what was trimmed stays")
    await client.delete_stream("flights")
    await asyncio.to_thread(
        eventually, lambda: tier.stored(known.stream_id) is None, "the manifest outlives its stream"
    )


async def test_on_a_directory(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """All examples of the page."""
    url = f"file://{tmp_path}/tier"
    cluster = cluster_factory(pds=1, brokers=1, tier_url=url, env=SETTINGS)
    await examples_hold(cluster, url, tmp_path, PAGE)


@pytest.mark.long
async def test_on_s3(cluster_factory: ClusterFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the one that needs an extension of DuckDB."""
    server = S3Server(tmp_path)
    server.start()
    try:
        settings = CREDENTIALS | {
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL": server.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "PYICEBERG_CATALOG__LOCAL__S3__ENDPOINT": server.endpoint,
            "PYICEBERG_CATALOG__LOCAL__S3__REGION": REGION,
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        for name in [each for each in sys.modules if each.split(".")[0] == "pyiceberg"]:
            monkeypatch.delitem(sys.modules, name)  # it reads the environment when it is imported
        sections = re.split(r"(?m)^(?=## )", PAGE.read_text())
        page = tmp_path / PAGE.name
        page.write_text("".join(each for each in sections if not each.startswith(WITHOUT_EXTENSION)))
        cluster = cluster_factory(pds=1, brokers=1, tier_url=server.tier_url, env=SETTINGS)
        await examples_hold(cluster, server.tier_url, tmp_path, page)
    finally:
        server.process.kill()
