"""What Spark itself makes of a source in Python that reads nothing: the bound of every batch read by such a source.

    .venv/bin/python bench/spark/ceiling.py

The source has the columns of rangelog and yields the same batch of about 2 MiB again and again.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from rangelog.arrow import HEADERS_TYPE, SCHEMA
from rangelog.spark import create_session
from rangelog.spark.source import RangelogSource
from rangelog_cli.bench.meter import CLIENT, Meter

BATCH_BYTES = 1_800 * 1_024
PARTITIONS = 8
STAMP_US = 1_357_000_000_000_000


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
        noise = os.urandom(rows * self._size)
        columns = [
            pa.array(range(rows), pa.int64()),
            pa.array([STAMP_US] * rows, pa.int64()).cast(SCHEMA.field("timestamp").type),
            pa.nulls(rows, pa.binary()),
            pa.array([noise[at : at + self._size] for at in range(0, len(noise), self._size)], pa.binary()),
            pa.array([[]] * rows, HEADERS_TYPE),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        for left in range(self._share, 0, -rows):
            yield batch.slice(0, min(left, rows))


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
    spark.stop()
    for size, runs in found.items():
        rate, per_core = (statistics.median(each) for each in zip(*runs, strict=True))
        print(
            f"ceiling: {size} B: {rate:,.0f} rows/s, {rate * size / 1e6:.0f} MB/s; for a second of Spark's processor time "
            f"{per_core:,.0f} rows, {per_core * size / 1e6:.0f} MB"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
