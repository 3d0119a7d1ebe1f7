"""Encodes rows as record batches, in a task of a sink.

Columns: value binary or string, without nulls; and, where the frame has them, key (binary or string), timestamp (without one:
the time of writing) and headers (map<string, binary>). The columns offset, shard and stream, which a read has beside them,
are left out.

What holds: a batch holds consecutive rows in their order, and carries the mark of its attempt.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType, TimestampType

from rangelog._sink.decision import mark_extension
from rangelog_core.batch import encode_batch, encode_headers
from rangelog_core.errors import ConfigInvalid, InvalidArgument, RecordTooLarge
from rangelog_core.limits import BATCH_RECORDS_MAX, MIB, RECORD_SIZE_BYTES_MAX

BATCH_BYTES = 1 * MIB
_TEXT = (BinaryType(), StringType())
_TYPES: dict[str, tuple[DataType, ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "timestamp": (TimestampType(),),
    "headers": (MapType(StringType(), BinaryType()), MapType(StringType(), StringType())),
}
_LEFT_OUT = ("offset", "shard", "stream")
_RECORD_BYTES = 16
"""What a record costs beside its bytes: a timestamp and two offsets."""


def check_schema(schema: StructType) -> None:
    """Raise ConfigInvalid unless a frame of this schema can be written."""
    names = [field.name.lower() for field in schema.fields]
    for field in schema.fields:
        name = field.name.lower()
        if name in _LEFT_OUT:
            continue
        types = _TYPES.get(name)
        if types is None or names.count(name) > 1:
            raise ConfigInvalid(
                f"column {field.name!r} cannot be written: a record has value, key, timestamp and headers, each once; "
                "select these, others within the value (to_json(struct(*)) AS value)"
            )
        if not any(_same(field.dataType, each) for each in types):
            wanted = " or ".join(each.simpleString() for each in types)
            raise ConfigInvalid(
                f"column {field.name!r} is {field.dataType.simpleString()}; it has to be {wanted}: cast it"
            )
    if "value" not in names:
        raise ConfigInvalid(f"the frame has no column 'value', only {', '.join(schema.fieldNames()) or 'none'}")


def _same(given: DataType, wanted: DataType) -> bool:
    if isinstance(given, MapType) and isinstance(wanted, MapType):
        return type(given.keyType) is type(wanted.keyType) and type(given.valueType) is type(wanted.valueType)
    return type(given) is type(wanted)


class Encoder:
    """Encodes the rows of one attempt. `records`, `batches`: so far."""

    def __init__(self, attempt: int, codec: int) -> None:
        self._attempt = attempt
        self._codec = codec
        self.records = 0
        self.batches = 0

    def encode(self, table: pa.RecordBatch) -> Iterator[bytes]:
        """Yield the rows in batches of about BATCH_BYTES. Raises InvalidArgument for a null value, RecordTooLarge."""
        columns = {name.lower(): table.column(at) for at, name in enumerate(table.schema.names)}
        values = columns["value"]
        if values.null_count:
            raise InvalidArgument(f"{values.null_count} rows have no value: a record's value is never null")
        values = _binary(values)
        keys = _binary(columns["key"]) if "key" in columns else None
        headers = _headers(columns["headers"]) if "headers" in columns else None
        stamps = _stamps(columns.get("timestamp"), table.num_rows)
        for low, high in _parts(_sizes(values, keys, headers)):
            part = slice(low, high)
            yield encode_batch(
                stream_id=0,
                range_index=0,
                epoch=0,
                base_offset=0,
                timestamps_ms=stamps[part],
                values=values[part].to_pylist(),
                keys=keys[part].to_pylist() if keys is not None else None,
                headers=headers[part] if headers is not None else None,
                codec=self._codec,
                extension=mark_extension(self._attempt, self.batches),
            )
            self.batches += 1
            self.records += high - low


def _binary(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary()) if column.type != pa.binary() else column


def _stamps(column: pa.Array | None, count: int) -> list[int]:
    now_ms = time.time_ns() // 1_000_000
    if column is None:
        return [now_ms] * count
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [now_ms if each is None else each // 1_000 for each in micros]


def _headers(column: pa.Array) -> list[bytes] | None:
    if not pc.any(pc.greater(pc.list_value_length(column.cast(_LISTS)), 0)).as_py():
        return None
    return [_encoded(each) for each in column.to_pylist()]


_LISTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _encoded(pairs: list[tuple[str, bytes | str | None]] | None) -> bytes:
    if not pairs:
        return b""
    fields: dict[str, bytes] = {}
    for name, value in pairs:
        if value is None:
            raise InvalidArgument(f"header {name[:100]!r} is null: leave it out, or give it an empty value")
        fields[name] = value.encode() if isinstance(value, str) else value
    return encode_headers(fields)


def _sizes(values: pa.Array, keys: pa.Array | None, headers: list[bytes] | None) -> list[int]:
    lengths = pc.binary_length(values).cast(pa.int64())
    if keys is not None:
        lengths = pc.add(lengths, pc.fill_null(pc.binary_length(keys).cast(pa.int64()), 0))
    sizes: list[int] = lengths.to_pylist()
    if headers is not None:
        sizes = [size + len(header) for size, header in zip(sizes, headers, strict=True)]
    largest = max(sizes, default=0)
    if largest > RECORD_SIZE_BYTES_MAX:
        raise RecordTooLarge(
            f"a row makes a record of {largest:,} bytes; the limit is {RECORD_SIZE_BYTES_MAX:,}: store it as an object and "
            "write a reference"
        )
    return sizes


def _parts(sizes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield [low, high) of consecutive rows that make about BATCH_BYTES together, each of at least one row."""
    ends = list(itertools.accumulate(size + _RECORD_BYTES for size in sizes))
    low = 0
    while low < len(sizes):
        before = ends[low - 1] if low else 0
        high = bisect.bisect_right(ends, before + BATCH_BYTES, low, min(len(ends), low + BATCH_RECORDS_MAX))
        high = max(high, low + 1)
        yield low, high
        low = high
