"""The record batch: the unit of append, replication, checksum and storage.

    offset  field            type
         0  magic            4 bytes "RLB1"
         4  version          u8   (1)
         5  attributes       u8   bits 0-2 codec (0 none, 1 zstd), bit 3 keys, bit 4 headers
         6  header size      u16  64, or more with an extension: a multiple of 8, up to 1,024
         8  length           u32  of the whole batch, trailer included
        12  count            u32  of records, at least 1
        16  stream id        u64
        24  range index      u32
        28  columns size     u32  before compression
        32  epoch            u64
        40  base offset      u64
        48  min timestamp    i64  ms
        56  max timestamp    i64  ms
        64  extension        fields by tag: batch_extension.py
         ⋮  columns          (compressed when the codec says so)
            timestamps       i64 × count
            value offsets    u32 × (count + 1), from 0
            key offsets      u32 × (count + 1)    if keys
            header offsets   u32 × (count + 1)    if headers
            key validity     ⌈count / 8⌉ bytes, bit i of byte i // 8: record i has a key; least significant first, if keys
            key bytes        if keys
            value bytes
            header bytes     if headers; per record: u8 how many, then each: u16 length, name (UTF-8), u32 length, value
     -4     crc32c           u32  over all before it

Little-endian. The checksum stands last so that one pass over the whole batch yields a constant (`WHOLE_CRC`): no slice, no
copy. It binds the bytes to stream, range, epoch and offset, so a batch in the wrong place is caught like a flipped bit.
Columnar, so that a batch becomes an Arrow RecordBatch without a step per record.

In every version: magic, version and length keep their places, and the checksum of the whole is `WHOLE_CRC`. So a version
counts only where the bytes are undamaged. Attributes and the extension matter to readers of records: `check_batch`, which
servers use, accepts unknown ones; `open_columns` refuses them.

What holds: every function that takes bytes from outside checks them before it allocates by their lengths, and raises
Corruption (checksum), ProtocolViolation (a well-summed batch that breaks the format) or UnsupportedVersion (a well-summed
batch of a newer program).
"""

from __future__ import annotations

import reprlib
import struct
import sys
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import google_crc32c
import zstandard

from rangelog_core import record_codec
from rangelog_core.batch_extension import EXTENSION_BYTES_MAX, FIELD_ALIGNMENT_BYTES, decode_extension, require_known
from rangelog_core.errors import Corruption, InvalidArgument, ProtocolViolation, RecordTooLarge, UnsupportedVersion
from rangelog_core.limits import BATCH_RECORDS_MAX, BATCH_SIZE_BYTES_MAX, HEADERS_PER_RECORD_MAX, OFFSET_MAX
from rangelog_core.record import NO_HEADERS, Record

MAGIC = b"RLB1"
VERSION = 1
HEADER_BYTES = 64
"""The fixed part of the header; `BatchHeader.header_size` is all of it."""
HEADER_BYTES_MAX = HEADER_BYTES + EXTENSION_BYTES_MAX
TRAILER_BYTES = 4
CODEC_NONE = 0
CODEC_ZSTD = 1

_HEADER = struct.Struct("<4sBBHIIQIIQQqq")
LENGTH_AT = 8
_CODEC_MASK = 0x07
_HAS_KEYS = 0x08
_HAS_HEADERS = 0x10
_KNOWN_ATTRIBUTES = _CODEC_MASK | _HAS_KEYS | _HAS_HEADERS
WHOLE_CRC = 0x48674BC7
"""The crc32c of every whole batch: that of any bytes followed by their own crc32c."""
_BIG_ENDIAN = sys.byteorder == "big"


