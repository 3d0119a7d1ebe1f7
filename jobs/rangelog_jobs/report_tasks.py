"""The part of the job `report` that reads records, in Spark's workers: a row for each record, without its payload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rangelog.spark.reading import read_span
from rangelog.spark.where import parse_where
from rangelog_core.errors import OffsetTrimmed, RangelogError, StreamNotFound
from rangelog_jobs.cluster import ClusterAddress
from rangelog_jobs.fan_out import items_of

COLUMNS = "stream string, ms bigint, key binary, size bigint"


def measure(cluster: ClusterAddress, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield stream, time in ms, key, and bytes of key and value, of all records of some spans; without those trimmed since."""
    for item in items_of(batches):
        options = cluster.read_options(item["stream"])
        selection = parse_where("", of_topic=False)
        try:
            for batch in read_span(options, selection, item["stream_id"], item["start"], item["end"]):
                yield _measured(item["stream"], batch)
        except (OffsetTrimmed, StreamNotFound):
            continue
        except RangelogError as error:
            raise error.with_traceback(None) from None


def _measured(stream: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    keys: Any = batch.column("key")
    sizes = pc.add(
        pc.binary_length(batch.column("value")).cast(pa.int64()),
        pc.fill_null(pc.binary_length(keys).cast(pa.int64()), 0),
    )
    stamps = pc.divide(batch.column("timestamp").cast(pa.int64()), 1_000)
    columns = {"stream": pa.repeat(pa.scalar(stream), batch.num_rows), "ms": stamps, "key": keys, "size": sizes}
    return pa.RecordBatch.from_pydict(columns)
