"""Event files: the file in pieces, its index, schemas, paths.

What holds: what is accepted decodes to events that fit the limits of a file, or the refusal is a typed error; whatever a size
claims, no more is allocated than the input's own size explains.
"""

from __future__ import annotations

import contextlib
import struct
from random import Random

import google_crc32c

from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_files.event_file import HEAD_BYTES, EventFileDecoder, EventFileWriter
from rangelog_files.event_schema import EVENT_SCHEMA, parse_event_schema
from rangelog_files.events import Event, decode_events, event_count
from rangelog_files.index_file import IndexWriter, parse_index
from rangelog_files.layout import parse_path
from rangelog_files.properties import HEAD_BYTES as PROPERTIES_HEAD_BYTES
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_targets_text import words

_FOREIGN = (
    '{"type":"record","name":"e","fields":[{"name":"host","type":"string"},{"name":"body","type":"bytes"},'
    '{"name":"tags","type":{"type":"array","items":{"type":"map","values":"long"}}}]}'
)
_DEEP = '{"type":"array","items":' * 1_000 + '"int"' + "}" * 1_000


def run_file(data: bytes) -> bool:
    """Two decoders, one of which gets the file in pieces, find the same blocks and the same error."""
    found = []
    for piece in (len(data) or 1, 37):
        decoder = EventFileDecoder()
        events: list[Event] = []
        outcome = ""
        try:
            for start in range(0, len(data), piece):
                decoder.feed(data[start : start + piece])
                while (block := decoder.next_block()) is not None:
                    events += block.events()
        except (Corruption, UnsupportedVersion) as error:
            outcome = type(error).__name__
        found.append((events, outcome, decoder.ended))
    assert found[0] == found[1]
    events, outcome, _ = found[0]
    assert len(events) <= len(data)
    return bool(events) and not outcome


def repair_file(data: bytes, random: Random) -> bytes:
    """Checksums of the properties and of the blocks fit, as far as the sizes lead."""
    changed = bytearray(data)
    if len(changed) < PROPERTIES_HEAD_BYTES:
        return bytes(changed)
    (size,) = struct.unpack_from("<I", changed, 2)
    salt = google_crc32c.value(bytes(changed[PROPERTIES_HEAD_BYTES : PROPERTIES_HEAD_BYTES + size]))
    struct.pack_into("<I", changed, 6, salt)
    struct.pack_into("<I", changed, 10, google_crc32c.value(bytes(changed[:10])))
    offset = PROPERTIES_HEAD_BYTES + size
    while offset + HEAD_BYTES <= len(changed):
        (size,) = struct.unpack_from("<I", changed, offset + 8)
        payload = bytes(changed[offset + HEAD_BYTES : offset + HEAD_BYTES + size])
        struct.pack_into("<I", changed, offset + 12, google_crc32c.value(payload))
        checked = struct.pack("<Q", offset) + bytes(changed[offset : offset + 16])
        struct.pack_into("<I", changed, offset + 16, google_crc32c.extend(salt, checked))
        offset += HEAD_BYTES + size
    return bytes(changed)


def files() -> list[bytes]:
    """Whole files, an open one, and one without blocks."""
    events = [Event(b"alpha"), Event(b"", {"a": b"1", "ü": b""}, b"k", -5), Event(bytes(300), key=b"")]
    made = []
    for closed in (True, False):
        file = EventFileWriter("f-1", {"writer": "w"})
        data = file.begin() + file.block(5, events) + file.block(5, events[:1]) + file.block(2**40, events[1:])
        made.append(data + (file.end(2**41) if closed else b""))
    return [*made, EventFileWriter("f").begin()]


def run_schema(data: bytes) -> bool:
    """A schema, a zero byte, a payload: accepted where both are."""
    text, _, payload = data.partition(b"\0")
    with contextlib.suppress(Corruption, UnsupportedVersion):
        schema = parse_event_schema(text.decode("utf-8", "replace"))
        events = decode_events(schema, payload)
        assert len(events) == event_count(payload) <= len(payload)
        assert all(type(event.body) is bytes for event in events)
        return True
    return False


def run_index(data: bytes) -> bool:
    """Whatever is in it, entries rise; accepted where there are any."""
    entries = parse_index(data, "f-1").entries
    assert list(entries) == sorted(entries) and len(entries) <= len(data) // 16
    return bool(entries)


def repair_index(data: bytes, random: Random) -> bytes:
    """The checksums of the properties fit."""
    return repair_file(data[:PROPERTIES_HEAD_BYTES], random) if len(data) < 40 else _with_properties(data)


def _with_properties(data: bytes) -> bytes:
    changed = bytearray(data)
    (size,) = struct.unpack_from("<I", changed, 2)
    crc = google_crc32c.value(bytes(changed[PROPERTIES_HEAD_BYTES : PROPERTIES_HEAD_BYTES + size]))
    struct.pack_into("<I", changed, 6, crc)
    struct.pack_into("<I", changed, 10, google_crc32c.value(bytes(changed[:10])))
    return bytes(changed)


def _index() -> bytes:
    index = IndexWriter("f-1", interval_bytes=0)
    return index.begin() + b"".join(index.block(5 * number, 400 + 90 * number) for number in range(20))


def run_path(data: bytes) -> bool:
    """What is parsed is printed as it was, and has no part that leads elsewhere."""
    text = data.decode("latin-1")
    path = parse_path(text)
    assert text in (path.data_path, path.index_path) and ".." not in text.split("/")
    return True


TARGETS = (
    Target("event-file", files, run_file, repair_file, peak_bytes_max=8 * MIB),
    Target(
        "event-schema",
        lambda: [
            EVENT_SCHEMA.encode() + b"\0\4\2a\0\0\0\2b\2\2k\2v\0\2\2x\2\5\0", _FOREIGN.encode() + b"\0\2\2h\2b\2\2\2k\4\0\0\0",
            _DEEP.encode(), b"[" * 50_000,
        ],
        run_schema, None,
        words('"bytes"', '"null"', '"string"', '"map"', '"array"', '"record"', '"fixed"', '"size"', "9223372036854775808",
              '"logicalType"', '"items"', "[", "{", '"event"'),
        peak_bytes_max=8 * MIB,
    ),
    Target("event-index", lambda: [_index(), _index()[:60], IndexWriter("f-1").begin()], run_index, repair_index),
    Target(
        "event-path", lambda: [b"who/00001/1401408000.86400/file.0.000000.dat", b"a-b/12345678/0.1/x.1234567.idx"],
        run_path, None, words("..", "/", "%00", "\0", ".", "0", "00001", "-1", ".dat", ".idx", "99999999999999999999"),
    ),
)  # fmt: skip
