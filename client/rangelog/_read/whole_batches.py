"""Reads a stream as whole batches, as they are stored: for brokers, whose doors send batches on without opening them.

What holds: the batches come in order without gap or repeat, each with the offsets of its records that count: a reader may start
within a batch, and a seal may end within one. Rows of the tier come as new batches, without the extensions of the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rangelog._read.hot import Fetched
from rangelog._read.reader import SpanReader
from rangelog._read.record_chunk import RecordChunk
from rangelog_core.batch import BatchHeader, encode_batch, encode_headers, open_columns, peek_header
from rangelog_core.limits import KIB
from rangelog_core.record import Record

TIER_RECORDS = 1_024
TIER_BYTES = 256 * KIB
"""A batch of the tier's rows ends at the first of both."""


class WholeBatch(NamedTuple):
    """A checked batch, of whose records those with the offsets [start, end) count.

    `header`: the batch's, at its place in the stream; the bytes of `data` may have been encoded for another place.
    """

    header: BatchHeader
    data: bytes
    start: int
    end: int

    def records(self) -> Sequence[Record]:
        """Return the records that count. Raises ProtocolViolation, UnsupportedVersion."""
        return RecordChunk((open_columns(self.header, self.data),), self.start, self.end)


class BatchReader(SpanReader[Sequence[WholeBatch]]):
    """Reads whole batches. Use `chunks`."""

    def _open(self, fetched: Fetched) -> tuple[Sequence[Any], int]:
        return fetched.batches, fetched.end_offset

    async def _from_batches(self, batches: Sequence[Any], start: int, end: int) -> Sequence[WholeBatch]:
        clipped = (
            WholeBatch(header, data, max(start, header.base_offset), min(end, header.end_offset))
            for header, data, _ in batches
        )
        return [each for each in clipped if each.start < each.end]

    async def _from_arrow(self, table: Any) -> Sequence[WholeBatch]:
        from rangelog._read.arrow_chunk import ArrowChunk

        return list(_batches_of(ArrowChunk(table)))

    def _first_at(self, chunk: Sequence[WholeBatch], timestamp_ms: int) -> int | None:
        for each in chunk:
            if each.header.max_timestamp_ms >= timestamp_ms:
                for record in each.records():
                    if record.timestamp_ms >= timestamp_ms:
                        return record.offset
        return None


def _batches_of(records: Sequence[Record]) -> Iterator[WholeBatch]:
    """Encode consecutive records."""
    gathered: list[Record] = []
    headers: list[bytes] = []
    size_bytes = 0
    for record in records:
        header = encode_headers(record.headers)
        added = len(record.value) + len(record.key or b"") + len(header)
        if gathered and (len(gathered) == TIER_RECORDS or size_bytes + added > TIER_BYTES):
            yield _encoded(gathered, headers)
            gathered, headers, size_bytes = [], [], 0
        gathered.append(record)
        headers.append(header)
        size_bytes += added
    if gathered:
        yield _encoded(gathered, headers)


def _encoded(records: Sequence[Record], headers: Sequence[bytes]) -> WholeBatch:
    keys = [record.key for record in records]
    data = encode_batch(
        stream_id=0,
        range_index=0,
        epoch=0,
        base_offset=records[0].offset,
        timestamps_ms=[record.timestamp_ms for record in records],
        values=[record.value for record in records],
        keys=keys if any(key is not None for key in keys) else None,
        headers=headers if any(headers) else None,
    )
    header = peek_header(data)
    return WholeBatch(header, data, header.base_offset, header.end_offset)
