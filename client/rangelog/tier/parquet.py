"""One tiered object: a span of one range as a Parquet file that anybody can read.

Columns offset, timestamp, key, value, headers; zstd; a checksum on every page; row groups of bounded size. The file's
key/value metadata says what it is (stream, range, epoch, span), so streams can be rebuilt from the bucket alone.

What holds: a written object covers exactly the span asked for, in order, without gap. What is read back was checked before
Parquet saw it: the footer by a checksum that the placement driver keeps, each row group by one in the footer. (Parquet's
own page checksums are there for other readers; they leave page headers and the footer unprotected.)
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rangelog.arrow import SCHEMA, batch_to_arrow
from rangelog.batch import check_batch
from rangelog.errors import Corruption, InvalidArgument, RangelogError
from rangelog.limits import MIB
from rangelog.tier.object_store import ObjectStore
from rangelog_proto.v1 import common_pb2

FORMAT_VERSION = "1"
ROW_GROUP_ROWS_MAX = 131_072
ROW_GROUP_BYTES_MAX = 32 * MIB
READ_AHEAD_GROUPS = 3
BATCH_ROWS = 65_536
READ_ATTEMPTS = 3
"""For bytes that do not fit their checksum: an object store may answer wrongly and hold the right ones."""
_CRCS = "rangelog.row_group_crcs"
_ENDS = "rangelog.row_group_ends"
_MAGIC_BYTES = 4  # before the first row group
_TAIL_BYTES = 8  # footer length and magic
_TAIL_READ_BYTES = 65_536  # what Parquet reads of the end in any case: one request for all


@dataclass(frozen=True, slots=True)
class WrittenObject:
    """What the placement driver is told of an object."""

    size_bytes: int
    digest: str
    row_groups: list[common_pb2.RowGroup]
    footer_size_bytes: int
    footer_crc: int


class _SummingFile(io.RawIOBase):
    """Passes writes on and sums them up, piece by piece."""

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
        """A row group starts."""
        self._sum = 0

    def end(self) -> None:
        """A row group is written."""
        self.sums.append(self._sum)
        self.ends.append(self.tell())


@dataclass(slots=True)
class _Group:
    """Batches that become one row group."""

    tables: list[pa.RecordBatch] = field(default_factory=list)
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

    `object_id` makes its bytes unlike those of another object of the same span, so that one cannot pass for the other.
    Raises InvalidArgument when they do not cover it without gap, Corruption when one is damaged.
    """
    metadata = {
        "rangelog.format_version": FORMAT_VERSION,
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
                raise InvalidArgument(f"a batch starts at {header.base_offset}, {position} comes next")
            table = batch_to_arrow(data, position, end_offset)
            position += table.num_rows
            full = group.rows + table.num_rows > ROW_GROUP_ROWS_MAX or group.size_bytes > ROW_GROUP_BYTES_MAX
            if group.rows and full:
                groups.append(_write_group(writer, sink, group))
                group = _Group()
            group.tables.append(table)
            group.rows += table.num_rows
            group.size_bytes += header.columns_size
        if position != end_offset:
            raise InvalidArgument(f"the batches end at {position}, not at {end_offset}")
        groups.append(_write_group(writer, sink, group))
        writer.add_key_value_metadata({_CRCS: ",".join(map(str, sink.sums)), _ENDS: ",".join(map(str, sink.ends))})
    return _describe(path, groups)


def _parquet_writer(sink: _SummingFile, metadata: dict[str, str]) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        sink,
        SCHEMA.with_metadata(metadata),
        compression="zstd",
        compression_level=1,
        use_dictionary=["key"],
        write_statistics=["offset", "timestamp"],
        write_page_checksum=True,
        store_schema=True,
    )


def _write_group(writer: pq.ParquetWriter, sink: _SummingFile, group: _Group) -> common_pb2.RowGroup:
    table = pa.Table.from_batches(group.tables, schema=SCHEMA)
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


class _ObjectFile(io.RawIOBase):
    """A file over ranged GETs, served from spans that were fetched ahead where it can be."""

    def __init__(self, store: ObjectStore, key: str, size_bytes: int) -> None:
        self._store, self._key, self._size = store, key, size_bytes
        self._position = 0
        self.spans: dict[int, bytes] = {}

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

    def read(self, size: int = -1) -> bytes:
        start = self._position
        end = self._size if size is None or size < 0 else min(self._size, start + size)
        if end <= start:
            return b""
        self._position = end
        for first, data in self.spans.items():
            if first <= start and end <= first + len(data):
                return data[start - first : end - first]
        return self._store.get_range(self._key, start, end - start)


