"""The rows of a producer: what an encoded batch holds, as rows, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog._produce.record_rows import checked_row, rows_of
from rangelog_core.batch import CODEC_NONE, CODEC_ZSTD, encode_batch, encode_headers
from rangelog_core.errors import Corruption, RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.record import meant_as_ms

_RECORDS = st.tuples(
    st.binary(max_size=20),
    st.none() | st.binary(max_size=5),
    st.dictionaries(st.text(max_size=3), st.binary(max_size=5), max_size=2),
    st.integers(0, 2**41),
)


def _encode(
    values: list[bytes], keys: list[bytes | None], headers: list[bytes], stamps: list[int], codec: int
) -> bytes:
    return encode_batch(
        stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=stamps, values=values, codec=codec,
        keys=keys if any(each is not None for each in keys) else None, headers=headers if any(headers) else None,
    )  # fmt: skip


@given(records=st.lists(_RECORDS, min_size=1, max_size=30), codec=st.sampled_from([CODEC_NONE, CODEC_ZSTD]))
def test_a_batch_is_the_rows_that_were_encoded(
    records: list[tuple[bytes, bytes | None, dict[str, bytes], int]], codec: int
) -> None:
    """Each row is the one that a producer makes of the same record, in order."""
    rows = [tuple(checked_row(value, key, headers, meant_as_ms(ms))) for value, key, headers, ms in records]
    values, keys, headers, stamps, _ = (list(column) for column in zip(*rows, strict=True))
    assert [tuple(row) for row in rows_of(_encode(values, keys, headers, stamps, codec))] == rows


def test_a_damaged_batch_and_one_with_too_large_a_record_are_refused() -> None:
    """Typed, as elsewhere; a record of the limit is taken."""
    limit = RECORD_SIZE_BYTES_MAX
    assert len(rows_of(_encode([bytes(limit - 1)], [b"k"], [b""], [0], CODEC_ZSTD))) == 1
    for header in (b"", encode_headers({"a": b"b"})):
        with pytest.raises(RecordTooLarge):
            rows_of(_encode([bytes(limit)], [b"k"], [header], [0], CODEC_ZSTD))
    whole = _encode([b"value"], [b"k"], [b""], [0], CODEC_NONE)
    with pytest.raises(Corruption):
        rows_of(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
