"""Reads one tiered object: selects the bytes to fetch, and decodes rows from fetched bytes. `parquet` has the format.

What holds: Parquet gets only bytes with a verified checksum: the placement driver keeps that of the footer, the footer those
of the row groups. Bytes that do not fit are fetched again, READ_ATTEMPTS times in all, before Corruption is raised.
An encrypted object is opened with the keys that its store was opened with.
An object of a newer version is refused as UnsupportedVersion, whatever columns it has; unknown metadata is ignored.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangelog_core.batch import HEADER_BYTES, BatchHeader, peek_header
from rangelog_core.batch_extension import decode_extension
from rangelog_core.errors import Corruption, ProtocolViolation, RangelogError
from rangelog_core.limits import KIB, MIB
from rangelog_core.versions import OBJECT_VERSIONS, unsupported
from rangelog_proto.v1 import common_pb2
from rangelog_tier.arrow import SCHEMA
from rangelog_tier.object_cipher import ENCRYPTED_MAGIC, cipher_of, is_encrypted, properties_to_read
from rangelog_tier.object_store import ObjectStore, ObjectTooShort
from rangelog_tier.parquet import BATCH_HEADER, FORMAT_VERSION, MAGIC, OBJECT_SCHEMA, ROW_GROUP_CRCS, ROW_GROUP_ENDS

WHOLE_BYTES_MAX = 64 * MIB
"""An object up to this size that is wanted as a whole is fetched in one request, without its footer first."""
BATCH_ROWS = 65_536
READ_ATTEMPTS = 3
"""Fetches of bytes that do not fit their checksum: an object store may return wrong bytes and hold the right ones."""
_TAIL_READ_BYTES = 64 * KIB  # a footer of usual size in one request, and no more than a small object has
_FOOTER_BYTES_MAX = 64 * MIB
_SUMMED_AT_ONCE = 256 * KIB
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class ByteSpan:
    """Bytes [begin, end) of an object."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        """The number of bytes."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The place of one row group: its number, first offset, number of rows, and bytes."""

    number: int
    first: int
    rows: int
    span: ByteSpan


def first_span(described: common_pb2.Object, start: int, end: int) -> ByteSpan:
    """Return the span to fetch before an object is opened, for its records in [start, end).

    The span is the whole object, or its end with the footer; empty for an object without footer checksum. Raises Corruption.
    """
    size, footer = described.size_bytes, described.footer_size_bytes
    if not footer:
        return ByteSpan(0, 0)
    if footer > min(size, _FOOTER_BYTES_MAX):
        raise Corruption(f"object {described.key} is described with a footer larger than itself")
    all_wanted = start <= described.start_offset and described.end_offset <= end
    if all_wanted and size <= WHOLE_BYTES_MAX:
        return ByteSpan(0, size)
    return ByteSpan(max(0, size - max(footer, _TAIL_READ_BYTES)), size)


