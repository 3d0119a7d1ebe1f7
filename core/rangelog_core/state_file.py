"""The file in which a placement driver's state is kept outside of it: saved by an operator, or in the tier.

What holds: a file that was cut, altered or written by another program is refused before any of it is used; it is written in
one pass, without its length being known before.

File: magic 8, version u32, length of the header u32; the header; the state; then the tail: length of header and state u64,
crc32c u32 of all bytes before it, magic 8. Little endian. The meaning of header and state is their writer's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import google_crc32c

from rangelog_core.errors import Corruption, InvalidArgument
from rangelog_core.limits import MIB
from rangelog_core.versions import VersionRange, unsupported

_MAGIC = b"RLSTATE\n"
_TAIL_MAGIC = b"RLSTEND\n"
_VERSION = 1
_HEAD = struct.Struct("<8sII")
_LENGTH = struct.Struct("<Q")
_TAIL_END = struct.Struct("<I8s")
TAIL_BYTES = _LENGTH.size + _TAIL_END.size

HEADER_BYTES_MAX = 64 * 1024
STATE_FILE_BYTES_MAX = 512 * MIB
"""As a snapshot of the placement driver: enough for millions of ranges."""


def encode(header: bytes, state: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the file in pieces, as the state comes."""
    if len(header) > HEADER_BYTES_MAX:
        raise InvalidArgument(f"a header of {len(header)} bytes; the limit is {HEADER_BYTES_MAX}")
    head = _HEAD.pack(_MAGIC, _VERSION, len(header)) + header
    crc, length = google_crc32c.value(head), len(header)
    yield head
    for piece in state:
        crc = google_crc32c.extend(crc, piece)
        length += len(piece)
        yield piece
    packed = _LENGTH.pack(length)
    yield packed + _TAIL_END.pack(google_crc32c.extend(crc, packed), _TAIL_MAGIC)


def decode(data: bytes, *, source: str) -> tuple[bytes, bytes]:
    """Return header and state of a whole file. Raises Corruption or UnsupportedVersion, which name `source`."""
    if not _HEAD.size + TAIL_BYTES <= len(data) <= STATE_FILE_BYTES_MAX:
        raise Corruption(f"{source}: {len(data)} bytes cannot be a saved state")
    start = _HEAD.size + _check_head(data[: _HEAD.size], source)
    _check_whole(data, source)
    if start > len(data) - TAIL_BYTES:
        raise Corruption(f"{source}: the header is longer than the file")
    return data[_HEAD.size : start], data[start:-TAIL_BYTES]


def read(path: Path) -> tuple[bytes, bytes]:
    """Return header and state of the file at `path`. Raises Corruption, UnsupportedVersion, OSError."""
    if path.stat().st_size > STATE_FILE_BYTES_MAX:
        raise Corruption(f"{path}: more than {STATE_FILE_BYTES_MAX} bytes cannot be a saved state")
    return decode(path.read_bytes(), source=str(path))


def _check_head(head: bytes, source: str) -> int:
    """Return the length of the header."""
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise Corruption(f"{source}: this is no saved state of a placement driver")
    header_length: int = _HEAD.unpack(head)[2]
    if header_length > HEADER_BYTES_MAX:
        raise Corruption(f"{source}: a header of {header_length} bytes; the limit is {HEADER_BYTES_MAX}")
    return header_length


def _check_whole(data: bytes, source: str) -> None:
    crc, magic = _TAIL_END.unpack(data[-_TAIL_END.size :])
    if magic != _TAIL_MAGIC:
        raise Corruption(f"{source}: the file ends too early, or continues after its end")
    if crc != google_crc32c.value(data[: -_TAIL_END.size]):
        raise Corruption(f"{source}: the checksum does not fit")
    (length,) = _LENGTH.unpack(data[-TAIL_BYTES : -_TAIL_END.size])
    if length != len(data) - _HEAD.size - TAIL_BYTES:
        raise Corruption(f"{source}: the length does not fit")
    version = _HEAD.unpack_from(data)[1]  # the checksum covers it, so a later one is not damage
    if version != _VERSION:
        raise unsupported(source, version, VersionRange(1, _VERSION), "this program")
