"""Records on their way into a batch: checked one by one, kept column by column, encoded once.

What holds: a record that is not allowed is refused before anything is kept. Every future resolves with the offset of its
own record; who waits for the whole batch is told apart from that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rangelog.batch import encode_batch, encode_headers
from rangelog.errors import InvalidArgument, RangelogError, RecordTooLarge
from rangelog.limits import BATCH_RECORDS_MAX, MIB, RECORD_SIZE_BYTES_MAX, TIMESTAMP_MS_MAX, TIMESTAMP_MS_MIN
from rangelog.record import Ack

BATCH_BYTES_MAX = 1 * MIB
_RECORD_OVERHEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """A record that may be appended, and what it weighs."""

    value: bytes
    key: bytes | None
    headers: bytes
    timestamp_ms: int
    size_bytes: int


def check_record(
    value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None, timestamp: datetime | int | None
) -> CheckedRecord:
    """Raises InvalidArgument, RecordTooLarge."""
    if type(value) is not bytes or (key is not None and type(key) is not bytes):
        raise InvalidArgument("a record's value and key are bytes")
    encoded = encode_headers(headers) if headers else b""
    size = len(value) + len(encoded) + (len(key) if key is not None else 0)
    if size > RECORD_SIZE_BYTES_MAX:
        raise RecordTooLarge(
            f"a record of {size} bytes; the limit is {RECORD_SIZE_BYTES_MAX}: store it as an object and append a reference"
        )
    return CheckedRecord(value, key, encoded, _timestamp_ms(timestamp), size + _RECORD_OVERHEAD_BYTES)


def ms_of(moment: datetime) -> int:
    """Return the ms since 1970. Raises InvalidArgument for a local time so early that it has none in UTC."""
    try:
        return int(moment.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"bad timestamp {moment!r}: it has no time in UTC, give it a time zone") from error


def _timestamp_ms(timestamp: datetime | int | None) -> int:
    if timestamp is None:
        return time.time_ns() // 1_000_000
    ms = ms_of(timestamp) if isinstance(timestamp, datetime) else timestamp
    if type(ms) is not int or not TIMESTAMP_MS_MIN <= ms <= TIMESTAMP_MS_MAX:
        raise InvalidArgument(f"bad timestamp {timestamp!r}: a datetime, or whole ms since 1970 in the years 1 to 9999")
    return ms


@dataclass(slots=True)
class GatheredBatch:
    """Records that go out together, and who waits for them."""

    base_offset: int = 0
    size_bytes: int = 0
    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    timestamps_ms: list[int] = field(default_factory=list)
    futures: list[asyncio.Future[Ack] | None] = field(default_factory=list)  # one a record
    waiters: list[asyncio.Future[None]] = field(default_factory=list)  # for the whole batch
    has_keys: bool = False
    has_headers: bool = False

    @property
    def end_offset(self) -> int:
        """One past its last record."""
        return self.base_offset + len(self.values)

    def is_full_for(self, record: CheckedRecord) -> bool:
        """Whether the record must go into the next batch."""
        over = self.size_bytes + record.size_bytes > BATCH_BYTES_MAX or len(self.values) >= BATCH_RECORDS_MAX
        return bool(self.values) and over

    def add(self, record: CheckedRecord, future: asyncio.Future[Ack] | None) -> None:
        """Take a record in."""
        self.values.append(record.value)
        self.keys.append(record.key)
        self.headers.append(record.headers)
        self.timestamps_ms.append(record.timestamp_ms)
        self.futures.append(future)
        self.has_keys |= record.key is not None
        self.has_headers |= bool(record.headers)
        self.size_bytes += record.size_bytes

    def encode(self, *, stream_id: int, range_index: int, epoch: int, codec: int) -> bytes:
        """Return the record batch, at `base_offset`."""
        return encode_batch(
            stream_id=stream_id,
            range_index=range_index,
            epoch=epoch,
            base_offset=self.base_offset,
            timestamps_ms=self.timestamps_ms,
            values=self.values,
            keys=self.keys if self.has_keys else None,
            headers=self.headers if self.has_headers else None,
            codec=codec,
        )

    def resolve(self) -> None:
        """All of it is acked."""
        for offset, future in enumerate(self.futures, self.base_offset):
            if future is not None and not future.done():
                future.set_result(Ack(offset))
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: RangelogError) -> None:
        """Its outcome stays unknown."""
        for future in [*self.futures, *self.waiters]:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # told; whoever awaits it still gets it
