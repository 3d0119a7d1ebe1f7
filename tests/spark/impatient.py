"""The format "impatient": the format "rangelog", of which tasks and commits give up after seconds on a cluster that is away.

Only limits differ, and only in the processes of Spark that serve this format: what runs is the source and the sink themselves.
"""

from __future__ import annotations

import sys
from typing import Any

import pyspark.cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from rangelog.spark.sink import BatchSink, StreamSink
from rangelog.spark.source import RangelogReader, RangelogSource
from rangelog.spark.stream_source import RangelogStreamReader

LIMIT_S = 2.0


def be_impatient() -> None:
    """Shorten the limits of this process."""
    import rangelog.spark.reading
    from rangelog._client import Client
    from rangelog._metadata import Metadata
    from rangelog._sink.committer import SinkCommitter
    from rangelog._topics.topics import Topics

    rangelog.spark.reading.READ_TIMEOUT_S = LIMIT_S
    limits: tuple[tuple[Any, str], ...] = (
        (Client.writer, "open_timeout_s"),
        (Client.describe_stream, "timeout_s"),
        (Client.delete_stream, "timeout_s"),
        (Metadata.ranges, "timeout_s"),
        (SinkCommitter.commit, "timeout_s"),
        (Topics.describe, "timeout_s"),
    )
    for function, name in limits:
        assert name in function.__kwdefaults__
        function.__kwdefaults__[name] = LIMIT_S


class _Reader(RangelogReader):
    def read(self, partition: Any) -> Any:
        be_impatient()
        return super().read(partition)


class _StreamReader(RangelogStreamReader):
    def read(self, partition: Any) -> Any:
        be_impatient()
        return super().read(partition)


class _BatchSink(BatchSink):
    def commit(self, messages: list[Any]) -> None:
        be_impatient()
        super().commit(messages)

    def abort(self, messages: list[Any]) -> None:
        be_impatient()
        super().abort(messages)


class _StreamSink(StreamSink):
    def commit(self, messages: list[Any], batchId: int) -> None:
        be_impatient()
        super().commit(messages, batchId)


class ImpatientSource(RangelogSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "impatient"

    def reader(self, schema: StructType) -> DataSourceReader:
        """The reader, impatient in tasks."""
        return _as(_Reader, super().reader(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader of a streaming query, impatient in tasks."""
        return _as(_StreamReader, super().streamReader(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The sink, impatient at the commit."""
        be_impatient()
        return _as(_BatchSink, super().writer(schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The sink of a streaming query, impatient from its opening on."""
        be_impatient()
        return _as(_StreamSink, super().streamWriter(schema, overwrite))


def register(spark: SparkSession) -> None:
    """Register the format. Workers do not find this module: they get its classes by value."""
    pyspark.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(ImpatientSource)


def _as(kind: type[Any], made: Any) -> Any:
    made.__class__ = kind
    return made