class BatchHeader(NamedTuple):
    """The fixed header of one batch."""

    attributes: int
    header_size: int
    length: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs of a header
    stream_id: int
    range_index: int
    columns_size: int
    epoch: int
    base_offset: int
    min_timestamp_ms: int
    max_timestamp_ms: int

    @property
    def end_offset(self) -> int:
        """One past the last record."""
        return self.base_offset + self.count

    @property
    def codec(self) -> int:
        """How the columns are compressed."""
        return self.attributes & _CODEC_MASK

    @property
    def has_keys(self) -> bool:
        """Whether any record has a key."""
        return bool(self.attributes & _HAS_KEYS)

    @property
    def has_headers(self) -> bool:
        """Whether any record has headers."""
        return bool(self.attributes & _HAS_HEADERS)


def peek_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Read and bound-check the fixed header at `position`, without the checksum.

    Raises ProtocolViolation; UnsupportedVersion on a newer version, which counts only once the checksum was compared.
    """
    if len(data) - position < HEADER_BYTES + TRAILER_BYTES:
        raise ProtocolViolation("a record batch is cut short")
    magic, version, *fields = _HEADER.unpack_from(data, position)
    if magic != MAGIC:
        raise ProtocolViolation("these bytes do not start a record batch")
    if version != VERSION:
        raise _other_version(version)
    header = BatchHeader(*fields)
    if header.header_size != HEADER_BYTES and (
        not HEADER_BYTES < header.header_size <= HEADER_BYTES_MAX or header.header_size % FIELD_ALIGNMENT_BYTES
    ):
        raise ProtocolViolation(f"a record batch's header of {header.header_size} bytes")
    if not header.header_size + TRAILER_BYTES < header.length <= BATCH_SIZE_BYTES_MAX:
        raise ProtocolViolation(f"a record batch of {header.length} bytes; the limit is {BATCH_SIZE_BYTES_MAX}")
    if not 0 < header.count <= BATCH_RECORDS_MAX:
        raise ProtocolViolation(f"a record batch of {header.count} records; the limit is {BATCH_RECORDS_MAX}")
    if header.end_offset > OFFSET_MAX:
        raise ProtocolViolation(f"a record batch at offset {header.base_offset} exceeds the highest possible offset")
    if header.columns_size > BATCH_SIZE_BYTES_MAX:
        raise ProtocolViolation(
            f"record batch columns of {header.columns_size} bytes; the limit is {BATCH_SIZE_BYTES_MAX}"
        )
    return header


def _other_version(version: int) -> ProtocolViolation | UnsupportedVersion:
    if version > VERSION:
        return UnsupportedVersion(
            f"a record batch is of version {version}, this program reads {VERSION}: upgrade this program"
        )
    return ProtocolViolation(f"a record batch of version {version}, which does not exist")


def check_batch(data: bytes) -> BatchHeader:
    """Check one whole batch: header, form of the extension, and checksum; neither the columns nor the extension's fields.

    Raises ProtocolViolation, Corruption or UnsupportedVersion.
    """
    return check_batch_fields(data)[0]


def check_batch_fields(data: bytes) -> tuple[BatchHeader, dict[int, bytes]]:
    """Check one whole batch as `check_batch` does; return the header, and the extension's fields by tag."""
    try:
        header = peek_header(data)
    except UnsupportedVersion:
        if google_crc32c.value(data) != WHOLE_CRC:
            raise Corruption("the checksum of a batch does not fit") from None
        raise
    if header.length != len(data):
        raise ProtocolViolation(f"a record batch states a length of {header.length} bytes and has {len(data)}")
    if google_crc32c.value(data) != WHOLE_CRC:
        raise Corruption(f"the checksum of the batch at offset {header.base_offset} does not fit")
    return header, extension_of(data, header)


def extension_of(data: bytes, header: BatchHeader) -> dict[int, bytes]:
    """Return the extension fields of a checked batch, by tag (batch_extension.Tag); empty without an extension."""
    return decode_extension(data[HEADER_BYTES : header.header_size]) if header.header_size != HEADER_BYTES else {}


def batch_crc(data: bytes) -> int:
    """Return the stored checksum of a whole batch."""
    return int.from_bytes(data[-TRAILER_BYTES:], "little")