class _CheckedBytes(io.RawIOBase):
    """A file that contains only the bytes that were checked; Parquet gets views of it, not copies."""

    def __init__(self, key: str, size_bytes: int) -> None:
        self._key = key
        self._size = size_bytes
        self._position = 0
        self._begin = 0
        self._data: memoryview = memoryview(b"")

    def hold(self, begin: int, data: Bytes) -> None:
        """Set the bytes of the file, from `begin` on; all others are absent."""
        self._begin, self._data = begin, memoryview(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read_buffer(self, size: int) -> memoryview:
        """Return a view of the next bytes. Arrow calls this method in place of `read`."""
        low = self._position - self._begin
        if size < 0 or low < 0 or low + size > len(self._data):
            raise Corruption(f"object {self._key} is damaged: Parquet reads outside of its row group")
        self._position += size
        return self._data[low : low + size]

    def read(self, size: int = -1) -> bytes:
        return bytes(self.read_buffer(size))


class ObjectReader:
    """One opened committed object. For one thread at a time."""

    def __init__(self, store: ObjectStore, described: common_pb2.Object, data: Bytes | None = None) -> None:
        """Open an object and check its footer. `data`: the end of the object, as far as it is fetched already.

        Raises Corruption, ObjectNotFound, Unavailable, UnsupportedVersion, EncryptionKeyMissing.
        """
        self._store = store
        self._object = described
        self._whole: Bytes | None = None
        self._file = _CheckedBytes(described.key, described.size_bytes)
        with _as_corruption(described):
            # The footer alone is a valid Parquet file, although it describes row groups that are missing.
            end = self._footer(data)
            keys = properties_to_read(cipher_of(store), end, f"object {described.key}")
            magic = ENCRYPTED_MAGIC if is_encrypted(end) else MAGIC
            footer = pq.ParquetFile(pa.BufferReader(magic + end), decryption_properties=keys)
            source = pa.PythonFile(self._file, mode="r")
            self._parquet = pq.ParquetFile(
                source,
                metadata=footer.metadata,
                decryption_properties=keys,
                page_checksum_verification=True,
                pre_buffer=False,
            )
            self._check_metadata()

    def _footer(self, data: Bytes | None) -> bytes:
        described = self._object
        if not described.footer_size_bytes:
            whole = self._store.get(described.key)  # an object without footer checksum: check it as a whole
            if f"sha256:{hashlib.sha256(whole).hexdigest()}" != described.digest:
                raise Corruption(f"object {described.key} is damaged: its digest does not fit")
            self._whole = whole
            return whole[len(MAGIC) :]
        span = first_span(described, 0, 0)
        if data is not None and len(data) > span.size:
            data = data[len(data) - span.size :]
        problem = "its footer's checksum does not fit"
        skip = span.size - described.footer_size_bytes
        return bytes(self._checked(span, skip, data, described.footer_crc, problem))

    def _checked(self, span: ByteSpan, skip: int, data: Bytes | None, crc: int, problem: str) -> Bytes:
        """Return bytes of the object, from `skip` on, whose checksum is `crc`. Raises Corruption.

        `data`: bytes that are fetched already; without them, or when they do not fit, the store is asked.
        """
        for attempt in range(READ_ATTEMPTS):
            if attempt or data is None:
                try:
                    data = self._store.get_range(self._object.key, span.begin, span.size)
                except ObjectTooShort:  # the reply was too short
                    if attempt == READ_ATTEMPTS - 1:
                        raise
                    continue
            if len(data) == span.size and checksum(data[skip:]) == crc:
                return data[skip:]
        raise Corruption(f"object {self._object.key} is damaged: {problem}")

    def _check_metadata(self) -> None:
        described = self._object
        told = self._parquet.schema_arrow.metadata or {}
        version = told.get(FORMAT_VERSION.encode(), b"")
        if not version.isdigit() or int(version) < OBJECT_VERSIONS.lowest:
            raise Corruption(f"object {described.key} has no format version")
        if int(version) > OBJECT_VERSIONS.highest:
            raise unsupported(f"object {described.key}", int(version), OBJECT_VERSIONS, "this program")
        self._has_headers = int(version) > 1
        schema = OBJECT_SCHEMA if self._has_headers else SCHEMA
        if not self._parquet.schema_arrow.equals(schema, check_metadata=False):
            raise Corruption(f"object {described.key} has other columns than rangelog writes")
        expected = {
            b"rangelog.stream_id": described.stream_id,
            b"rangelog.range": described.range_index,
            b"rangelog.start_offset": described.start_offset,
            b"rangelog.end_offset": described.end_offset,
        }
        if b"rangelog.object_id" in told:  # not in those of an early version
            expected[b"rangelog.object_id"] = described.object_id
        for name, value in expected.items():
            if told.get(name) != str(value).encode():
                raise Corruption(f"object {described.key} differs from the placement driver's list: {name.decode()}")
        self._crcs, ends = self._numbers(ROW_GROUP_CRCS), self._numbers(ROW_GROUP_ENDS)
        if not len(self._crcs) == len(ends) == self._parquet.metadata.num_row_groups:
            raise Corruption(f"object {described.key} has {len(self._crcs)} checksums for its row groups")
        edges = [len(MAGIC), *ends]
        if edges != sorted(edges) or edges[-1] > described.size_bytes:
            raise Corruption(f"object {described.key} has row groups that are not contiguous")
        self._spans = [ByteSpan(*pair) for pair in zip(edges, ends)]

    def _numbers(self, name: str) -> list[int]:
        """Return numbers of rangelog's own metadata. Parquet's column positions may end the process: they throw in C++."""
        told = (self._parquet.metadata.metadata or {}).get(name.encode(), b"")
        return [int(each) for each in told.split(b",")]

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata in the object's footer. Keys and values that are no text are left out."""
        told: dict[str, str] = {}
        for name, value in (self._parquet.schema_arrow.metadata or {}).items():
            with suppress(UnicodeDecodeError):
                told[name.decode()] = value.decode()
        return told

    def row_group_rows(self) -> list[common_pb2.RowGroup]:
        """Return the row groups as a commit lists them, with times in ms by the statistics of the file. Raises Corruption."""
        with _as_corruption(self._object):
            metadata = self._parquet.metadata
            column = SCHEMA.names.index("timestamp")
            found: list[common_pb2.RowGroup] = []
            for group in self.row_groups(self._object.start_offset, self._object.end_offset):
                told = metadata.row_group(group.number).column(column).statistics
                low, high = ((each - _EPOCH) // _MS for each in (told.min, told.max))
                found.append(
                    common_pb2.RowGroup(
                        start_offset=group.first, count=group.rows, timestamp_ms_min=low, timestamp_ms_max=high
                    )
                )
            return found

    def row_groups(self, start: int, end: int) -> list[RowGroup]:
        """Return the row groups that hold records of [start, end), in order. Raises Corruption."""
        with _as_corruption(self._object):
            metadata = self._parquet.metadata
            wanted: list[RowGroup] = []
            first = self._object.start_offset
            for number, span in enumerate(self._spans):
                rows = metadata.row_group(number).num_rows
                if first < end and first + rows > start:
                    wanted.append(RowGroup(number, first, rows, span))
                first += rows
            if first != self._object.end_offset:
                raise Corruption(f"object {self._object.key} has {first - self._object.start_offset} records")
            return wanted

    def decode(self, group: RowGroup, start: int, end: int, data: Bytes | None = None) -> list[pa.RecordBatch]:
        """Return the records of a row group that are in [start, end). `data`: its bytes, if they are fetched already.

        Raises Corruption, ObjectNotFound, Unavailable.
        """
        with _as_corruption(self._object):
            table = self._table(group, SCHEMA.names, data)
            if table.num_rows != group.rows or not _count_up(table.column("offset"), group.first):
                raise Corruption(f"object {self._object.key} does not hold the offsets from {group.first} on")
            low, high = max(0, start - group.first), min(group.rows, end - group.first)
            batches: list[pa.RecordBatch] = table.slice(low, high - low).to_batches(max_chunksize=BATCH_ROWS)
            return batches

    def rows(self, group: RowGroup, data: Bytes | None = None) -> pa.Table:
        """Return a whole row group with all columns of OBJECT_SCHEMA. Arguments and errors as in `decode`."""
        with _as_corruption(self._object):
            names = OBJECT_SCHEMA.names if self._has_headers else SCHEMA.names
            table = self._table(group, names, data)
            if table.num_rows != group.rows or not _count_up(table.column("offset"), group.first):
                raise Corruption(f"object {self._object.key} does not hold the offsets from {group.first} on")
            if not self._has_headers:
                table = table.append_column(OBJECT_SCHEMA.field(BATCH_HEADER), pa.nulls(group.rows, pa.binary()))
            return table

    def batch_headers(self, group: RowGroup, data: Bytes | None = None) -> list[tuple[BatchHeader, dict[int, bytes]]]:
        """Return header and extension fields of each batch of a row group that has an extension, in order of offsets.

        The first batch may start before the object, the last may end behind it. Arguments and errors as in `decode`.
        """
        if not self._has_headers:
            return []
        with _as_corruption(self._object):
            column = self._table(group, [BATCH_HEADER], data).column(BATCH_HEADER)
            found: list[tuple[BatchHeader, dict[int, bytes]]] = []
            for row in pc.indices_nonzero(column.is_valid()).to_pylist():
                packed = column[row].as_py()
                try:
                    header, fields = peek_header(packed), decode_extension(packed[HEADER_BYTES:])
                except ProtocolViolation as error:
                    raise Corruption(
                        f"object {self._object.key} has a malformed batch header: {error.message}"
                    ) from error
                if header.header_size != len(packed) or max(header.base_offset, group.first) != group.first + row:
                    raise Corruption(f"object {self._object.key} has the header of another batch at row {row}")
                found.append((header, fields))
            return found

    def _table(self, group: RowGroup, columns: list[str], data: Bytes | None) -> pa.Table:
        """Read some columns of a row group, after a check of its checksum."""
        if self._whole is not None:
            data = self._whole[group.span.begin : group.span.end]
        problem = f"the checksum of row group {group.number} does not fit"
        data = self._checked(group.span, 0, data, self._crcs[group.number], problem)
        self._file.hold(group.span.begin, data)
        try:
            return self._parquet.read_row_group(group.number, columns=columns)
        finally:
            self._file.hold(0, b"")

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records in [start, end) in order. Raises Corruption, ObjectNotFound, Unavailable."""
        for group in self.row_groups(start, end):
            yield from self.decode(group, start, end)


def _count_up(offsets: pa.ChunkedArray, first: int) -> bool:
    """Whether the values count up from `first` by 1."""
    if offsets.null_count or offsets[0].as_py() != first:
        return False
    steps = pc.min_max(pc.pairwise_diff(offsets.combine_chunks()))
    return len(offsets) == 1 or steps["min"].as_py() == steps["max"].as_py() == 1


def checksum(data: Bytes) -> int:
    """Return the CRC32C of bytes or a view: the library refuses views of writable memory."""
    if isinstance(data, bytes):
        return int(google_crc32c.value(data))
    total = 0
    for low in range(0, len(data), _SUMMED_AT_ONCE):
        total = google_crc32c.extend(total, bytes(data[low : low + _SUMMED_AT_ONCE]))
    return total


class _as_corruption:  # noqa: N801  # reads as a phrase
    """Turn Parquet's errors into Corruption; errors of rangelog pass unchanged."""

    def __init__(self, described: common_pb2.Object) -> None:
        self._key = described.key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, ObjectTooShort):
            raise Corruption(f"object {self._key} is shorter than the placement driver lists") from error
        if isinstance(error, RangelogError) or not isinstance(error, Exception):
            return
        raise Corruption(f"object {self._key} is damaged: it cannot be read as Parquet") from error
