"""The head of event files and indexes: a magic and an Avro map of properties, checked before it is decoded.

     0   magic          2 bytes: the letter of the kind, the digit of the version
     2   size           u32: of the map, in bytes
     6   map checksum   u32: crc32c of the map
    10   head checksum  u32: crc32c of the 10 bytes before it
    14   map            Avro's binary encoding of a map of strings

What holds: a size is believed only where the checksum before it fits, and it is bounded; so a reader that waits for more bytes
waits for bytes that a writer meant to write. Properties that a program does not know are kept and ignored.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import fastavro
import google_crc32c

from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion

PROPERTIES_BYTES_MAX = 64 * 1024
"""Of the map: the schema of events, and a few words."""
HEAD_BYTES = 14
_HEAD = struct.Struct("<2sIII")
_CHECKED_BYTES = 10
_MAP: Any = fastavro.parse_schema({"type": "map", "values": "string"})


class FileProperties(NamedTuple):
    """The properties of a file, its size in bytes up to the first byte behind them, and the checksum of the map,
    with which other checksums of the file begin."""

    values: Mapping[str, str]
    size_bytes: int
    salt: int


def encode_properties(magic: bytes, values: Mapping[str, str]) -> bytes:
    """Return the first bytes of a file. Raises InvalidArgument for what is not a map of strings, or too large."""
    target = io.BytesIO()
    try:
        fastavro.schemaless_writer(target, _MAP, dict(values), strict=True)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidArgument(f"properties of a file are strings by name: {error}") from error
    data = target.getvalue()
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InvalidArgument(f"properties of {len(data)} bytes: at most {PROPERTIES_BYTES_MAX}")
    head = _HEAD.pack(magic, len(data), google_crc32c.value(data), 0)[:_CHECKED_BYTES]
    head_crc: int = google_crc32c.value(head)
    return head + head_crc.to_bytes(4, "little") + data


def parse_properties(magic: bytes, data: bytes) -> FileProperties | None:
    """Return the properties at the beginning of a file; None: not all of their bytes are there.

    Raises Corruption for bytes that no writer wrote, UnsupportedVersion for the same kind of file in another version.
    """
    if len(data) < HEAD_BYTES:
        return None
    found, size, map_crc, head_crc = _HEAD.unpack_from(data)
    if google_crc32c.value(data[:_CHECKED_BYTES]) != head_crc:
        raise Corruption("the first bytes of the file are damaged, or it is a file of another kind")
    if found != magic:
        if found[:1] == magic[:1]:
            raise UnsupportedVersion(
                f"the file is of version {found!r}, this program reads {magic!r}: upgrade this program"
            )
        raise Corruption(f"the file begins with {found!r}, not with {magic!r}")
    if size > PROPERTIES_BYTES_MAX:
        raise UnsupportedVersion(f"the file has {size} bytes of properties, this program reads {PROPERTIES_BYTES_MAX}")
    if len(data) < HEAD_BYTES + size:
        return None
    text = data[HEAD_BYTES : HEAD_BYTES + size]
    if google_crc32c.value(text) != map_crc:
        raise Corruption("the properties of the file are damaged")
    source = io.BytesIO(text)
    try:
        values: Any = fastavro.schemaless_reader(source, _MAP, None)
    except Exception as error:  # a decoder in native code: what it raises is not one family
        raise Corruption(f"the properties of the file are not a map of strings: {error!r}") from error
    if source.tell() != size:
        raise Corruption("the properties of the file do not fill the bytes that they claim")
    return FileProperties(values, HEAD_BYTES + size, map_crc)