def encode_headers(headers: Mapping[str, bytes] | None) -> bytes:
    """Encode one record's headers. Raises InvalidArgument."""
    if not headers:
        return b""
    if not isinstance(headers, Mapping):
        raise InvalidArgument(f"headers are a mapping of str to bytes, not {reprlib.repr(headers)}")
    if len(headers) > HEADERS_PER_RECORD_MAX:
        raise InvalidArgument(f"{len(headers)} headers on one record; the limit is {HEADERS_PER_RECORD_MAX}")
    parts = [bytes((len(headers),))]
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise InvalidArgument("headers map str to bytes")
        try:
            encoded = name.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"header name {name!r} is not text") from None
        if len(encoded) > 0xFFFF:
            raise InvalidArgument(f"a header name of {len(encoded)} bytes; the limit is 65535")
        parts += [len(encoded).to_bytes(2, "little"), encoded, len(value).to_bytes(4, "little"), value]
    return b"".join(parts)


def decode_headers(data: bytes) -> Mapping[str, bytes]:
    """Decode one record's headers. Raises ProtocolViolation."""
    if not data:
        return NO_HEADERS
    headers: dict[str, bytes] = {}
    position = 1
    try:
        for _ in range(data[0]):
            name_end = position + 2 + int.from_bytes(data[position : position + 2], "little")
            name = data[position + 2 : name_end].decode()
            position = name_end + 4 + int.from_bytes(data[name_end : name_end + 4], "little")
            headers[name] = data[name_end + 4 : position]
    except UnicodeDecodeError as error:
        raise ProtocolViolation("a header name is not UTF-8") from error
    if position != len(data):
        raise ProtocolViolation("a record's headers are cut short")
    return headers


