"""Spark reads streams, hot and tiered in one table, and says what is wrong with a question."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

from rangelog_cli.local.ports import free_ports
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import (
    ConfigInvalid,
    InvalidArgument,
    OffsetOutOfRange,
    OffsetTrimmed,
    StreamNotFound,
    Unavailable,
)
from rangelog_core.stream_config import StreamConfigChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COUNT = 10_000
SMALL_RANGES = {"range_size_bytes_max": 64 * 1024}


@pytest.fixture(scope="module")
def mixed(streams: Any) -> Any:
    """A stream of several ranges, of which some are in the object store only and the last is open."""
    filled = streams.fill("mixed", COUNT, hot_retention_seconds=1, **SMALL_RANGES)
    streams.wait_for_drops("mixed", 2)
    return filled


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Iterator[Any]:
    """`read(stream, option=value, …)`: the stream as a data frame."""

    def load(stream: str, **options: Any) -> DataFrame:
        reader = spark.read.format("rangelog").option("pd", cluster.connect_string).option("stream", stream)
        return reader.options(**options).load()

    return load


@pytest.fixture(scope="module", autouse=True)
def nobody(spark: SparkSession) -> Iterator[tuple[str, Future[Any]]]:
    """An address where nobody listens, and a query that is asking there while the other tests run: it takes a while."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with ThreadPoolExecutor(1) as thread:
        frame = spark.read.format("rangelog").options(pd=address, stream="s")
        yield address, thread.submit(lambda: frame.load().collect())


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """All rows by offset, as plain tuples; timestamps in ms."""
    frame = frame.selectExpr("offset", "unix_millis(timestamp)", "key", "value", "headers").orderBy("offset")
    as_bytes = lambda data: None if data is None else bytes(data)  # noqa: E731
    return [
        (offset, stamp, as_bytes(key), bytes(value), {name: bytes(each) for name, each in headers.items()})
        for offset, stamp, key, value, headers in frame.collect()
    ]


def test_found_without_registration(read: Any, mixed: Any) -> None:
    """The format is there by name, and its columns are what the documentation says."""
    assert [(field.name, field.dataType.simpleString(), field.nullable) for field in read("mixed").schema] == [
        ("offset", "bigint", False),
        ("timestamp", "timestamp", False),
        ("key", "binary", True),
        ("value", "binary", False),
        ("headers", "map<string,binary>", False),
    ]


@pytest.mark.parametrize("preference", ["hot_first", "cold_first"])
def test_hot_and_tiered_are_one_table(read: Any, mixed: Any, preference: str) -> None:
    """Every record of the stream, those without key, value or headers included, is there once and as it was appended."""
    assert rows_of(read("mixed", read_preference=preference)) == mixed.rows


def test_one_partition_per_range(read: Any, mixed: Any, streams: Any) -> None:
    """The plan has a partition per range that has records, and more when one has more of them than asked for in one."""
    _, found = streams.client.run(streams.client.asynchronous.metadata.ranges("mixed", 0))
    ranges = [
        each for each in found if each.start_offset < COUNT
    ]  # the last one may be empty: made when the one before was full
    assert len(ranges) > 3
    assert read("mixed").rdd.getNumPartitions() == len(ranges)
    frame = read("mixed", records_per_partition=500)
    sizes = [len(part) for part in frame.select("offset").rdd.glom().collect()]
    assert COUNT // 500 <= len(sizes) <= COUNT // 500 + len(ranges)
    assert max(sizes) <= 500
    assert sum(sizes) == COUNT


def test_sql_over_a_view(read: Any, spark: SparkSession, mixed: Any) -> None:
    """SQL groups and counts as Python does."""
    read("mixed").createOrReplaceTempView("mixed")
    asked = "SELECT CAST(key AS string), count(*), max(offset) FROM mixed GROUP BY 1 ORDER BY 1 NULLS FIRST"
    expected: dict[bytes | None, tuple[int, int]] = {}
    for offset, _, key, *_ in mixed.rows:
        expected[key] = (expected.get(key, (0, 0))[0] + 1, offset)
    found = {None if key is None else key.encode(): (count, last) for key, count, last in spark.sql(asked).collect()}
    assert found == expected


def test_view_by_sql_alone(spark: SparkSession, cluster: Cluster, mixed: Any) -> None:
    """A view made in SQL reads the stream."""
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW by_sql USING rangelog OPTIONS (pd '{cluster.connect_string}', stream 'mixed')"
    )
    assert spark.sql("SELECT count(*) FROM by_sql").collect()[0][0] == COUNT


def test_a_part_of_the_stream(read: Any, mixed: Any) -> None:
    """`start` and `end` cut the stream inside batches and ranges; an empty span has no rows."""
    assert rows_of(read("mixed", start=3_333, end=7_001)) == mixed.rows[3_333:7_001]
    assert rows_of(read("mixed", start=COUNT)) == []
    assert rows_of(read("mixed", start=100, end=100)) == []


def test_without_payload(read: Any, mixed: Any) -> None:
    """payload=false leaves out what is large."""
    frame = read("mixed", payload="false")
    assert frame.columns == ["offset", "timestamp"]
    assert [offset for offset, _ in frame.orderBy("offset").collect()] == list(range(COUNT))


