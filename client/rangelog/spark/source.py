"""The batch data source: `spark.read.format("rangelog").option("pd", …).option("stream", …).load()`, or with "topic".

Columns: offset bigint, timestamp timestamp, key binary, value binary, headers map<string, binary>; with payload=false only
the first two. A topic has the column shard bigint before them. A schema that the user gives names some of them; the others do
not leave the Python process. One input partition per range, or per `records_per_partition` records or `bytes_per_partition`
bytes of one; of a topic per shard and range. Rows of one partition are in order of offset.

Conditions on offset, timestamp, key and shard are applied here if they are in the option `where`, or if Spark pushes them and
the option `pushdown` says that they may be taken: what no row group and no replica has of such rows is not read.

Of a stream each action reads what is acked when it is planned. Of a topic `load()` takes a snapshot, two cuts: all actions on
the data frame read the same records, those between the cuts, whatever is produced, split or merged since.

Spark shows a traceback with every error of a source; errors are raised again without theirs, so that it has one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.types import BinaryType, LongType, MapType, StringType, StructField, StructType, TimestampType

from rangelog.spark.options import Options, parse_options
from rangelog.spark.sink_options import parse_sink_options
from rangelog.spark.stream_options import check_not_streaming, is_for_streaming, parse_stream_options
from rangelog.spark.where import parse_where
from rangelog_core.errors import ConfigInvalid, RangelogError, Unavailable

if TYPE_CHECKING:
    from rangelog.spark.topic_planning import TopicSnapshot

_COLUMNS = [
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("key", BinaryType(), nullable=True),
    StructField("value", BinaryType(), nullable=False),
    StructField("headers", MapType(StringType(), BinaryType(), valueContainsNull=True), nullable=False),
]
Shown = tuple[tuple[str, bool], ...]
"""Names of columns, and whether the schema lets them be null."""
_SHARD = StructField("shard", LongType(), nullable=False)
_STREAM = StructField("stream", StringType(), nullable=False)
_TOPIC = StructField("topic", StringType(), nullable=False)


@dataclass
class Span(InputPartition):
    """Offsets [start, end) of one stream, all of them acked when the read was planned. `shard_id`: of a topic's streams."""

    stream_id: int
    start: int
    end: int
    shard_id: int | None = None


class RangelogReader(DataSourceReader):
    """The reader of one read. Spark sends it from the driver to the workers, so it holds plain values only."""

    def __init__(self, options: Options, snapshot: TopicSnapshot | None = None, columns: Shown | None = None) -> None:
        """`snapshot`: of a topic. `columns`: those that rows have, if not all."""
        self._options = options
        self._columns = columns
        self._snapshot = snapshot
        self._selection = parse_where(options.where, of_topic=snapshot is not None)

    def partitions(self) -> list[Span]:
        """Return the spans of the read, one per Spark task."""
        try:
            return self._spans() or [Span(0, 0, 0)]
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def _spans(self) -> list[Span]:
        if self._snapshot is not None:
            from rangelog.spark.topic_planning import plan_shards

            return [
                Span(stream_id, start, end, shard_id)
                for shard_id, stream_id, start, end in plan_shards(self._options, self._snapshot, self._selection)
            ]
        from rangelog.spark.planning import plan_spans

        stream_id, spans = plan_spans(self._options, self._selection)
        return [Span(stream_id, start, end) for start, end in spans]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield one span as Arrow RecordBatches."""
        from rangelog.spark.reading import read_span, with_columns

        assert isinstance(partition, Span)
        try:
            if partition.end > partition.start:
                span = (partition.stream_id, partition.start, partition.end, partition.shard_id)
                for batch in read_span(self._options, self._selection, *span):
                    yield batch if self._columns is None else with_columns(batch, self._columns)
        except RangelogError as error:
            raise error.with_traceback(None) from None


class FilteringReader(RangelogReader):
    """A reader that takes the filters of its query. A class of its own: Spark refuses one where it does not push filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # Spark's name
        """Take what narrows offset, timestamp, key or shard; return the filters that are left to Spark."""
        return self._selection.take(filters)


class RangelogSource(DataSource):
    """The data source with the format name `rangelog`. Spark makes it at `load()`, and copies it for each action."""

    def __init__(self, options: dict[str, str]) -> None:
        """Keep the options: whether they are of a read or a write, the next call shows."""
        super().__init__(options)
        self._given = dict(options)
        self._read: tuple[Options, bool] | None = None
        self._snapshot: TopicSnapshot | None = None

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "rangelog"

    def schema(self) -> StructType:
        """The columns of the read. Spark asks at `load()`: check the options, and take the snapshot that all copies have."""
        try:
            options, has_names = self._begin_read()
        except RangelogError as error:
            raise error.with_traceback(None) from None
        return _schema(options, has_names=has_names)

    def _begin_read(self) -> tuple[Options, bool]:
        """Return the options, and whether rows say of which stream they are."""
        if self._read is None:
            if is_for_streaming(self._given):
                streaming = parse_stream_options(self._given)
                self._read = (streaming.read, streaming.has_names)
            else:
                options = parse_options(self._given)
                self._snapshot = _snapshot(options) if options.topic else None
                self._read = (options, False)
        return self._read

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the given options. `schema`: the one above, or what a user has given in its place."""
        try:
            check_not_streaming(self._given)
            options, _ = self._begin_read()
            columns = _chosen(schema, _schema(options, has_names=False))
        except RangelogError as error:
            raise error.with_traceback(None) from None
        return (FilteringReader if options.pushdown else RangelogReader)(options, self._snapshot, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        from rangelog.spark.stream_source import RangelogStreamReader

        try:
            options = parse_stream_options(self._given)
            return RangelogStreamReader(options, _chosen(schema, _schema(options.read, has_names=options.has_names)))
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the sink of `df.write`."""
        from rangelog.spark.sink import BatchSink, sink_of

        try:
            return BatchSink(sink_of(parse_sink_options(self._given, streaming=False), schema, overwrite=overwrite))
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the sink of a streaming query."""
        from rangelog.spark.sink import StreamSink, sink_of

        try:
            return StreamSink(sink_of(parse_sink_options(self._given, streaming=True), schema, overwrite=overwrite))
        except Unavailable as error:
            return StreamSink(error)
        except RangelogError as error:
            raise error.with_traceback(None) from None


def _schema(options: Options, *, has_names: bool) -> StructType:
    columns = _COLUMNS if options.payload else _COLUMNS[:2]
    columns = [_SHARD, *columns] if options.topic else columns
    names = [_TOPIC if options.topic else _STREAM] if has_names else []
    return StructType([*names, *columns])


def _chosen(given: StructType, known: StructType) -> Shown | None:
    """Return the columns of a schema if it is a user's. Raises ConfigInvalid for one that the format does not have."""
    types = {each.name: each.dataType for each in known.fields}
    for each in given.fields:
        if types.get(each.name) != each.dataType:
            has = ", ".join(f"{name} {kind.simpleString()}" for name, kind in types.items())
            raise ConfigInvalid(
                f"the schema has a column {each.name!r} of type {each.dataType.simpleString()}; choose from {has}, and cast "
                "what is read"
            )
    shown, whole = (tuple((each.name, each.nullable) for each in schema.fields) for schema in (given, known))
    return None if shown == whole else shown


def _snapshot(options: Options) -> TopicSnapshot:
    from rangelog.spark.topic_planning import take

    return take(options)
