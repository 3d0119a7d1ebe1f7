"""The entry of the write-ahead log, the header of a segment, and the rows of a segment's sidecar: bytes only, no I/O.

    entry:  magic "RLE1" · kind u8 · version u8 · u16 0 · length u32 · group back u32 · lsn u64 · stream id u64
            · confirm offset u64 · range index u32 · payload crc u32 · header crc u32 · payload …

A log sequence number is segment number << 32 | position in the segment, so an entry contains its own place: stale bytes of
an earlier use of a recycled file never fit. The header's crc starts from the log's own salt, so that no record can contain
bytes that look like an entry of this log. `group back` leads to the first entry of the write that carried this one: the
last write may not have been flushed, all earlier ones were.

`payload crc` binds the payload to its header. It is the crc32c of the payload; for a payload of one record batch, whose
crc32c is the same for every whole batch, it is the checksum at the batch's own end (the caller has compared it, so no bytes
are summed again). Entries of version 1 have the crc32c of the payload in both cases; they are read as well.

In an encrypted segment (encryption.py) all entries but the markers are of version 3: header in clear, payload encrypted with
its tag, payload crc of these bytes; the payload of BATCHES and MOVED is one batch, so that each is read alone.

The header keeps its form in every version, so an entry of a newer version or of an unknown kind differs from
damage: its place and checksum fit. It raises UnsupportedVersion and is never treated as damage. The same holds for a
segment's header. A sidecar is derived from its segment: one of another version is ignored and rebuilt, and its version rises
with the entry's, so it never hides an entry that must be refused.

Every write ends with an END marker, which the next write overwrites: at a valid END the log ends for certain, whatever stale
bytes follow. A full segment ends with NEXT instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple, Protocol

import google_crc32c

from rangelog_core.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from rangelog_core.batch import TRAILER_BYTES as BATCH_TRAILER_BYTES
from rangelog_core.batch import WHOLE_CRC, BatchHeader, peek_header
from rangelog_core.errors import Corruption, ProtocolViolation, UnsupportedVersion
from rangelog_core.versions import VersionRange, unsupported

ENTRY_MAGIC = b"RLE1"
SEGMENT_MAGIC = b"RLSEG1\0\0"
VERSION = 2
ENCRYPTED_VERSION = 3
"""Of entries whose payload is encrypted; all entries of an encrypted segment but its markers are of this one."""
ENTRY_VERSIONS = VersionRange(1, ENCRYPTED_VERSION)
ENCRYPTED_SEGMENT_VERSION = 2
SEGMENT_VERSIONS = VersionRange(1, ENCRYPTED_SEGMENT_VERSION)
CLEAR_SEGMENT_VERSION = 1
_UPGRADE = "this server"

_HEAD = struct.Struct("<4sBBHIIQQQII")
_CRC = struct.Struct("<I")
_BOUND = struct.Struct("<4sBBHIIQQQI")  # the header up to the payload crc: what the tag of an encrypted payload binds
_SEGMENT = struct.Struct("<8sIIQI")  # magic, version, segment size, sequence, bytes of the extension (version 1: none)
TAG_BYTES = 16
"""What a payload grows by when it is encrypted."""
ENTRY_HEADER_BYTES = _HEAD.size + _CRC.size
SEGMENT_HEADER_BYTES = _SEGMENT.size + _CRC.size
HEAD_RECORD_BYTES = BATCH_HEADER_BYTES + BATCH_TRAILER_BYTES
_POSITION_BITS = 32
_POSITION_MASK = (1 << _POSITION_BITS) - 1


class Kind(IntEnum):
    """The kind of an entry."""

    BATCHES = 1  # consecutive record batches of one range
    STATE = 2  # all metadata of one replica
    TOMBSTONE = 3  # a replica was dropped
    FLOOR = 4  # ranges of this stream up to an index were dropped here: no append creates them again
    SERVER = 5  # the metadata of the log as a whole
    END = 6
    NEXT = 7
    MOVED = 8  # batches of one range once more, so that the segment they were in can be freed


BATCH_KINDS = frozenset((Kind.BATCHES, Kind.MOVED))
"""Entries whose payload is record batches."""

_KINDS = {int(kind): kind for kind in Kind}


def make_lsn(sequence: int, position: int) -> int:
    """Return the log sequence number of a position in a segment."""
    return sequence << _POSITION_BITS | position


def split_lsn(lsn: int) -> tuple[int, int]:
    """Return (segment sequence, position)."""
    return lsn >> _POSITION_BITS, lsn & _POSITION_MASK


class Cipher(Protocol):
    """Encrypts and decrypts the payloads of one segment: SegmentCipher."""

    def encrypt(self, position: int, data: bytes, bound: bytes) -> bytes:
        """See SegmentCipher."""

    def decrypt(self, position: int, body: bytes | memoryview, bound: bytes) -> bytes:
        """See SegmentCipher."""


class EntryHeader(NamedTuple):
    """The header of a valid entry."""

    kind: Kind
    version: int
    length: int
    group_back: int
    lsn: int
    stream_id: int
    confirm_offset: int
    range_index: int
    payload_crc: int


class Entry(NamedTuple):
    """One entry as recovery returns it. `digest`: the payload, or for batches each one's header and checksum."""

    kind: Kind
    lsn: int
    stream_id: int
    range_index: int
    confirm_offset: int
    length: int
    digest: bytes


