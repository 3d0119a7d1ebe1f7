"""Streaming queries: all records once, in bounded batches, over restarts, new ranges, splits, tiering and trims."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

import rangelog.sync
from rangelog import TopicConfig
from rangelog_cli.local.processes import Cluster
from rangelog_core.stream_config import StreamConfig
from tests.spark.conftest import START_MS
from tests.support.waiting import arrives, eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ENDS_S = 120
FLUSHED_EVERY = 20
AT_99_SECONDS = (datetime.fromtimestamp(START_MS / 1000, UTC) + timedelta(seconds=99.5)).isoformat()


class Queries:
    """Starts queries whose batches are kept, each with its rows."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder
        self.batches: list[list[tuple[Any, ...]]] = []
        self.backlogs: list[dict[str, int]] = []
        """Of the last run: what each micro-batch left, by its progress."""

    def load(self, **options: Any) -> DataFrame:
        """The streaming data frame."""
        reader = self.spark.readStream.format("rangelog").option("pd", self.cluster.connect_string)
        return reader.options(**{"startingOffsets": "earliest", **options}).load()

    def start(self, frame: DataFrame, *columns: str, name: str = "checkpoint", **trigger: Any) -> StreamingQuery:
        """Start a query on some columns; by default it ends with what is acked now."""

        def keep(batch: DataFrame, _: int) -> None:
            self.batches.append(
                [tuple(bytes(c) if isinstance(c, bytearray) else c for c in row) for row in batch.collect()]
            )

        writer = frame.selectExpr(*columns).writeStream.option("checkpointLocation", str(self.folder / name))
        return writer.foreachBatch(keep).trigger(**(trigger or {"availableNow": True})).start()

    def run(self, frame: DataFrame, *columns: str, **more: Any) -> list[tuple[Any, ...]]:
        """Run a query to its end; return its rows, in order of batches."""
        self.batches.clear()
        query = self.start(frame, *columns, **more)
        assert query.awaitTermination(ENDS_S), "the query does not end"
        latest = [each["sources"][0]["latestOffset"] for each in query.recentProgress]
        self.backlogs = [json.loads(each)["backlog"] for each in latest if each]
        return self.rows

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of all batches."""
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def queries(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Queries:
    """With a folder of its own for checkpoints."""
    return Queries(spark, cluster, tmp_path)


def append(client: rangelog.sync.Client, stream: str, numbers: range) -> None:
    """Append numbered records, a second apart."""

    async def run() -> None:
        async with client.asynchronous.writer(stream) as writer:
            for number in numbers:
                writer.append_nowait(b"%d" % number, key=b"key-%d" % (number % 7), timestamp=START_MS + 1_000 * number)
                if not number % FLUSHED_EVERY:
                    await writer.flush()
            await writer.flush()

    client.run(run())


def produce(client: rangelog.sync.Client, topic: str, numbers: range) -> None:
    """Send numbered records of a few keys."""

    async def run() -> None:
        async with client.asynchronous.producer(topic) as producer:
            for number in numbers:
                producer.send_nowait(b"%d" % number, key=b"key-%d" % (number % 13), timestamp=START_MS + number)
                if not number % FLUSHED_EVERY:
                    await producer.flush()
            await producer.flush()

    client.run(run())


def numbers_of(rows: list[tuple[Any, ...]]) -> list[int]:
    """The numbers in column `value`, which comes last."""
    return [int(row[-1]) for row in rows]


def test_a_stream_in_bounded_batches_over_restarts(client: rangelog.sync.Client, queries: Queries) -> None:
    """Each run goes on behind the last one, through new ranges; no batch is larger than asked for."""
    client.create_stream("steady", StreamConfig(range_size_bytes_max=64 * 1024))
    append(client, "steady", range(5_000))
    frame = queries.load(stream="steady", maxRecordsPerTrigger="1500")
    rows = queries.run(frame, "offset", "unix_millis(timestamp)", "key", "value")
    assert [len(batch) for batch in queries.batches] == [1_500, 1_500, 1_500, 500]
    assert queries.backlogs[:4] == [{"steady": 3_500}, {"steady": 2_000}, {"steady": 500}, {"steady": 0}]
    assert sorted(rows) == [(n, START_MS + 1_000 * n, b"key-%d" % (n % 7), b"%d" % n) for n in range(5_000)]
    append(client, "steady", range(5_000, 7_000))
    rows = queries.run(queries.load(stream="steady"), "offset", "value")
    assert sorted(numbers_of(rows)) == list(range(5_000, 7_000))
    assert queries.run(queries.load(stream="steady"), "offset", "value") == []


def test_once_is_all_that_is_there_in_one_batch(client: rangelog.sync.Client, queries: Queries) -> None:
    """`Trigger.Once` has no bounds."""
    client.create_stream("once")
    append(client, "once", range(300))
    rows = queries.run(queries.load(stream="once", maxRecordsPerTrigger="100"), "value", once=True)
    assert sorted(numbers_of(rows)) == list(range(300))
    assert len(queries.batches) == 1


def test_a_query_that_goes_on_follows_what_is_appended(client: rangelog.sync.Client, queries: Queries) -> None:
    """With a trigger; its progress says where it is and how much waits."""
    client.create_stream("following")
    queries.batches.clear()
    query = queries.start(queries.load(stream="following"), "value", processingTime="200 milliseconds")
    try:
        for start, end in ((0, 100), (100, 400), (400, 401)):
            append(client, "following", range(start, end))
            arrives(lambda: len(queries.rows), end, f"{end} records", ENDS_S, by=operator.ge)
        assert sorted(numbers_of(queries.rows)) == list(range(401))

        def told(what: str) -> int:
            source = query.lastProgress["sources"][0] if query.lastProgress else {}
            return json.loads(source[what])["streams"]["following"]["offset"] if source.get(what) else -1

        eventually(lambda: told("endOffset") == 401, "the progress does not say where the query is", ENDS_S)
        assert told("latestOffset") == 401
    finally:
        query.stop()


def test_ranges_that_are_tiered_meanwhile(client: rangelog.sync.Client, queries: Queries) -> None:
    """What the query has not read yet moves to the object store; it reads it there."""
    client.create_stream("moving-query", StreamConfig(range_size_bytes_max=64 * 1024, hot_retention_seconds=0))
    append(client, "moving-query", range(4_000))
    first = queries.run(queries.load(stream="moving-query", maxRecordsPerTrigger="1000"), "value")
    append(client, "moving-query", range(4_000, 8_000))
    client.seal_stream("moving-query")

    def dropped() -> bool:
        _, ranges = client.run(client.asynchronous.metadata.ranges("moving-query", 0))
        return all(each.hot_dropped for each in ranges)

    eventually(dropped, "the hot copies stay", ENDS_S)
    rest = queries.run(queries.load(stream="moving-query"), "value")
    assert sorted(numbers_of(first + rest)) == list(range(8_000))


@pytest.mark.parametrize(("starting", "first"), [("latest", 300), ("250", 250), (AT_99_SECONDS, 100)])
def test_where_a_query_begins(client: rangelog.sync.Client, queries: Queries, starting: str, first: int) -> None:
    """At the end, an offset, or a time; a checkpoint counts more than the option."""
    name = f"begin-{first}"
    client.create_stream(name)
    append(client, name, range(300))
    frame = queries.load(stream=name, startingOffsets=starting)
    rows = queries.run(frame, "value")
    append(client, name, range(300, 350))
    rows += queries.run(queries.load(stream=name, startingOffsets="earliest"), "value")
    assert sorted(numbers_of(rows)) == list(range(first, 350))


def test_many_streams_and_a_pattern(client: rangelog.sync.Client, queries: Queries) -> None:
    """Each row says of which stream it is; a stream that is made later and fits the pattern is read from its beginning."""
    for name in ("plant-a", "plant-b"):
        client.create_stream(name)
        append(client, name, range(200))
    rows = queries.run(queries.load(stream="plant-a, plant-b"), "stream", "offset", "value", name="list")
    assert sorted((row[0], row[1]) for row in rows) == [
        (name, n) for name in ("plant-a", "plant-b") for n in range(200)
    ]
    rows = queries.run(queries.load(streamPattern="plant-.*"), "stream", "value", name="pattern")
    client.create_stream("plant-c")
    append(client, "plant-c", range(50))
    append(client, "plant-a", range(200, 210))
    rows += queries.run(queries.load(streamPattern="plant-.*"), "stream", "value", name="pattern")
    expected = (
        [("plant-a", n) for n in range(210)]
        + [("plant-b", n) for n in range(200)]
        + [("plant-c", n) for n in range(50)]
    )
    assert sorted((row[0], int(row[1])) for row in rows) == expected


def test_a_topic_through_splits_and_merges(client: rangelog.sync.Client, queries: Queries) -> None:
    """All shards, those that end and those that follow them, each record once."""
    client.topics.create("loops", TopicConfig(), shards=2, timeout_s=30)
    produce(client, "loops", range(2_000))
    bounded = queries.load(topic="loops", maxRecordsPerTrigger="700")
    rows = queries.run(bounded, "shard", "offset", "value")
    assert max(len(batch) for batch in queries.batches) <= 700
    client.topics.scale("loops", [0], 2, timeout_s=60)
    produce(client, "loops", range(2_000, 3_000))
    shards = [shard.shard_id for shard in client.topics.shards("loops")]
    client.topics.scale("loops", shards[-2:], 1, timeout_s=60)
    produce(client, "loops", range(3_000, 4_000))
    rows += queries.run(queries.load(topic="loops", maxRecordsPerTrigger="700"), "shard", "offset", "value")
    assert sorted(numbers_of(rows)) == list(range(4_000))
    assert len({row[:2] for row in rows}) == 4_000
    assert len({row[0] for row in rows}) >= 4


def test_several_topics(client: rangelog.sync.Client, queries: Queries) -> None:
    """Each row says of which topic it is; the query begins with each where it is told, and goes on from its checkpoint."""
    for number, name in enumerate(("north", "south")):
        client.topics.create(name, TopicConfig(), shards=2, timeout_s=30)
        produce(client, name, range(number, 600))
    columns = ("topic", "shard", "offset", "value")
    begun = {"startingOffsets": '{"north": "earliest", "south": "latest"}', "maxRecordsPerTrigger": "250"}
    rows = queries.run(queries.load(topic="north, south", **begun), *columns)
    assert {row[0] for row in rows} == {"default/north"}
    assert max(len(batch) for batch in queries.batches) <= 250
    client.topics.scale("south", [0], 2, timeout_s=60)
    produce(client, "south", range(600, 900))
    produce(client, "north", range(600, 700))
    rows += queries.run(queries.load(topic="north, south", **begun), *columns)
    assert max(len(batch) for batch in queries.batches) <= 250
    found = sorted((row[0], int(row[-1])) for row in rows)
    assert found == [("default/north", n) for n in range(700)] + [("default/south", n) for n in range(600, 900)]


def test_only_what_is_wanted(client: rangelog.sync.Client, queries: Queries) -> None:
    """The option `where` holds for each batch."""
    client.create_stream("wanted")
    append(client, "wanted", range(700))
    rows = queries.run(queries.load(stream="wanted", where="key = 'key-3' AND offset >= 100"), "value")
    assert sorted(numbers_of(rows)) == [number for number in range(100, 700) if number % 7 == 3]


def failure(run: Callable[[], object]) -> str:
    """What a query fails with."""
    with pytest.raises(StreamingQueryException) as raised:
        run()
    return str(raised.value)


def test_what_was_trimmed_unread(client: rangelog.sync.Client, queries: Queries) -> None:
    """An error that says what to do; with failOnDataLoss=false it is counted in the offsets."""
    client.create_stream("trimmed-query")
    append(client, "trimmed-query", range(100))
    queries.run(queries.load(stream="trimmed-query"), "value")
    append(client, "trimmed-query", range(100, 300))
    client.seal_stream("trimmed-query")
    client.trim_stream("trimmed-query", 250)
    assert "records 100 to 249 were trimmed" in failure(
        lambda: queries.run(queries.load(stream="trimmed-query"), "value")
    )
    rows = queries.run(queries.load(stream="trimmed-query", failOnDataLoss="false"), "value")
    assert sorted(numbers_of(rows)) == list(range(250, 300))
    kept = (queries.folder / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(kept)["skipped"] == 150


def test_what_was_trimmed_unread_of_a_topic(client: rangelog.sync.Client, queries: Queries) -> None:
    """As of a stream, also where whole shards are gone."""
    client.topics.create("trimmed-topic", TopicConfig(), shards=2, timeout_s=30)
    produce(client, "trimmed-topic", range(100))
    queries.run(queries.load(topic="trimmed-topic"), "value")
    produce(client, "trimmed-topic", range(100, 300))
    client.topics.scale("trimmed-topic", [0, 1], 3, timeout_s=60)
    client.topics.truncate("trimmed-topic", client.topics.cut("trimmed-topic", "tail"))
    eventually(lambda: client.topics.describe("trimmed-topic").state == "active", "it goes on being truncated", ENDS_S)
    produce(client, "trimmed-topic", range(300, 340))
    told = failure(lambda: queries.run(queries.load(topic="trimmed-topic"), "value"))
    assert "trimmed" in told and "set failOnDataLoss=false to go on" in told
    rows = queries.run(queries.load(topic="trimmed-topic", failOnDataLoss="false"), "value")
    assert sorted(numbers_of(rows)) == list(range(300, 340))
    kept = (queries.folder / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(kept)["skipped"] == 200


def test_checkpoints_of_something_else(client: rangelog.sync.Client, queries: Queries) -> None:
    """Of another stream, of one that was deleted and made anew, of a later version."""
    for name in ("one", "other"):
        client.create_stream(name)
        append(client, name, range(10))
    queries.run(queries.load(stream="one"), "value")
    assert "the checkpoint is one of stream 'one'" in failure(
        lambda: queries.run(queries.load(stream="other"), "value")
    )
    client.delete_stream("one")
    client.create_stream("one")
    append(client, "one", range(10))
    assert "was deleted, and its name is another stream's" in failure(
        lambda: queries.run(queries.load(stream="one"), "value")
    )
    offsets = sorted((queries.folder / "checkpoint" / "offsets").glob("[0-9]*"))[-1]
    offsets.write_text(
        offsets.read_text().replace('"rangelog": 1', '"rangelog": 2').replace('"rangelog":1', '"rangelog":2')
    )
    (offsets.parent / f".{offsets.name}.crc").unlink(missing_ok=True)
    assert "are of version 2" in failure(lambda: queries.run(queries.load(stream="one"), "value"))


def test_options_of_the_other_kind_of_read(queries: Queries, spark: SparkSession, cluster: Cluster) -> None:
    """Named, before anything runs."""
    with pytest.raises(Exception, match=r"option start is for spark\.read"):
        queries.run(queries.load(stream="s", start="5"), "value")
    batch = spark.read.format("rangelog").option("pd", cluster.connect_string).option("stream", "s")
    with pytest.raises(Exception, match=r"for spark\.readStream only"):
        batch.option("failOnDataLoss", "false").load().count()
