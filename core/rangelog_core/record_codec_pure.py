"""The loops over the records of a batch: columns to records, and values to columns, in pure Python.

What holds: for a record with a value and a key no Python code runs, only iterators in C. The caller has checked the columns
(`rangelog_core.batch.open_columns`), and 0 <= low, high <= count.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from itertools import accumulate, islice, repeat
from operator import sub
from typing import TYPE_CHECKING

import google_crc32c

from rangelog_core.record import NO_HEADERS, Record

if TYPE_CHECKING:
    from rangelog_core.batch import Columns

CRC_BYTES = 4
_BIG_ENDIAN = sys.byteorder == "big"


def cut(data: memoryview, offsets: array[int], low: int, high: int) -> Iterator[bytes]:
    """Yield the pieces with the numbers [low, high) of a column of bytes; piece n lies in [offsets[n], offsets[n + 1])."""
    if high - low <= 1:
        return iter([bytes(data[offsets[low] : offsets[high]])] if low < high else ())
    ends = offsets[low : high + 1].tolist()
    span = BytesIO(data[ends[0] : ends[-1]])  # reads bytes on faster than slices are made
    return map(span.read, map(sub, islice(ends, 1, None), ends))


def iterate_records(
    columns: Columns, headers: Iterator[Mapping[str, bytes]] | None, low: int, high: int
) -> Iterator[Record]:
    """Yield the records with the numbers [low, high) of checked columns, each made on demand.

    `headers` yields the headers of these records; None: no record has any.
    """
    offset = columns.header.base_offset + low
    stamps = columns.timestamps_ms[low:high]
    values = cut(columns.values, columns.value_offsets, low, high)
    rows = zip(
        range(offset, offset + high - low), stamps, _keys(columns, low, high), values, headers or repeat(NO_HEADERS)
    )
    # Straight to the tuple: the constructor of a named tuple is a Python function, which costs more than all the rest.
    return map(tuple.__new__, repeat(Record), rows)


def _keys(columns: Columns, low: int, high: int) -> Iterator[bytes | None]:
    if columns.key_offsets is None:
        return repeat(None)
    found = cut(columns.keys, columns.key_offsets, low, high)
    everyone = (1 << max(0, high - low)) - 1
    present = int.from_bytes(columns.key_validity, "little") >> low & everyone
    if present == everyone:
        return found
    marks = bin(present | everyone + 1)[:2:-1]  # least significant first, all of them
    return (key if mark == "1" else None for key, mark in zip(found, marks, strict=True))


def encode_timestamps(timestamps_ms: Sequence[int]) -> tuple[bytes, int, int]:
    """Return the column of timestamps, i64 each, the lowest and the highest. Raises OverflowError on what i64 cannot hold."""
    stamps = array("q", timestamps_ms)
    ordered = sorted(timestamps_ms)  # in order already, as a rule: then faster than min and max
    if _BIG_ENDIAN:
        stamps.byteswap()
    return stamps.tobytes(), ordered[0], ordered[-1]


def encode_offsets(pieces: Sequence[bytes]) -> tuple[bytes, int]:
    """Return the column of the pieces' offsets, u32 each, from 0, and their end. Raises OverflowError beyond u32."""
    offsets = array("I", accumulate(map(len, pieces), initial=0))
    end = offsets[-1]
    if _BIG_ENDIAN:
        offsets.byteswap()
    return offsets.tobytes(), end


def seal(pieces: Sequence[bytes]) -> bytes:
    """Return the pieces joined and the crc32c of them all behind them."""
    whole = BytesIO(b"".join(pieces))  # takes the bytes over without a copy and, at its end, gives them without one
    crc = google_crc32c.value(whole.getvalue())
    whole.seek(0, 2)
    whole.write(crc.to_bytes(CRC_BYTES, "little"))
    return whole.getvalue()
