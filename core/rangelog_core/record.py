"""What a stream holds (Record), what an application hands in (AppendRecord), and a record's time in ms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rangelog_core.errors import InvalidArgument

_NO_HEADERS: Mapping[str, bytes] = {}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Record(NamedTuple):
    """One record of a stream, as read.

    `offset` is dense and starts at 0; `timestamp_ms` counts from the Unix epoch; `key` is None when there is none.
    """

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes] = _NO_HEADERS

    @property
    def timestamp(self) -> datetime:
        """The timestamp in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


class AppendRecord(NamedTuple):
    """One record to append. `timestamp_ms` None: the writer's clock."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] | None = None
    timestamp_ms: int | None = None


class Ack(NamedTuple):
    """A record is durable on enough replicas: `offset` is where it lies, for good."""

    offset: int


def ms_of(moment: datetime) -> int:
    """Return the ms since 1970, rounded down. Without a zone it is local time.

    Raises InvalidArgument for a local time so early that it has none in UTC.
    """
    try:
        if moment.utcoffset() is None:
            return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000
        return (moment - _EPOCH) // _MS
    except (ValueError, OverflowError) as error:
        raise InvalidArgument(f"bad timestamp {moment!r}: it has no time in UTC, give it a time zone") from error
