"""The loops over the records of a batch: one contract for every implementation."""

from __future__ import annotations

import importlib
import importlib.util
import os
import struct
import subprocess
import sys
from array import array
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.batch import (
    WHOLE_CRC,
    Columns,
    check_batch,
    decode_columns,
    decode_headers,
    encode_batch,
    encode_headers,
)
from rangelog_core.errors import ProtocolViolation
from rangelog_core.record import NO_HEADERS, Record

BASE = 1 << 40
Row = tuple[int, bytes | None, bytes, Mapping[str, bytes]]
STAMPS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.binary(max_size=40)
HEADERS = st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3)
ROWS = st.lists(st.tuples(STAMPS, st.none() | VALUES, VALUES, HEADERS), min_size=1, max_size=40)
PLACES = st.integers(0, 40)


@pytest.fixture(scope="module", params=["pure", "compiled"])
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """Either implementation."""
    if request.param == "pure":
        return importlib.import_module("rangelog_core.record_codec_pure")
    return pytest.importorskip("rangelog_core._record_codec", reason="not compiled: make compiled")


class Shape(NamedTuple):
    """Which columns a batch has."""

    keys: bool
    headers: bool


SHAPES = st.builds(Shape, st.booleans(), st.booleans())


def columns_of(rows: list[Row], shape: Shape) -> Columns:
    """The rows as an opened batch; what the shape leaves out is not in it."""
    return decode_columns(
        encode_batch(
            stream_id=1,
            range_index=0,
            epoch=1,
            base_offset=BASE,
            timestamps_ms=[row[0] for row in rows],
            values=[row[2] for row in rows],
            keys=[row[1] for row in rows] if shape.keys else None,
            headers=[encode_headers(row[3]) for row in rows] if shape.headers else None,
        )
    )


def read(codec: ModuleType, columns: Columns, low: int, high: int) -> list[Record]:
    """The records [low, high), by this implementation."""
    headers = None
    if columns.header_offsets is not None:
        headers = map(decode_headers, codec.cut(columns.headers, columns.header_offsets, low, high))
    return list(codec.iterate_records(columns, headers, low, high))


def read_plainly(columns: Columns, low: int, high: int) -> list[Record]:
    """The same, one record after the other in the plainest code."""

    def piece(data: memoryview, offsets: array[int], number: int) -> bytes:
        return bytes(data[offsets[number] : offsets[number + 1]])

    records = []
    for number in range(low, high):
        key, headers = None, NO_HEADERS
        if columns.key_offsets is not None and columns.key_validity[number // 8] >> number % 8 & 1:
            key = piece(columns.keys, columns.key_offsets, number)
        if columns.header_offsets is not None:
            headers = decode_headers(piece(columns.headers, columns.header_offsets, number))
        value = piece(columns.values, columns.value_offsets, number)
        records.append(Record(BASE + number, columns.timestamps_ms[number], key, value, headers))
    return records


@settings(max_examples=200, deadline=None)
@given(ROWS, SHAPES, PLACES, PLACES)
def test_any_part_of_any_batch_is_read(codec: ModuleType, rows: list[Row], shape: Shape, one: int, other: int) -> None:
    """With and without keys and headers, null keys, empty values: each part [low, high) is what the plainest code reads."""
    columns = columns_of(rows, shape)
    low, high = (min(place, len(rows)) for place in sorted((one, other)))
    found = read(codec, columns, low, high)
    assert found == read_plainly(columns, low, high)
    assert all(type(each) is Record and type(each.value) is bytes for each in found)
    expected = [
        Record(BASE + at, row[0], row[1] if shape.keys else None, row[2], row[3] if shape.headers else {})
        for at, row in enumerate(rows)
    ]
    assert found == expected[low:high]


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=40), PLACES, PLACES)
def test_pieces_are_cut(codec: ModuleType, pieces: list[bytes], one: int, other: int) -> None:
    """The offsets that are encoded cut the joined pieces into what they were, whole or in part; no part beyond is cut."""
    column, end = codec.encode_offsets(pieces)
    offsets = array("I", struct.unpack(f"<{len(pieces) + 1}I", column))
    assert end == offsets[-1] == sum(map(len, pieces))
    low, high = sorted((one, other))
    high = min(high, len(pieces))
    assert list(codec.cut(memoryview(b"".join(pieces)), offsets, low, high)) == pieces[low:high]


@settings(max_examples=200, deadline=None)
@given(st.lists(STAMPS, min_size=1, max_size=40))
def test_timestamps_are_encoded(codec: ModuleType, stamps: list[int]) -> None:
    """The column holds all, in order; the lowest and the highest come with it, whatever the order."""
    expected = struct.pack(f"<{len(stamps)}q", *stamps), min(stamps), max(stamps)
    assert codec.encode_timestamps(stamps) == codec.encode_timestamps(array("q", stamps)) == expected


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=10))
def test_a_seal_is_the_checksum_of_all_pieces(codec: ModuleType, pieces: list[bytes]) -> None:
    """Joined, with the crc32c behind; the pieces themselves are not changed."""
    before = [bytes(bytearray(piece)) for piece in pieces]
    sealed = codec.seal(pieces)
    joined = b"".join(before)
    assert sealed == joined + google_crc32c.value(joined).to_bytes(4, "little")
    assert type(sealed) is bytes and google_crc32c.value(sealed) == WHOLE_CRC
    assert pieces == before


