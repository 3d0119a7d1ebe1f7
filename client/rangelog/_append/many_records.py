"""Appends the records of an iterable through one writer, as fast as acks come.

What holds: a record is taken from the iterable only when there is room for it, so memory is bounded whatever the iterable has.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import TYPE_CHECKING

from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.record import AppendRecord

if TYPE_CHECKING:
    from rangelog._append.writer import Writer

Records = Iterable[bytes | AppendRecord] | AsyncIterable[bytes | AppendRecord]


async def append_all(writer: Writer, records: Records, *, timeout_s: float | None) -> int:
    """See Writer.append_all."""
    count = 0
    try:
        async for record in _each(records):
            if not writer.has_room:
                await writer.ready(timeout_s=timeout_s)
            if isinstance(record, AppendRecord):
                value, key, headers, timestamp_ms = record
                writer.append_nowait(value, key=key, headers=headers, timestamp=timestamp_ms)
            else:
                writer.append_nowait(record)
            count += 1
        if count:
            await writer.flush(timeout_s=timeout_s)
    except RangelogError as error:
        if count and not error.outcome_unknown:
            raise error.with_outcome(unknown=True) from error
        raise
    return count


async def _each(records: Records) -> AsyncIterator[bytes | AppendRecord]:
    if isinstance(records, AsyncIterable):
        async for record in records:
            yield record
    elif isinstance(records, Iterable) and not isinstance(records, bytes | bytearray | memoryview | str):
        for record in records:
            yield record
    else:
        raise InvalidArgument(f"records are an iterable of values or AppendRecords, not {type(records).__name__}")
