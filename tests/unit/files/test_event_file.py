"""R6: event files hold whole blocks or give a typed error, whatever happened to their bytes."""

from __future__ import annotations

import struct
from itertools import pairwise

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.errors import Corruption, InvalidArgument, RangelogError, RecordTooLarge, UnsupportedVersion
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_files.event_file import HEAD_BYTES, EndMark, EventFileDecoder, EventFileWriter
from rangelog_files.events import BLOCK_EVENTS_MAX, DEFAULT_SCHEMA, Event, decode_events, encode_events, event_count
from rangelog_files.properties import HEAD_BYTES as PROPERTIES_HEAD_BYTES
from rangelog_files.properties import encode_properties
from tests.unit.files.event_samples import SAMPLE, START_MS, blocks_of, events_of, file_of

EVENTS = st.builds(
    Event,
    st.binary(max_size=40),
    st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
    st.none() | st.binary(max_size=5),
    st.none() | st.integers(-(10**13), 10**13),
)
BLOCKS = st.lists(st.tuples(st.integers(0, 10**13), st.lists(EVENTS, min_size=1, max_size=4)), max_size=5).map(
    lambda blocks: sorted(blocks, key=lambda block: block[0])
)
FILE = file_of(SAMPLE)


@given(BLOCKS, st.integers(1, 50), st.none() | st.integers(0, 2**60))
def test_r6_a_file_gives_what_was_written(
    blocks: list[tuple[int, list[Event]]], piece: int, closed_ms: int | None
) -> None:
    """In pieces of any size."""
    data = file_of(blocks, closed_ms=closed_ms)
    found, ended = blocks_of(data, piece)
    assert events_of(found) == blocks
    assert (ended is None) == (closed_ms is None)
    offsets = [block.offset + number for block in found for number in range(len(block.events()))]
    assert all(earlier < later for earlier, later in pairwise(offsets))


def test_r6_a_file_that_is_cut_gives_its_whole_blocks() -> None:
    """At every byte: the blocks that are whole, no error, and no end."""
    whole, _ = blocks_of(FILE)
    for size in range(len(FILE)):
        found, ended = blocks_of(FILE[:size])
        assert found == [block for block in whole if block.end_offset <= size]
        assert ended is None


def test_r6_every_flipped_bit_is_found() -> None:
    """Whatever comes before it is as it was written, nothing comes from behind it, and the error is a typed one."""
    whole, _ = blocks_of(FILE)
    for position in range(len(FILE) * 8):
        data = bytearray(FILE)
        data[position // 8] ^= 1 << position % 8
        decoder, found = EventFileDecoder(), []
        decoder.feed(bytes(data))
        with pytest.raises((Corruption, UnsupportedVersion)):
            while (block := decoder.next_block()) is not None:
                found.append(block)
        assert found == whole[: len(found)]
        assert all(block.end_offset <= position // 8 for block in found)


@settings(max_examples=300)
@given(st.binary(max_size=80), st.integers(0, len(FILE)), st.integers(0, len(FILE)))
def test_r6_foreign_bytes_within_a_file_are_never_events(foreign: bytes, start: int, end: int) -> None:
    """Bytes replaced, left out and put in: whole blocks of the file, or a typed error."""
    whole, _ = blocks_of(FILE)
    decoder, found = EventFileDecoder(), []
    decoder.feed(FILE[:start] + foreign + FILE[end:])
    try:
        while (block := decoder.next_block()) is not None:
            found.append(block)
    except RangelogError:
        pass
    assert found == whole[: len(found)]


def test_a_block_counts_only_at_its_place_of_its_file() -> None:
    """A file within an event of another one, a block moved, a block of another file with the same layout."""
    outer = EventFileWriter("outer")
    data = outer.begin() + outer.block(5, [Event(FILE)])
    inner_start = data.index(FILE)
    decoder = EventFileDecoder()
    decoder.feed(data)
    assert decoder.read_properties() is not None
    for block in blocks_of(FILE)[0]:
        decoder.jump(inner_start + block.offset)
        decoder.feed(data[inner_start + block.offset :])
        with pytest.raises(Corruption):
            decoder.peek()
    first, second, _ = blocks_of(FILE)[0]
    with pytest.raises(Corruption):
        blocks_of(FILE[: first.offset] + FILE[second.offset : second.end_offset])
    other = file_of(SAMPLE, file_id="f-2")
    assert len(other) == len(FILE)
    with pytest.raises(Corruption):
        blocks_of(FILE[: second.offset] + other[second.offset :])


def test_r6_bytes_behind_the_end_mark_are_damage() -> None:
    """Nothing is appended to a closed file."""
    for tail in (b"\0", FILE, FILE[-HEAD_BYTES:]):
        with pytest.raises(Corruption, match="behind the end mark"):
            blocks_of(FILE + tail)


def head(salt: int, offset: int, time_ms: int, payload: bytes, size: int | None = None) -> bytes:
    """A block with a head that fits, and may lie."""
    fields = struct.pack("<qII", time_ms, len(payload) if size is None else size, google_crc32c.value(payload))
    return fields + struct.pack("<I", google_crc32c.extend(salt, struct.pack("<Q", offset) + fields)) + payload


@pytest.mark.parametrize(
    ("time_ms", "size", "payload"),
    [
        (5, 2**32 - 1, b""), (5, 8 * 2**20 + 1, b""), (-(2**63), 0, b""), (2**63 - 1, 0, b""), (3, None, b"\2\0"),
        (-9, None, b"\2\0"),
        (-3, 0, b""),
    ],
)  # fmt: skip
def test_sizes_and_times_that_no_writer_writes_are_refused(time_ms: int, size: int | None, payload: bytes) -> None:
    """Although the checksums fit: nothing is waited for or allocated."""
    file = EventFileWriter("x")
    data = file.begin() + file.block(4, [Event(b"1")])
    salt = google_crc32c.value(data[PROPERTIES_HEAD_BYTES : blocks_of(data)[0][0].offset])
    decoder = EventFileDecoder()
    decoder.feed(data + head(salt, len(data), time_ms, payload, size))
    assert decoder.next_block() is not None
    with pytest.raises(Corruption):
        decoder.next_block()


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\0", b"\1", b"\2", b"\2\0", b"\xff" * 12, b"\xfe" + b"\xff" * 8 + b"\1",
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\0\0\0", b"\2" + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\1" + b"abc\0\0\0\0",
        b"\2\1abc\0\0\0\0", b"\2\2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0\0", b"\2\0\2\2\xff\0\0\0\0\0", b"\2\0\0\4\0\0",
        b"\2\0\0\0\0\0\0", b"\4\0\0\0\0\0", b"\2\0\0\0\0\2\0\0\0\0\0", b"\xfe\xff\7" + bytes(70_000),
    ],
)  # fmt: skip
def test_payloads_that_lie_are_refused(payload: bytes) -> None:
    """Counts and sizes up to 2^63, less and more events than counted, names that are not Unicode, bytes behind the events."""
    with pytest.raises(Corruption):
        decode_events(DEFAULT_SCHEMA, payload)


