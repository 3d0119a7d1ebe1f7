"""The sink: `df.write` and `df.writeStream`, `.format("rangelog")`, to a stream or topic, each record exactly once.

Tasks encode their rows in parallel. A task whose output is small hands it to the commit; others stage it in a stream of their
own, by partition, and hand over the span. The commit, in the driver, decides which spans make the micro-batch and appends
them in order of partitions: `rangelog._sink`.

What holds: a micro-batch of a query, by the query's id and the batch's number, is appended once, whichever tasks ran twice and
wherever the driver died. In a topic a micro-batch of up to 16 MiB appears as a whole, a larger one in several transactions;
of a stream a reader may see the first part of one before the rest. A stream has one writer, so a sink's commit fences any
other writer of its stream.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import rangelog.sync
from rangelog._sink.committer import SinkCommitter, to_stream, to_topic
from rangelog._sink.staging import Output, TaskStaging
from rangelog.spark.encoding import Encoder, check_schema
from rangelog.spark.reading import client_of
from rangelog.spark.sink_options import SINK_STREAMS, SinkOptions
from rangelog_core.batch import CODEC_NONE, CODEC_ZSTD
from rangelog_core.errors import (
    ConfigInvalid,
    RangelogError,
    StreamNotFound,
    TopicKindForbids,
    Unavailable,
)
from rangelog_core.limits import MIB
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token

INLINE_BYTES_MAX = 1 * MIB
"""A task's output up to this goes through the driver; above it into a staging stream."""
_STAGED_AT_ONCE_BYTES = 4 * MIB
_COMMITTERS_MAX = 16
_log = logging.getLogger("rangelog.sink")
_committers: dict[tuple[int, str, Token | None, TlsConfig | None, str], SinkCommitter] = {}
"""Of this process, by cluster and sink: Spark calls each commit of a query in the same process."""


@dataclass
class TaskOutput(WriterCommitMessage):
    """What a task tells the commit. `query`: the id of the streaming query."""

    query: str
    output: Output


@dataclass
class _Sink:
    """What all parts of one write know. Spark sends it from the driver to the workers, so it holds plain values only."""

    options: SinkOptions
    target_id: int
    codec: int

    def client(self) -> rangelog.sync.Client:
        """This process's client."""
        return client_of(self.options.pd, self.options.token, tls=self.options.tls)

    def name(self, query: str) -> str:
        """What the streams of a query's, or a write's, sink are named after."""
        kind = "topic" if self.options.topic else "stream"
        return f"{SINK_STREAMS}{kind}-{self.target_id}-{hashlib.sha256(query.encode()).hexdigest()[:16]}"

    def write(self, iterator: Iterator[pa.RecordBatch], query: str) -> TaskOutput:
        """Encode and stage what one attempt of a task has."""
        context = TaskContext.get()
        assert context is not None
        attempt = secrets.randbits(64)
        encoder = Encoder(attempt, self.codec)
        staging: TaskStaging | None = None
        kept: list[bytes] = []
        size = 0
        try:
            for table in iterator:
                for data in encoder.encode(table):
                    kept.append(data)
                    size += len(data)
                    if size > (INLINE_BYTES_MAX if staging is None else _STAGED_AT_ONCE_BYTES):
                        if staging is None:
                            stream = f"{self.name(query)}-{context.partitionId()}"
                            staging = TaskStaging(self.client().asynchronous, stream, attempt)
                        self.client().run(staging.add(kept))
                        kept, size = [], 0
            if staging is None:
                return TaskOutput(query, Output(attempt, encoder.records, tuple(kept)))
            self.client().run(staging.add(kept))
            return TaskOutput(query, self.client().run(staging.finish(encoder.records)))
        finally:
            if staging is not None:
                self.client().run(staging.close())

    def committer(self, query: str) -> SinkCommitter:
        """This process's committer of a query."""
        key = (os.getpid(), self.options.pd, self.options.token, self.options.tls, self.name(query))
        found = _committers.pop(key, None)
        if found is None:
            client, options = self.client().asynchronous, self.options
            if options.topic:
                found = to_topic(client, options.topic, self.target_id, self.name(query))
            else:
                found = to_stream(client, options.stream, self.target_id, self.name(query))
            while len(_committers) >= _COMMITTERS_MAX:  # the one that was used longest ago
                self.client().run(_committers.pop(next(iter(_committers))).close())
        _committers[key] = found
        return found

    def commit(self, number: int, messages: list[TaskOutput], query: str) -> bool:
        """Append a batch of work, unless it was before; return whether it was not."""
        outputs = [message.output for message in messages]
        return self.client().run(self.committer(query).commit(number, outputs))

    def check_repeat(self, number: int, messages: list[TaskOutput], query: str) -> None:
        """Check a micro-batch that was appended before. Raises PreconditionFailed: rows of it may never have been appended."""
        last = self.committer(query).last
        if last is not None and self.options.check_repeats:
            last.check_repeat(number, sum(message.output.records for message in messages))


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of a streaming query."""

    def __init__(self, sink: _Sink | Unavailable) -> None:
        """Spark makes one for the tasks of each micro-batch, one for its commit, and one for its abort.

        `sink`: of a cluster that does not answer, the error. Tasks and commits raise it; an abort needs no cluster, and only
        where it succeeds does Spark show why the micro-batch failed.
        """
        self._given = sink

    @property
    def _sink(self) -> _Sink:
        if isinstance(self._given, Unavailable):
            raise self._given
        return self._given

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode and stage a task's rows."""
        try:
            context = TaskContext.get()
            query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
            if not query:
                raise ConfigInvalid("this version of Spark does not tell its tasks which query they belong to")
            return self._sink.write(iterator, query)
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def commit(self, messages: list[Any], batchId: int) -> None:  # Spark's name
        """Append the micro-batch, unless an earlier run of the query has."""
        try:
            if messages and not self._sink.commit(batchId, messages, messages[0].query):
                self._sink.check_repeat(batchId, messages, messages[0].query)
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def abort(self, messages: list[Any], batchId: int) -> None:  # Spark's name
        """Nothing: what was staged is trimmed by the next commit."""


