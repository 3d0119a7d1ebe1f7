"""Spark reads topics: all shards in one table, which stays what it was through splits, merges and tiering."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import rangelog.sync
from rangelog import Cut, ProducerAck, TopicConfig, TopicConfigChange, errors
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RangelogError
from rangelog_core.ids import shard_stream_name
from rangelog_core.stream_config import StreamConfig, StreamConfigChange
from tests.spark.conftest import START_MS
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
MOVING = TopicConfig(stream=StreamConfig(range_size_bytes_max=64 * 1024, hot_retention_seconds=1))
"""Ranges are full soon, and their hot copies go soon."""
ROUND = 3_000
FLUSHED_EVERY = 100

Row = tuple[int, int, int, bytes | None, bytes, dict[str, bytes]]
"""Shard, offset, ms, key, value, headers."""


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Callable[..., DataFrame]:
    """`read(topic, option=value, …)`: the topic as a data frame."""

    def load(topic: str, **options: Any) -> DataFrame:
        reader = spark.read.format("rangelog").option("pd", cluster.connect_string).option("topic", topic)
        return reader.options(**options).load()

    return load


class Producer:
    """Fills a topic, and knows by the acks where each record is."""

    def __init__(self, client: rangelog.sync.Client, topic: str, *, shards: int, config: TopicConfig) -> None:
        self.client, self.topic = client, topic
        self.topic_id = client.topics.create(topic, config, shards=shards, timeout_s=30).topic_id
        self.rows: dict[tuple[int, int], Row] = {}
        self._number = 0

    def send(self, count: int) -> None:
        """Send numbered records; some have no key, value or headers."""
        first, self._number = self._number, self._number + count
        for row in self.client.run(self._send(range(first, self._number))):
            assert row[:2] not in self.rows
            self.rows[row[:2]] = row

    async def _send(self, numbers: range) -> list[Row]:
        """On the loop of the client: a record that another thread submits costs two changes of threads."""
        sent: list[tuple[int, bytes | None, bytes, dict[str, bytes], Awaitable[ProducerAck]]] = []
        async with self.client.asynchronous.producer(self.topic) as producer:
            for number in numbers:
                key = None if number % 5 == 0 else b"key-%d" % (number % 13)
                value = b"" if number % 11 == 0 else b"%06d" % number * (number % 4 + 20)
                headers = {"number": b"%d" % number, "empty": b""} if number % 3 == 0 else {}
                stamp = START_MS + number
                sent.append(
                    (stamp, key, value, headers, producer.submit(value, key=key, headers=headers, timestamp=stamp))
                )
                if not number % FLUSHED_EVERY:
                    await producer.flush()
        found: list[Row] = []
        for stamp, key, value, headers, acked in sent:
            ack = await acked
            found.append((ack.shard, ack.offset, stamp, key, value, headers))
        return found

    def expected(self) -> list[Row]:
        """All that was acked so far, by shard and offset."""
        return [self.rows[place] for place in sorted(self.rows)]

    def current(self) -> list[int]:
        """The ids of the current shards, in order of keys."""
        return [shard.shard_id for shard in self.client.topics.shards(self.topic)]

    def hot_dropped(self) -> list[bool]:
        """For each range of each shard that has records, whether its hot copies are gone."""
        metadata = self.client.asynchronous.metadata
        found = []
        for shard in self.client.topics.shards(self.topic, include_ended=True):
            name = shard_stream_name(self.topic_id, shard.shard_id)
            _, ranges = self.client.run(metadata.ranges(name, 0, stream_id=shard.stream_id))
            found += [each.hot_dropped for each in ranges if (shard.shard_id, each.start_offset) in self.rows]
        return found


@pytest.fixture(scope="module")
def scaled(client: rangelog.sync.Client) -> Producer:
    """A topic that was split and merged while it was written to; some of its ranges are in the object store only."""
    producer = Producer(client, "scaled", shards=2, config=MOVING)
    producer.send(ROUND)
    client.topics.scale("scaled", producer.current()[:1], 3)
    producer.send(ROUND)
    client.topics.scale("scaled", producer.current()[1:], 1)
    producer.send(ROUND)
    eventually(lambda: sum(producer.hot_dropped()) >= 4, "the hot copies of the topic stay")
    stays = TopicConfigChange(stream=StreamConfigChange(hot_retention_seconds=float("inf")))
    client.topics.update("scaled", stays)
    eventually(lambda: client.topics.describe("scaled").state == "active", "the topic is being updated", 30.0)
    producer.send(ROUND)
    return producer


def rows_of(frame: DataFrame) -> list[Row]:
    """All rows in the order in which Spark gives them, as plain tuples; timestamps in ms."""
    found = frame.selectExpr("shard", "offset", "unix_millis(timestamp)", "key", "value", "headers").collect()
    return [
        (shard, offset, stamp, _bytes(key), bytes(value), {name: bytes(each) for name, each in headers.items()})
        for shard, offset, stamp, key, value, headers in found
    ]


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


def raised(action: Callable[[], object], kind: type[RangelogError]) -> str:
    """The line of the user's screen that names this error; what Spark shows beside it is short."""
    with pytest.raises(Exception) as caught:  # Spark wraps it in its own
        action()
    said = str(caught.value)
    (line, *_) = [
        each for each in said.splitlines() if each.startswith(f"rangelog_core.errors.{kind.__name__}: ")
    ] or pytest.fail(said)
    assert said.count("  File ") <= 3, said
    return line


