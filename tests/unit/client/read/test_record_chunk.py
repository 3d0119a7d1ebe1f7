"""Chunks of records made when they are looked at: to who uses them they are lists."""

from __future__ import annotations

import random
import struct

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog._read.record_chunk import RecordChunk
from rangelog_core.batch import decode_columns, decode_records, encode_batch, encode_headers
from rangelog_core.errors import Corruption, InternalError, ProtocolViolation
from rangelog_core.record import Record


def consecutive(random_: random.Random, base: int) -> tuple[list[bytes], list[Record]]:
    """Some batches end to end, with and without keys and headers, and what they hold."""
    batches: list[bytes] = []
    records: list[Record] = []
    for _ in range(random_.randrange(5)):
        count = random_.choice((1, 2, 7, 8, 9, 17))
        values = [random_.randbytes(random_.choice((0, 1, 30))) for _ in range(count)]
        keys = [random_.choice((None, b"", b"key")) for _ in range(count)] if random_.random() < 0.5 else None
        if keys is not None and random_.random() < 0.3:
            keys = [b"%d" % number for number in range(count)]
        headers = [random_.choice(({}, {"h": b"1"})) for _ in range(count)] if random_.random() < 0.5 else None
        at = base + len(records)
        batches.append(
            encode_batch(
                stream_id=1,
                range_index=0,
                epoch=1,
                base_offset=at,
                timestamps_ms=range(at, at + count),
                values=values,
                keys=keys,
                headers=None if headers is None else [encode_headers(each) for each in headers],
                codec=random_.randrange(2),
            )
        )
        for number in range(count):
            key = keys[number] if keys else None
            records.append(Record(at + number, at + number, key, values[number], headers[number] if headers else {}))
    return batches, records


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(0, 60), st.integers(0, 60))
def test_a_chunk_is_a_list(random_: random.Random, low: int, high: int) -> None:
    """Length, items from either end, slices, iteration (twice), comparison: as of the list of the same records."""
    batches, records = consecutive(random_, 100)
    records = [each for each in records if 100 + low <= each.offset < 100 + high]
    chunk = RecordChunk(map(decode_columns, batches), 100 + low, 100 + high)
    assert len(chunk) == len(records) and bool(chunk) is bool(records)
    assert list(chunk) == records == list(chunk)
    assert (
        chunk == records
        and chunk == RecordChunk(map(decode_columns, batches), 100 + low, 100 + high)
        and chunk != [*records, None]
    )
    assert [chunk[place] for place in range(-len(records), len(records))] == records * 2
    assert chunk[1:-1] == records[1:-1] and chunk[::-2] == records[::-2]
    assert list(reversed(chunk)) == records[::-1]
    assert all(type(each) is Record and type(each.value) is bytes for each in chunk)
    for place in (len(records), -len(records) - 1):
        with pytest.raises(IndexError):
            chunk[place]


def test_it_says_what_it_holds() -> None:
    """In a log line a chunk is its offsets, not thousands of records."""
    batches, records = [], []
    while not records:
        batches, records = consecutive(random.Random(7), 40)
    assert repr(RecordChunk(map(decode_columns, batches), 0, None)) == f"<records 40 to {records[-1].offset}>"
    assert repr(RecordChunk([], 0, None)) == "<no records>"


def test_whatever_is_wrong_is_found_at_once() -> None:
    """Damage, and headers that are none under a good checksum, are told when the chunk is made: not when it is used."""
    good = encode_batch(
        stream_id=1,
        range_index=0,
        epoch=1,
        base_offset=0,
        timestamps_ms=[1, 2],
        values=[b"a", b"b"],
        headers=[b"", encode_headers({"h": b"1"})],
    )
    with pytest.raises(Corruption):
        RecordChunk([decode_columns(good[:70] + b"\xff" + good[71:])], 0, None)
    bad = bytearray(good[:-4])
    bad[-9] = 9  # so many headers, of which one is there
    resummed = bytes(bad) + struct.pack("<I", google_crc32c.value(bytes(bad)))
    with pytest.raises(ProtocolViolation):
        RecordChunk([decode_columns(resummed)], 0, None)
    assert len(RecordChunk([decode_columns(resummed)], 0, 1)) == 1  # what is not shown is not looked at
    with pytest.raises(ProtocolViolation):
        decode_records(resummed)


def test_a_place_that_is_not_where_it_should_be() -> None:
    """A chunk whose bookkeeping is wrong is a defect that is said, also under `python -O`, and never another record."""
    batch = encode_batch(stream_id=1, range_index=0, epoch=1, base_offset=5, timestamps_ms=[1, 2], values=[b"a", b"b"])
    chunk = RecordChunk([decode_columns(batch)], 5, 7)
    chunk._ends[0] += 2
    with pytest.raises(InternalError, match="record 0"):
        chunk[0]
