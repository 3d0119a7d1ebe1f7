"""Digests of a stream's records that depend on their order, made part by part.

A *block* is the records whose offsets, divided by BLOCK_RECORDS, give the same number. The digest of a block is the SHA-256 of
the SHA-256s of its columns, each fed in order; the digest of a stream is that of its span and its blocks' digests.

What holds: the digests do not depend on how records come in chunks, nor on the tier they come from; parts that begin and end
with blocks are digested anywhere, and `stream_digest` joins them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

BLOCK_RECORDS = 4_096
_LISTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Block:
    """The digest of the records [start, end) of one block."""

    start: int
    end: int
    digest: str


class BlockDigests:
    """Digests consecutive records from an offset on."""

    def __init__(self, start: int) -> None:
        self.position = start
        self.blocks: list[Block] = []
        self._start = start
        self._columns = [hashlib.sha256() for _ in range(_COLUMNS)]

    def add(self, table: pa.RecordBatch) -> None:
        """Add the next records; their first offset is `position`."""
        taken = 0
        while taken < table.num_rows:
            room = BLOCK_RECORDS - self.position % BLOCK_RECORDS
            part = table.slice(taken, min(room, table.num_rows - taken))
            _feed(self._columns, part)
            taken += part.num_rows
            self.position += part.num_rows
            if self.position % BLOCK_RECORDS == 0:
                self._end_block()

    def end(self) -> list[Block]:
        """Return all blocks; the last one may be incomplete."""
        if self.position > self._start:
            self._end_block()
        return self.blocks

    def _end_block(self) -> None:
        whole = hashlib.sha256()
        for column in self._columns:
            whole.update(column.digest())
        self.blocks.append(Block(self._start, self.position, whole.hexdigest()))
        self._columns = [hashlib.sha256() for _ in range(_COLUMNS)]
        self._start = self.position


def stream_digest(start: int, end: int, blocks: Sequence[Block]) -> str | None:
    """Return the digest of the records [start, end) from all their blocks in order; None if some are missing.

    Example:
        >>> stream_digest(0, 10, []) is None
        True
    """
    whole = hashlib.sha256(f"rangelog-audit-1 {start} {end}".encode())
    position = start
    for block in blocks:
        if block.start != position:
            return None
        whole.update(bytes.fromhex(block.digest))
        position = block.end
    return f"sha256:{whole.hexdigest()}" if position == end else None


def _feed(columns: Sequence[Any], part: pa.RecordBatch) -> None:
    """Feed times; lengths (null: -1) and bytes of keys and values; of headers their number, and lengths and bytes of both."""
    stamps = part.column("timestamp").cast(pa.int64())
    headers = part.column("headers").cast(_LISTS)
    pairs = headers.flatten()
    names, values = pairs.field("key"), pairs.field("value")
    counts = pc.fill_null(pc.list_value_length(headers), 0)
    fed = (
        _fixed(stamps),
        _lengths(part.column("key")),
        _bytes(part.column("key")),
        _lengths(part.column("value")),
        _bytes(part.column("value")),
        _fixed(counts.cast(pa.int64())),
    )
    for column, data in zip(columns, fed, strict=False):
        column.update(data)
    if len(pairs):  # one record's behind the other's, since what is fed at once depends on the chunk
        columns[6].update(_pair_lengths(names, values))
        columns[7].update(_pair_bytes(names, values))


def _fixed(column: pa.Array) -> bytes:
    """The values of a column of 64-bit integers without nulls."""
    if not len(column):
        return b""
    return bytes(memoryview(column.buffers()[1])[column.offset * 8 : (column.offset + len(column)) * 8])


def _lengths(column: pa.Array) -> bytes:
    return _fixed(pc.fill_null(pc.binary_length(column).cast(pa.int64()), -1))


def _bytes(column: pa.Array) -> bytes | memoryview:
    """The bytes of a column of text or bytes, one behind the other."""
    if not len(column):
        return b""
    if column.null_count:
        column = column.drop_null()
        if not len(column):
            return b""
    data = column.buffers()[2]
    if data is None:
        return b""
    edges = memoryview(column.buffers()[1]).cast("i")
    return memoryview(data)[edges[column.offset] : edges[column.offset + len(column)]]


def _pair_lengths(names: pa.Array, values: pa.Array) -> bytes:
    sizes = zip(pc.binary_length(names).to_pylist(), pc.binary_length(values).to_pylist(), strict=True)
    return b"".join(b"%d:%d," % (name, -1 if value is None else value) for name, value in sizes)


def _pair_bytes(names: pa.Array, values: pa.Array) -> bytes:
    return b"".join(
        name.encode() + (value or b"") for name, value in zip(names.to_pylist(), values.to_pylist(), strict=True)
    )