def pack_header(
    salt: int,
    kind: int,
    lsn: int,
    group_back: int,
    stream_id: int,
    range_index: int,
    confirm_offset: int,
    payload: bytes,
    payload_crc: int | None = None,
) -> bytes:
    """Return the header for `payload`; `payload_crc` is required for a payload of one batch."""
    head = _HEAD.pack(
        ENTRY_MAGIC,
        kind,
        VERSION,
        0,
        len(payload),
        group_back,
        lsn,
        stream_id,
        confirm_offset,
        range_index,
        google_crc32c.value(payload) if payload_crc is None else payload_crc,
    )
    return head + _CRC.pack(google_crc32c.extend(salt, head))


def pack_encrypted(
    salt: int,
    cipher: Cipher,
    kind: int,
    lsn: int,
    group_back: int,
    stream_id: int,
    range_index: int,
    confirm_offset: int,
    payload: bytes,
) -> tuple[bytes, bytes]:
    """Return the header of an entry and its encrypted payload. For the entry's place and once: the place is the nonce."""
    size = len(payload) + TAG_BYTES
    bound = _BOUND.pack(
        ENTRY_MAGIC, kind, ENCRYPTED_VERSION, 0, size, group_back, lsn, stream_id, confirm_offset, range_index
    )
    body = cipher.encrypt(lsn & _POSITION_MASK, payload, bound)
    head = bound + _CRC.pack(google_crc32c.value(body))
    return head + _CRC.pack(google_crc32c.extend(salt, head)), body


def decrypt_entry(cipher: Cipher, data: bytes | memoryview, lsn: int, length: int) -> bytes:
    """Return the payload of the entry that `data` begins with; `length`: of that payload. Raises Corruption."""
    end = ENTRY_HEADER_BYTES + length + TAG_BYTES
    if len(data) < end:
        raise Corruption("an encrypted entry is cut")
    position = lsn & _POSITION_MASK
    return cipher.decrypt(position, data[ENTRY_HEADER_BYTES:end], bytes(data[: _BOUND.size]))


