"""Rows as record batches: what comes out of them again, their sizes and marks, and what is no record."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rangelog.spark.encoding import BATCH_BYTES, Encoder
from rangelog_core.batch import CODEC_NONE, CODEC_ZSTD, check_batch_fields, decode_records
from rangelog_core.batch_extension import Tag, decode_producer
from rangelog_core.errors import InvalidArgument, RecordTooLarge
from rangelog_core.limits import BATCH_RECORDS_MAX, RECORD_SIZE_BYTES_MAX

ATTEMPT = (1 << 64) - 5
HEADERS = pa.map_(pa.string(), pa.binary())
STAMPS = pa.timestamp("us", tz="UTC")


def encoded(table: pa.RecordBatch, codec: int = CODEC_NONE) -> list[bytes]:
    """Its batches."""
    return list(Encoder(ATTEMPT, codec).encode(table))


def records(batches: list[bytes]) -> list[tuple[int, bytes | None, bytes, dict[str, bytes]]]:
    """What they hold."""
    return [(r.timestamp_ms, r.key, r.value, dict(r.headers)) for data in batches for r in decode_records(data)]


@pytest.mark.parametrize("codec", [CODEC_NONE, CODEC_ZSTD])
def test_rows_come_out_as_they_went_in(codec: int) -> None:
    """Nulls in keys, headers and times; microseconds are cut; other columns are left out; a slice is read as one."""
    table = pa.record_batch(
        {
            "offset": pa.array([7, 8, 9, 10]),
            "Key": pa.array(["-", "k", None, ""]),
            "VALUE": pa.array([b"-", b"v", b"", b"x" * 300]),
            "timestamp": pa.array([0, 1_999, None, -1], type=pa.int64()).cast(pa.timestamp("us")).cast(STAMPS),
            "headers": pa.array([[], [("h", b"1"), ("i", b"")], None, []], type=HEADERS),
        }
    ).slice(1)
    found = records(encoded(table, codec))
    assert found[0] == (1, b"k", b"v", {"h": b"1", "i": b""})
    assert found[1][1:] == (None, b"", {})
    assert found[1][0] > 1_700_000_000_000
    assert found[2] == (-1, b"", b"x" * 300, {})


def test_batches_are_of_even_size_and_marked() -> None:
    """Consecutive rows, each batch numbered; one row may be as large as a record."""
    sizes = [100] * 30_000 + [RECORD_SIZE_BYTES_MAX] * 2 + [10]
    values = [b"%08d" % number + bytes(size - 8) for number, size in enumerate(sizes)]
    encoder = Encoder(ATTEMPT, CODEC_NONE)
    batches = list(encoder.encode(pa.record_batch({"value": pa.array(values, pa.binary())})))
    assert [value for _, _, value, _ in records(batches)] == values
    assert max(map(len, batches)) <= BATCH_BYTES + 4_096
    assert [decode_producer(check_batch_fields(data)[1][Tag.PRODUCER]) for data in batches] == [
        (ATTEMPT, 0, number) for number in range(len(batches))
    ]
    assert (encoder.records, encoder.batches) == (len(values), len(batches))
    assert 5 <= len(batches) <= 8


def test_a_batch_has_no_more_records_than_it_may() -> None:
    """However small they are."""
    batches = encoded(pa.record_batch({"value": pa.array([b""] * (BATCH_RECORDS_MAX + 1), pa.binary())}))
    assert sum(len(decode_records(data)) for data in batches) == BATCH_RECORDS_MAX + 1
    assert len(batches) == 2


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"value": pa.array([b"a", None])}, InvalidArgument, "1 rows have no value"),
        ({"value": pa.array([b"a"]), "headers": pa.array([[("h", None)]], HEADERS)}, InvalidArgument, "'h' is null"),
        ({"value": pa.array([bytes(RECORD_SIZE_BYTES_MAX + 1)])}, RecordTooLarge, "1,048,577 bytes"),
        ({"value": pa.array([bytes(RECORD_SIZE_BYTES_MAX)]), "key": pa.array([b"k"])}, RecordTooLarge, "1,048,577"),
        (
            {"value": pa.array([b"a"]), "headers": pa.array([[(f"{n}", b"") for n in range(256)]], HEADERS)},
            InvalidArgument,
            "256 headers",
        ),
    ],
)
def test_what_is_no_record_is_refused(columns: dict[str, Any], error: type[Exception], said: str) -> None:
    """In one sentence."""
    with pytest.raises(error, match=said):
        encoded(pa.record_batch(columns))


def test_no_rows_make_no_batch() -> None:
    """An empty partition."""
    assert encoded(pa.record_batch({"value": pa.array([], pa.binary()), "headers": pa.array([], HEADERS)})) == []
