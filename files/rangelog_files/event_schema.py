"""The schema of events in a file: which Avro schemas are read as events, and how.

What holds: the schema inside a file decides how its events are decoded: a record with `body`, of bytes, and if it has them,
`headers`, a map of bytes or strings, `key`, of bytes or null, and `timestamp_ms`, a long or null. Other fields are decoded and
left out. A schema is refused, before any event is decoded, where a few bytes could become much memory: by types that take no
bytes, and by types that contain themselves.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import fastavro

from rangelog_core.errors import UnsupportedVersion

EVENT_FIELDS = ("body", "headers", "key", "timestamp_ms")
"""The fields of an event, in the order of Event."""
EVENTS = "events"
"""The field of a payload."""
EVENT_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "event",
        "namespace": "rangelog",
        "fields": [
            {"name": "body", "type": "bytes"},
            {"name": "headers", "type": {"type": "map", "values": "bytes"}},
            {"name": "key", "type": ["null", "bytes"], "default": None},
            {"name": "timestamp_ms", "type": ["null", "long"], "default": None},
        ],
    },
    separators=(",", ":"),
)
"""The schema that is written, as JSON."""
TYPES_MAX = 200
"""Types within a schema."""
DEPTH_MAX = 16
FIXED_BYTES_MAX = 1 << 20
_SIZES = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


class SchemaOfEvents(NamedTuple):
    """A schema that was checked: the parsed one of a payload, and what differs from EVENT_SCHEMA.

    `payload`: a record with one field, the array of events. In Avro's encoding a record adds no bytes; fastavro marks a parsed
    record, and not a parsed array, so each call takes half the time. `missing`: fields of an event that the schema lacks.
    `text_headers`: headers are strings, and become their UTF-8 bytes.
    """

    payload: Any
    missing: tuple[str, ...]
    text_headers: bool


def parse_event_schema(text: str) -> SchemaOfEvents:
    """Return the schema that JSON stands for. Raises UnsupportedVersion for one that is not of events."""
    try:
        raw = json.loads(text)
        _Walk().size_of(raw, 1)
        missing, text_headers = _shape_of(raw)
        array = {"type": "array", "items": raw}
        payload: Any = fastavro.parse_schema(
            {"type": "record", "name": "rangelog.files.Payload", "fields": [{"name": EVENTS, "type": array}]}
        )
    except UnsupportedVersion:
        raise
    except (Exception, RecursionError) as error:
        raise UnsupportedVersion(
            f"the file's schema of events is not one that this program reads: {error!r}"[:500]
        ) from error
    return SchemaOfEvents(payload, missing, text_headers)


def _refused(why: str) -> UnsupportedVersion:
    return UnsupportedVersion(f"the file's schema of events is not one that this program reads: {why}")


class _Walk:
    """One walk through a schema, which counts its types."""

    def __init__(self) -> None:
        self._types = 0

    def size_of(self, schema: Any, depth: int) -> int:
        """Return the least bytes that a value of this schema takes. Raises UnsupportedVersion."""
        self._types += 1
        if self._types > TYPES_MAX or depth > DEPTH_MAX:
            raise _refused(f"more than {TYPES_MAX} types, or {DEPTH_MAX} of them inside each other")
        if isinstance(schema, list):
            for each in schema:
                self.size_of(each, depth + 1)
            return 1
        kind = schema.get("type") if isinstance(schema, dict) else schema
        if isinstance(kind, str) and kind in _SIZES:
            if isinstance(schema, dict) and "logicalType" in schema:
                raise _refused("logical types are not supported")
            return _SIZES[kind]
        if not isinstance(schema, dict):
            raise _refused(
                f"the type {schema!r:.100} is not one of Avro's own; references to named types are not supported"
            )
        return self._size_of_complex(schema, kind, depth)

    def _size_of_complex(self, schema: dict[str, Any], kind: Any, depth: int) -> int:
        if "logicalType" in schema:
            raise _refused("logical types are not supported")
        if kind == "record":
            return sum(self._size_of_part(field["type"], depth) for field in schema["fields"])
        if kind in ("array", "map"):
            self._size_of_part(schema["items" if kind == "array" else "values"], depth)
            return 1
        if kind == "enum":
            return 1
        if kind == "fixed":
            size = schema["size"]
            if type(size) is not int or not 0 < size <= FIXED_BYTES_MAX:
                raise _refused(f"a fixed type of {size!r:.100} bytes")
            return size
        if isinstance(kind, dict | list):
            return self.size_of(kind, depth + 1)
        raise _refused(f"the type {kind!r:.100}")

    def _size_of_part(self, schema: Any, depth: int) -> int:
        size = self.size_of(schema, depth + 1)
        if not size:
            raise _refused("a part of a record, an array or a map takes no bytes")
        return size


def _shape_of(schema: Any) -> tuple[tuple[str, ...], bool]:
    """Return which fields of an event a schema lacks, and whether its headers are strings. Raises UnsupportedVersion."""
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _refused("it is not a record")
    types = {field["name"]: _plain(field["type"]) for field in schema["fields"]}
    if len(types) != len(schema["fields"]):
        raise _refused("two fields have one name")
    if types.get("body") != "bytes":
        raise _refused("it has no field `body` of bytes")
    if types.get("key", "bytes") not in ("bytes", ["bytes", "null"], ["null", "bytes"]):
        raise _refused("its field `key` is not of bytes or null")
    if types.get("timestamp_ms", "long") not in ("long", ["long", "null"], ["null", "long"]):
        raise _refused("its field `timestamp_ms` is not a long or null")
    headers = types.get("headers", {"type": "map", "values": "bytes"})
    values = _plain(headers.get("values")) if isinstance(headers, dict) and headers.get("type") == "map" else None
    if values not in ("bytes", "string"):
        raise _refused("its field `headers` is not a map of bytes or strings")
    return tuple(name for name in EVENT_FIELDS if name not in types), values == "string"


def _plain(schema: Any) -> Any:
    """Return the name of a type for an object that says no more than this name."""
    if isinstance(schema, dict) and isinstance(schema.get("type"), str) and schema["type"] in _SIZES:
        return schema["type"]
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema
