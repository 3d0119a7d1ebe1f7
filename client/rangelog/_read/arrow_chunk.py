"""Tiered objects as records: Arrow batches from an object, and records from Arrow batches.

What holds: a chunk's headers are checked when it is made, so no access fails later; a record object is made only when it is
accessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat

import pyarrow as pa
import pyarrow.compute as pc

from rangelog._read.record_chunk import Chunk
from rangelog_core.errors import Corruption
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.object_store import ObjectStore

_ROWS_AT_ONCE = 1024  # few enough to stay in the processor's cache until the records are used
_NO_HEADERS: Mapping[str, bytes] = {}
_new_record = partial(
    tuple.__new__, Record
)  # the constructor of a named tuple is a Python function, which costs more than all the rest


def read_object(store: ObjectStore, described: common_pb2.Object, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of one committed object in [start, end).

    Raises Corruption, ObjectNotFound, Unavailable, UnsupportedVersion.
    """
    yield from ObjectReader(store, described).read(start, end)


def records_from_arrow(table: pa.RecordBatch) -> Iterable[Record]:
    """Yield the rows as records, each made on demand."""
    starts = range(0, table.num_rows, _ROWS_AT_ONCE)
    return chain.from_iterable(_records(table.slice(start, _ROWS_AT_ONCE)) for start in starts)


def _records(table: pa.RecordBatch) -> Iterable[Record]:
    offsets, values = table.column("offset").to_pylist(), table.column("value").to_pylist()
    stamps: list[int] = pc.divide(table.column("timestamp").cast(pa.int64()), 1000).to_pylist()
    column = table.column("key")
    keys: Iterable[bytes | None] = column.to_pylist() if column.null_count < len(column) else repeat(None)
    column = table.column("headers")
    headers: Iterable[Mapping[str, bytes]] = repeat(_NO_HEADERS)
    if _has_headers(column):
        headers = [dict(pairs) if pairs else _NO_HEADERS for pairs in column.to_pylist()]
    return map(_new_record, zip(offsets, stamps, keys, values, headers))  # some of these iterators are endless


def _has_headers(column: pa.MapArray) -> bool:
    return bool(column.offsets[-1].as_py() > column.offsets[0].as_py())


class ArrowChunk(Chunk):
    """Rows as records in offset order. Iterate over it; indexing is meant for single records."""

    __slots__ = ("_table",)

    def __init__(self, table: pa.RecordBatch) -> None:
        """Make a chunk of the rows. Raises Corruption when a header's name is not UTF-8."""
        self._table = table
        if _has_headers(table.column("headers")):
            try:
                table.column("headers").validate(full=True)
            except pa.ArrowInvalid as error:
                raise Corruption("a record's headers cannot be read") from error

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __iter__(self) -> Iterator[Record]:
        return iter(records_from_arrow(self._table))

    def _one(self, place: int) -> Record:
        return next(iter(_records(self._table.slice(place, 1))))
