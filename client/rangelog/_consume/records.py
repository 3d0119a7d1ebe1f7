"""What a reader of a topic yields: records with their shard, one by one or in chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from rangelog_core.record import NO_HEADERS, Record


class TopicRecord(NamedTuple):
    """One record of a topic, as read.

    Attributes:
        shard_id: The shard that holds it.
        offset: The record's number in its shard; dense, from 0.
        timestamp_ms: Milliseconds since the Unix epoch.
        key: The key, or None without one.
        value: The value.
        headers: Header names and values; empty without headers.
    """

    shard_id: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes] = NO_HEADERS

    @property
    def timestamp(self) -> datetime:
        """The timestamp as a datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


@dataclass(frozen=True, slots=True)
class TopicChunk:
    """Consecutive records of one shard.

    Attributes:
        shard_id: The shard.
        start_offset: The offset of the first record.
        end_offset: One past the offset of the last record.
        records: The records, in order of offset; not empty.
    """

    shard_id: int
    start_offset: int
    end_offset: int
    records: Sequence[Record]
