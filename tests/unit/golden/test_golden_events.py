"""R6, R7: event files and indexes of before are read, and the same bytes are written."""

from __future__ import annotations

import json
from pathlib import Path

from rangelog_files.event_file import EndMark, EventFileDecoder
from rangelog_files.events import Event
from rangelog_files.index_file import IndexEntry, parse_index
from tools.make_golden import events

STORED: dict[str, str] = json.loads((Path(__file__).parent / "events.json").read_text())
START_MS = 1_401_408_000_000


def test_r6_a_stored_file_gives_what_it_was_written_from() -> None:
    """Properties, blocks, the end mark."""
    decoder = EventFileDecoder()
    data = bytes.fromhex(STORED["file"])
    assert data[:2] == b"E1"
    decoder.feed(data)
    blocks = list(iter(decoder.next_block, None))
    assert [(block.timestamp_ms, block.events()) for block in blocks] == [
        (START_MS, [Event(b"alpha"), Event(b"", {"a": b"1", "ü": b""}, b"k", -5)]),
        (START_MS, [Event(b"gamma" * 20, key=b"")]),
        (START_MS + 7, [Event(b"delta", timestamp_ms=START_MS + 3)]),
    ]
    assert decoder.ended == EndMark(len(data) - 20, START_MS + 9)
    assert decoder.properties is not None
    assert sorted(decoder.properties.values) == ["id", "schema", "writer"]


def test_r7_a_stored_index_leads_to_the_blocks() -> None:
    """Of the three blocks, two are an interval apart."""
    decoder = EventFileDecoder()
    decoder.feed(bytes.fromhex(STORED["file"]))
    places = [IndexEntry(block.timestamp_ms, block.offset) for block in iter(decoder.next_block, None)]
    assert bytes.fromhex(STORED["index"])[:2] == b"I1"
    assert parse_index(bytes.fromhex(STORED["index"]), "golden").entries == (places[0], places[2])


def test_the_same_bytes_are_written() -> None:
    """A change of them is a change of the format."""
    assert events() == STORED
