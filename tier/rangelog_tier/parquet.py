"""One tiered object: a span of one range, or of neighbouring ranges, as a plain Parquet file.

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
With a cipher the file is encrypted as it is written (object_cipher): no record is in clear in it at any moment, and the
checksums are those of the encrypted bytes.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangelog_core.batch import HEADER_BYTES, check_batch
from rangelog_core.errors import InvalidArgument
from rangelog_core.limits import MIB
from rangelog_core.versions import OBJECT_VERSIONS
from rangelog_proto.v1 import common_pb2
from rangelog_tier.arrow import SCHEMA, batch_to_arrow
from rangelog_tier.object_cipher import ObjectCipher

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
    encryption_key_id: str = ""
    """Of the key that wraps the object's data key; "": it is in clear."""


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


class ObjectWriter:
    """Writes one object, row group by row group. Use it as a context manager, and call `finish` within.

    Example:
        ```python
        with ObjectWriter(path, stream_id=7, stream_name="s", range_index=0, epoch=1, start_offset=0, end_offset=9) as writer:
            writer.add(table)  # the rows 0 to 8
            written = writer.finish()
        ```
    """

    def __init__(
        self,
        path: Path,
        *,
        stream_id: int,
        stream_name: str,
        range_index: int,
        epoch: int,
        start_offset: int,
        end_offset: int,
        object_id: int = 0,
        metadata: Mapping[str, str] | None = None,
        cipher: ObjectCipher | None = None,
    ) -> None:
        """`object_id` makes the bytes differ from those of another object of the same span; `metadata`: further keys.

        `cipher` encrypts the object; None: it is written in clear.
        """
        self._path = path
        self._position, self._end = start_offset, end_offset
        self._groups: list[common_pb2.RowGroup] = []
        known = {
            FORMAT_VERSION: str(OBJECT_VERSIONS.highest),
            "rangelog.stream_id": str(stream_id),
            "rangelog.stream": stream_name,
            "rangelog.range": str(range_index),
            "rangelog.epoch": str(epoch),
            "rangelog.start_offset": str(start_offset),
            "rangelog.end_offset": str(end_offset),
        }
        if object_id:
            known["rangelog.object_id"] = str(object_id)
        self._metadata = known | dict(metadata or {})
        self._cipher = cipher
        self._key_id = ""
        self._open = ExitStack()

    def __enter__(self) -> ObjectWriter:
        properties = None
        if self._cipher is not None:
            self._key_id, properties = self._cipher.for_writing()
        with ExitStack() as opening:
            target = opening.enter_context(self._path.open("wb"))
            self._sink = opening.enter_context(_SummingFile(target))
            self._writer = opening.enter_context(_parquet_writer(self._sink, self._metadata, properties))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, table: pa.Table) -> None:
        """Write a row group: rows of OBJECT_SCHEMA that start where the last ones ended. Raises InvalidArgument."""
        start = table.column("offset")[0].as_py()
        if start != self._position:
            raise InvalidArgument(f"a row group starts at {start}, expected {self._position}")
        self._sink.begin()
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._sink.end()
        stamps = pc.min_max(table.column("timestamp").cast(pa.int64()))
        self._position += table.num_rows
        self._groups.append(
            common_pb2.RowGroup(
                start_offset=start,
                count=table.num_rows,
                timestamp_ms_min=stamps["min"].as_py() // 1000,
                timestamp_ms_max=stamps["max"].as_py() // 1000,
            )
        )

    def finish(self) -> WrittenObject:
        """Write the footer, close the file and describe it. Raises InvalidArgument if rows are missing."""
        if self._position != self._end:
            raise InvalidArgument(f"the rows end at {self._position}, not at {self._end}")
        self._writer.add_key_value_metadata(
            {ROW_GROUP_CRCS: ",".join(map(str, self._sink.sums)), ROW_GROUP_ENDS: ",".join(map(str, self._sink.ends))}
        )
        self._open.close()
        return _describe(self._path, self._groups, self._key_id)


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
    cipher: ObjectCipher | None = None,
) -> WrittenObject:
    """Write the encoded batches that cover [start, end) to a Parquet file; memory is bounded by a row group.

    `cipher` encrypts it; None: it is in clear.

    Raises InvalidArgument when the batches have a gap, Corruption when one is damaged, UnsupportedVersion when one has an
    unknown version or critical field: the range stays hot until this server is upgraded; EncryptionKeyMissing, Unavailable:
    there is no key to encrypt with.
    """
    group = _Group()
    position = start_offset
    with ObjectWriter(
        path,
        stream_id=stream_id,
        stream_name=stream_name,
        range_index=range_index,
        epoch=epoch,
        start_offset=start_offset,
        end_offset=end_offset,
        object_id=object_id,
        cipher=cipher,
    ) as written:
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
                written.add(_table(group))
                group = _Group()
            if header.header_size != HEADER_BYTES:
                group.headers[group.rows] = data[: header.header_size]
            group.tables.append(table)
            group.rows += table.num_rows
            group.size_bytes += header.columns_size
        if position != end_offset:
            raise InvalidArgument(f"the batches end at {position}, not at {end_offset}")
        written.add(_table(group))
        return written.finish()


def _parquet_writer(sink: _SummingFile, metadata: dict[str, str], encryption: Any) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        OBJECT_SCHEMA.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=["key"],
        write_statistics=["offset", "timestamp"],
        write_page_checksum=True,
        store_schema=True,
        encryption_properties=encryption,
    )


def _table(group: _Group) -> pa.Table:
    table = pa.Table.from_batches(group.tables, schema=SCHEMA)
    return table.append_column(OBJECT_SCHEMA.field(BATCH_HEADER), _header_column(group))


def _header_column(group: _Group) -> pa.Array:
    if not group.headers:
        return pa.nulls(group.rows, pa.binary())
    return pa.array([group.headers.get(row) for row in range(group.rows)], type=pa.binary())


def _describe(path: Path, groups: list[common_pb2.RowGroup], key_id: str) -> WrittenObject:
    digest = hashlib.sha256()
    with path.open("rb") as source:
        while data := source.read(4 * MIB):
            digest.update(data)
        size = source.tell()
        source.seek(size - _TAIL_BYTES)
        footer_size = int.from_bytes(source.read(4), "little") + _TAIL_BYTES
        source.seek(size - footer_size)
        footer = source.read()
    return WrittenObject(size, f"sha256:{digest.hexdigest()}", groups, footer_size, google_crc32c.value(footer), key_id)
