"""The source's work on a cluster: reads a planned span as Arrow, in a worker.

What holds: all records of a span were acked when it was planned, so a task that runs twice returns the same rows, whichever
tier the range is in by then. Clients are made in the process that uses them, one per process and cluster, and kept.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import rangelog.sync
from rangelog._client import Client
from rangelog._read.reader import SpanReader, Start
from rangelog._topics.shard_errors import errors_of_shard
from rangelog.spark.filters import Selection
from rangelog.spark.options import Options
from rangelog_core.batch import Columns
from rangelog_core.limits import MIB
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token
from rangelog_tier.arrow import SCHEMA, columns_to_arrow
from rangelog_tier.encryption_keys import KeyProvider

EMIT_ROWS = 10_000
EMIT_BYTES_MIN, EMIT_BYTES_MAX = MIB // 2, 2 * MIB
"""From so many bytes on rows are passed on: a writer's batch is just below 1 MiB, and to join two of them copies both."""
READ_TIMEOUT_S = 60.0
SHARD_FIELD = pa.field("shard", pa.int64(), nullable=False)
"""The first column of a topic's rows."""

_clients: dict[tuple[object, ...], rangelog.sync.Client] = {}


def client_for(options: Options) -> rangelog.sync.Client:
    """Return this process's client for a cluster; never one that was made before a fork."""
    return client_of(options.pd, options.token, options.tier_url, options.tls, options.encryption_keys)


def client_of(
    pd: str,
    token: Token | None,
    tier_url: str | None = None,
    tls: TlsConfig | None = None,
    encryption_keys: KeyProvider | None = None,
) -> rangelog.sync.Client:
    """As `client_for`, by its settings."""
    key = (os.getpid(), pd, token, tier_url, tls, encryption_keys)
    client = _clients.get(key)
    if client is None:
        client = _clients[key] = rangelog.sync.connect(
            pd,
            token=token,
            tier_url=tier_url,
            tls=tls,
            encryption_keys=encryption_keys,
            first_contact_s=math.inf,  # each task has a client of its own, and a restart of the
        )  # cluster must not end a query
    return client


class ArrowReader(SpanReader[list[pa.RecordBatch]]):
    """Reads a stream in chunks that are lists of Arrow RecordBatches."""

    async def _from_batches(self, batches: Sequence[Columns], start: int, end: int) -> list[pa.RecordBatch]:
        return [columns_to_arrow(batch, start, end) for batch in batches]  # these are views: a thread would cost more

    async def _from_arrow(self, table: Any) -> list[pa.RecordBatch]:
        return [table]

    def _first_at(self, chunk: list[pa.RecordBatch], timestamp_ms: int) -> int | None:
        for table in chunk:
            late = pc.greater_equal(table.column("timestamp").cast(pa.int64()), timestamp_ms * 1000)
            found = pc.index(late, True).as_py()
            if found >= 0:
                return int(table.column("offset")[found].as_py())
        return None


def span_reader(
    client: Client, options: Options, stream_id: int, start: int, end: int, shard_id: int | None = None
) -> ArrowReader:
    """Return a reader of [start, end) of the planned stream, even if its name was reused since."""
    name = options.stream if shard_id is None else f"{options.topic}, shard {shard_id}"
    return stream_reader(client, options, stream_id, start, end=end, resolved=True, name=name)


def stream_reader(
    client: Client,
    options: Options,
    stream_id: int,
    start: Start,
    *,
    end: int | None = None,
    resolved: bool = False,
    name: str = "",
) -> ArrowReader:
    """Return a reader that ends at what is acked; the arguments are those of `SpanReader`."""
    return ArrowReader(
        client.metadata,
        client.connections,
        client.cold_reader(),
        client.watches,
        name or options.stream,
        start=start,
        end=end,
        follow=False,
        read_preference=options.read_preference,
        timeout_s=READ_TIMEOUT_S,
        resolved=resolved,
        stream_id=stream_id,
    )


def read_span(
    options: Options, selection: Selection, stream_id: int, start: int, end: int, shard_id: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of [start, end), combined into batches of about EMIT_ROWS rows or 1 MiB.

    A `shard_id`, of a topic's stream, becomes the first column. Raises as `Reader.chunks`: errors of the shard, then.
    """
    rows = _rows(options, selection, stream_id, start, end, shard_id)
    if shard_id is None:
        yield from rows
        return
    with errors_of_shard(options.topic, shard_id):
        for batch in rows:
            yield batch.add_column(0, SHARD_FIELD, pa.repeat(pa.scalar(shard_id, pa.int64()), batch.num_rows))


def _rows(
    options: Options, selection: Selection, stream_id: int, start: int, end: int, shard_id: int | None
) -> Iterator[pa.RecordBatch]:
    client = client_for(options)
    reader = span_reader(client.asynchronous, options, stream_id, start, end, shard_id)
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for chunk in client.iterate(reader.chunks()):
        for table in chunk:
            shown = selection.rows(table)
            shown = shown if options.payload else shown.select(["offset", "timestamp"])
            gathered.append(shown)
            rows += shown.num_rows
            size += shown.nbytes
        if rows >= EMIT_ROWS or size >= EMIT_BYTES_MIN:
            yield from _emit(gathered)
            gathered, rows, size = [], 0, 0
    yield from _emit(gathered)


def _emit(gathered: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield them as one batch; as several of 1 MiB where a row group of an object makes it larger than EMIT_BYTES_MAX."""
    if gathered:
        table = pa.Table.from_batches(gathered).combine_chunks()
        fits = table.num_rows if table.nbytes <= EMIT_BYTES_MAX else table.num_rows * MIB // table.nbytes
        yield from table.to_batches(max_chunksize=max(1, fits))


def with_columns(batch: pa.RecordBatch, columns: Sequence[tuple[str, bool]]) -> pa.RecordBatch:
    """Return some columns of a batch, by name and whether they may be null: Spark refuses a batch that differs in that."""
    fields = [batch.schema.field(name).with_nullable(nullable) for name, nullable in columns]
    return pa.RecordBatch.from_arrays([batch.column(name) for name, _ in columns], schema=pa.schema(fields))


def arrow_schema(*, payload: bool) -> pa.Schema:
    """Return the schema of the batches of `read_span`, of a stream."""
    return SCHEMA if payload else pa.schema([SCHEMA.field("offset"), SCHEMA.field("timestamp")])
