"""Filters of reads and follows: the records of a key, with headers, before a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rangelog import TopicRecord


class RecordFilter(NamedTuple):
    """A record is wanted where all of this holds.

    Args:
        key: It has this key; None: whatever it has.
        headers: It has these headers, with these values.
        until_ms: Its time is before this one, in milliseconds since the Unix epoch; None: whatever it is.

    Example:
        >>> RecordFilter(key=b"UA").wants(TopicRecord(0, 0, 7, b"UA", b"first", {}))
        True
    """

    key: bytes | None = None
    headers: Mapping[str, bytes] = {}
    until_ms: int | None = None

    @property
    def wants_all(self) -> bool:
        """Whether no record is left out."""
        return self.key is None and not self.headers and self.until_ms is None

    def wants(self, record: TopicRecord) -> bool:
        """Whether a record is wanted."""
        if self.key is not None and record.key != self.key:
            return False
        if self.until_ms is not None and record.timestamp_ms >= self.until_ms:
            return False
        return not self.headers or all(record.headers.get(name) == value for name, value in self.headers.items())


EVERYTHING = RecordFilter()