class BatchSink(DataSourceArrowWriter):
    """The sink of `df.write`: one batch of work."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._id = sink.options.write_id or secrets.token_hex(16)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Encode and stage a task's rows."""
        try:
            return self._sink.write(iterator, self._id)
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def commit(self, messages: list[Any]) -> None:
        """Append what the tasks wrote."""
        try:
            self._sink.commit(0, messages, self._id)
            self._clean(messages, keeps_control=bool(self._sink.options.write_id))
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def abort(self, messages: list[Any]) -> None:
        """Delete what was staged, but for a named write: it may have been decided, and another run of it goes on from there.

        Where that fails, the streams stay: the error that the user is to see is the one of the write.
        """
        if not self._sink.options.write_id:
            try:
                self._clean(messages, keeps_control=False)
            except RangelogError as error:
                _log.warning("streams of a failed write stay, see `pdctl stream list --prefix spark-sink-`: %s", error)

    def _clean(self, messages: list[Any], *, keeps_control: bool) -> None:
        client = self._sink.client()
        committer = self._sink.committer(self._id)
        client.run(committer.close())
        staged = [message.output.staged for message in messages if message is not None]
        names = [span.stream for span in staged if span is not None]
        for name in names if keeps_control else [*names, committer.control_name]:
            with suppress(StreamNotFound):
                client.delete_stream(name)


def sink_of(options: SinkOptions, schema: StructType, *, overwrite: bool) -> _Sink:
    """Return what the parts of a write share.

    Raises ConfigInvalid, StreamNotFound, TopicNotFound, TopicKindForbids, Unavailable.
    """
    if overwrite:
        raise ConfigInvalid(
            "a stream or topic cannot be overwritten: use mode('append'), and trim or truncate it first if need be"
        )
    check_schema(schema)
    client = client_of(options.pd, options.token, tls=options.tls)
    if options.topic:
        topic = client.topics.describe(options.topic)
        if topic.kind != "records":
            raise TopicKindForbids(f"topic {options.topic!r} is a {topic.kind}: only records can be written by Spark")
        return _Sink(options, topic.topic_id, CODEC_NONE)
    stream = client.describe_stream(options.stream)
    return _Sink(options, stream.stream_id, CODEC_ZSTD if stream.compression == "zstd" else CODEC_NONE)
