"""The records of a stream: as read (Record), as appended (AppendRecord), and as acked (Ack); timestamps in ms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument

BytesLike = bytes | bytearray | memoryview
"""A value or a key that may be appended: its bytes are copied."""
NO_HEADERS: Mapping[str, bytes] = {}
"""The headers of every record without headers; nobody changes it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_SECONDS_MIN, _SECONDS_MAX = 1_000_000_000, 9_999_999_999
"""Seconds since 1970 of the years 2001 to 2286. As milliseconds they are in January to April 1970."""


class Record(NamedTuple):
    """One record of a stream, as read.

    Attributes:
        offset: The record's number in its stream; dense, from 0.
        timestamp_ms: Milliseconds since the Unix epoch.
        key: The key, or None without one.
        value: The value.
        headers: Header names and values; empty without headers.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes] = NO_HEADERS

    @property
    def timestamp(self) -> datetime:
        """The timestamp as a datetime in UTC."""
        return moment_of(self.timestamp_ms)


class AppendRecord(NamedTuple):
    """One record to append, for `append_batch`.

    Attributes:
        value: The value.
        key: The key, if any.
        headers: Header names and values, at most 255 of them.
        timestamp_ms: Milliseconds since the Unix epoch; None: the time of the writer's clock.

    Example:
        >>> AppendRecord(b"v", key=b"k", timestamp_ms=1_700_000_000_000).key
        b'k'
    """

    value: BytesLike
    key: BytesLike | None = None
    headers: Mapping[str, bytes] | None = None
    timestamp_ms: int | None = None


class Ack(NamedTuple):
    """The record at `offset` is durable on as many replicas as the stream's `acks`. Its offset never changes."""

    offset: int


def moment_of(timestamp_ms: int) -> datetime:
    """Return the moment so many milliseconds after the Unix epoch, in UTC. Raises InvalidArgument beyond the calendar."""
    try:
        return _EPOCH + timestamp_ms * _MS
    except (OverflowError, TypeError) as error:
        raise InvalidArgument(f"bad timestamp {timestamp_ms!r}: whole ms since 1970 in the years 1 to 9999") from error


def looks_like_seconds(timestamp: object) -> bool:
    """Return whether a whole number is most likely seconds since 1970, where milliseconds are asked for.

    Example:
        >>> looks_like_seconds(1_764_165_000), looks_like_seconds(1_764_165_000_000)
        (True, False)
    """
    return type(timestamp) is int and _SECONDS_MIN <= timestamp <= _SECONDS_MAX


def meant_as_ms(timestamp_ms: int | None) -> datetime | int | None:
    """Return milliseconds in a form that no writer takes for seconds, for copies of records of 1970."""
    if timestamp_ms is None or not looks_like_seconds(timestamp_ms):
        return timestamp_ms
    return moment_of(timestamp_ms)


def moment_before(now_ms: int, ago: timedelta) -> datetime:
    """Return the moment so long before `now_ms`. Raises InvalidArgument for a time in the future, or before the year 1."""
    if ago < timedelta(0):
        raise InvalidArgument(f"a start of {ago} is in the future: a timedelta is how long ago")
    try:
        return moment_of(now_ms) - ago
    except OverflowError as error:
        raise InvalidArgument(f"a start {ago} ago is before the year 1") from error


def ms_of(moment: datetime) -> int:
    """Return the milliseconds since the Unix epoch, rounded down.

    Args:
        moment: A time with a time zone.

    Raises:
        InvalidArgument: It has no time zone, so the moment is ambiguous; or it has no equivalent in UTC.
    """
    try:
        if moment.utcoffset() is None:
            raise InvalidArgument(
                f"{moment.isoformat()} has no time zone: use datetime.now(UTC), or moment.astimezone() for local time"
            )
        return (moment - _EPOCH) // _MS
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"bad timestamp {moment!r}: it has no time in UTC") from error
