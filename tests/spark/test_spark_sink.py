"""The sink: batch writes and streaming queries into a stream, each record once and in order, whatever is run again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rangelog.sync
from rangelog_cli.local.processes import Cluster
from rangelog_core.stream_config import StreamConfig
from tests.spark.conftest import Streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def rows_of(client: rangelog.sync.Client, name: str) -> list[tuple[int, int, bytes | None, bytes, dict[str, bytes]]]:
    """All records of a stream."""
    return [(r.offset, r.timestamp_ms, r.key, r.value, dict(r.headers)) for r in client.reader(name)]


def left(client: rangelog.sync.Client) -> list[str]:
    """The streams of sinks."""
    return [each.name for each in client.list_streams("spark-sink-")]


def read(spark: SparkSession, cluster: Cluster, name: str) -> DataFrame:
    """A batch read."""
    return spark.read.format("rangelog").option("pd", cluster.connect_string).option("stream", name).load()


def write(frame: DataFrame, cluster: Cluster, name: str, **options: Any) -> None:
    """A batch write."""
    writer = frame.write.format("rangelog").option("pd", cluster.connect_string).option("stream", name)
    writer.options(**options).mode("append").save()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_copy_of_a_stream_is_that_stream(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client, streams: Streams, compression: Any
) -> None:
    """Keys, values, headers and times come through, in order of the partitions; nothing of the sink stays."""
    source, copy = f"sink-source-{compression}", f"sink-copy-{compression}"
    before = left(client)
    filled = streams.fill(source, 3_000, writers=3)
    client.create_stream(copy, StreamConfig(compression=compression))
    write(read(spark, cluster, source), cluster, copy)
    assert rows_of(client, copy) == filled.rows
    assert left(client) == before


def test_large_tasks_are_staged_and_leave_nothing(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client
) -> None:
    """Tasks of several MiB, rows of the largest size among them, are appended in order of their partitions."""
    before = left(client)
    client.create_stream("sink-large")
    frame = spark.range(0, 12, 1, 3).selectExpr(
        "CAST(id AS STRING) AS key", "CAST(repeat(CAST(id % 10 AS STRING), 1048574) AS BINARY) AS value"
    )
    write(frame, cluster, "sink-large")
    assert [(key, value) for _, _, key, value, _ in rows_of(client, "sink-large")] == [
        (b"%d" % number, b"%d" % (number % 10) * 1_048_574) for number in range(12)
    ]
    assert left(client) == before


def test_a_named_write_is_done_once(spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client) -> None:
    """The same name again appends nothing, whatever the frame; another name does."""
    client.create_stream("sink-named")
    for name, text in (("first", "a"), ("first", "b"), ("second", "c")):
        write(spark.range(2).selectExpr(f"'{text}' AS value"), cluster, "sink-named", write_id=name)
    assert [row[3] for row in rows_of(client, "sink-named")] == [b"a", b"a", b"c", b"c"]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["id"], "column 'id' cannot be written"),
        (["id AS value"], "column 'value' is bigint; it has to be binary or string"),
        (["'a' AS key"], "no column 'value'"),
        (["'a' AS value", "1.5 AS key"], "column 'key' is decimal(2,1)"),
        (["'a' AS value", "map(1, 'a') AS headers"], "column 'headers' is map<int,string>"),
        (["'a' AS value", "'b' AS VALUE"], "column 'value' cannot be written"),
        (["CAST(NULL AS STRING) AS value"], "rows have no value"),
        (["repeat('a', 1048577) AS value"], "a row makes a record of 1,048,577 bytes; the limit is 1,048,576"),
        (["'a' AS value", "map('a', CAST(NULL AS BINARY)) AS headers"], "header 'a' is null"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_written(
    spark: SparkSession, cluster: Cluster, streams: Streams, columns: list[str], said: str
) -> None:
    """A schema or a row that is no record fails the write in one sentence."""
    before = left(streams.client)
    if not list(streams.client.list_streams("sink-refuses")):
        streams.fill("sink-refuses", 5)
    with pytest.raises(Exception, match=re.escape(said)):
        write(spark.range(3).selectExpr(*columns), cluster, "sink-refuses")
    assert len(rows_of(streams.client, "sink-refuses")) == 5
    assert left(streams.client) == before


def test_options_are_checked(spark: SparkSession, cluster: Cluster) -> None:
    """An unknown option or stream, and a mode that would remove records, are named."""
    frame = spark.range(1).selectExpr("'a' AS value")
    with pytest.raises(Exception, match="unknown option 'strem'"):
        write(frame, cluster, "no-such", strem="x")
    with pytest.raises(Exception, match="'no-such'"):
        write(frame, cluster, "no-such")
    with pytest.raises(Exception, match="a stream or topic cannot be overwritten"):
        writer = frame.write.format("rangelog").option("pd", cluster.connect_string).option("stream", "no-such")
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="write_id is up to 100 letters"):
        write(frame, cluster, "no-such", write_id="a/b")


class Copying:
    """A query that copies a stream into another one or a topic, by its checkpoint."""

    def __init__(
        self, spark: SparkSession, cluster: Cluster, folder: Path, source: str, target: str, topic: str = ""
    ) -> None:
        self.spark, self.cluster, self.source = spark, cluster, source
        self.target = {"topic": topic} if topic else {"stream": target}
        self.checkpoint = folder / "checkpoint"

    def start(self, **trigger: Any) -> StreamingQuery:
        """Start it; by default it ends with what is acked now."""
        frame = (
            self.spark.readStream.format("rangelog")
            .option("pd", self.cluster.connect_string)
            .option("startingOffsets", "earliest")
            .option("maxRecordsPerTrigger", 500)
            .load(self.source)
        )
        writer = frame.writeStream.format("rangelog").option("pd", self.cluster.connect_string)
        writer = writer.options(**self.target).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self) -> None:
        """Run it to its end."""
        query = self.start()
        assert query.awaitTermination(120)

    def forget_the_last_commit(self) -> None:
        """As if the driver had died between the sink's commit and the checkpoint's: Spark then runs that batch again."""
        commits = list((self.checkpoint / "commits").iterdir())
        newest = max(int(path.name) for path in commits if path.name.isdigit())
        for path in commits:
            if path.name.lstrip(".").split(".")[0] == str(newest):
                path.unlink()


def test_a_query_copies_each_record_once(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client, streams: Streams, tmp_path: Path
) -> None:
    """Over micro-batches and restarts, also after a commit that the checkpoint has lost."""
    filled = streams.fill("sink-query-source", 2_000)
    client.create_stream("sink-query-target")
    copying = Copying(spark, cluster, tmp_path, "sink-query-source", "sink-query-target")
    copying.run()
    assert rows_of(client, "sink-query-target") == filled.rows
    copying.forget_the_last_commit()
    copying.run()
    assert rows_of(client, "sink-query-target") == filled.rows


def test_a_query_writes_a_topic(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client, streams: Streams, tmp_path: Path
) -> None:
    """Each record once, those of a key in their order, over restarts and a lost commit of the checkpoint."""
    filled = streams.fill("sink-topic-source", 1_500)
    client.topics.create("sink-topic", shards=3)
    copying = Copying(spark, cluster, tmp_path, "sink-topic-source", "", topic="sink-topic")
    copying.run()
    copying.forget_the_last_commit()
    copying.run()
    found = list(client.topic_reader("sink-topic", follow=True, end=client.topics.cut("sink-topic", "tail")))
    assert sorted((r.timestamp_ms, r.key, r.value, dict(r.headers)) for r in found) == sorted(
        (stamp, key, value, headers) for _, stamp, key, value, headers in filled.rows
    )
    for key in {row[2] for row in filled.rows} - {None}:
        stamps = [r.timestamp_ms for r in found if r.key == key]
        assert stamps == sorted(stamps)


def test_a_table_and_an_unknown_topic_are_refused(
    spark: SparkSession, cluster: Cluster, client: rangelog.sync.Client
) -> None:
    """In one sentence, before anything runs."""
    client.tables.create("sink-table")
    frame = spark.range(1).selectExpr("'a' AS value")
    for topic, said in (("sink-table", "only records can be written"), ("no-such", "no-such")):
        with pytest.raises(Exception, match=said):
            writer = frame.write.format("rangelog").option("pd", cluster.connect_string).option("topic", topic)
            writer.mode("append").save()