def test_the_columns_of_a_topic(read: Callable[..., DataFrame], scaled: Producer) -> None:
    """Those of a stream behind the shard; without payload what is small."""
    assert [(field.name, field.dataType.simpleString(), field.nullable) for field in read("scaled").schema] == [
        ("shard", "bigint", False),
        ("offset", "bigint", False),
        ("timestamp", "timestamp", False),
        ("key", "binary", True),
        ("value", "binary", False),
        ("headers", "map<string,binary>", False),
    ]
    frame = read("default/scaled", payload="false")
    assert frame.columns == ["shard", "offset", "timestamp"]
    assert [tuple(row) for row in frame.select("shard", "offset").collect()] == sorted(scaled.rows)


@pytest.mark.parametrize("preference", ["hot_first", "cold_first"])
def test_a_topic_is_one_table(read: Callable[..., DataFrame], scaled: Producer, preference: str) -> None:
    """Each acked record once, at its shard and offset, whether its shard has ended and its range is tiered or not."""
    dropped = scaled.hot_dropped()
    assert any(dropped) and not all(dropped)
    assert len({shard for shard, _ in scaled.rows}) >= 5
    assert sorted(rows_of(read("scaled", read_preference=preference))) == scaled.expected()


def test_partitions_are_in_order(read: Callable[..., DataFrame], scaled: Producer) -> None:
    """One for each range of each shard, or for a part of one; rows by offset, and a shard behind those that precede it."""
    frame = read("scaled")
    assert frame.rdd.getNumPartitions() == len(scaled.hot_dropped())
    parts = read("scaled", records_per_partition=250).select("shard", "offset").rdd.glom().collect()
    assert max(map(len, parts)) <= 250
    for part in parts:
        (shard,) = {row.shard for row in part}
        first = part[0].offset
        assert [tuple(row) for row in part] == [(shard, first + number) for number in range(len(part))]
    assert rows_of(frame) == scaled.expected()
    last: dict[bytes, int] = {}
    for _, _, stamp, key, _, _ in rows_of(frame):
        if key is not None:
            assert stamp > last.get(key, 0)
            last[key] = stamp