def test_a_large_batch_is_sealed(codec: ModuleType) -> None:
    """A MiB of pieces is whole, and no two batches share their bytes."""
    pieces = [bytes([number % 256]) * 1000 for number in range(1000)]
    first, second = codec.seal(pieces), codec.seal([*pieces, b"x"])
    assert first[:-4] == b"".join(pieces) == second[:-5]
    assert google_crc32c.value(first) == WHOLE_CRC == google_crc32c.value(second)


@pytest.mark.parametrize("stamps", [[2**63], [0, -(2**63) - 1]])
def test_a_timestamp_beyond_i64_is_refused(codec: ModuleType, stamps: list[int]) -> None:
    """Never cut to size."""
    with pytest.raises(OverflowError):
        codec.encode_timestamps(stamps)


@pytest.mark.parametrize("stamps", [["1"], [None], [1.5]])
def test_a_timestamp_that_is_no_integer_is_refused(codec: ModuleType, stamps: list[Any]) -> None:
    """Never taken for a number."""
    with pytest.raises(TypeError):
        codec.encode_timestamps(stamps)


@pytest.mark.parametrize("pieces", [[None], [b"x", 1]])
def test_a_piece_without_a_length_is_refused(codec: ModuleType, pieces: list[Any]) -> None:
    """By its type, in both functions that take pieces."""
    with pytest.raises(TypeError):
        codec.encode_offsets(pieces)
    with pytest.raises(TypeError):
        codec.seal(pieces)


def test_a_malformed_record_header_raises_at_its_record(codec: ModuleType) -> None:
    """The records before it are read, its own raises ProtocolViolation, and those behind it can still be read."""
    rows: list[Row] = [(1, b"k", b"first", {}), (2, None, b"second", {"h": b"x"}), (3, b"", b"third", {})]
    columns = columns_of(rows, Shape(True, True))
    broken = columns._replace(headers=memoryview(b"\xff" + bytes(columns.headers)[1:]))
    records = codec.iterate_records(
        broken, map(decode_headers, codec.cut(broken.headers, broken.header_offsets, 0, 3)), 0, 3
    )
    assert next(records) == Record(BASE, 1, b"k", b"first", {})
    with pytest.raises(ProtocolViolation):
        next(records)
    assert next(records) == Record(BASE + 2, 3, b"", b"third", {})
    assert next(records, None) is None


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 60), min_size=1, max_size=12),
    st.binary(max_size=50),
    st.integers(-2, 14),
    st.integers(-2, 14),
    st.binary(max_size=2),
)
def test_the_compiled_loops_stay_inside_their_buffers(
    ends: list[int], data: bytes, low: int, high: int, validity: bytes
) -> None:
    """Columns that nobody checked give what lies inside them, or a typed error; never other memory."""
    compiled = pytest.importorskip("rangelog_core._record_codec", reason="not compiled: make compiled")
    offsets, view = array("I", ends), memoryview(data)
    header = columns_of([(0, None, b"", {})], Shape(False, False)).header
    columns = Columns(header, array("q", range(10)), offsets, view, offsets, validity, view, None, view)
    inside = {data[a:b] for a in range(len(data) + 1) for b in range(a, len(data) + 1)}
    for make in (
        lambda: compiled.cut(view, offsets, low, high),
        lambda: (each.value for each in compiled.iterate_records(columns, None, low, high)),
        lambda: (each.key or b"" for each in compiled.iterate_records(columns, None, low, high)),
    ):
        try:
            found = list(make())
        except (ProtocolViolation, ValueError):
            continue
        assert len(found) == max(0, high - low) and inside.issuperset(found)


def test_the_compiled_loops_keep_their_buffers() -> None:
    """Columns cannot shrink while they are read, and offsets that change meanwhile are compared again."""
    compiled = pytest.importorskip("rangelog_core._record_codec", reason="not compiled: make compiled")
    offsets = array("I", [0, 1, 2, 3])
    pieces = compiled.cut(memoryview(b"abc"), offsets, 0, 3)
    assert next(pieces) == b"a"
    with pytest.raises(BufferError):
        offsets.pop()
    offsets[2] = 2**32 - 1
    with pytest.raises(ProtocolViolation):
        next(pieces)
    with pytest.raises(ProtocolViolation):
        next(pieces)


@pytest.mark.parametrize("pure", [True, False])
def test_the_environment_chooses(pure: bool) -> None:
    """RANGELOG_PURE=1 gives the pure functions; otherwise the compiled ones serve where they are built."""
    built = importlib.util.find_spec("rangelog_core._record_codec") is not None
    command = "import rangelog_core.record_codec as c; print(c.COMPILED, c.seal.__module__)"
    environment = {name: value for name, value in os.environ.items() if name != "RANGELOG_PURE"}
    environment |= {"RANGELOG_PURE": "1"} if pure else {}
    ended = subprocess.run(
        [sys.executable, "-c", command], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    compiled = built and not pure
    module = "_record_codec" if compiled else "record_codec_pure"
    assert ended.stdout.split() == [str(compiled), f"rangelog_core.{module}"]


def test_records_outlive_their_batch(codec: ModuleType) -> None:
    """A record keeps its own bytes; an iterator keeps the columns that it still reads."""
    records = codec.iterate_records(
        columns_of([(n, None, b"v" * n, {}) for n in range(50)], Shape(False, False)), None, 0, 50
    )
    first = next(records)
    assert first == (BASE, 0, None, b"", {})
    assert [each.value for each in records] == [b"v" * n for n in range(1, 50)]
    assert check_batch(codec.seal([columns_bytes()[:-4]])).count == 1


def columns_bytes() -> bytes:
    """A batch of one record."""
    return encode_batch(stream_id=1, range_index=0, epoch=1, base_offset=0, timestamps_ms=[1], values=[b"v"])
