"""Filters, positions in time and the size of partitions: the same rows as Spark's own filter, of far fewer bytes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

import rangelog._read.hot
import rangelog_tier.file_store
from rangelog.spark.options import parse_options
from rangelog.spark.source import FilteringReader
from rangelog_cli.local.processes import Cluster
from tests.spark.conftest import START_MS, Filled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

COUNT = 20_000
LONG = 60_000
STEP_MS = 1_001
START = datetime.fromtimestamp(START_MS / 1000, UTC)


@pytest.fixture(scope="module")
def timed(streams: Any) -> dict[str, Filled]:
    """Two streams: one that is hot, and one of which most is only in the object store."""
    hot = streams.fill("timed-hot", COUNT, flushed_every=200, range_size_bytes_max=64 * 1024, tiered=False)
    tiered = streams.fill(
        "timed-tiered", COUNT, flushed_every=200, range_size_bytes_max=64 * 1024, hot_retention_seconds=0
    )
    streams.wait_for_drops("timed-tiered", 2)
    return {"hot": hot, "tiered": tiered}


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster) -> Any:
    """`read(stream, option=value, …)`."""

    def load(stream: str, **options: Any) -> DataFrame:
        reader = spark.read.format("rangelog").option("pd", cluster.connect_string).option("stream", stream)
        return reader.options(**options).load()

    return load


def at(number: int) -> datetime:
    """The time of a record."""
    return START + timedelta(milliseconds=number * STEP_MS)


@pytest.mark.parametrize("tier", ["hot", "tiered"])
@pytest.mark.parametrize(
    ("where", "wanted"),
    [
        ("offset >= 19990", lambda n, key: n >= 19_990),
        ("offset IN (3, 15000, 99999999)", lambda n, key: n in (3, 15_000)),
        ("offset = 17 OR offset = 18", lambda n, key: n in (17, 18)),
        (f"timestamp >= '{at(10_000).isoformat()}' AND offset < 10005", lambda n, key: 10_000 <= n < 10_005),
        (f"timestamp < '{at(4).isoformat()}' AND value != X''", lambda n, key: n < 4 and n % 11),
        (f"timestamp = '{at(777).isoformat()}'", lambda n, key: n == 777),
        ("key = CAST('key-3' AS BINARY) AND offset > 19000", lambda n, key: key == b"key-3" and n > 19_000),
        ("key IS NULL AND offset < 100", lambda n, key: key is None and n < 100),
        ("NOT (offset > 12)", lambda n, key: n <= 12),
        ("offset > 30000", lambda n, key: False),
    ],
)
def test_the_rows_are_those_of_the_filter(
    read: Any, timed: dict[str, Filled], tier: str, where: str, wanted: Any
) -> None:
    """Whoever applies it."""
    filled = timed[tier]
    found = [row.offset for row in read(filled.name, pushdown=True).where(where).select("offset").collect()]
    assert sorted(found) == [number for number, _, key, *_ in filled.rows if wanted(number, key)]


def test_the_plan_leaves_out_what_is_not_wanted(read: Any, timed: dict[str, Filled]) -> None:
    """Spark is given no partition of ranges outside of the conditions, whoever pushes them."""
    window = f"timestamp >= '{at(10_000).isoformat()}' AND timestamp < '{at(12_000).isoformat()}'"
    for filled in timed.values():
        whole = read(filled.name).rdd.getNumPartitions()
        for frame in (read(filled.name, pushdown=True).where(window), read(filled.name, where=window)):
            assert frame.rdd.getNumPartitions() <= whole / 4
            assert frame.count() == 2_000


def test_a_data_frame_is_what_it_was_after_a_filtered_query(read: Any, timed: dict[str, Filled]) -> None:
    """Filters of one query are not those of the next, nor of another branch of the same one."""
    for filled in timed.values():
        frame = read(filled.name)
        assert frame.where("offset < 10").count() == 10
        assert frame.count() == COUNT
        assert frame.where("offset < 10").union(frame.where("offset >= 19995")).count() == 15
        restricted = read(filled.name, where="offset >= 100 AND key IN ('key-1', X'6b65792d32')")
        expected = sum(1 for number, _, key, *_ in filled.rows if number >= 100 and key in (b"key-1", b"key-2"))
        assert restricted.where("offset < 5000").count() < expected
        assert restricted.count() == expected


def test_positions_in_time(read: Any, timed: dict[str, Filled]) -> None:
    """The first record at or after a time begins a read, and ends one."""
    for filled in timed.values():
        frame = read(filled.name, start=at(100).isoformat(), end=(at(200) - timedelta(milliseconds=1)).isoformat())
        assert sorted(row.offset for row in frame.select("offset").collect()) == list(range(100, 200))
        assert read(filled.name, start="-1h").count() == 0  # the records are years old
        assert read(filled.name, end="-1h").count() == COUNT
        assert read(filled.name, start=at(50).isoformat(), end="7").count() == 0


def test_partitions_by_bytes(read: Any, timed: dict[str, Filled]) -> None:
    """A smaller bound gives more partitions, and the same rows; records in the object store are compressed."""
    for tier, bound in (("hot", "8k"), ("tiered", "2k")):
        whole, many = read(timed[tier].name), read(timed[tier].name, bytes_per_partition=bound)
        assert many.rdd.getNumPartitions() > 2 * whole.rdd.getNumPartitions()
        assert many.count() == COUNT


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The bytes that this process has fetched, from replicas and from the object store."""
    sizes: list[int] = []
    fetch, read_into = rangelog._read.hot.HotRange.fetch, rangelog_tier.file_store.FileStore.read_into

    async def counted_fetch(self: Any, *args: Any, **options: Any) -> Any:
        fetched = await fetch(self, *args, **options)
        sizes.extend(header.length for header, _ in fetched.batches)
        return fetched

    def counted_read(self: Any, key: str, start: int, target: memoryview, stopped: Any) -> float:
        sizes.append(len(target))
        return read_into(self, key, start, target, stopped)

    monkeypatch.setattr(rangelog._read.hot.HotRange, "fetch", counted_fetch)
    monkeypatch.setattr(rangelog_tier.file_store.FileStore, "read_into", counted_read)
    return sizes


@pytest.mark.parametrize("tiered", [False, True])
def test_a_tenth_of_the_time_costs_a_tenth_of_the_bytes(
    cluster: Cluster, streams: Any, counted: list[int], tiered: bool
) -> None:
    """At most 15 %: what lies outside is not fetched."""
    name = f"long-{tiered}"
    streams.fill(name, LONG, flushed_every=200, range_size_bytes_max=64 * 1024, hot_retention_seconds=0, tiered=tiered)
    if tiered:
        streams.client.seal_stream(name)
        streams.wait_for_drops(name, len(streams.hot_dropped(name)))
    options = parse_options({"pd": cluster.connect_string, "stream": name})

    def read_all(filters: list[Any]) -> tuple[int, int]:
        counted.clear()
        reader = FilteringReader(options)
        assert list(reader.pushFilters(filters)) == []
        rows = sum(batch.num_rows for span in reader.partitions() for batch in reader.read(span))
        return rows, sum(counted)

    rows, whole_bytes = read_all([])
    assert rows == LONG
    low, high = at(LONG // 2), at(LONG // 2 + LONG // 10)
    rows, tenth_bytes = read_all([GreaterThanOrEqual(("timestamp",), low), LessThan(("timestamp",), high)])
    assert rows == LONG // 10
    print(f"tiered={tiered}: {tenth_bytes} of {whole_bytes} bytes")
    assert tenth_bytes <= 0.15 * whole_bytes