def test_sql_over_a_topic(spark: SparkSession, cluster: Cluster, scaled: Producer) -> None:
    """Records are counted by key and by shard as in what was sent."""
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW scaled USING rangelog OPTIONS (pd '{cluster.connect_string}', topic 'scaled')"
    )
    found = spark.sql("SELECT shard, CAST(key AS string) AS name, count(*) FROM scaled GROUP BY 1, 2").collect()
    expected: dict[tuple[int, str | None], int] = {}
    for shard, _, _, key, _, _ in scaled.expected():
        place = shard, None if key is None else key.decode()
        expected[place] = expected.get(place, 0) + 1
    assert {(shard, name): count for shard, name, count in found} == expected


def test_a_data_frame_stays_what_it_was(read: Callable[..., DataFrame], client: rangelog.sync.Client) -> None:
    """All actions on it see the snapshot of its `load()`, whatever is produced, split, merged and tiered since."""
    producer = Producer(client, "growing", shards=1, config=MOVING)
    producer.send(ROUND)
    frame, before = read("growing"), producer.expected()
    assert frame.count() == ROUND
    client.topics.scale("growing", producer.current(), 2)
    producer.send(ROUND)
    client.topics.scale("growing", producer.current(), 1)
    producer.send(ROUND)
    eventually(lambda: sum(producer.hot_dropped()) >= 2, "the hot copies of the topic stay")
    assert frame.count() == ROUND
    assert rows_of(frame) == before
    assert frame.join(frame, ["shard", "offset"]).count() == ROUND
    assert rows_of(read("growing")) == producer.expected()


def test_from_cut_to_cut_and_from_time_to_time(read: Callable[..., DataFrame], client: rangelog.sync.Client) -> None:
    """Reads that join at a cut have each record once; a time divides each shard at its first record that is not earlier."""
    producer = Producer(client, "ns-less", shards=2, config=TopicConfig())
    producer.send(1_000)
    first = client.topics.cut("ns-less", "tail").to_json()
    one = producer.expected()
    client.topics.scale("ns-less", producer.current(), 3)
    producer.send(1_000)
    second = client.topics.cut("ns-less", "tail").to_json()
    two = [row for row in producer.expected() if row not in one]
    producer.send(100)
    assert rows_of(read("ns-less", end=first)) == one
    assert rows_of(read("ns-less", start=first, end=second)) == two
    assert rows_of(read("ns-less", start=second, end=second)) == []
    middle = datetime.fromtimestamp((START_MS + 500) / 1000, UTC).isoformat()
    early, late = rows_of(read("ns-less", end=middle)), rows_of(read("ns-less", start=middle))
    assert sorted(early + late) == producer.expected()
    assert max(row[2] for row in early) < START_MS + 500 <= min(row[2] for row in late)


def test_truncated_parts_are_gone_and_said_so(read: Callable[..., DataFrame], client: rangelog.sync.Client) -> None:
    """A new read begins behind them; a cut that names them, and a data frame from before, are errors that say where."""
    producer = Producer(client, "truncated", shards=1, config=TopicConfig())
    producer.send(1_000)
    before = read("truncated")
    client.topics.scale("truncated", [0], 2)
    producer.send(100)
    cut = Cut(producer.topic_id, {0: 600})
    client.topics.truncate("truncated", cut)
    eventually(lambda: client.topics.describe("truncated").state == "active", "the topic is being truncated", 30.0)
    assert rows_of(read("truncated")) == [row for row in producer.expected() if row[0] > 0 or row[1] >= 600]
    start = Cut(producer.topic_id, {0: 599}).to_json()
    for frame in (before, read("truncated", start=start)):
        line = raised(frame.collect, errors.OffsetTrimmed)
        assert "shard 0" in line and "600" in line


def test_an_empty_topic(read: Callable[..., DataFrame], client: rangelog.sync.Client) -> None:
    """A topic that nobody has sent to is an empty table, and so is one of which all is truncated."""
    client.topics.create("empty", shards=3)
    assert rows_of(read("empty")) == []