@given(st.binary(max_size=60))
def test_a_payload_of_any_bytes_gives_events_or_a_typed_error(payload: bytes) -> None:
    """What is taken has as many events as it counts."""
    try:
        events = decode_events(DEFAULT_SCHEMA, payload)
    except Corruption:
        return
    assert len(events) == event_count(payload)


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ([], InvalidArgument),
        ([Event(b"")] * (BLOCK_EVENTS_MAX + 1), InvalidArgument),
        ([Event(bytes(RECORD_SIZE_BYTES_MAX + 1))], RecordTooLarge),
        ([Event(bytes(RECORD_SIZE_BYTES_MAX))] * 9, RecordTooLarge),
        ([Event(b"", {str(number): b"" for number in range(256)})], RecordTooLarge),
        ([Event("text")], InvalidArgument),
        ([Event(b"", key="text")], InvalidArgument),
        ([Event(b"", {"a": "text"})], InvalidArgument),
        ([Event(b"", {b"a": b""})], InvalidArgument),
        ([Event(b"", {"\ud800": b""})], InvalidArgument),
        ([Event(b"", timestamp_ms=2**63)], InvalidArgument),
        ([Event(b"", timestamp_ms=1.5)], InvalidArgument),
    ],
)
def test_events_that_are_refused_change_nothing(events: list[Event], error: type[RangelogError]) -> None:
    """The next block is written as if they had never been given."""
    file = EventFileWriter("x")
    file.begin()
    offset = file.offset
    with pytest.raises(error):
        file.block(5, events)
    assert file.offset == offset and file.last_ms == 0


def test_the_largest_block_is_read() -> None:
    """As many events as a block may have, and as many bytes as fit."""
    assert len(decode_events(DEFAULT_SCHEMA, encode_events([Event(b"")] * BLOCK_EVENTS_MAX))) == BLOCK_EVENTS_MAX
    file = EventFileWriter("x")
    data = file.begin() + file.block(1, [Event(bytes(RECORD_SIZE_BYTES_MAX))] * 7)
    assert [len(block.events()) for block in blocks_of(data)[0]] == [7]


def test_a_clock_that_goes_back_is_refused_by_the_writer() -> None:
    """The caller holds the last time; the end mark is never before it."""
    file = EventFileWriter("x")
    data = file.begin() + file.block(3_600_000, [Event(b"a")])
    with pytest.raises(InvalidArgument):
        file.block(0, [Event(b"b")])
    data += file.block(file.last_ms, [Event(b"b")]) + file.end(0)
    found, ended = blocks_of(data)
    assert [block.timestamp_ms for block in found] == [3_600_000] * 2
    assert ended == EndMark(len(data) - HEAD_BYTES, 3_600_000)


def test_r16_blocks_that_are_left_out_are_not_waited_for() -> None:
    """Their payload may be missing; the next bytes wanted are those of the next head."""
    first, second, third = blocks_of(FILE)[0]
    decoder = EventFileDecoder()
    decoder.feed(FILE[: first.offset + HEAD_BYTES])
    assert decoder.next_block(lambda time_ms: time_ms > START_MS) is None
    assert decoder.wanted_offset == second.offset
    decoder.feed(FILE[second.offset : second.offset + HEAD_BYTES])
    assert decoder.next_block(lambda time_ms: time_ms > START_MS) is None
    assert decoder.wanted_offset == third.offset
    decoder.feed(FILE[third.offset :])
    assert decoder.next_block(lambda time_ms: time_ms > START_MS) == third
    assert decoder.next_block() is None and decoder.ended == EndMark(third.end_offset, START_MS + 9)


def test_another_version_is_not_damage() -> None:
    """A file of a later format is refused by its version; one of another kind is no event file."""
    for magic, error in ((b"E2", UnsupportedVersion), (b"I1", Corruption)):
        with pytest.raises(error):
            blocks_of(encode_properties(magic, {"schema": "x"}) + FILE[-60:])
