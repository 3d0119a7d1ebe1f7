"""Schemas inside event files: which are read as events, and which are refused before an event is decoded."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import google_crc32c
import pytest

from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion
from rangelog_files.event_file import HEAD_BYTES, MAGIC, EventFileDecoder
from rangelog_files.event_schema import TYPES_MAX, parse_event_schema
from rangelog_files.events import Event, decode_events
from rangelog_files.properties import PROPERTIES_BYTES_MAX, encode_properties, parse_properties

BYTES_MAP = {"type": "map", "values": "bytes"}


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A schema of a record."""
    return {"type": "record", "name": "e", "fields": [{"name": name, "type": kind} for name, kind in fields], **more}


def with_body(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    """A schema of events with further fields."""
    return record(("body", "bytes"), *fields, **more)


def payload_of(schema: Any, rows: list[dict[str, Any]]) -> bytes:
    """What another program writes by its schema."""
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema({"type": "array", "items": schema}), rows)
    return target.getvalue()


@pytest.mark.parametrize(
    ("schema", "row", "event"),
    [
        (record(("body", "bytes")), {"body": b"1"}, Event(b"1")),
        (record(("headers", {"type": "map", "values": "string"}), ("body", {"type": "bytes"})),
         {"body": b"1", "headers": {"a": "ü"}}, Event(b"1", {"a": "ü".encode()})),
        (record(("key", ["bytes", "null"]), ("timestamp_ms", "long"), ("body", "bytes"), ("headers", BYTES_MAP)),
         {"body": b"1", "headers": {"a": b"2"}, "key": b"k", "timestamp_ms": -5}, Event(b"1", {"a": b"2"}, b"k", -5)),
        (record(("host", "string"), ("body", "bytes"), ("tags", {"type": "array", "items": record(("t", "int"), name="inner")}),
                ("kind", {"type": "enum", "name": "k", "symbols": ["A"]}), ("id", {"type": "fixed", "name": "f", "size": 2})),
         {"host": "h", "body": b"1", "tags": [{"t": 1}], "kind": "A", "id": b"xy"}, Event(b"1")),
    ],
)  # fmt: skip
def test_r6_events_are_decoded_by_the_schema_inside(schema: Any, row: dict[str, Any], event: Event) -> None:
    """Fields in another order, missing, of other names, headers of strings."""
    parsed = parse_event_schema(json.dumps(schema))
    assert decode_events(parsed, payload_of(schema, [row, row])) == [event, event]


@pytest.mark.parametrize(
    "schema",
    [
        "", "{", "null", '"bytes"', '{"type": "map", "values": "bytes"}', "[" * 60_000, '{"type":' * 10_000,
        {"type": "record", "name": "e"}, record(), record(("body", "string")), record(("body", "long")),
        with_body(("headers", "bytes")), with_body(("headers", {"type": "map", "values": "long"})),
        with_body(("key", "string")), with_body(("timestamp_ms", "int")),
        with_body(("body", "bytes")), with_body(("x", "null")), with_body(("x", "e")), with_body(("next", ["null", "e"])),
        with_body(("x", record(name="inner"))), with_body(("x", {"type": "array", "items": "null"})),
        with_body(("x", {"type": "fixed", "name": "f", "size": 0})),
        with_body(("x", {"type": "fixed", "name": "f", "size": 2**63})),
        with_body(("x", {"type": "long", "logicalType": "timestamp-millis"})),
        with_body(("x", {"type": "fixed", "name": "f", "size": 2, "logicalType": "decimal"})),
        with_body(*((f"x{number}", "int") for number in range(TYPES_MAX))), with_body(("x", ["int"] * 300)),
        with_body(("x", 7)), with_body(fields=7), with_body(fields=[7]), with_body(("x", {"type": "array"})),
        with_body(("x", {"type": "enum", "name": "k"})),
    ],
)  # fmt: skip
def test_a_foreign_schema_is_refused(schema: Any) -> None:
    """Undamaged, but not of events; or a few bytes of it could become much memory, or endless."""
    with pytest.raises(UnsupportedVersion):
        parse_event_schema(schema if isinstance(schema, str) else json.dumps(schema))


def test_types_inside_each_other_end_somewhere() -> None:
    """Some are read, many are refused, also so many that the parser of JSON gives up."""
    for depth in (5, 500, 5_000):
        inner: Any = "int"
        text = '{"type":"array","items":' * depth + json.dumps(inner) + "}" * depth
        whole = json.dumps(record(("body", "bytes"), ("x", "int"))).replace(
            '"x", "type": "int"', f'"x", "type": {text}'
        )
        if depth == 5:
            assert parse_event_schema(whole).missing == ("headers", "key", "timestamp_ms")
        else:
            with pytest.raises(UnsupportedVersion):
                parse_event_schema(whole)


def test_a_file_of_another_program_is_read_by_its_schema() -> None:
    """And one without a schema, or with one that is not of events, is refused."""
    schema = record(("body", "bytes"), ("n", "int"))
    payload = payload_of(schema, [{"body": b"a", "n": 1}])
    for properties, accepted in (({"schema": json.dumps(schema)}, True), ({}, False), ({"schema": '"int"'}, False)):
        data = encode_properties(MAGIC, properties)
        found = parse_properties(MAGIC, data)
        assert found is not None
        head = struct.pack("<qII", 5, len(payload), google_crc32c.value(payload))
        crc = google_crc32c.extend(found.salt, struct.pack("<Q", len(data)) + head)
        decoder = EventFileDecoder()
        decoder.feed(data + head + struct.pack("<I", crc) + payload)
        if accepted:
            block = decoder.next_block()
            assert block is not None and block.events() == [Event(b"a")]
            assert block.end_offset == len(data) + HEAD_BYTES + len(payload)
        else:
            with pytest.raises(UnsupportedVersion):
                decoder.next_block()


def properties_with(data: bytes, *, size: int | None = None) -> bytes:
    """Properties whose checksums fit, whatever the map is."""
    head = struct.pack("<2sII", MAGIC, len(data) if size is None else size, google_crc32c.value(data))
    return head + struct.pack("<I", google_crc32c.value(head)) + data


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\2", b"\2\2a\2b\0\0", b"\xff" * 12, b"\2\2\xff\2b\0", b"\2\2a\2\xff\0", b"\2\2a\1\0",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1\2a\2b\0", b"\2\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1ab\0", b"\1\0\0",
    ],
)  # fmt: skip
def test_properties_that_are_no_map_are_refused(data: bytes) -> None:
    """Although their checksums fit."""
    with pytest.raises(Corruption):
        parse_properties(MAGIC, properties_with(data))


def test_a_size_of_properties_beyond_the_bound_is_refused_at_once() -> None:
    """Nothing is waited for; and too many are not written."""
    with pytest.raises(UnsupportedVersion):
        parse_properties(MAGIC, properties_with(b"", size=PROPERTIES_BYTES_MAX + 1))
    assert parse_properties(MAGIC, properties_with(b"", size=PROPERTIES_BYTES_MAX)) is None
    with pytest.raises(InvalidArgument, match="at most"):
        encode_properties(MAGIC, {"a": "x" * PROPERTIES_BYTES_MAX})


@pytest.mark.parametrize("values", [{"a": 1}, {1: "a"}, {"a": None}, {"a": "\ud800"}])
def test_properties_are_strings(values: Any) -> None:
    """Other values are refused before a file exists."""
    with pytest.raises(InvalidArgument, match="strings by name"):
        encode_properties(MAGIC, values)