def test_brokers_are_not_needed(read: Callable[..., DataFrame], client: rangelog.sync.Client, cluster: Cluster) -> None:
    """With all brokers dead each acked record is read, those of open ranges among them."""
    producer = Producer(client, "orphaned", shards=2, config=TopicConfig())
    producer.send(1_000)
    for name in cluster.brokers:
        cluster.kill(name)
    try:
        assert rows_of(read("orphaned")) == producer.expected()
    finally:
        for name in cluster.brokers:
            cluster.start_member(name)


@pytest.mark.parametrize(
    ("options", "kind", "needle"),
    [
        ({"topic": "nowhere"}, errors.TopicNotFound, "default/nowhere"),
        ({"topic": "no/where"}, errors.TopicNotFound, "no/where"),
        ({"topic": "a/b/c"}, errors.InvalidArgument, "b/c"),
        ({"topic": "ledgerless"}, errors.TopicKindForbids, "default/ledgerless is a table"),
        ({"topic": "scaled", "stream": "s"}, errors.ConfigInvalid, "both a stream and a topic"),
        ({"topic": "scaled", "start": "17"}, errors.ConfigInvalid, "start"),
        ({"topic": "scaled", "end": "{}"}, errors.ConfigInvalid, "end"),
        ({"topic": "scaled", "start": Cut(999, {0: 0}).to_json()}, errors.InvalidArgument, "999"),
        ({"topic": "scaled", "end": "unknown shard"}, errors.ShardNotFound, "77"),
        ({"topic": "scaled", "end": "beyond the end"}, errors.OffsetOutOfRange, "beyond the end"),
    ],
)
def test_bad_questions(
    read: Callable[..., DataFrame],
    client: rangelog.sync.Client,
    scaled: Producer,
    options: dict[str, str],
    kind: type[RangelogError],
    needle: str,
) -> None:
    """What is wrong reaches the user's screen at `load()`, by name, with the part of the question that is wrong."""
    if options["topic"] == "ledgerless":
        client.tables.create("ledgerless")
    tail = client.topics.cut("scaled", "tail")
    cuts = {
        "unknown shard": Cut(tail.topic_id, {77: 0}).to_json(),
        "beyond the end": Cut(tail.topic_id, {each: offset + 10 for each, offset in tail.offsets.items()}).to_json(),
    }
    asked = {name: cuts.get(value, value) for name, value in options.items()}
    assert needle in raised(lambda: read(**asked), kind)


def test_a_topic_that_is_deleted(
    read: Callable[..., DataFrame], client: rangelog.sync.Client, cluster: Cluster
) -> None:
    """Reads and planned tasks end with an error that names it, also when its name is used again."""
    from rangelog.spark.source import RangelogSource

    Producer(client, "deleted", shards=2, config=TopicConfig()).send(1_000)
    frame = read("deleted")
    source = RangelogSource({"pd": cluster.connect_string, "topic": "deleted"})
    reader = source.reader(source.schema())
    tasks = reader.partitions()
    assert sum(len(list(reader.read(task))) for task in tasks) >= 2
    client.topics.delete("deleted", force=True)
    assert "'default/deleted'" in raised(lambda: read("deleted"), errors.TopicNotFound)
    client.topics.create("deleted")
    assert "was deleted" in raised(frame.collect, errors.TopicNotFound)
    with pytest.raises(errors.TopicNotFound, match="was deleted"):
        list(reader.read(tasks[0]))
    assert rows_of(read("deleted")) == []


def test_the_examples_of_the_documentation(
    spark: SparkSession, client: rangelog.sync.Client, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The examples of docs/api/spark.md run as they are printed there, and show what they say."""
    codes = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api" / "spark.md").read_text(), re.DOTALL)
    for code in codes:
        assert "127.0.0.1:7100" in code
        exec(compile(code.replace("127.0.0.1:7100", cluster.connect_string), "docs/api/spark.md", "exec"), {})
    printed = capsys.readouterr().out
    said = ["60 records", "15 records", "1000 records", "1200 records", "[100, 100, 50] records", "[30] records"]
    assert [line for line in printed.splitlines() if line.endswith(" records")] == said, printed
