"""Appends the records of a list or an iterable through one writer, as fast as acks come.

What holds: a record is taken from the iterable only when there is room for it, so memory is bounded whatever the iterable has.
A list with an expected end is appended in one step, behind each other from there on, or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING

from rangelog._append.batch_builder import RECORD_OVERHEAD_BYTES, check_append_record, check_record
from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.record import Ack, AppendRecord, BytesLike, meant_as_ms

if TYPE_CHECKING:
    from rangelog._append.writer import Writer

Records = Iterable[BytesLike | AppendRecord] | AsyncIterable[BytesLike | AppendRecord]


async def append_batch(
    writer: Writer,
    records: Sequence[BytesLike | AppendRecord],
    *,
    expected_end: int | None,
    bytes_max: int,
    timeout_s: float | None,
) -> list[Ack]:
    """See Writer.append_batch."""
    size_bytes = sum(map(_checked_size, records))
    if expected_end is not None and size_bytes > bytes_max:
        raise InvalidArgument(
            f"records of {size_bytes} bytes with an expected_end; the limit is {bytes_max}: "
            "append fewer at once, or give the writer a higher inflight_bytes_max"
        )
    offsets: list[int] = []
    try:
        writer.check_room()
        if expected_end is not None:
            await writer.ready(timeout_s=timeout_s)  # there is room for all of them now
        for record in records:
            if expected_end is None and not writer.has_room:
                await writer.ready(timeout_s=timeout_s)
            offsets.append(_append(writer, record, None if offsets else expected_end))
        if offsets:
            await writer.flush(timeout_s=timeout_s)
    except RangelogError as error:
        writer.note_told()
        if offsets and not error.outcome_unknown:
            raise error.with_outcome(unknown=True) from error
        raise
    return [Ack(offset) for offset in offsets]


def _checked_size(record: BytesLike | AppendRecord) -> int:
    if type(record) is bytes and len(record) <= RECORD_SIZE_BYTES_MAX:
        return len(record) + RECORD_OVERHEAD_BYTES
    checked = (
        check_append_record(record) if isinstance(record, AppendRecord) else check_record(record, None, None, None)
    )
    return checked.size_bytes


def _append(writer: Writer, record: BytesLike | AppendRecord, expected_end: int | None = None) -> int:
    if isinstance(record, AppendRecord):
        value, key, headers, timestamp_ms = record
        timestamp = meant_as_ms(timestamp_ms)
        return writer.append_nowait(value, key=key, headers=headers, timestamp=timestamp, expected_end=expected_end)
    return writer.append_nowait(record, expected_end=expected_end)


async def append_all(writer: Writer, records: Records, *, timeout_s: float | None) -> int:
    """See Writer.append_all."""
    count = 0
    try:
        writer.check_room()
        async for record in _each(records):
            if not writer.has_room:
                await writer.ready(timeout_s=timeout_s)
            _append(writer, record)
            count += 1
        if count:
            await writer.flush(timeout_s=timeout_s)
    except RangelogError as error:
        writer.note_told()
        if count and not error.outcome_unknown:
            raise error.with_outcome(unknown=True) from error
        raise
    return count


def check_iterable(records: object) -> None:
    """Raise InvalidArgument for what is no iterable of records: bytes would be appended as numbers."""
    if not isinstance(records, Iterable) or isinstance(records, BytesLike | str):
        raise InvalidArgument(f"records are an iterable of values or AppendRecords, not {type(records).__name__}")


async def _each(records: Records) -> AsyncIterator[BytesLike | AppendRecord]:
    if isinstance(records, AsyncIterable):
        async for record in records:
            yield record
    else:
        check_iterable(records)
        for record in records:
            yield record
