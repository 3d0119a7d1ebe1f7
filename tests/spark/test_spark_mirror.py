"""The job `mirror`: what a record of Kafka becomes, and what is said without its package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rangelog.sync
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import InvalidArgument, MissingExtra
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.mirror import NULL_VALUE_HEADER, MirrorOptions, mirror_topic, to_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_what_kafka_has_becomes_a_record(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client, address: ClusterAddress
) -> None:
    """Key, value, headers and time come through the sink; null values and repeated headers as documented."""
    schema = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
        "headers array<struct<key: string, value: binary>>"
    )
    at = "timestamp_millis(1357000000123)"
    rows = spark.sql(
        f"""SELECT * FROM VALUES
        (X'6b', X'76', 't', 0, 0L, {at}, 0, array(named_struct('key', 'a', 'value', X'01'))),
        (NULL, NULL, 't', 0, 1L, {at}, 0, NULL),
        (X'', X'', 't', 0, 2L, {at}, 0, array(named_struct('key', 'a', 'value', X'01'),
            named_struct('key', 'b', 'value', NULL), named_struct('key', 'a', 'value', X'02')))
        AS kafka (key, value, topic, partition, offset, timestamp, timestampType, headers)"""
    )
    frame = spark.createDataFrame(rows.collect(), schema).coalesce(1)
    client.create_stream("mirrored")
    writer = to_records(frame).write.format("rangelog").options(**address.to_sink_options(stream="mirrored"))
    writer.mode("append").save()
    assert [(r.key, r.value, r.timestamp_ms, dict(r.headers)) for r in client.reader("mirrored")] == [
        (b"k", b"v", 1_357_000_000_123, {"a": b"\x01"}),
        (None, b"", 1_357_000_000_123, {NULL_VALUE_HEADER: b""}),
        (b"", b"", 1_357_000_000_123, {"b": b"", "a": b"\x02"}),
    ]


def test_a_mirror_without_its_package(
    address: ClusterAddress, spark: SparkSession, client: rangelog.sync.Client, tmp_path: Path
) -> None:
    """It says what to pass, with the versions of this Spark."""
    client.create_stream("mirror-lacks")
    options = MirrorOptions("127.0.0.1:9", "t", "mirror-lacks", str(tmp_path / "c"))
    with pytest.raises(MissingExtra, match=rf"spark-sql-kafka-0-10_2\.13:{re.escape(spark.version)}"):
        mirror_topic(spark, address, options)


# ---- bad input


def test_a_bad_mirror(address: ClusterAddress, spark: SparkSession, tmp_path: Path) -> None:
    """What is wrong with the options is said before Kafka is looked for."""
    with pytest.raises(InvalidArgument, match="--kafka is host:port"):
        mirror_topic(spark, address, MirrorOptions("nowhere", "t", "s", str(tmp_path)))