def test_a_schema_names_the_columns(spark: SparkSession, cluster: Cluster, mixed: Any) -> None:
    """In its order; what the format does not have is refused."""
    source = spark.read.format("rangelog").option("pd", cluster.connect_string)
    frame = source.schema("value BINARY, offset LONG").load("mixed")
    assert frame.columns == ["value", "offset"]
    assert sorted((row.offset, bytes(row.value)) for row in frame.collect()) == [
        (offset, value) for offset, _, _, value, _ in mixed.rows
    ]
    for schema in ("value STRING", "val BINARY"):
        with pytest.raises(
            Exception, match=r"ConfigInvalid: the schema has a column 'val\w*' of type .* value binary,"
        ):
            source.schema(schema).load("mixed").count()


def test_a_table_by_sql_is_refused(spark: SparkSession, cluster: Cluster, mixed: Any) -> None:
    """Spark would forget where it is; the error says what to do."""
    with pytest.raises(Exception, match=r"ConfigInvalid: .* CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE in_sql USING rangelog OPTIONS (pd '{cluster.connect_string}', stream 'mixed')")


def test_an_empty_stream(read: Any, streams: Any) -> None:
    """A stream that nobody has written to is an empty table."""
    streams.client.create_stream("empty")
    assert rows_of(read("empty")) == []


def test_the_plan_is_bounded_by_what_is_acked(streams: Any, cluster: Cluster) -> None:
    """What is appended after the plan is not read, however often it runs; a new plan sees it."""
    filled = streams.fill("growing", 1_000)
    from rangelog.spark.options import parse_options
    from rangelog.spark.source import RangelogReader

    reader = RangelogReader(parse_options({"pd": cluster.connect_string, "stream": "growing"}))
    plan = reader.partitions()
    with streams.client.writer("growing") as writer:
        writer.append_batch([b"late"] * 10)
    for _ in range(2):
        values = [value.as_py() for part in plan for table in reader.read(part) for value in table.column("value")]
        assert values == [value for *_, value, _ in filled.rows]
    assert sum(part.end - part.start for part in reader.partitions()) == 1_010


def test_a_task_run_again_after_tiering_gives_the_same_rows(streams: Any, cluster: Cluster) -> None:
    """A plan made while all ranges are hot gives the same rows once their hot copies are gone."""
    from rangelog.spark.options import parse_options
    from rangelog.spark.source import RangelogReader

    streams.fill("moving", 5_000, tiered=False, **SMALL_RANGES)
    streams.client.seal_stream("moving")
    reader = RangelogReader(parse_options({"pd": cluster.connect_string, "stream": "moving"}))
    plan = reader.partitions()
    before = [[table.to_pylist() for table in reader.read(part)] for part in plan]
    streams.client.update_stream("moving", StreamConfigChange(tiered=True, hot_retention_seconds=0))
    streams.wait_for_drops("moving", len(plan))
    after = [[table.to_pylist() for table in reader.read(part)] for part in plan]
    flat = [[list(chain.from_iterable(part)) for part in run] for run in (before, after)]
    assert flat[0] == flat[1]
    assert sum(map(len, flat[0])) == 5_000


@pytest.mark.parametrize(
    ("options", "kind", "needle"),
    [
        ({"stream": "nowhere"}, StreamNotFound, "nowhere"),
        ({"stream": "bad name!"}, InvalidArgument, "bad name!"),
        ({"stream": "mixed", "colour": "red"}, ConfigInvalid, "colour"),
        ({"stream": "mixed", "start": "yesterday"}, ConfigInvalid, "start"),
        ({"stream": "mixed", "end": "-1"}, ConfigInvalid, "end"),
        ({"stream": "mixed", "payload": "maybe"}, ConfigInvalid, "payload"),
        ({"stream": "mixed", "records_per_partition": "0"}, ConfigInvalid, "records_per_partition"),
        ({"stream": "mixed", "read_preference": "warm"}, InvalidArgument, "hot_first"),
        ({"stream": "mixed", "start": str(COUNT + 1)}, OffsetOutOfRange, str(COUNT)),
        ({"stream": "mixed", "start": "20", "end": "10"}, InvalidArgument, "20"),
        ({"stream": "mixed", "end": str(COUNT + 1)}, OffsetOutOfRange, str(COUNT)),
        ({"stream": "trimmed", "start": "0"}, OffsetTrimmed, "500"),
    ],
)
def test_bad_questions(
    read: Any,
    mixed: Any,
    streams: Any,
    options: dict[str, str],
    kind: type[Exception],
    needle: str,
) -> None:
    """What is wrong reaches the user's screen by name, with the part of the question that is wrong."""
    if options["stream"] == "trimmed":
        streams.fill("trimmed", 1_000)
        streams.client.seal_stream("trimmed")
        streams.client.trim_stream("trimmed", 500)
    with pytest.raises(Exception) as caught:  # Spark wraps it in its own
        read(**options).collect()
    said = str(caught.value)
    line = next(line for line in said.splitlines() if line.startswith(f"rangelog_core.errors.{kind.__name__}: "))
    assert needle in line
    assert said.count("  File ") <= 2


def test_no_placement_driver(nobody: tuple[str, Future[Any]]) -> None:
    """Where no placement driver answers, the error says so, and where it looked."""
    address, asked = nobody
    with pytest.raises(Exception, match=Unavailable.__name__) as caught:
        asked.result(120)
    assert address in str(caught.value)