def _validity(keys: Sequence[bytes | None]) -> bytes:
    count = len(keys)
    bits = (1 << count) - 1
    if None in keys:
        bits = int("".join(["0" if key is None else "1" for key in reversed(keys)]), 2)
    return bits.to_bytes((count + 7) // 8, "little")


def encode_batch(
    *,
    stream_id: int,
    range_index: int,
    epoch: int,
    base_offset: int,
    timestamps_ms: Sequence[int],
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[bytes] | None = None,
    codec: int = CODEC_NONE,
    extension: bytes = b"",
) -> bytes:
    """Encode one batch of `len(values)` records.

    `headers` are already encoded by `encode_headers`, `extension` by `batch_extension.encode_extension`.

    Raises RecordTooLarge when the whole is over the batch limit, InvalidArgument on no or too many records,
    ProtocolViolation on an extension that is malformed.
    """
    count = len(values)
    if not 0 < count <= BATCH_RECORDS_MAX:
        raise InvalidArgument(f"a batch has 1 to {BATCH_RECORDS_MAX} records, not {count}")
    stamps, low_ms, high_ms = record_codec.encode_timestamps(timestamps_ms)
    body, columns_size = _columns(stamps, values, keys, headers)
    _require_batch_size(columns_size)
    body_size = columns_size
    if codec == CODEC_ZSTD:
        body = [zstandard.ZstdCompressor(level=1, write_content_size=True).compress(b"".join(body))]
        body_size = len(body[0])
    header_size = HEADER_BYTES + len(extension)
    length = header_size + body_size + TRAILER_BYTES
    _require_batch_size(length)
    attributes = codec | (_HAS_KEYS if keys is not None else 0) | (_HAS_HEADERS if headers is not None else 0)
    fields = (attributes, header_size, length, count, stream_id, range_index, columns_size, epoch, base_offset)
    header = _HEADER.pack(MAGIC, VERSION, *fields, low_ms, high_ms)
    if extension:
        decode_extension(extension)
    return record_codec.seal([header, extension, *body])


def _columns(
    stamps: bytes, values: Sequence[bytes], keys: Sequence[bytes | None] | None, headers: Sequence[bytes] | None
) -> tuple[list[bytes], int]:
    """Return the columns in pieces, and the size of all in bytes."""
    value_offsets, value_bytes = record_codec.encode_offsets(values)
    arrays, pieces, piece_bytes = [stamps, value_offsets], values, value_bytes
    if keys is not None:
        present = [key or b"" for key in keys]
        key_offsets, key_bytes = record_codec.encode_offsets(present)
        validity = _validity(keys)
        arrays.append(key_offsets)
        pieces = [validity, *present, *values]
        piece_bytes += len(validity) + key_bytes
    if headers is not None:
        header_offsets, header_bytes = record_codec.encode_offsets(headers)
        arrays.append(header_offsets)
        pieces = [*pieces, *headers]
        piece_bytes += header_bytes
    return [*arrays, *pieces], sum(map(len, arrays)) + piece_bytes


def _require_batch_size(size_bytes: int) -> None:
    if size_bytes > BATCH_SIZE_BYTES_MAX:
        raise RecordTooLarge(f"a batch of {size_bytes} bytes; the limit is {BATCH_SIZE_BYTES_MAX}")


def restamp(
    data: bytes,
    *,
    range_index: int,
    epoch: int,
    stream_id: int | None = None,
    base_offset: int | None = None,
    header: BatchHeader | None = None,
) -> bytes:
    """Return the same records for another range. Stream and offsets change only if they are given, the extension never.

    `header`: that of `data`, where the caller has read it.
    """
    known = header or peek_header(data)
    attributes, header_size, length, count, old_stream_id, _, columns_size, _, old_base_offset, low_ms, high_ms = known
    fields = _HEADER.pack(
        MAGIC,
        VERSION,
        attributes,
        header_size,
        length,
        count,
        old_stream_id if stream_id is None else stream_id,
        range_index,
        columns_size,
        epoch,
        old_base_offset if base_offset is None else base_offset,
        low_ms,
        high_ms,
    )
    return record_codec.seal([fields, data[HEADER_BYTES:-TRAILER_BYTES]])


def with_extension(data: bytes, extension: bytes) -> bytes:
    """Return the same records behind another extension (see encode_extension)."""
    known = peek_header(data)
    size = HEADER_BYTES + len(extension)
    fields = known._replace(header_size=size, length=known.length - known.header_size + size)
    return record_codec.seal(
        [_HEADER.pack(MAGIC, VERSION, *fields), extension, data[known.header_size : -TRAILER_BYTES]]
    )


class Columns(NamedTuple):
    """One batch's columns, as views of one buffer. The offsets are checked: they rise and stay inside the buffer."""

    header: BatchHeader
    timestamps_ms: array[int]
    value_offsets: array[int]
    values: memoryview
    key_offsets: array[int] | None
    key_validity: bytes
    keys: memoryview
    header_offsets: array[int] | None
    headers: memoryview


def _take_offsets(body: memoryview, position: int, count: int) -> array[int]:
    offsets = array("I")
    offsets.frombytes(body[position : position + 4 * (count + 1)])
    if _BIG_ENDIAN:
        offsets.byteswap()
    if offsets[0] != 0:
        raise ProtocolViolation("a record batch's offsets do not start at 0")
    plain = offsets.tolist()
    if plain != sorted(plain):  # in C, and linear in what is sorted already: no step per record
        raise ProtocolViolation("a record batch's offsets fall")
    return offsets


def decompress_columns(data: bytes, header: BatchHeader) -> memoryview:
    """Return the plain columns of a checked batch, of exactly `header.columns_size` bytes. Raises ProtocolViolation."""
    body = memoryview(data)[header.header_size : -TRAILER_BYTES]
    if header.codec == CODEC_ZSTD:
        try:
            # The decompressor believes the size that the frame states: compare before it allocates by it.
            if zstandard.get_frame_parameters(body).content_size != header.columns_size:
                raise ProtocolViolation("a record batch's compressed columns state another size than its header")
            plain = zstandard.ZstdDecompressor().decompress(body, max_output_size=header.columns_size)
        except zstandard.ZstdError as error:
            raise ProtocolViolation(f"a record batch does not decompress: {error}") from error
        body = memoryview(plain)
    if len(body) != header.columns_size:
        raise ProtocolViolation(f"record batch columns of {len(body)} bytes instead of {header.columns_size}")
    return body


def decode_columns(data: bytes) -> Columns:
    """Check and open one whole batch. Raises ProtocolViolation, Corruption or UnsupportedVersion."""
    return open_columns(check_batch(data), data)


def open_columns(header: BatchHeader, data: bytes, fields: Iterable[int] | None = None) -> Columns:
    """Open a batch whose header and checksum were checked. `fields`: the tags of its extension, where the caller has them.

    Raises ProtocolViolation; UnsupportedVersion on an attribute, codec or critical field that this program does not know.
    """
    if header.attributes & ~_KNOWN_ATTRIBUTES or header.attributes & _CODEC_MASK > CODEC_ZSTD:
        raise UnsupportedVersion(
            f"a record batch has the attributes {header.attributes:#x}, of which a reader must know all: upgrade this program"
        )
    if header.header_size != HEADER_BYTES:
        require_known(extension_of(data, header) if fields is None else fields)
    count = header.count
    body = decompress_columns(data, header)
    arrays = 8 * count + 4 * (count + 1) * (1 + header.has_keys + header.has_headers)
    validity_bytes = (count + 7) // 8 if header.has_keys else 0
    if arrays + validity_bytes > len(body):
        raise ProtocolViolation("a record batch is too short for its records")
    stamps = array("q")
    stamps.frombytes(body[: 8 * count])
    if _BIG_ENDIAN:
        stamps.byteswap()
    position = 8 * count
    step = 4 * (count + 1)
    value_offsets = _take_offsets(body, position, count)
    key_offsets = header_offsets = None
    if header.has_keys:
        position += step
        key_offsets = _take_offsets(body, position, count)
    if header.has_headers:
        position += step
        header_offsets = _take_offsets(body, position, count)
    position = arrays + validity_bytes
    validity = bytes(body[arrays:position])
    key_end = position + (key_offsets[-1] if key_offsets else 0)
    value_end = key_end + value_offsets[-1]
    header_end = value_end + (header_offsets[-1] if header_offsets else 0)
    if header_end != len(body):
        raise ProtocolViolation("a record batch's columns do not fill it")
    views = (body[position:key_end], body[key_end:value_end], body[value_end:header_end])
    return Columns(header, stamps, value_offsets, views[1], key_offsets, validity, views[0], header_offsets, views[2])


def iterate_records(columns: Columns, low: int, high: int) -> Iterator[Record]:
    """Yield the records with the numbers [low, high) of a batch, each made on demand.

    Raises ProtocolViolation at a record whose headers are malformed; `check_record_headers` finds these in advance.
    """
    headers = None
    if columns.header_offsets is not None:
        headers = map(decode_headers, record_codec.cut(columns.headers, columns.header_offsets, low, high))
    return record_codec.iterate_records(columns, headers, low, high)


def check_record_headers(columns: Columns, low: int, high: int) -> None:
    """Check the headers of the records [low, high), so that `iterate_records` succeeds. Raises ProtocolViolation."""
    if columns.header_offsets is not None:
        deque(map(decode_headers, record_codec.cut(columns.headers, columns.header_offsets, low, high)), 0)


def clip(header: BatchHeader, start: int, end: int | None) -> tuple[int, int]:
    """Return the numbers [low, high) of a batch's records whose offsets are in [start, end); low >= high: none."""
    base = header.base_offset
    return max(0, start - base), header.count if end is None else min(header.count, end - base)


def decode_records(data: bytes, start: int = 0, end: int | None = None) -> list[Record]:
    """Return the records of one whole batch whose offsets are in [start, end). Raises as decode_columns does."""
    columns = decode_columns(data)
    low, high = clip(columns.header, start, end)
    return list(iterate_records(columns, low, high)) if low < high else []
