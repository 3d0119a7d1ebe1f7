"""The extension of a batch's header: round trips, hostile bytes, what servers keep and what readers refuse."""

from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.batch import (
    HEADER_BYTES,
    HEADER_BYTES_MAX,
    check_batch,
    check_batch_fields,
    decode_records,
    encode_batch,
    extension_of,
    open_columns,
    restamp,
)
from rangelog_core.batch_extension import (
    CRITICAL_TAG_MAX,
    EXTENSION_BYTES_MAX,
    TAG_MAX,
    Producer,
    Tag,
    decode_extension,
    decode_producer,
    encode_extension,
    encode_producer,
)
from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import Corruption, InvalidArgument, ProtocolViolation, UnsupportedVersion

OPTIONAL = st.dictionaries(st.integers(CRITICAL_TAG_MAX + 1, TAG_MAX), st.binary(max_size=80), max_size=8)
ANY = st.dictionaries(st.integers(1, TAG_MAX), st.binary(max_size=80), max_size=8)


def batch(extension: bytes = b"", codec: int = 0) -> bytes:
    """A batch of two records with a header extension."""
    return encode_batch(
        stream_id=1, range_index=2, epoch=3, base_offset=100, timestamps_ms=[5, 4], values=[b"a", b"bb"], keys=[b"k", None],
        codec=codec, extension=extension,
    )  # fmt: skip


def resum(data: bytes) -> bytes:
    """Give tampered bytes a checksum that fits."""
    return data[:-4] + struct.pack("<I", google_crc32c.value(data[:-4]))


@settings(max_examples=200, deadline=None)
@given(ANY)
def test_fields_come_back_as_they_were(fields: dict[int, bytes]) -> None:
    """What is encoded decodes to the same fields, is a multiple of 8 bytes, and costs nothing when there is none."""
    data = encode_extension(fields)
    assert decode_extension(data) == fields
    assert len(data) % 8 == 0
    assert bool(data) == bool(fields)


@settings(max_examples=100, deadline=None)
@given(OPTIONAL, st.integers(0, 1))
def test_optional_fields_change_nothing_for_readers(fields: dict[int, bytes], codec: int) -> None:
    """Records are the same with and without unknown optional fields, which survive a move to another range."""
    extension = encode_extension(fields)
    data = batch(extension, codec)
    assert decode_records(data) == decode_records(batch(b"", codec))
    moved = restamp(data, range_index=9, epoch=8)
    header = check_batch(moved)
    assert (header.range_index, header.epoch, header.header_size) == (9, 8, HEADER_BYTES + len(extension))
    assert extension_of(moved, header) == fields
    assert split_batches(data + moved) == [data, moved]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_whatever_decodes_has_one_encoding(data: bytes) -> None:
    """Hostile bytes are refused by a typed error, or they are exactly what the encoder makes of their fields."""
    try:
        fields = decode_extension(data)
    except ProtocolViolation:
        return
    assert encode_extension(fields) == data


@pytest.mark.parametrize(
    "data",
    [
        bytes(8),  # tag 0
        struct.pack("<HH4x", 2, 0) + struct.pack("<HH4x", 2, 0),  # twice
        struct.pack("<HH4x", 3, 0) + struct.pack("<HH4x", 2, 0),  # falling
        struct.pack("<HH4x", 2, 5),  # longer than the extension
        struct.pack("<HHBBBB", 2, 3, 0, 0, 0, 1),  # padding that is not zero
        struct.pack("<HH", 2, 0),  # no multiple of 8
        struct.pack("<HH", 2, EXTENSION_BYTES_MAX + 4) + bytes(EXTENSION_BYTES_MAX + 4),  # too large
    ],
)
def test_malformed_extensions_are_refused_even_where_records_are_not_looked_at(data: bytes) -> None:
    """A server, which opens no columns, refuses a batch whose extension no reader could parse."""
    with pytest.raises(ProtocolViolation):
        decode_extension(data)
    good = batch()
    bad = bytearray(good[:HEADER_BYTES] + data + good[HEADER_BYTES:])
    struct.pack_into("<H", bad, 6, HEADER_BYTES + len(data))
    struct.pack_into("<I", bad, 8, len(bad))
    with pytest.raises(ProtocolViolation):
        check_batch(resum(bytes(bad)))


@pytest.mark.parametrize("size", [0, 8, HEADER_BYTES - 8, HEADER_BYTES + 4, HEADER_BYTES_MAX + 8, 0xFFF8])
def test_header_sizes_out_of_bounds_are_refused(size: int) -> None:
    """The header is 64 to 1,024 bytes, a multiple of 8, and inside the batch."""
    bad = bytearray(batch(encode_extension({TAG_MAX: bytes(400)})))
    struct.pack_into("<H", bad, 6, size)
    with pytest.raises(ProtocolViolation):
        check_batch(resum(bytes(bad)))