def parse_header(data: bytes, position: int, salt: int, sequence: int) -> EntryHeader | None:
    """Return the header at `position` of a segment if it belongs to this log, this segment and this place.

    Raises UnsupportedVersion when a newer program wrote it.
    """
    if data[position : position + 4] != ENTRY_MAGIC or position + ENTRY_HEADER_BYTES > len(data):
        return None
    _, kind, version, _, length, group_back, lsn, *rest = _HEAD.unpack_from(data, position)
    if lsn != sequence << _POSITION_BITS | position:
        return None
    (crc,) = _CRC.unpack_from(data, position + _HEAD.size)
    if google_crc32c.extend(salt, data[position : position + _HEAD.size]) != crc:
        return None
    if version > ENTRY_VERSIONS.highest:
        raise unsupported(f"the entry at {position}", version, ENTRY_VERSIONS, _UPGRADE)
    if kind not in _KINDS and version:
        raise UnsupportedVersion(
            f"the entry at {position} is of kind {kind}, which this program does not know: upgrade {_UPGRADE}"
        )
    if position + ENTRY_HEADER_BYTES + length > len(data) or not version:
        return None
    return EntryHeader(_KINDS[kind], version, length, group_back, lsn, *rest)


def pack_segment_header(sequence: int, segment_bytes: int) -> bytes:
    """Return the first bytes of a segment file in clear."""
    return pack_segment_head(sequence, segment_bytes, CLEAR_SEGMENT_VERSION, 0)


def pack_segment_head(sequence: int, segment_bytes: int, version: int, extension_bytes: int) -> bytes:
    """Return the first bytes of a segment file, which have this form in every version."""
    head = _SEGMENT.pack(SEGMENT_MAGIC, version, segment_bytes, sequence, extension_bytes)
    return head + _CRC.pack(google_crc32c.value(head))


def segment_version(data: bytes) -> int:
    """Return the version in the first bytes of a segment file; 0: they are damaged."""
    if len(data) < SEGMENT_HEADER_BYTES or data[: len(SEGMENT_MAGIC)] != SEGMENT_MAGIC:
        return 0
    (crc,) = _CRC.unpack_from(data, _SEGMENT.size)
    return int(_SEGMENT.unpack_from(data)[1]) if google_crc32c.value(data[: _SEGMENT.size]) == crc else 0


def check_segment_header(data: bytes) -> None:
    """Check the first bytes of a segment file. Raises UnsupportedVersion.

    A damaged header passes: its fields are not needed, since every entry contains its own place.
    """
    version = segment_version(data)
    if version > SEGMENT_VERSIONS.highest:
        raise unsupported("the segment", version, SEGMENT_VERSIONS, _UPGRADE)


def batch_heads(payload: bytes) -> bytes:
    """Return header and checksum of each batch of a payload, for the index.

    Raises Corruption; UnsupportedVersion, which counts only if the payload is whole.
    """
    if not payload:
        raise Corruption("an entry without a batch")
    heads: list[bytes] = []
    position = 0
    try:
        while position < len(payload):
            end = position + peek_header(payload, position).length
            if end > len(payload):
                raise Corruption("a batch is cut short inside an entry")
            heads.append(payload[position : position + BATCH_HEADER_BYTES] + payload[end - BATCH_TRAILER_BYTES : end])
            position = end
    except ProtocolViolation as error:
        raise Corruption(f"an entry holds no record batches: {error.message}") from error
    return b"".join(heads)


def payload_digest(header: EntryHeader, payload: bytes) -> bytes:
    """Check an entry's payload against its header and return its digest. Raises Corruption, UnsupportedVersion."""
    crc = google_crc32c.value(payload)
    try:
        digest = batch_heads(payload) if header.kind in BATCH_KINDS else payload
    except UnsupportedVersion:
        own_crc = int.from_bytes(payload[-BATCH_TRAILER_BYTES:], "little")
        if header.payload_crc not in (crc, own_crc if crc == WHOLE_CRC else crc):
            raise Corruption("an entry's payload is damaged") from None
        raise
    if header.kind in BATCH_KINDS and header.version > 1 and len(digest) == HEAD_RECORD_BYTES:
        if crc != WHOLE_CRC:
            raise Corruption("the checksum of an entry's batch does not fit")
        (crc,) = _CRC.unpack_from(digest, BATCH_HEADER_BYTES)
    if crc != header.payload_crc:
        raise Corruption("an entry's header was written for another payload")
    return digest


