"""The streaming data source: `spark.readStream.format("rangelog")`, with "stream" (one, or several with commas),
"streamPattern" or "topic" (one, or several with commas).

Columns are those of the batch source; with several streams, or a pattern, the column `stream` string before them, with several
topics the column `topic`. A query that has a checkpoint goes on where it was, exactly: the rows between two of its offsets are
the same whenever they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from rangelog.spark.following import Ends, begin_later, find_ends, find_start, go_on, plan_batch, record_bytes, until
from rangelog.spark.offsets import QueryOffsets
from rangelog.spark.reading import client_for, read_span, with_columns
from rangelog.spark.stream_options import StreamOptions
from rangelog.spark.where import parse_where
from rangelog_core.errors import RangelogError

STREAM_FIELD = pa.field("stream", pa.string(), nullable=False)
TOPIC_FIELD = pa.field("topic", pa.string(), nullable=False)


@dataclass
class BatchPartition(InputPartition):
    """Offsets [start, end) of one stream, of one micro-batch."""

    name: str
    stream_id: int
    start: int
    end: int
    shard_id: int | None = None


class RangelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one streaming query. Spark keeps it in a process of the driver, and sends it to the workers as well."""

    def __init__(self, options: StreamOptions, columns: tuple[tuple[str, bool], ...] | None = None) -> None:
        """Nothing is asked before Spark does. `columns`: those that rows have, if not all."""
        self._options = options
        self._columns = columns
        self._target: QueryOffsets | None = None
        self._begun: dict[str, Any] | None = None
        """The start of a query of which no row was read, as it was found."""
        self._latest: dict[str, Any] | None = None
        """What `latestOffset` found last."""

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        start: QueryOffsets = self._run(lambda client: find_start(client, self._options))
        self._begun = start.to_dict()
        return self._begun

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the bound of a micro-batch."""
        options = self._options
        if options.records_per_trigger is not None:
            return ReadMaxRows(options.records_per_trigger)
        return ReadAllAvailable() if options.bytes_per_trigger is None else ReadMaxBytes(options.bytes_per_trigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return how far the next micro-batch goes; `start` itself if there is nothing new."""
        begun = self._parsed(start)
        ends: Ends = self._run(lambda client: find_ends(client, self._options, needs_heads=True))
        budget = None if isinstance(limit, ReadAllAvailable) else self._budget(ends)
        try:
            if start == self._begun:
                begun = begin_later(self._options, begun, ends)
            reached = go_on(self._options, begun, ends, budget)
        except RangelogError as error:
            raise error.with_traceback(None) from None
        if self._target is not None:
            reached = until(ends, begun, reached, self._target)
        self._latest = {**ends.offsets().to_dict(), "backlog": ends.backlog(reached)}
        return reached.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends that `latestOffset` found, and `backlog`: by name, the records that this micro-batch leaves.

        Spark asks right behind it. None: it was not asked yet, and the progress names no end.
        """
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is acked now."""
        ends: Ends = self._run(lambda client: find_ends(client, self._options))
        self._target = ends.offsets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[BatchPartition]:
        """Return the spans of a micro-batch."""
        low, high = self._parsed(start), self._parsed(end)
        if start == self._begun:
            ends: Ends = self._run(lambda client: find_ends(client, self._options, needs_heads=True))
            low = until(ends, low, begin_later(self._options, low, ends), high)
        spans = self._run(lambda client: plan_batch(client, self._options, low, high))
        return [BatchPartition(*each) for each in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield one span as Arrow RecordBatches."""
        assert isinstance(partition, BatchPartition)
        one = partition
        stream, topic = (one.name, "") if one.shard_id is None else ("", one.name)
        read = replace(self._options.read, stream=stream, topic=topic)
        selection = parse_where(read.where, of_topic=bool(read.topic))
        try:
            for batch in read_span(read, selection, one.stream_id, one.start, one.end, one.shard_id):
                shown = batch
                if self._options.has_names:
                    names = pa.repeat(pa.scalar(one.name), batch.num_rows)
                    shown = batch.add_column(0, TOPIC_FIELD if topic else STREAM_FIELD, names)
                yield shown if self._columns is None else with_columns(shown, self._columns)
        except RangelogError as error:
            raise error.with_traceback(None) from None

    # ---- inside

    def _budget(self, ends: Ends) -> int | None:
        """Return the records of a micro-batch, by both bounds."""
        budget, size_bytes = self._options.records_per_trigger, self._options.bytes_per_trigger
        if size_bytes is None:
            return budget
        each = self._run(lambda client: record_bytes(client, self._options, ends))
        by_size = max(1, int(size_bytes / each)) if each else None
        return by_size if budget is None else budget if by_size is None else min(budget, by_size)

    def _parsed(self, kept: dict[str, Any]) -> QueryOffsets:
        try:
            return QueryOffsets.from_dict(kept)
        except RangelogError as error:
            raise error.with_traceback(None) from None

    def _run(self, work: Any) -> Any:
        client = client_for(self._options.read)
        try:
            return client.run(work(client.asynchronous))
        except RangelogError as error:
            raise error.with_traceback(None) from None
