"""What Spark itself makes of a source in Python that reads nothing: the bound of every read by such a source.

    .venv/bin/python bench/spark/ceiling.py

The source has the columns of rangelog and yields the same batch of about 2 MiB again and again. As a stream it finds
ROWS_AT_A_TIME new rows each time that Spark asks, about as many as a micro-batch has where rates.py measures latency.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType
from queries import STEPS, steps_of

from rangelog.spark import create_session
from rangelog.spark.source import RangelogSource
from rangelog_bench.meter import CLIENT, Meter
from rangelog_tier.arrow import HEADERS_TYPE, SCHEMA

BATCH_BYTES = 1_800 * 1_024
PARTITIONS = 8
ROWS_AT_A_TIME = 400
STREAM_S = 20.0
BATCHES_SKIPPED = 10
"""The first micro-batches, which warm up."""
STAMP_US = 1_357_000_000_000_000


def random_batch(rows: int, size: int) -> pa.RecordBatch:
    """Return so many rows with values of `size` bytes."""
    columns = [
        pa.array(range(rows), pa.int64()),
        pa.array([STAMP_US] * rows, pa.int64()).cast(SCHEMA.field("timestamp").type),
        pa.nulls(rows, pa.binary()),
        pa.array([os.urandom(size) for _ in range(rows)], pa.binary()),
        pa.array([[]] * rows, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class CeilingReader(DataSourceReader):  # type: ignore[misc]
    """Yields `count` rows with values of `size` bytes."""

    def __init__(self, size: int, count: int) -> None:
        self._size = size
        self._share = count // PARTITIONS

    def partitions(self) -> list[InputPartition]:
        """Of equal size."""
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield slices of one batch."""
        rows = BATCH_BYTES // self._size
        batch = random_batch(rows, self._size)
        for left in range(self._share, 0, -rows):
            yield batch.slice(0, min(left, rows))


class CeilingStream(DataSourceStreamReader):  # type: ignore[misc]
    """Has ROWS_AT_A_TIME more rows at each look."""

    def initialOffset(self) -> dict[str, int]:
        """Nothing."""
        return {"rows": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        """More."""
        return {"rows": start["rows"] + ROWS_AT_A_TIME}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield them."""
        yield random_batch(ROWS_AT_A_TIME, 1_024)


class CeilingSource(DataSource):  # type: ignore[misc]
    """The format `ceiling`, with the options `size` and `count`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "ceiling"

    def schema(self) -> StructType:
        """That of a stream."""
        return RangelogSource({"pd": "127.0.0.1:1", "stream": "none"}).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return CeilingReader(int(self.options["size"]), int(self.options["count"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a query."""
        return CeilingStream()


def micro_batches(spark: SparkSession) -> dict[str, float]:
    """Run micro-batches as fast as they go; return how long one takes, and each of its steps, in ms."""

    def look(batch: DataFrame, _: int) -> None:
        batch.where("length(value) = 1024").selectExpr("substring(value, 1, 16) AS head").toArrow()

    with tempfile.TemporaryDirectory() as checkpoint:
        writer = spark.readStream.format("ceiling").load().writeStream.foreachBatch(look)
        query = writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start()
        try:
            query.awaitTermination(STREAM_S)
        finally:
            query.stop()
        counted = query.recentProgress[BATCHES_SKIPPED:]
    if not counted:
        raise RuntimeError(f"no more than {BATCHES_SKIPPED} micro-batches in {STREAM_S:g} s: nothing to measure")
    return steps_of(counted)


def main() -> int:
    """Measure both sizes of rates.py in turn; the first round warms up and is not counted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    rounds = parser.parse_args().rounds
    spark = create_session("ceiling", spark_driver_memory="3g")
    spark.dataSource.register(CeilingSource)
    found: dict[int, list[tuple[float, float]]] = {100: [], 1_024: []}
    for number in range(rounds + 1):
        for size, count in ((100, 5_000_000), (1_024, 1_000_000)):
            frame = spark.read.format("ceiling").options(size=str(size), count=str(count)).load()
            meter, begun_s = Meter({}), time.perf_counter()
            (row,) = frame.selectExpr("count(1)", "sum(length(value))").collect()
            took_s = time.perf_counter() - begun_s
            used: dict[str, Any] = meter.stop()
            if tuple(row) != (count, count * size):
                raise RuntimeError(f"{row} in place of {count} rows")
            if number:
                found[size].append((count / took_s, count / used["cpu_s"][CLIENT]))
    steps = micro_batches(spark)
    spark.stop()
    print("ceiling: a micro-batch: " + ", ".join(f"{step} {steps[f'{step}_ms']:.0f} ms" for step in STEPS))
    for size, runs in found.items():
        rate, per_core = (statistics.median(each) for each in zip(*runs, strict=True))
        print(
            f"ceiling: {size} B: {rate:,.0f} rows/s, {rate * size / 1e6:.0f} MB/s; for a second of Spark's processor time "
            f"{per_core:,.0f} rows, {per_core * size / 1e6:.0f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