def encrypted_digest(header: EntryHeader, body: bytes, cipher: Cipher | None, bound: bytes) -> bytes:
    """Check and decrypt an entry of an encrypted segment, and return its digest. Raises Corruption, UnsupportedVersion."""
    if cipher is None or header.version != ENCRYPTED_VERSION:
        raise Corruption("an entry is encrypted where others are not, or the other way round")
    if google_crc32c.value(body) != header.payload_crc:
        raise Corruption("an entry's payload is damaged")
    payload = cipher.decrypt(header.lsn & _POSITION_MASK, body, bound[: _BOUND.size])
    if header.kind not in BATCH_KINDS:
        return payload
    digest = batch_heads(payload)
    if len(digest) != HEAD_RECORD_BYTES or google_crc32c.value(payload) != WHOLE_CRC:
        raise Corruption("an encrypted entry is not one whole batch")
    return digest


def iterate_heads(digest: bytes) -> Iterator[tuple[BatchHeader, int]]:
    """Yield (header, checksum) of each batch of an entry's digest."""
    for position in range(0, len(digest), HEAD_RECORD_BYTES):
        (crc,) = _CRC.unpack_from(digest, position + BATCH_HEADER_BYTES)
        yield peek_header(digest, position), crc


# ---- sidecar: what recovery would learn by scanning a full segment

_SIDECAR_MAGIC = b"RLIDX2\0" + bytes((VERSION,))
"""Ends with the version of the entries: a sidecar of newer entries is ignored."""
_SIDECAR = struct.Struct("<8sQQI")  # magic, sequence, body length, segment end position
_ROW = struct.Struct("<BIQIQII")  # kind, position, stream id, range index, confirm offset, length, digest length


def sidecar_row(
    kind: int, position: int, stream_id: int, range_index: int, confirm_offset: int, length: int, digest: bytes
) -> bytes:
    """Return one entry's row."""
    return _ROW.pack(kind, position, stream_id, range_index, confirm_offset, length, len(digest)) + digest


def pack_sidecar(salt: int, sequence: int, end: int, rows: bytes) -> list[bytes]:
    """Return the sidecar file's parts."""
    head = _SIDECAR.pack(_SIDECAR_MAGIC, sequence, len(rows), end)
    crc = google_crc32c.extend(google_crc32c.extend(salt, head), rows)
    return [head, rows, _CRC.pack(crc)]


def unpack_sidecar(salt: int, sequence: int, data: bytes) -> tuple[int, list[Entry]] | None:
    """Return (end position, entries) of a sidecar; None when it is damaged, of another version or another segment's."""
    if len(data) < _SIDECAR.size + _CRC.size:
        return None
    magic, found, rows_bytes, end = _SIDECAR.unpack_from(data)
    if magic != _SIDECAR_MAGIC or found != sequence or len(data) != _SIDECAR.size + rows_bytes + _CRC.size:
        return None
    if google_crc32c.extend(salt, data[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        return None
    entries: list[Entry] = []
    position, stop = _SIDECAR.size, _SIDECAR.size + rows_bytes
    while position < stop:
        if stop - position < _ROW.size:
            return None
        kind, place, stream_id, range_index, confirm_offset, length, digest_bytes = _ROW.unpack_from(data, position)
        position += _ROW.size
        digest = data[position : position + digest_bytes]
        position += digest_bytes
        if kind not in _KINDS or position > stop:
            return None
        if kind in BATCH_KINDS and (not digest or digest_bytes % HEAD_RECORD_BYTES):
            return None
        lsn = make_lsn(sequence, place)
        entries.append(Entry(_KINDS[kind], lsn, stream_id, range_index, confirm_offset, length, digest))
    return end, entries
