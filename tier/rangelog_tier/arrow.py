"""Record batches as Arrow, column by column: without a step per record, and without a copy except of timestamps.

What holds: the batch's checksum and all its offsets are checked before Arrow gets a buffer, so bytes from a hostile peer
cannot make Arrow read beyond a buffer. Needs pyarrow (extra `tier` or `spark`).

    table = pyarrow.Table.from_batches([batch_to_arrow(data) for data in batches], schema=SCHEMA)
"""

from __future__ import annotations

from array import array

import pyarrow as pa
import pyarrow.compute as pc

from rangelog_core.batch import Columns, clip, decode_columns, decode_headers
from rangelog_core.errors import ProtocolViolation
from rangelog_core.limits import BATCH_RECORDS_MAX

HEADERS_TYPE = pa.map_(pa.string(), pa.binary())

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("key", pa.binary(), nullable=True),
        pa.field("value", pa.binary(), nullable=False),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)
"""The schema of a stream as a table. Timestamps are stored in milliseconds; Arrow, Parquet and Spark get microseconds."""

_TIMESTAMP = SCHEMA.field("timestamp").type
_US_PER_MS = pa.scalar(1000, pa.int64())
_MULTIPLY = pc.get_function("multiply_checked")
_NO_OFFSETS = pa.py_buffer(bytes(4 * (BATCH_RECORDS_MAX + 1)))
_NO_ENTRIES = pa.StructArray.from_arrays(
    [pa.array([], pa.string()), pa.array([], pa.binary())], fields=[HEADERS_TYPE.key_field, HEADERS_TYPE.item_field]
)
_FROM_ZERO = pa.array(
    array("q", range(BATCH_RECORDS_MAX))
)  # offsets are dense: a batch's are these plus its base offset


def batch_to_arrow(data: bytes, start: int = 0, end: int | None = None) -> pa.RecordBatch:
    """Return the records of one encoded batch whose offsets are in [start, end).

    Args:
        data: The whole batch.
        start: The lowest offset.
        end: One past the highest offset; None: up to the end of the batch.

    Returns:
        A RecordBatch with the columns of SCHEMA, one row per record, in offset order.

    Raises:
        Corruption: The checksum does not fit.
        ProtocolViolation: The batch is malformed.
        UnsupportedVersion: The batch is of a newer version.
    """
    return columns_to_arrow(decode_columns(data), start, end)


def columns_to_arrow(columns: Columns, start: int = 0, end: int | None = None) -> pa.RecordBatch:
    """Return the records of one opened batch in [start, end), with the columns of SCHEMA. Raises ProtocolViolation."""
    header = columns.header
    count = header.count
    offsets = pc.add(_FROM_ZERO.slice(0, count), header.base_offset)
    stamps = _timestamps(columns)
    values = _binary(count, columns.value_offsets, columns.values, None)
    if columns.key_offsets is None:
        keys = pa.nulls(count, pa.binary())
    else:
        keys = _binary(count, columns.key_offsets, columns.keys, columns.key_validity)
    table = pa.RecordBatch.from_arrays([offsets, stamps, keys, values, _headers(columns)], schema=SCHEMA)
    low, high = clip(header, start, end)
    return table.slice(low, max(0, high - low))


def _timestamps(columns: Columns) -> pa.Array:
    buffers = [None, pa.py_buffer(columns.timestamps_ms)]
    stamps = pa.Array.from_buffers(pa.int64(), columns.header.count, buffers)
    try:
        return _MULTIPLY.call([stamps, _US_PER_MS]).view(_TIMESTAMP)
    except pa.ArrowInvalid as error:
        raise ProtocolViolation("a record's timestamp is beyond what a table can hold") from error


def _binary(count: int, offsets: array[int], data: memoryview, validity: bytes | None) -> pa.Array:
    # A batch is at most 8 MiB, so its unsigned offsets are valid as signed ones.
    valid = pa.py_buffer(validity) if validity is not None else None
    return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _headers(columns: Columns) -> pa.Array:
    count = columns.header.count
    if columns.header_offsets is None:
        return pa.Array.from_buffers(HEADERS_TYPE, count, [None, _NO_OFFSETS], children=[_NO_ENTRIES])
    data = bytes(columns.headers)
    edges = columns.header_offsets
    decoded = [list(decode_headers(data[edges[i] : edges[i + 1]]).items()) for i in range(count)]
    return pa.array(decoded, type=HEADERS_TYPE)
