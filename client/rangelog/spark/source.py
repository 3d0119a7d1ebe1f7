"""The batch data source: `spark.read.format("rangelog").option("pd", …).option("stream", …).load()`.

Columns: offset bigint, timestamp timestamp, key binary, value binary, headers map<string, binary>; with payload=false only
the first two. One input partition per range, or per `records_per_partition` records of one.

Spark shows a traceback with every error of a source; errors are raised again without theirs, so that it has one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType, TimestampType

from rangelog.spark.options import Options, parse_options
from rangelog_core.errors import RangelogError

_COLUMNS = [
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("key", BinaryType(), nullable=True),
    StructField("value", BinaryType(), nullable=False),
    StructField("headers", MapType(StringType(), BinaryType(), valueContainsNull=True), nullable=False),
]


@dataclass
class Span(InputPartition):
    """Offsets [start, end) of one stream, all of them acked when the read was planned."""

    stream_id: int
    start: int
    end: int


class RangelogReader(DataSourceReader):
    """The reader of one read. Spark sends it from the driver to the workers, so it holds options only."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[Span]:
        """Return the spans of the read, one per Spark task."""
        from rangelog.spark.reading import plan_spans

        try:
            stream_id, spans = plan_spans(self._options)
            return [Span(stream_id, start, end) for start, end in spans] or [Span(stream_id, 0, 0)]
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one span as Arrow RecordBatches."""
        from rangelog.spark.reading import read_span

        assert isinstance(partition, Span)
        try:
            if partition.end > partition.start:
                yield from read_span(self._options, partition.stream_id, partition.start, partition.end)
        except RangelogError as error:
            raise error.with_traceback(None) from None


class RangelogSource(DataSource):
    """The batch data source with the format name `rangelog`."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rangelog"

    def schema(self) -> StructType:
        """The columns of the read."""
        return StructType(_COLUMNS if self._parsed().payload else _COLUMNS[:2])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the given options."""
        return RangelogReader(self._parsed())

    def _parsed(self) -> Options:
        try:
            return parse_options(self.options)
        except RangelogError as error:
            raise error.with_traceback(None) from None
