"""Batches as Arrow: the same rows as the records, for any batch; hostile bytes are typed errors before Arrow sees them."""

from __future__ import annotations

import struct
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog._read.arrow_chunk import records_from_arrow
from rangelog_core.batch import HEADER_BYTES, decode_records, encode_batch, encode_headers
from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.record import Record
from rangelog_tier.arrow import SCHEMA, batch_to_arrow

ROWS = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),  # ms
        st.one_of(st.none(), st.binary(max_size=20)),
        st.binary(max_size=60),
        st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def encode(rows: list[tuple[int, bytes | None, bytes, dict[str, bytes]]], base: int, **options: Any) -> bytes:
    """One batch of these rows, with key and header columns only if any row has some."""
    stamps, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    return encode_batch(
        stream_id=1,
        range_index=0,
        epoch=1,
        base_offset=base,
        timestamps_ms=stamps,
        values=values,
        keys=keys if any(key is not None for key in keys) else None,
        headers=[encode_headers(each) for each in headers] if any(headers) else None,
        **options,
    )


@settings(max_examples=150, deadline=None)
@given(ROWS, st.integers(0, 2**40), st.integers(0, 1), st.integers(-5, 45), st.integers(-5, 45))
def test_arrow_rows_are_the_records(rows: Any, base: int, codec: int, low: int, high: int) -> None:
    """Any batch, trimmed anyhow, holds as Arrow what it holds as records."""
    data = encode(rows, base, codec=codec)
    start, end = base + low, base + high
    expected = [Record(base + n, *row) for n, row in enumerate(rows) if start <= base + n < end]
    table = batch_to_arrow(data, start, end)
    table.validate(full=True)
    assert table.schema.equals(SCHEMA)
    assert list(records_from_arrow(table)) == expected
    assert decode_records(data, max(0, start), max(0, end)) == expected


def test_values_are_not_copied() -> None:
    """The value column lies in the batch's own bytes."""
    data = encode([(1, b"k", b"value" * 100, {})], 0)
    table = batch_to_arrow(data)
    whole = pa.py_buffer(data)
    assert whole.address <= table.column("value").buffers()[2].address < whole.address + whole.size


@settings(max_examples=400, deadline=None)
@given(ROWS, st.data())
def test_resealed_damage_never_crashes_arrow(rows: Any, data: st.DataObject) -> None:
    """Columns forged by somebody who also fits the checksum: a typed error, or a table that Arrow finds sound."""
    batch = bytearray(encode(rows, 7))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(HEADER_BYTES, len(batch) - 5))
        batch[position] = data.draw(st.integers(0, 255))
    batch[-4:] = struct.pack("<I", google_crc32c.value(bytes(batch[:-4])))
    try:
        table = batch_to_arrow(bytes(batch))
    except RangelogError:
        return
    table.validate(full=True)
    list(records_from_arrow(table))


@pytest.mark.parametrize("size", [0, 10, HEADER_BYTES, HEADER_BYTES + 5])
def test_short_bytes_are_typed_errors(size: int) -> None:
    """A batch that was cut short is refused."""
    with pytest.raises(RangelogError):
        batch_to_arrow(encode([(1, None, b"v", {})], 0)[:size])


@pytest.mark.parametrize("stamp", [2**62, -(2**63), 2**63 // 1000 + 1])
def test_timestamps_beyond_arrow_are_refused(stamp: int) -> None:
    """A timestamp that microseconds cannot hold is a typed error, not another timestamp."""
    with pytest.raises(RangelogError, match="timestamp"):
        batch_to_arrow(encode([(stamp, None, b"v", {})], 0))


def test_header_names_are_text() -> None:
    """A name with half a surrogate pair is refused when it is appended, not when somebody reads it."""
    with pytest.raises(InvalidArgument, match="not text"):
        encode_headers({"\ud800": b""})
