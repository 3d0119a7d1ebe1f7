"""The next batch: records are checked one by one, kept column by column, and encoded once.

What holds: an invalid record is refused before anything is kept. Every future resolves with the offset of its own record;
waiters for the whole batch are kept separately. A record without a waiter needs no future.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rangelog_core.batch import encode_batch, encode_headers
from rangelog_core.errors import InvalidArgument, RangelogError, RecordTooLarge
from rangelog_core.limits import BATCH_RECORDS_MAX, MIB, RECORD_SIZE_BYTES_MAX, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from rangelog_core.record import Ack, AppendRecord, BytesLike, looks_like_seconds, meant_as_ms, ms_of

BATCH_BYTES_MAX = 1 * MIB
RECORD_OVERHEAD_BYTES = 64


class CheckedRecord(NamedTuple):
    """A valid record, and its size in bytes as the writer counts it."""

    value: bytes
    key: bytes | None
    headers: bytes
    timestamp_ms: int
    size_bytes: int


def check_record(
    value: BytesLike, key: BytesLike | None, headers: Mapping[str, bytes] | None, timestamp: datetime | int | None
) -> CheckedRecord:
    """Return the record with its timestamp in ms. Raises InvalidArgument, RecordTooLarge."""
    value = _bytes_of("value", value)
    key = _bytes_of("key", key) if key is not None else None
    encoded = encode_headers(headers) if headers else b""
    size = len(value) + len(encoded) + (len(key) if key is not None else 0)
    if size > RECORD_SIZE_BYTES_MAX:
        raise RecordTooLarge(
            f"a record of {size} bytes; the limit is {RECORD_SIZE_BYTES_MAX}: store it as an object and append a reference"
        )
    return CheckedRecord(value, key, encoded, _timestamp_ms(timestamp), size + RECORD_OVERHEAD_BYTES)


def check_append_record(record: AppendRecord) -> CheckedRecord:
    """Return the record. Its `timestamp_ms` is milliseconds by its name, whatever it looks like. As `check_record`."""
    value, key, headers, timestamp_ms = record
    return check_record(value, key, headers, meant_as_ms(timestamp_ms))


def _bytes_of(what: str, given: object) -> bytes:
    """Return a copy of what is bytes-like. Raises InvalidArgument."""
    if type(given) is bytes:
        return given
    if isinstance(given, BytesLike):
        return bytes(given)
    how = ": pass text.encode()" if isinstance(given, str) else ""
    raise InvalidArgument(f"a record's {what} is bytes, bytearray or memoryview, not {type(given).__name__}{how}")


def _timestamp_ms(timestamp: datetime | int | None) -> int:
    if timestamp is None:
        return time.time_ns() // 1_000_000
    if looks_like_seconds(timestamp):
        raise InvalidArgument(
            f"timestamp {timestamp} looks like seconds; as milliseconds it is in 1970: pass milliseconds, or a datetime with a "
            "time zone (where 1970 is meant, such a datetime or an AppendRecord with timestamp_ms)"
        )
    ms = ms_of(timestamp) if isinstance(timestamp, datetime) else timestamp
    if type(ms) is not int or not TIMESTAMP_MS_MIN <= ms <= TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"bad timestamp {timestamp!r}: a datetime, or whole ms since 1970 in the years 1 to 9999")
    return ms


class BatchBuilder:
    """The records of one batch, and their waiters."""

    __slots__ = (
        "_futures",
        "_waiters",
        "base_offset",
        "headers",
        "keys",
        "size_bytes",
        "timestamps_ms",
        "values",
    )

    def __init__(self) -> None:
        self.base_offset = 0  # known once it is encoded
        self.size_bytes = 0
        self.values: list[bytes] = []
        self.timestamps_ms: list[int] = []
        self.keys: list[bytes | None] | None = None  # None until a record has a key; then one per record
        self.headers: list[bytes] | None = None  # the same
        self._futures: list[tuple[int, asyncio.Future[Ack]]] | None = None  # each with the offset of its record
        self._waiters: list[asyncio.Future[None]] | None = None  # for the whole batch

    @property
    def end_offset(self) -> int:
        """One past its last record."""
        return self.base_offset + len(self.values)

    @property
    def unwatched(self) -> bool:
        """Whether the batch has records without a waiter."""
        return not self._waiters and len(self.values) > len(self._futures or ())

    def notify(self, offset: int, future: asyncio.Future[Ack]) -> None:
        """Resolve `future` when the record at `offset` is acked."""
        if self._futures is None:
            self._futures = []
        self._futures.append((offset, future))

    def wait(self, waiter: asyncio.Future[None]) -> None:
        """Resolve `waiter` when the whole batch is acked."""
        if self._waiters is None:
            self._waiters = []
        self._waiters.append(waiter)

    def add_value(self, value: bytes, timestamp_ms: int, size_bytes: int) -> int:
        """Add a checked record that has a value only; return the number of records then, or 0 when it does not fit."""
        count = len(self.values)
        size_after = self.size_bytes + size_bytes
        if count and (size_after > BATCH_BYTES_MAX or count >= BATCH_RECORDS_MAX):
            return 0
        self.values.append(value)
        self.timestamps_ms.append(timestamp_ms)
        self.size_bytes = size_after
        if self.keys is not None:
            self.keys.append(None)
        if self.headers is not None:
            self.headers.append(b"")
        return count + 1

    def add(self, record: CheckedRecord) -> int:
        """Add a checked record; return the number of records then, or 0 when it does not fit. The first one always fits."""
        before = len(self.values)
        count = self.add_value(record.value, record.timestamp_ms, record.size_bytes)
        if not count:
            return 0
        if record.key is not None:
            if self.keys is None:
                self.keys = [None] * (before + 1)
            self.keys[before] = record.key
        if record.headers:
            if self.headers is None:
                self.headers = [b""] * (before + 1)
            self.headers[before] = record.headers
        return count

    def encode(self, *, stream_id: int, range_index: int, epoch: int, codec: int) -> bytes:
        """Return the record batch, at `base_offset`."""
        return encode_batch(
            stream_id=stream_id,
            range_index=range_index,
            epoch=epoch,
            base_offset=self.base_offset,
            timestamps_ms=self.timestamps_ms,
            values=self.values,
            keys=self.keys,
            headers=self.headers,
            codec=codec,
        )

    def resolve(self) -> None:
        """Resolve all futures: the batch is acked."""
        for offset, future in self._futures or ():
            if not future.done():
                future.set_result(Ack(offset))
        for waiter in self._waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: RangelogError, of_all: RangelogError) -> None:
        """Fail all futures: `error` for single records, `of_all` for waiters of this batch and all earlier ones."""
        for future in (future for _, future in self._futures or ()):
            tell(future, error)
        for waiter in self._waiters or ():
            tell(waiter, of_all)


def tell(future: asyncio.Future[Any], error: RangelogError) -> None:
    """Fail a future, whether or not anybody waits for it."""
    if not future.done():
        future.set_exception(error)
        future.exception()  # marked as retrieved; a waiter still gets it
