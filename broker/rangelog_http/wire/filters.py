"""Which records a request wants, as its query says: `key=`, `header.NAME=`, `until=`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rangelog.errors import InvalidArgument

HEADER_START = "header."
NAMES = frozenset({"key", "until"})
_EPOCH = datetime.fromtimestamp(0, UTC)


class WantedRecords(NamedTuple):
    """The parts of a query that name records. Args: as those of the verb's filter."""

    key: bytes | None
    headers: dict[str, bytes]
    until_ms: int | None


def wanted_of(query: Mapping[str, str]) -> WantedRecords:
    """Return which records a query names; every byte of a key or value is kept. Raises InvalidArgument.

    >>> wanted_of({"key": "UA", "header.source": "web"})
    WantedRecords(key=b'UA', headers={'source': b'web'}, until_ms=None)
    """
    key = query["key"].encode("utf-8", "surrogateescape") if "key" in query else None
    headers = {
        name[len(HEADER_START) :]: value.encode("utf-8", "surrogateescape")
        for name, value in query.items()
        if name.startswith(HEADER_START)
    }
    return WantedRecords(key, headers, _ms_of(query["until"]) if "until" in query else None)


def time_of(text: str) -> datetime | None:
    """Return a time; None: the text names no time. Raises InvalidArgument where it has no zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        raise InvalidArgument("a time needs a zone: 2026-01-01T00:00:00Z")
    return at


def _ms_of(text: str) -> int:
    at = time_of(text)
    if at is None:
        raise InvalidArgument(f"until={text[:40]!r}: a time, 2026-01-01T00:00:00Z")
    return -((_EPOCH - at) // timedelta(milliseconds=1))
