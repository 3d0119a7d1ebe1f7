"""The job `compact`: fewer objects, the same rows, for readers of every kind, also for those in the middle."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rangelog.sync
from rangelog_cli.local.processes import Cluster
from rangelog_core.manifest import parse_manifest
from rangelog_core.object_keys import manifest_key
from rangelog_core.stream_config import StreamConfig
from rangelog_jobs.audit import audit_streams
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.compact import compact_streams
from tests.spark.conftest import START_MS, Filled, Streams
from tests.spark.job_fixtures import run
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
__all__ = ["run"]

COUNT = 24_000
SMALL: dict[str, Any] = {"range_size_bytes_max": 64 * 1024, "hot_retention_seconds": 0}


def tiered(streams: Streams, name: str, **config: Any) -> Filled:
    """A stream of about a dozen small ranges that are in the object store only."""
    filled = streams.fill(name, COUNT, flushed_every=20, **(SMALL | config))
    streams.client.seal_stream(name)
    streams.wait_for_drops(name, len(streams.hot_dropped(name)))
    return filled


def objects_of(client: rangelog.sync.Client, name: str) -> list[Any]:
    """The live objects of a stream."""
    stream_id = client.describe_stream(name).stream_id
    return list(client.run(client.asynchronous.metadata.all_objects(stream_id, 0)))


def rows_of(client: rangelog.sync.Client, name: str, **options: Any) -> list[Any]:
    """All records of a stream."""
    return [(r.offset, r.timestamp_ms, r.key, r.value, dict(r.headers)) for r in client.reader(name, **options)]


def test_few_large_objects_with_the_same_rows(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client, streams: Streams, address: ClusterAddress
) -> None:
    """For clients, for Spark, by time, for the audit and in the manifest; the earlier ones leave the store."""
    filled = tiered(streams, "compact-flights")
    before = objects_of(client, "compact-flights")
    assert len(before) > 8
    planned = compact_streams(spark, address, stream="compact-flights", dry_run=True).streams[0]
    assert len(objects_of(client, "compact-flights")) == len(before)
    report = compact_streams(spark, address, stream="compact-flights")
    (done,) = report.streams
    after = objects_of(client, "compact-flights")
    assert (
        (done.objects_before, done.objects_after) == (len(before), 1) == (planned.objects_before, planned.objects_after)
    )
    assert len(after) == 1 and after[0].size_bytes == done.bytes_after
    assert done.repacked_bytes == sum(each.size_bytes for each in before)
    assert not done.skipped and not done.failed
    assert rows_of(client, "compact-flights") == filled.rows
    at = datetime.fromtimestamp((START_MS + 20_000 * 1_001) / 1000, UTC)
    assert rows_of(client, "compact-flights", start=at) == filled.rows[20_000:]
    frame = spark.read.format("rangelog").options(pd=cluster.connect_string, stream="compact-flights").load()
    assert frame.count() == COUNT
    assert frame.where("offset >= 23990").count() == 10
    assert audit_streams(spark, address, stream="compact-flights").is_good
    tier = Path(client.run(client.asynchronous.metadata.tier_url()).removeprefix("file://"))
    eventually(lambda: not any((tier / each.key).exists() for each in before), "the earlier objects stay")
    manifest = tier / manifest_key(after[0].stream_id, "compact-flights")
    eventually(
        lambda: [each.key for each in parse_manifest(manifest.read_bytes(), "it").objects] == [after[0].key],
        "the manifest names others",
        30.0,
    )
    assert rows_of(client, "compact-flights") == filled.rows
    assert compact_streams(spark, address, stream="compact-flights").streams[0].repacked_bytes == 0


def test_readers_go_on_while_objects_are_replaced(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client, streams: Streams, address: ClusterAddress
) -> None:
    """A reader that has listed them, and a Spark query that was planned before, find the records in the new ones."""
    filled = tiered(streams, "compact-read")
    before = objects_of(client, "compact-read")
    reader = iter(client.reader("compact-read"))
    seen = [next(reader) for _ in range(100)]
    options = {"pd": cluster.connect_string, "stream": "compact-read"}
    frame = spark.read.format("rangelog").options(**options).load()
    rows = frame.rdd.map(lambda row: row.offset)  # planned
    assert rows.getNumPartitions() >= 1
    compact_streams(spark, address, stream="compact-read", target_bytes=128 * 1024)
    tier = Path(client.run(client.asynchronous.metadata.tier_url()).removeprefix("file://"))
    live = {each.key for each in objects_of(client, "compact-read")}
    gone = [each for each in before if each.key not in live]
    assert len(gone) > 4
    eventually(lambda: not any((tier / each.key).exists() for each in gone), "the earlier objects stay")
    seen += list(reader)
    assert [(r.offset, r.value) for r in seen] == [(row[0], row[3]) for row in filled.rows]
    assert sorted(rows.collect()) == list(range(COUNT))


def test_the_shards_of_a_topic(
    spark: SparkSession, client: rangelog.sync.Client, streams: Streams, run: Callable[..., tuple[int, str, str]]
) -> None:
    """By the topic's name; its records, in order of keys, are what they were."""
    from rangelog import AppendRecord, TopicConfig

    config = TopicConfig(stream=StreamConfig(**SMALL))
    client.topics.create("compact-topic", config, shards=2)
    with client.producer("compact-topic") as producer:
        for first in range(0, 6_000, 50):
            numbers = range(first, first + 50)
            producer.send_batch([AppendRecord(b"%d" % number * 12, key=b"key-%d" % (number % 7)) for number in numbers])
    end = client.topics.cut("compact-topic", "tail")
    before = [(r.key, r.value) for r in client.topic_reader("compact-topic", end=end)]
    code, out, _ = run("compact", "--topic", "compact-topic", "--target-size", "10m", "-o", "json")
    assert code == 0
    report = json.loads(out)
    assert len(report["streams"]) == 2
    after = [(r.key, r.value) for r in client.topic_reader("compact-topic", end=end)]
    assert sorted(after) == sorted(before)
    for key in {key for key, _ in before}:
        assert [value for each, value in after if each == key] == [value for each, value in before if each == key]


def test_damage_is_left_alone_and_said(
    client: rangelog.sync.Client, streams: Streams, run: Callable[..., tuple[int, str, str]]
) -> None:
    """The repacks without the damaged object are done; it is named, and the exit code is 1."""
    tiered(streams, "compact-damaged")
    before = objects_of(client, "compact-damaged")
    tier = Path(client.run(client.asynchronous.metadata.tier_url()).removeprefix("file://"))
    path = tier / before[1].key
    path.write_bytes(path.read_bytes()[:-3])
    code, out, _ = run("compact", "--stream", "compact-damaged", "--target-size", "64k")
    after = {each.key for each in objects_of(client, "compact-damaged")}
    assert code == 1 and "FAILED" in out and before[1].key in out
    assert before[1].key in after
    assert len(after) < len(before)


def test_what_is_wrong_is_said_in_one_sentence(run: Callable[..., tuple[int, str, str]]) -> None:
    """Unknown names and sizes."""
    for argv, code, said in (
        (("--stream", "no-such"), 1, "no stream 'no-such'"),
        (("--prefix", "no-such"), 1, "no stream has a name"),
        (("--topic", "no-such"), 1, "no-such"),
        (("--target-size", "1k"), 2, "64k to 2g"),
        (("--target-size", "x"), 2, "is not a number of bytes"),
        (("--stream", "a", "--topic", "b"), 2, "not allowed"),
    ):
        found, _, err = run("compact", *argv)
        assert found == code and said in err and "Traceback" not in err, err