class ObjectReader:
    """Reads one committed object; every ranged GET, page and footer is checked. Close it."""

    def __init__(self, store: ObjectStore, described: common_pb2.Object) -> None:
        """Open and check the footer. Raises Corruption, ObjectNotFound, Unavailable."""
        self._store = store
        self._object = described
        self._file = _ObjectFile(store, described.key, described.size_bytes)
        self._threads = ThreadPoolExecutor(READ_AHEAD_GROUPS, thread_name_prefix="tier-read")
        with _as_corruption(described):
            self._check_footer()
            self._parquet = pq.ParquetFile(
                pa.PythonFile(self._file, mode="r"), page_checksum_verification=True, pre_buffer=False
            )
            if described.footer_size_bytes:
                self._file.spans.clear()
            self._check_metadata()

    def close(self) -> None:
        """Let go of threads; idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check_footer(self) -> None:
        described = self._object
        if not described.footer_size_bytes:
            data = self._store.get(described.key)  # an object from before footers were summed: check it as a whole
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != described.digest:
                raise Corruption(f"object {described.key} is damaged: its digest does not fit")
            self._file.spans[0] = data
            return
        if described.footer_size_bytes > described.size_bytes:
            raise Corruption(f"object {described.key} is described with a footer larger than itself")
        size = min(described.size_bytes, max(described.footer_size_bytes, _TAIL_READ_BYTES))
        start, before = described.size_bytes - size, size - described.footer_size_bytes
        tail = self._fetch(start, size, before, described.footer_crc, "its footer's checksum does not fit")
        self._file.spans[start] = tail  # for as long as Parquet opens the file: only the footer in it was checked

    def _fetch(self, start: int, length: int, skip: int, crc: int, problem: str) -> bytes:
        """Return bytes of the object whose checksum, from `skip` on, is `crc`. Raises Corruption."""
        for attempt in range(1, READ_ATTEMPTS + 1):
            try:
                data = self._store.get_range(self._object.key, start, length)
            except InvalidArgument:  # an answer that was too short
                if attempt == READ_ATTEMPTS:
                    raise
                continue
            if google_crc32c.value(data[skip:]) == crc:
                return data
        raise Corruption(f"object {self._object.key} is damaged: {problem}")

    def _check_metadata(self) -> None:
        described = self._object
        told = self._parquet.schema_arrow.metadata or {}
        if not self._parquet.schema_arrow.equals(SCHEMA, check_metadata=False):
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
                raise Corruption(
                    f"object {described.key} is another one than the placement driver lists: {name.decode()}"
                )
        self._crcs, self._ends = self._numbers(_CRCS), self._numbers(_ENDS)
        if not len(self._crcs) == len(self._ends) == self._parquet.metadata.num_row_groups:
            raise Corruption(f"object {described.key} has {len(self._crcs)} checksums for its row groups")

    def _numbers(self, name: str) -> list[int]:
        """Our own metadata of the row groups. Asking Parquet where a column lies may end the process: it throws in C++."""
        told = (self._parquet.metadata.metadata or {}).get(name.encode(), b"")
        return [int(each) for each in told.split(b",")]

    def read(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the records in [start, end) in order. Raises Corruption, ObjectNotFound, Unavailable."""
        with _as_corruption(self._object):
            metadata = self._parquet.metadata
            wanted: list[tuple[int, int, int]] = []
            first = self._object.start_offset
            for number in range(metadata.num_row_groups):
                rows = metadata.row_group(number).num_rows
                if first < end and first + rows > start:
                    wanted.append((number, first, rows))
                first += rows
            if first != self._object.end_offset:
                raise Corruption(f"object {self._object.key} has {first - self._object.start_offset} records")
            yield from self._read_groups(wanted, start, end)

    def _read_groups(self, wanted: list[tuple[int, int, int]], start: int, end: int) -> Iterator[pa.RecordBatch]:
        ahead: list[Future[tuple[int, bytes]]] = []
        for turn, (number, first, rows) in enumerate(wanted):
            while len(ahead) < READ_AHEAD_GROUPS and turn + len(ahead) < len(wanted):
                ahead.append(self._threads.submit(self._fetch_group, wanted[turn + len(ahead)][0]))
            span, data = ahead.pop(0).result()
            self._file.spans[span] = data
            table = self._parquet.read_row_group(number)
            del self._file.spans[span]
            offsets = table.column("offset")
            if table.num_rows != rows or offsets[0].as_py() != first or offsets[-1].as_py() != first + rows - 1:
                raise Corruption(f"object {self._object.key} does not hold the offsets from {first} on")
            low, high = max(0, start - first), min(rows, end - first)
            yield from table.slice(low, high - low).to_batches(max_chunksize=BATCH_ROWS)

    def _fetch_group(self, number: int) -> tuple[int, bytes]:
        begin, finish = self._ends[number - 1] if number else _MAGIC_BYTES, self._ends[number]
        problem = f"the checksum of row group {number} does not fit"
        return begin, self._fetch(begin, finish - begin, 0, self._crcs[number], problem)


class _as_corruption:  # noqa: N801  # reads as a phrase
    """Whatever Parquet says of damaged bytes is Corruption; our own errors pass."""

    def __init__(self, described: common_pb2.Object) -> None:
        self._key = described.key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, InvalidArgument):
            raise Corruption(f"object {self._key} is shorter than the placement driver lists") from error
        if isinstance(error, RangelogError) or not isinstance(error, Exception):
            return
        raise Corruption(f"object {self._key} is damaged: it cannot be read as Parquet") from error
