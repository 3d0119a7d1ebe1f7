"""Reads tiered ranges for the client: Arrow out of an object, and records out of Arrow, in bulk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat, starmap

import pyarrow as pa

from rangelog.record import Record
from rangelog.tier.object_store import ObjectStore
from rangelog.tier.parquet import ObjectReader
from rangelog_proto.v1 import common_pb2

_NO_HEADERS: Mapping[str, bytes] = {}


def read_object(store: ObjectStore, described: common_pb2.Object, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of one committed object in [start, end). Raises Corruption, ObjectNotFound, Unavailable."""
    reader = ObjectReader(store, described)
    try:
        yield from reader.read(start, end)
    finally:
        reader.close()


def records_from_arrow(table: pa.RecordBatch) -> Iterable[Record]:
    """Return the rows as records."""
    stamps = [stamp // 1000 for stamp in table.column("timestamp").cast(pa.int64()).to_pylist()]
    column = table.column("headers")
    headers: Iterable[Mapping[str, bytes]] = repeat(_NO_HEADERS)
    if len(column.keys):
        headers = [dict(pairs) if pairs else _NO_HEADERS for pairs in column.to_pylist()]
    offsets, keys, values = (table.column(name).to_pylist() for name in ("offset", "key", "value"))
    return starmap(Record, zip(offsets, stamps, keys, values, headers))  # headers may repeat without end
