"""A snapshot of a placement driver's state in the tier: one file, which says whose it is and of when.

What holds: a damaged or foreign file is Corruption, one of a later version UnsupportedVersion, before any of it is used. The
checksum covers magic and version too, so damage to them is not taken for a later version.

File: magic 8, version u32, crc32c u32 of all else, size of the file u64, size of the state u64, size of the header u32; the
header (TierSnapshotHeader); the state in sections (state_sections), deflated. Little endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import BinaryIO

import google_crc32c
from google.protobuf.message import DecodeError

from rangelog_core.errors import Corruption
from rangelog_core.limits import MIB
from rangelog_core.versions import TIER_SNAPSHOT_VERSIONS, unsupported
from rangelog_proto.v1.restore_pb2 import TierSnapshotHeader

STATE_BYTES_MAX = 512 * MIB
"""Of the state before compression: a placement driver's state has some hundred bytes per range."""
_MAGIC = b"RLTSNAP1"
_START = struct.Struct("<8sIIQQI")
_CRC_AT = 12
_FAST = 1


def write(target: BinaryIO, header: TierSnapshotHeader, state: Iterable[bytes]) -> int:
    """Write a snapshot to an empty file, which is read as well; return its size. Memory is bounded by a section.

    Raises Corruption for a state beyond STATE_BYTES_MAX, which no program would read.
    """
    told = header.SerializeToString(deterministic=True)
    target.write(bytes(_START.size) + told)
    packed, size = zlib.compressobj(_FAST), 0
    for chunk in state:
        size += len(chunk)
        if size > STATE_BYTES_MAX:
            raise Corruption(f"the state has more than {STATE_BYTES_MAX} bytes, the limit of a snapshot in the tier")
        target.write(packed.compress(chunk))
    target.write(packed.flush())
    length = target.tell()
    start = _START.pack(_MAGIC, TIER_SNAPSHOT_VERSIONS.highest, 0, length, size, len(told))
    crc = google_crc32c.value(start)
    target.seek(_START.size)
    while data := target.read(MIB):
        crc = google_crc32c.extend(crc, data)
    target.seek(0)
    target.write(_START.pack(_MAGIC, TIER_SNAPSHOT_VERSIONS.highest, crc, length, size, len(told)))
    return length


def read(data: bytes, *, source: str) -> tuple[TierSnapshotHeader, bytes]:
    """Check a snapshot; return its header and its state. Raises Corruption or UnsupportedVersion, which name `source`."""
    if len(data) < _START.size:
        raise Corruption(f"{source}: {len(data)} bytes cannot be a snapshot")
    magic, version, crc, length, size, header_size = _START.unpack_from(data)
    if magic != _MAGIC:
        raise Corruption(f"{source}: this is no snapshot of a placement driver")
    body = _START.size + header_size
    if length != len(data) or body > length:
        raise Corruption(f"{source}: {len(data)} bytes of {length}: it was cut, or changed")
    start = _START.pack(magic, version, 0, length, size, header_size)
    if google_crc32c.extend(google_crc32c.value(start), data[_START.size :]) != crc or not version:
        raise Corruption(f"{source}: the checksum does not fit")
    if version > TIER_SNAPSHOT_VERSIONS.highest:
        raise unsupported(source, version, TIER_SNAPSHOT_VERSIONS, "this program")
    try:
        return TierSnapshotHeader.FromString(data[_START.size : body]), _inflated(data[body:], size)
    except (DecodeError, zlib.error, ValueError) as error:
        raise Corruption(f"{source}: it cannot be read") from error


def _inflated(data: bytes, size: int) -> bytes:
    """Return exactly `size` bytes, and make no more. Raises zlib.error, ValueError."""
    if size > STATE_BYTES_MAX:
        raise ValueError("too large")
    packed = zlib.decompressobj()
    state = packed.decompress(data, size + 1)
    if len(state) != size or not packed.eof or packed.unused_data:
        raise ValueError("another size than the header's")
    return state