def test_a_header_that_reaches_into_the_checksum_is_refused() -> None:
    """A header as large as the batch leaves no columns."""
    bad = bytearray(batch())
    assert len(bad) > 72
    struct.pack_into("<H", bad, 6, len(bad) // 8 * 8)
    with pytest.raises(ProtocolViolation):
        check_batch(resum(bytes(bad)))


@pytest.mark.parametrize("tag", [Tag.BODY_ENCODING, Tag.CONTROL, 3, CRITICAL_TAG_MAX])
def test_an_unknown_critical_field_stops_readers_and_nobody_else(tag: int) -> None:
    """A server checks, moves and cuts such a batch; whoever wants its records gets UnsupportedVersion."""
    data = batch(encode_extension({tag: b"", Tag.PRODUCER: b"x"}))
    header = check_batch(data)
    assert header.end_offset == 102
    assert extension_of(restamp(data, range_index=7, epoch=3), header) == {tag: b"", Tag.PRODUCER: b"x"}
    assert split_batches(data) == [data]
    with pytest.raises(UnsupportedVersion, match=rf"{int(tag)}.*upgrade"):
        decode_records(data)


@pytest.mark.parametrize("attributes", [2, 7, 0x20, 0x80])
def test_unknown_attributes_stop_readers_and_nobody_else(attributes: int) -> None:
    """A codec or attribute of a newer program is kept by servers and refused by readers."""
    data = bytearray(batch())
    data[5] = attributes
    newer = resum(bytes(data))
    assert check_batch(newer).attributes == attributes
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        decode_records(newer)


def test_a_newer_version_is_believed_only_of_whole_bytes() -> None:
    """A batch of version 2 whose checksum fits is UnsupportedVersion; a damaged version byte is Corruption."""
    data = bytearray(batch())
    data[4] = 2
    with pytest.raises(Corruption):
        check_batch(bytes(data))
    with pytest.raises(Corruption):
        split_batches(batch() + bytes(data))
    with pytest.raises(UnsupportedVersion, match="version 2, this program reads 1"):
        check_batch(resum(bytes(data)))
    with pytest.raises(UnsupportedVersion):
        split_batches(batch() + resum(bytes(data)))
    data[4] = 0
    with pytest.raises(ProtocolViolation):
        check_batch(resum(bytes(data)))


@pytest.mark.parametrize("codec", [0, 1])
def test_every_flip_and_cut_of_a_batch_with_fields_is_found(codec: int) -> None:
    """The checksum covers the extension: no damaged bit of it, and no cut, goes unnoticed, also by a server."""
    data = batch(encode_extension({Tag.PRODUCER: encode_producer(Producer(1, 2, 3)), TAG_MAX: b"x"}), codec)
    for position in range(len(data)):
        for bit in range(8):
            bad = data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]
            with pytest.raises((Corruption, ProtocolViolation)):
                check_batch(bad)
    for length in range(len(data)):
        with pytest.raises((Corruption, ProtocolViolation)):
            check_batch(data[:length])


@given(st.builds(Producer, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)))
def test_a_producer_comes_back_as_it_was(producer: Producer) -> None:
    """Id, epoch and sequence survive; another length is refused."""
    value = encode_producer(producer)
    assert decode_producer(value) == producer
    with pytest.raises(ProtocolViolation):
        decode_producer(value[:-1])


def test_what_cannot_be_encoded_is_refused() -> None:
    """Tags and numbers out of bounds, and too much, are InvalidArgument."""
    for fields in (
        {0: b""},
        {TAG_MAX + 1: b""},
        {9: bytes(EXTENSION_BYTES_MAX)},
        {n: bytes(100) for n in range(1, 12)},
    ):
        with pytest.raises(InvalidArgument):
            encode_extension(fields)
    for producer in (Producer(-1, 0, 0), Producer(0, 2**32, 0), Producer(0, 0, 2**64)):
        with pytest.raises(InvalidArgument):
            encode_producer(producer)
    with pytest.raises(ProtocolViolation):
        batch(bytes(8))


def test_what_is_known_of_a_batch_is_not_read_again() -> None:
    """The header and fields of one check serve all that follows, with the same result."""
    producer = encode_producer(Producer(7, 1, 0))
    data = encode_batch(
        stream_id=1, range_index=0, epoch=1, base_offset=5, timestamps_ms=[1], values=[b"v"],
        extension=encode_extension({Tag.PRODUCER: producer}),
    )  # fmt: skip
    header, fields = check_batch_fields(data)
    assert header == check_batch(data) and fields == {Tag.PRODUCER: producer}
    assert open_columns(header, data, fields) == open_columns(header, data)
    moved = restamp(data, stream_id=3, range_index=2, epoch=9, base_offset=70, header=header)
    assert moved == restamp(data, stream_id=3, range_index=2, epoch=9, base_offset=70)
    placed = check_batch(moved)
    assert (placed.stream_id, placed.range_index, placed.epoch, placed.base_offset) == (3, 2, 9, 70)
    with pytest.raises(UnsupportedVersion):
        open_columns(header, data, [5])
