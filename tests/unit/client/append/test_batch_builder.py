"""The next batch: what fits into it, and the columns that its records get."""

from __future__ import annotations

from rangelog._append.batch_builder import BATCH_BYTES_MAX, BatchBuilder, check_record
from rangelog_core.batch import CODEC_NONE, decode_records
from rangelog_core.limits import BATCH_RECORDS_MAX
from rangelog_core.record import Record


def test_a_record_that_does_not_fit_is_not_added() -> None:
    """By bytes: 0, and nothing is kept of it. The first record fits whatever its size."""
    builder = BatchBuilder()
    assert builder.add_value(b"large", 1, BATCH_BYTES_MAX + 1) == 1
    assert builder.add_value(b"small", 2, 1) == 0
    assert builder.add(check_record(b"small", b"key", {"h": b"x"}, 3)) == 0
    assert (builder.values, builder.timestamps_ms, builder.size_bytes) == ([b"large"], [1], BATCH_BYTES_MAX + 1)
    assert builder.keys is None and builder.headers is None


def test_a_batch_has_a_number_of_records_at_most() -> None:
    """By count: the record after the last possible one is refused."""
    builder = BatchBuilder()
    assert [builder.add_value(b"", 1, 0) for _ in range(BATCH_RECORDS_MAX)] == list(range(1, BATCH_RECORDS_MAX + 1))
    assert builder.add_value(b"", 1, 0) == 0
    assert len(builder.values) == len(builder.timestamps_ms) == BATCH_RECORDS_MAX


def test_records_with_and_without_keys_and_headers_mix() -> None:
    """The columns of keys and headers begin with the first record that has some, and have a place for every record."""
    builder = BatchBuilder()
    builder.base_offset = 7
    assert builder.add_value(b"plain", 1, 69) == 1
    assert builder.add(check_record(b"keyed", b"", None, 2)) == 2
    assert builder.add_value(b"plain", 3, 69) == 3
    assert builder.add(check_record(b"headed", None, {"h": b"x"}, 4)) == 4
    assert builder.add_value(b"plain", 5, 69) == 5
    records = decode_records(builder.encode(stream_id=1, range_index=0, epoch=1, codec=CODEC_NONE))
    assert records == [
        Record(7, 1, None, b"plain"),
        Record(8, 2, b"", b"keyed"),
        Record(9, 3, None, b"plain"),
        Record(10, 4, None, b"headed", {"h": b"x"}),
        Record(11, 5, None, b"plain"),
    ]
