"""Events, and their Avro binary encoding: the payload of a block is one Avro array of events.

What holds: decoding gives all events of a payload, or a typed error, never a part of them; the events fill the payload to its
last byte. A payload has at least one event, and each takes at least one byte of it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import starmap
from operator import itemgetter
from typing import Any, NamedTuple

import fastavro

from rangelog_core.errors import Corruption, InvalidArgument, RecordTooLarge
from rangelog_core.limits import (
    BATCH_RECORDS_MAX,
    BATCH_SIZE_BYTES_MAX,
    HEADERS_PER_RECORD_MAX,
    RECORD_SIZE_BYTES_MAX,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_MS_MIN,
)
from rangelog_core.record import NO_HEADERS
from rangelog_files.event_schema import EVENT_FIELDS, EVENT_SCHEMA, EVENTS, SchemaOfEvents, parse_event_schema
from rangelog_files.plain_events import decode_plain, encode_plain

BLOCK_EVENTS_MAX = BATCH_RECORDS_MAX
"""Bounds the memory and the time that one block takes."""
BLOCK_BYTES_MAX = BATCH_SIZE_BYTES_MAX
"""Of a payload: what a reader holds and checks as a whole."""
_ENCODING_BYTES_MAX = 40
"""What the encoding adds to an event, beside its headers' lengths."""
_fields_of = itemgetter(*EVENT_FIELDS)


class Event(NamedTuple):
    """One event of a file.

    Attributes:
        body: The value.
        headers: Header names and values; empty without headers.
        key: The key, or None without one.
        timestamp_ms: The event's own time in ms since 1970; None: that of its block.

    Example:
        >>> Event(b"on", key=b"lamp").key
        b'lamp'
    """

    body: bytes
    headers: Mapping[str, bytes] = NO_HEADERS
    key: bytes | None = None
    timestamp_ms: int | None = None


DEFAULT_SCHEMA = parse_event_schema(EVENT_SCHEMA)


def schema_of(text: str) -> SchemaOfEvents:
    """Return the schema that JSON stands for. Raises UnsupportedVersion for one that is not of events."""
    return DEFAULT_SCHEMA if text == EVENT_SCHEMA else parse_event_schema(text)


def check_event(event: Event) -> int:
    """Return the most bytes that an event takes in a block.

    Raises RecordTooLarge above the limits of a record of a topic, so that all events can be imported, InvalidArgument.
    """
    body, headers, key, timestamp_ms = event
    if type(body) is not bytes or (key is not None and type(key) is not bytes):
        raise InvalidArgument("body and key of an event are bytes")
    if timestamp_ms is not None and (
        type(timestamp_ms) is not int or not TIMESTAMP_MS_MIN <= timestamp_ms <= TIMESTAMP_MS_MAX
    ):
        raise InvalidArgument(
            f"bad timestamp {timestamp_ms!r:.100} of an event: whole ms since 1970 in the years 1 to 9999"
        )
    size = len(body) + len(key or b"") + (_size_of_headers(headers) if headers else 0)
    if size > RECORD_SIZE_BYTES_MAX:
        raise RecordTooLarge(f"an event of {size} bytes: at most {RECORD_SIZE_BYTES_MAX}")
    return size + _ENCODING_BYTES_MAX


def _size_of_headers(headers: Mapping[str, bytes]) -> int:
    if len(headers) > HEADERS_PER_RECORD_MAX:
        raise RecordTooLarge(f"an event with {len(headers)} headers: at most {HEADERS_PER_RECORD_MAX}")
    size = 0
    for name, value in headers.items():
        if type(name) is not str or type(value) is not bytes:
            raise InvalidArgument("headers of an event are bytes by name")
        try:
            size += len(name.encode()) + len(value) + 10
        except UnicodeEncodeError as error:
            raise InvalidArgument("the name of a header is not Unicode text") from error
    return size


def encode_events(events: Sequence[Event]) -> bytes:
    """Return the payload of a block with these events, by EVENT_SCHEMA. Raises RecordTooLarge, InvalidArgument."""
    if not 0 < len(events) <= BLOCK_EVENTS_MAX:
        raise InvalidArgument(f"a block has 1 to {BLOCK_EVENTS_MAX} events, not {len(events)}")
    has_headers = False
    for event in events:
        check_event(event)
        has_headers = has_headers or bool(event.headers)
    payload = encode_any(events) if has_headers else encode_plain(events, len(events))
    if len(payload) > BLOCK_BYTES_MAX:
        raise RecordTooLarge(f"a block of {len(payload)} bytes: at most {BLOCK_BYTES_MAX}")
    return payload


def encode_any(events: Sequence[Event]) -> bytes:
    """Return the payload of events that were checked, encoded by the library."""
    target = io.BytesIO()
    rows = [
        {"body": body, "headers": headers, "key": key, "timestamp_ms": time_ms}
        for body, headers, key, time_ms in events
    ]
    fastavro.schemaless_writer(target, DEFAULT_SCHEMA.payload, {EVENTS: rows})
    return target.getvalue()


def decode_events(schema: SchemaOfEvents, payload: bytes) -> list[Event]:
    """Return the events of a block's payload. Raises Corruption for one that does not hold what it claims."""
    count = event_count(payload)
    if schema is DEFAULT_SCHEMA and (plain := decode_plain(payload, count)) is not None:
        return list(starmap(Event, plain))
    return decode_any(schema, payload, count)


def decode_any(schema: SchemaOfEvents, payload: bytes, count: int) -> list[Event]:
    """Return so many events of a payload, decoded by the library. Raises Corruption."""
    source = io.BytesIO(payload)
    try:
        decoded: Any = fastavro.schemaless_reader(source, schema.payload, None)
    except Exception as error:  # a decoder in native code: what it raises is not one family
        raise Corruption(f"the events of a block do not fit the schema of the file: {error!r}"[:500]) from error
    rows = decoded[EVENTS]
    if len(rows) != count or source.tell() != len(payload):
        raise Corruption(f"a block of {len(payload)} bytes does not hold the {count} events that it claims")
    if schema.missing or schema.text_headers:
        rows = [_filled(row, schema) for row in rows]
    return list(starmap(Event, map(_fields_of, rows)))


def _filled(row: dict[str, Any], schema: SchemaOfEvents) -> dict[str, Any]:
    """Return the fields of an event, decoded by another schema than EVENT_SCHEMA."""
    for name in schema.missing:
        row[name] = {} if name == "headers" else None
    if schema.text_headers:
        row["headers"] = {name: value.encode() for name, value in row["headers"].items()}
    return row


def event_count(payload: bytes) -> int:
    """Return how many events a payload claims to have. Raises Corruption for a number that it cannot have."""
    count = 0
    for position, byte in enumerate(payload[:5]):
        count |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            break
    else:
        count = 1
    if count & 1 or not 0 < count >> 1 <= min(BLOCK_EVENTS_MAX, len(payload)):
        raise Corruption("a block does not begin with the number of its events")
    return count >> 1
