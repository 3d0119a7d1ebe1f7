"""The audit on a real cluster: sound streams in both tiers, damaged and missing objects, copies that differ."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rangelog import StreamConfig, TopicConfig
from rangelog_cli.local.processes import Cluster
from rangelog_jobs import audit_tasks
from rangelog_jobs.audit import audit_streams
from rangelog_jobs.audit_plan import plan_stream
from rangelog_jobs.cluster import ClusterAddress
from rangelog_proto.v1 import common_pb2
from tests.spark.conftest import Filled, Streams
from tests.spark.job_fixtures import COUNT, SMALL_RANGES, mixed, run
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]
__all__ = ["mixed", "run"]


@pytest.fixture(scope="module")
def doubled(streams: Streams) -> Filled:
    """A stream whose sealed ranges are hot and tiered."""
    filled = streams.fill("jobs-doubled", COUNT, flushed_every=1_000, hot_retention_seconds=3_600, **SMALL_RANGES)
    eventually(lambda: is_tiered(streams, filled.name), "not all are tiered")
    return filled


def is_tiered(streams: Streams, name: str) -> bool:
    """Whether each sealed range is in the tier: servers upload them in any order."""
    _, ranges = streams.client.run(streams.client.asynchronous.metadata.ranges(name, 0))
    sealed = [each for each in ranges if each.state == common_pb2.RANGE_STATE_SEALED]
    return len(sealed) >= 2 and all(each.tiered_end_offset == each.end_offset for each in sealed)


def objects_of(streams: Streams, name: str) -> list[Any]:
    """The objects of a stream."""
    return _objects(streams, streams.client.describe_stream(name).stream_id)


def _objects(streams: Streams, stream_id: int) -> list[Any]:
    client = streams.client
    return list(client.run(client.asynchronous.metadata.objects(stream_id, 0)))


def test_an_audit_of_a_sound_stream(
    run: Any, address: ClusterAddress, spark: SparkSession, mixed: Filled, doubled: Filled, tmp_path: Path
) -> None:
    """Hot, tiered and doubled parts are read once each, compared where both are, and the page needs no other file."""
    page, document = tmp_path / "audit.html", tmp_path / "audit.json"
    code, out, _ = run("audit", "--prefix", "jobs-", "--report", str(page), "--json", str(document), "-o", "json")
    found = json.loads(out)
    assert code == 0, found
    assert json.loads(document.read_text()) == found
    by_name = {each["name"]: each for each in found["streams"]}
    for name in ("jobs-mixed", "jobs-doubled"):
        assert (by_name[name]["start"], by_name[name]["end"], by_name[name]["read_count"]) == (0, COUNT, COUNT)
        assert by_name[name]["findings"] == []
        assert by_name[name]["object_count"] >= 2
    assert by_name["jobs-doubled"]["compared_count"] > COUNT // 4
    assert by_name["jobs-mixed"]["compared_count"] < by_name["jobs-doubled"]["compared_count"]
    # The same records have the same digest, whatever tier they come from: it goes by what they are, and in which order.
    assert by_name["jobs-mixed"]["digest"] == by_name["jobs-doubled"]["digest"]
    text = page.read_text()
    assert "jobs-mixed" in text and "Nothing is wrong." in text
    assert not re.search(r"<(script|link|img)|https?://", text)


def test_an_audit_finds_a_damaged_object(run: Any, streams: Streams, cluster: Cluster, tmp_path: Path) -> None:
    """A byte that flipped in the tier directory, and an object that is missing: each is named, and the exit code is 1."""
    streams.fill("damaged-object", COUNT, flushed_every=1_000, hot_retention_seconds=1, **SMALL_RANGES)
    streams.wait_for_drops("damaged-object", 3)
    eventually(lambda: all(streams.hot_dropped("damaged-object")[:2]), "the first two ranges are hot")
    first, second = objects_of(streams, "damaged-object")[:2]
    tier = next(cluster.directory.rglob(first.key)).parents[len(Path(first.key).parts) - 1]
    data = bytearray((tier / first.key).read_bytes())
    data[len(data) // 2] ^= 0x10
    (tier / first.key).write_bytes(data)
    kept = tmp_path / "kept"
    shutil.move(tier / second.key, kept)
    page = tmp_path / "audit.html"
    code, out, _ = run("audit", "--stream", "damaged-object", "-o", "json", "--report", str(page))
    (audited,) = json.loads(out)["streams"]
    assert code == 1
    kinds = Counter((each["kind"], each["key"]) for each in audited["findings"])
    assert kinds[("damaged", first.key)] == 1
    assert kinds[("unreadable", first.key)] == 1  # its records have no other copy
    assert kinds[("missing", second.key)] == 1
    assert audited["digest"] is None
    assert first.key in page.read_text() and "Something is wrong." in page.read_text()
    code, out, _ = run("audit", "--stream", "damaged-object")
    assert code == 1 and first.key in out
    data[len(data) // 2] ^= 0x10
    (tier / first.key).write_bytes(data)
    shutil.move(kept, tier / second.key)
    assert run("audit", "--stream", "damaged-object")[0] == 0


def test_an_audit_compares_the_tiers(address: ClusterAddress, doubled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot copy that differs in one record is found, by its offset and column: here its reader shows another value."""
    read = audit_tasks._Part._tables

    def changed(self: Any, preference: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for batch in read(self, preference, start, end):
            rows = batch.to_pylist()
            for row in rows:
                if preference == "hot_only" and row["offset"] == 1_234:
                    row["value"] = b"another"
            yield pa.RecordBatch.from_pylist(rows, schema=batch.schema)

    client = address.client()
    plan = client.run(plan_stream(client.asynchronous, "jobs-doubled"))
    piece = next(each for each in plan.pieces if each.copies == "both" and each.start <= 1_234 < each.end)
    task = {"kind": "records", "stream": plan.name, "stream_id": plan.stream_id, "start": piece.start, "end": piece.end}
    task["pieces"] = [asdict(piece)]
    assert audit_tasks.run_audit_task(address, task)["findings"] == []
    monkeypatch.setattr(audit_tasks._Part, "_tables", changed)
    (found,) = audit_tasks.run_audit_task(address, task)["findings"]
    assert (found["kind"], found["start"], found["key"]) == ("differs", 1_234, piece.key)
    assert found["text"] == "hot and tiered copy differ at offset 1234: value"


def test_an_audit_after_a_trim(address: ClusterAddress, spark: SparkSession, streams: Streams) -> None:
    """What is trimmed is not missed; an empty stream is sound."""
    streams.fill("trimmed-audit", 1_000, writers=2)
    streams.client.trim_stream("trimmed-audit", 300)
    streams.client.create_stream("trimmed-audit-empty")
    report = audit_streams(spark, address, prefix="trimmed-audit")
    assert report.is_good
    assert [(each.name, each.start, each.end, each.read_count) for each in report.streams] == [
        ("trimmed-audit", 300, 1_000, 700),
        ("trimmed-audit-empty", 0, 0, 0),
    ]


def test_an_audit_of_topics(run: Any, streams: Streams, cluster: Cluster) -> None:
    """All shards that a topic ever had, by its name or with all that there is; a table has no such offsets, and is left out."""
    topics = streams.client.topics
    topics.create("audited", TopicConfig(stream=StreamConfig(hot_retention_seconds=1, **SMALL_RANGES)), shards=2)
    streams.client.tables.create("audited-table")
    with streams.client.producer("audited") as producer:
        for number in range(COUNT):
            producer.submit(b"%d" % number * 10, key=b"key-%d" % (number % 7))
        producer.flush()
        topics.scale("audited", [0], 2)
        producer.submit(b"the last", key=b"key-0")
    code, out, _ = run("audit", "--topic", "audited", "-o", "json")
    audited = json.loads(out)["streams"]
    assert code == 0, audited
    assert [each["name"] for each in audited] == [f"default/audited shard {number}" for number in range(4)]
    assert sum(each["read_count"] for each in audited) == COUNT + 1
    assert all(each["digest"] for each in audited)
    everything = json.loads(run("audit", "-o", "json")[1])["streams"]
    names = [each["name"] for each in everything]
    assert len(names) == len(set(names)) and {each["name"] for each in audited} < set(names)
    assert not [name for name in names if "audited-table" in name]
    code, _, err = run("audit", "--topic", "audited-table")
    assert (code, err.count("\n")) == (1, 1) and "table" in err
    code, _, err = run("audit", "--topic", "no-such-topic")
    assert (code, err.count("\n")) == (1, 1) and "no-such-topic" in err
    (stored, *_) = next(found for each in audited if (found := _objects(streams, each["stream_id"])))
    path = next(cluster.directory.rglob(stored.key))
    path.write_bytes(path.read_bytes()[:-1])
    code, out, _ = run("audit", "--topic", "audited")
    assert (
        code == 1 and "default/audited shard" in out and f"damaged  [{stored.start_offset}, {stored.end_offset})" in out
    )
