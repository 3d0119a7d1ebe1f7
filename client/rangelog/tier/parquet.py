"""One tiered object: a span of one range as a plain Parquet file.

Columns offset, timestamp, key, value, headers, batch_header; zstd; a checksum on every page; row groups of bounded size. The
file's key/value metadata identify it (stream, range, epoch, span), so streams can be rebuilt from the bucket alone.

`batch_header` is null except in the first row of each batch whose header has an extension; there it is the unchanged header
(batch.py), so id, epoch and sequence of producers survive, with the first offset and count of every such batch. It is a column
and not metadata of the file because it grows with the batches, and readers fetch the whole footer. Every object has the
column, so that all objects of a stream are one table for other programs.

The metadata `rangelog.format_version` rises when an older reader would misread the object; it is refused then. Other keys
may be added: readers ignore those that they do not know. Version 1 had no column batch_header.

What holds: a written object covers exactly the requested span, in order, without gap. The placement driver keeps a checksum of
the footer, the footer one of each row group. (Parquet's own page checksums are for other readers; they leave page headers
and the footer unprotected.) Reading is in object_reader.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangelog.arrow import SCHEMA, batch_to_arrow
from rangelog_core.batch import HEADER_BYTES, check_batch
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import MIB
from rangelog_core.versions import OBJECT_VERSIONS
from rangelog_proto.v1 import common_pb2

FORMAT_VERSION = "rangelog.format_version"
BATCH_HEADER = "batch_header"
OBJECT_SCHEMA = SCHEMA.append(pa.field(BATCH_HEADER, pa.binary(), nullable=True))
"""The columns of an object: those of the stream, and one for the headers of batches."""
ROW_GROUP_ROWS_MAX = 131_072
ROW_GROUP_BYTES_MAX = 32 * MIB
MAGIC = b"PAR1"
"""The bytes before the first row group."""
ROW_GROUP_CRCS = "rangelog.row_group_crcs"
ROW_GROUP_ENDS = "rangelog.row_group_ends"
_TAIL_BYTES = 8  # footer length and magic


@dataclass(frozen=True, slots=True)
class WrittenObject:
    """The description of an object that is committed at the placement driver."""

    size_bytes: int
    digest: str
    row_groups: list[common_pb2.RowGroup]
    footer_size_bytes: int
    footer_crc: int


class _SummingFile(io.RawIOBase):
    """Passes writes to a file and computes their checksums, row group by row group."""

    def __init__(self, target: io.BufferedWriter) -> None:
        self._target = target
        self._sum = 0
        self.sums: list[int] = []
        self.ends: list[int] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self._sum = google_crc32c.extend(self._sum, piece)
        return self._target.write(piece)

    def tell(self) -> int:
        return self._target.tell()

    def begin(self) -> None:
        """Start a row group."""
        self._sum = 0

    def end(self) -> None:
        """End the row group."""
        self.sums.append(self._sum)
        self.ends.append(self.tell())


@dataclass(slots=True)
class _Group:
    """The batches of one row group."""

    tables: list[pa.RecordBatch] = field(default_factory=list)
    headers: dict[int, bytes] = field(default_factory=dict)  # of batches with an extension, by row
    rows: int = 0
    size_bytes: int = 0


def write_object(
    path: Path,
    batches: Iterable[bytes],
    *,
    stream_id: int,
    stream_name: str,
    range_index: int,
    epoch: int,
    start_offset: int,
    end_offset: int,
    object_id: int = 0,
) -> WrittenObject:
    """Write the encoded batches that cover [start, end) to a Parquet file; memory is bounded by a row group.

    `object_id` makes the bytes differ from those of another object of the same span, so that neither is taken for the other.
    Raises InvalidArgument when the batches have a gap, Corruption when one is damaged, UnsupportedVersion when one has an
    unknown version or critical field: the range stays hot until this server is upgraded.
    """
    metadata = {
        FORMAT_VERSION: str(OBJECT_VERSIONS.highest),
        "rangelog.stream_id": str(stream_id),
        "rangelog.stream": stream_name,
        "rangelog.range": str(range_index),
        "rangelog.epoch": str(epoch),
        "rangelog.start_offset": str(start_offset),
        "rangelog.end_offset": str(end_offset),
    }
    if object_id:
        metadata["rangelog.object_id"] = str(object_id)
    groups: list[common_pb2.RowGroup] = []
    group = _Group()
    position = start_offset
    with path.open("wb") as target, _SummingFile(target) as sink, _parquet_writer(sink, metadata) as writer:
        for data in batches:
            if position >= end_offset:
                break
            header = check_batch(data)
            if not header.base_offset <= position < header.end_offset:
                raise InvalidArgument(f"a batch starts at {header.base_offset}, expected {position}")
            table = batch_to_arrow(data, position, end_offset)
            position += table.num_rows
            full = group.rows + table.num_rows > ROW_GROUP_ROWS_MAX or group.size_bytes > ROW_GROUP_BYTES_MAX
            if group.rows and full:
                groups.append(_write_group(writer, sink, group))
                group = _Group()
            if header.header_size != HEADER_BYTES:
                group.headers[group.rows] = data[: header.header_size]
            group.tables.append(table)
            group.rows += table.num_rows
            group.size_bytes += header.columns_size
        if position != end_offset:
            raise InvalidArgument(f"the batches end at {position}, not at {end_offset}")
        groups.append(_write_group(writer, sink, group))
        writer.add_key_value_metadata(
            {ROW_GROUP_CRCS: ",".join(map(str, sink.sums)), ROW_GROUP_ENDS: ",".join(map(str, sink.ends))}
        )
    return _describe(path, groups)


def _parquet_writer(sink: _SummingFile, metadata: dict[str, str]) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        OBJECT_SCHEMA.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=["key"],
        write_statistics=["offset", "timestamp"],
        write_page_checksum=True,
        store_schema=True,
    )


def _write_group(writer: pq.ParquetWriter, sink: _SummingFile, group: _Group) -> common_pb2.RowGroup:
    table = pa.Table.from_batches(group.tables, schema=SCHEMA)
    table = table.append_column(OBJECT_SCHEMA.field(BATCH_HEADER), _header_column(group))
    sink.begin()
    writer.write_table(table, row_group_size=table.num_rows)
    sink.end()
    stamps = pc.min_max(table.column("timestamp").cast(pa.int64()))
    return common_pb2.RowGroup(
        start_offset=table.column("offset")[0].as_py(),
        count=table.num_rows,
        timestamp_ms_min=stamps["min"].as_py() // 1000,
        timestamp_ms_max=stamps["max"].as_py() // 1000,
    )


def _header_column(group: _Group) -> pa.Array:
    if not group.headers:
        return pa.nulls(group.rows, pa.binary())
    return pa.array([group.headers.get(row) for row in range(group.rows)], type=pa.binary())


def _describe(path: Path, groups: list[common_pb2.RowGroup]) -> WrittenObject:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while data := source.read(4 * MIB):
            digest.update(data)
        size = source.tell()
        source.seek(size - _TAIL_BYTES)
        footer_size = int.from_bytes(source.read(4), "little") + _TAIL_BYTES
        source.seek(size - footer_size)
        footer = source.read()
    return WrittenObject(size, f"sha256:{digest.hexdigest()}", groups, footer_size, google_crc32c.value(footer))
