"""Records and positions, as answers have them. No I/O.

What holds: a value or key that is UTF-8 is text, any other is base64 under another name, so that nothing is lost.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from rangelog import Cut, GroupRecord, ProducerAck, TopicRecord
from rangelog.errors import InvalidArgument, RangelogError
from rangelog_http.wire.filters import time_of

PLACES = ("earliest", "latest")
PLAIN_LENGTH_MAX = 500
"""Characters of a position that is not packed."""
CUT_LENGTH_MAX = 1 << 18
"""Of one that is unpacked."""


def token_of(cut: Cut) -> str:
    """Return a position as a text for an address, which one of a few thousand shards has room in."""
    text = cut.to_json().encode()
    packed = zlib.compress(text) if len(text) > PLAIN_LENGTH_MAX else text
    return base64.urlsafe_b64encode(packed).rstrip(b"=").decode()


def start_of(text: str) -> str | Cut | datetime:
    """Return where to begin: earliest, latest, a time with a zone, or a position of an earlier answer. Raises InvalidArgument.

    >>> start_of("2026-01-01T00:00:00Z").year
    2026
    """
    if text in PLACES:
        return text
    at = time_of(text)
    if at is not None:
        return at
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if packed.startswith(b"x"):
            packed = zlib.decompressobj().decompress(packed, CUT_LENGTH_MAX)
        return Cut.from_json(packed.decode())
    except (binascii.Error, zlib.error, ValueError, InvalidArgument):
        raise InvalidArgument(
            f"from={text[:40]!r}: earliest, latest, a time (2026-01-01T00:00:00Z), or `next` of an earlier answer"
        ) from None


def record_object(record: TopicRecord | GroupRecord) -> dict[str, Any]:
    """Return a record as an object of JSON."""
    made: dict[str, Any] = {
        "shard": record.shard_id,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_text("value", record.value),
    }
    if record.key is not None:
        made |= _text("key", record.key)
    for name, value in record.headers.items():
        for field, text in _text("headers", value).items():
            made.setdefault(field, {})[name] = text
    return made


def grouped_object(record: GroupRecord) -> dict[str, Any]:
    """Return a record of a group, which may read several topics."""
    return {"topic": record.topic, **record_object(record)}


def dequeued_object(batch: int, records: Iterable[GroupRecord], lost: list[dict[str, Any]]) -> bytes:
    """Return a batch of a consumer, and the shards that were lost before, as one object of JSON."""
    listed = b",".join(dumped(grouped_object(each)) for each in records)
    return b'{"batch":%d,"records":[%b],"lost":%b}' % (batch, listed, dumped(lost))


def object_of(records: Iterable[TopicRecord], token: str, more: bool) -> bytes:
    """Return records and the position behind them as one object of JSON. `more`: they end early."""
    listed = b",".join(dumped(record_object(each)) for each in records)
    return b'{"records":[%b],"next":%b%b}' % (listed, dumped(token), b',"more":true' if more else b"")


def lines_of(records: Iterable[TopicRecord]) -> bytes:
    """Return records as lines of JSON."""
    return b"".join(dumped(record_object(each)) + b"\n" for each in records)


def outcome_object(outcome: ProducerAck | RangelogError) -> dict[str, Any]:
    """Return what became of a record."""
    if isinstance(outcome, RangelogError):
        return {"error": error_object(outcome)}
    return {"shard": outcome.shard, "offset": outcome.offset}


def error_object(error: RangelogError) -> dict[str, Any]:
    """Return an error as answers have it."""
    return {
        "code": error.code,
        "message": str(error),
        "retriable": error.retriable,
        "outcome_unknown": error.outcome_unknown,
    }


def dumped(value: Any) -> bytes:
    """Return JSON, on one line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
