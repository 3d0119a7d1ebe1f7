"""The batch data source: `spark.read.format("rangelog").option("pd", …).option("stream", …).load()`.

Columns: offset bigint, timestamp timestamp, key binary, value binary, headers map<string, binary>; with payload=false only
the first two. One input partition per range, or per `records_per_partition` records of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType, TimestampType

from rangelog.spark.options import Options, parse_options

_COLUMNS = [
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("key", BinaryType(), nullable=True),
    StructField("value", BinaryType(), nullable=False),
    StructField("headers", MapType(StringType(), BinaryType(), valueContainsNull=True), nullable=False),
]


@dataclass
class Span(InputPartition):
    """Offsets [start, end) of the stream, all of them acked when it was planned."""

    start: int
    end: int


class RangelogReader(DataSourceReader):
    """Planned on the driver, shipped to the workers: holds options only."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[Span]:
        """Plan the spans."""
        from rangelog.spark.reading import plan_spans

        return [Span(start, end) for start, end in plan_spans(self._options)] or [Span(0, 0)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one span as Arrow record batches."""
        from rangelog.spark.reading import read_span

        assert isinstance(partition, Span)
        if partition.end > partition.start:
            yield from read_span(self._options, partition.start, partition.end)


class RangelogSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rangelog"

    def schema(self) -> StructType:
        """The columns."""
        options = parse_options(self.options)
        return StructType(_COLUMNS if options.payload else _COLUMNS[:2])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for these options."""
        return RangelogReader(parse_options(self.options))
