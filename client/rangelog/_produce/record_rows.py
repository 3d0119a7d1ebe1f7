"""The records of a producer that have no outcome yet, and the batches that are made of them.

What holds: an invalid record is refused before anything is kept. A batch that is made again has the same records in the
same order, with the same timestamps.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import repeat

from rangelog._append.batch_builder import RECORD_OVERHEAD_BYTES, check_record
from rangelog_core import record_codec
from rangelog_core.batch import check_record_headers, decode_columns, encode_batch
from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from rangelog_core.errors import RecordTooLarge
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.record import BytesLike

Row = tuple[bytes, bytes | None, bytes, int, int]
"""A CheckedRecord, or a plain tuple of its fields, which costs less: value, key, headers, timestamp in ms, size in bytes."""


def checked_row(
    value: BytesLike, key: BytesLike | None, headers: Mapping[str, bytes] | None, timestamp: datetime | int | None
) -> Row:
    """Return a valid record. Raises InvalidArgument, RecordTooLarge."""
    if headers is None and timestamp is None and type(value) is bytes:
        if key is None:
            size_bytes = len(value)
        elif type(key) is bytes:
            size_bytes = len(value) + len(key)
        else:
            return check_record(value, key, headers, timestamp)
        if size_bytes <= RECORD_SIZE_BYTES_MAX:
            return value, key, b"", time.time_ns() // 1_000_000, size_bytes + RECORD_OVERHEAD_BYTES
    return check_record(value, key, headers, timestamp)


def rows_of(data: bytes) -> list[Row]:
    """Return the records of an encoded batch, in order, valid as `checked_row` has them.

    Raises ProtocolViolation, Corruption, UnsupportedVersion; RecordTooLarge.
    """
    columns = decode_columns(data)
    count = columns.header.count
    headers: Iterable[bytes] = repeat(b"")
    if columns.header_offsets is not None:
        check_record_headers(columns, 0, count)
        headers = record_codec.cut(columns.headers, columns.header_offsets, 0, count)
    rows = [
        (value, key, header, timestamp_ms, len(value) + len(key or b"") + len(header) + RECORD_OVERHEAD_BYTES)
        for (_, timestamp_ms, key, value, _), header in zip(
            record_codec.iterate_records(columns, None, 0, count), headers, strict=False
        )
    ]
    if max([row[4] for row in rows], default=0) > RECORD_SIZE_BYTES_MAX + RECORD_OVERHEAD_BYTES:
        raise RecordTooLarge(f"a batch has a record beyond the limit of {RECORD_SIZE_BYTES_MAX} bytes")
    return rows


class RecordRows:
    """Records by order."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def pop(self, orders: Sequence[int]) -> int:
        """Forget these records; return their size in bytes."""
        pop = self.rows.pop
        return sum([pop(order)[4] for order in orders])

    def clear(self) -> list[int]:
        """Forget all; return the orders."""
        orders = list(self.rows)
        self.rows.clear()
        return orders

    def encode(self, orders: Sequence[int], producer: Producer, codec: int) -> bytes:
        """Return these records as a batch of a producer."""
        extension = encode_extension({Tag.PRODUCER: encode_producer(producer)})
        return encode_rows([self.rows[order] for order in orders], extension, codec)


def encode_rows(rows: Sequence[Row], extension: bytes, codec: int) -> bytes:
    """Return a batch of records with a header's extension; its owner gives it a place in the log."""
    values, keys, headers, timestamps_ms, _ = zip(*rows, strict=True)
    return encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=0,
        timestamps_ms=timestamps_ms,
        values=values,
        keys=keys if keys.count(None) < len(keys) else None,
        headers=headers if any(headers) else None,
        codec=codec,
        extension=extension,
    )
