"""The record batch codec: round trips, and hostile bytes."""

from __future__ import annotations

import random
import struct

import google_crc32c
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.batch import (
    HEADER_BYTES,
    check_batch,
    decode_records,
    encode_batch,
    encode_headers,
    peek_header,
    restamp,
)
from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import Corruption, InvalidArgument, ProtocolViolation, RecordTooLarge, UnsupportedVersion
from rangelog_core.limits import BATCH_SIZE_BYTES_MAX
from rangelog_core.record import Record

RECORD = st.tuples(
    st.integers(-(2**40), 2**40),
    st.none() | st.binary(max_size=20),
    st.binary(max_size=50),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
)


def encode(rows: list[tuple[int, bytes | None, bytes, dict[str, bytes]]], codec: int = 0, base: int = 100) -> bytes:
    """A batch of these rows."""
    return encode_batch(
        stream_id=1,
        range_index=2,
        epoch=3,
        base_offset=base,
        timestamps_ms=[row[0] for row in rows],
        values=[row[2] for row in rows],
        keys=[row[1] for row in rows] if any(row[1] is not None for row in rows) else None,
        headers=[encode_headers(row[3]) for row in rows] if any(row[3] for row in rows) else None,
        codec=codec,
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=30), st.integers(0, 1), st.integers(0, 30), st.integers(0, 30))
def test_round_trip(rows: list[tuple[int, bytes | None, bytes, dict[str, bytes]]], codec: int, a: int, b: int) -> None:
    """Whatever goes in comes out, whole or in part."""
    data = encode(rows, codec)
    records = [Record(100 + n, row[0], row[1], row[2], row[3]) for n, row in enumerate(rows)]
    assert decode_records(data) == records
    low, high = sorted((a, b))
    assert decode_records(data, 100 + low, 100 + high) == records[low:high]
    header = check_batch(data)
    assert header.min_timestamp_ms == min(row[0] for row in rows)
    moved = restamp(data, range_index=9, epoch=8)
    assert check_batch(moved)[5:] != header[5:]
    assert decode_records(moved) == records


def test_every_flip_and_cut_is_found() -> None:
    """No single damaged byte, and no cut, decodes."""
    data = encode([(1, b"k", b"value", {"h": b"x"}), (2, None, b"", {})])
    for position in range(len(data)):
        for bit in range(8):
            bad = data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]
            with pytest.raises((Corruption, ProtocolViolation)):
                decode_records(bad)
    for length in range(len(data)):
        with pytest.raises((Corruption, ProtocolViolation)):
            decode_records(data[:length])


def resum(data: bytes) -> bytes:
    """Give tampered bytes a checksum that fits: what a hostile peer can do."""
    body = data[:-4]
    return body + struct.pack("<I", google_crc32c.value(body))


def test_tampered_batches_with_good_checksums_raise_only_typed_errors() -> None:
    """A hostile peer's batch is refused or decodes; nothing else is ever raised."""
    chance = random.Random(5)
    good = [encode([(n, b"k%d" % n, b"v" * n, {"h": b"x"}) for n in range(20)], codec) for codec in (0, 1)]
    refused = 0
    for turn in range(3000):
        data = bytearray(good[turn % 2])
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data) - 4)] = chance.randrange(256)
        try:
            decode_records(resum(bytes(data)))
        except (Corruption, ProtocolViolation, UnsupportedVersion):
            refused += 1
    assert refused > 1000


def test_a_zip_bomb_is_refused_before_it_is_opened() -> None:
    """Columns that would grow beyond what the header says are not decompressed."""
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 1024 * 1024))
    data = bytearray(encode([(1, None, b"x", {})], codec=1)[:HEADER_BYTES] + bomb + bytes(4))
    data[8:12] = len(data).to_bytes(4, "little")
    with pytest.raises(ProtocolViolation):
        decode_records(resum(bytes(data)))


def test_limits() -> None:
    """Too large, too many or none at all are typed errors."""
    with pytest.raises(RecordTooLarge):
        encode([(0, None, bytes(BATCH_SIZE_BYTES_MAX), {})])
    with pytest.raises(InvalidArgument):
        encode([])
    with pytest.raises(InvalidArgument):
        encode_headers({str(n): b"" for n in range(256)})
    huge = bytearray(encode([(0, None, b"", {})]))
    huge[8:12] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(ProtocolViolation):
        peek_header(bytes(huge))


def test_split_consecutive_batches() -> None:
    """A payload of batches is cut at their borders, or refused."""
    first, second = encode([(1, None, b"a", {})]), encode([(1, None, b"bb", {})], base=101)
    assert split_batches(first + second) == [first, second]
    assert split_batches(b"") == []
    with pytest.raises(ProtocolViolation):
        split_batches(first + second[:-1])
