"""What a stream holds (Record) and what an application hands in (AppendRecord)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

_NO_HEADERS: Mapping[str, bytes] = {}


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
