"""What travels and lies as record batches: the codec, the frame, and a batch as Arrow."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random

import google_crc32c
import zstandard

from rangelog._read.record_chunk import RecordChunk
from rangelog_core import frame as frames
from rangelog_core import record_codec, record_codec_pure
from rangelog_core.batch import (
    CODEC_ZSTD,
    HEADER_BYTES,
    TRAILER_BYTES,
    Columns,
    check_batch,
    decode_columns,
    decode_headers,
    decode_records,
    encode_batch,
    encode_headers,
    extension_of,
    peek_header,
    restamp,
)
from rangelog_core.batch_extension import Producer, Tag, decode_extension, encode_extension, encode_producer
from rangelog_core.checked_batches import split_batches
from rangelog_core.errors import ProtocolViolation
from rangelog_core.frame import Frame, FrameDecoder, FrameError, Opcode, encode_frame
from rangelog_core.limits import BATCH_SIZE_BYTES_MAX, FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.net.replica_client import RangeKey, decode_fetch_answer
from rangelog_core.record import Record
from rangelog_proto.v1 import data_pb2
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import BORDERS, fields_changed

BATCH_FIELDS = (
    (4, 1), (5, 1), (6, 2), (8, 4), (12, 4), (16, 8), (24, 4), (28, 4), (32, 8), (40, 8), (48, 8), (56, 8),
)  # fmt: skip
_HEADER_SIZE_AT = 6
_LENGTH_AT = 8
_COLUMNS_SIZE_AT = 28


def batch_seeds() -> list[bytes]:
    """Batches of every shape that the encoder makes."""
    values = [b"one", b"", b"three" * 9]
    keys: list[bytes | None] = [b"k", None, b""]
    headers = [encode_headers(each) for each in ({"a": b"1", "é": b""}, None, {"trace": b"x" * 20})]
    stamps = [5, 1, 1_700_000_000_000]
    place = {"stream_id": 1, "range_index": 0, "epoch": 1}
    seeds = [
        encode_batch(**place, base_offset=0, timestamps_ms=stamps, values=values),
        encode_batch(**place, base_offset=7, timestamps_ms=stamps, values=values, keys=keys),
        encode_batch(**place, base_offset=7, timestamps_ms=stamps, values=values, keys=keys, headers=headers),
        encode_batch(**place, base_offset=(1 << 62), timestamps_ms=[0], values=[b""]),
        encode_batch(**place, base_offset=0, timestamps_ms=[0] * 40, values=[b"x"] * 40, keys=[b"y"] * 40),
    ]
    packed = encode_batch(
        **place, base_offset=3, timestamps_ms=stamps, values=values, keys=keys, headers=headers, codec=CODEC_ZSTD
    )
    extended = encode_batch(**place, base_offset=7, timestamps_ms=stamps, values=values, extension=EXTENSIONS[0])
    critical = encode_batch(**place, base_offset=7, timestamps_ms=stamps, values=values, extension=EXTENSIONS[1])
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(BATCH_SIZE_BYTES_MAX))
    head = bytearray(packed[:HEADER_BYTES])
    struct.pack_into("<I", head, _COLUMNS_SIZE_AT, BATCH_SIZE_BYTES_MAX)
    return [*seeds, packed, extended, critical, repair_batch(bytes(head) + bomb + bytes(TRAILER_BYTES), Random(1))]


EXTENSIONS = (
    encode_extension({Tag.PRODUCER: encode_producer(Producer(1 << 63, 2, 3)), 0x9000: b"", 0xFFFF: b"optional"}),
    encode_extension({0x7FFF: b"critical", Tag.PRODUCER: b""}),
    b"",
)


def change_extension(data: bytes, random: Random) -> bytes:
    """Another extension, or other numbers in the one there is; its size in the header mostly fits."""
    if len(data) < HEADER_BYTES + TRAILER_BYTES:
        return data
    (size,) = struct.unpack_from("<H", data, _HEADER_SIZE_AT)
    end = min(max(size, HEADER_BYTES), len(data) - TRAILER_BYTES)
    places = [(at, width) for at in range(0, 48, 2) for width in (1, 2, 4)]
    extension = fields_changed(random.choice((data[HEADER_BYTES:end], *EXTENSIONS, bytes(16))), random, places)
    head = bytearray(data[:HEADER_BYTES])
    if random.random() < 0.9:
        struct.pack_into("<H", head, _HEADER_SIZE_AT, HEADER_BYTES + len(extension))
    return bytes(head) + extension + data[end:]


def repair_batch(data: bytes, random: Random) -> bytes:
    """Make length (nearly always) and checksum of one batch fit."""
    if len(data) < HEADER_BYTES + TRAILER_BYTES:
        return data
    fixed = bytearray(data)
    if random.random() < 0.9:
        struct.pack_into("<I", fixed, _LENGTH_AT, len(fixed))
    struct.pack_into("<I", fixed, len(fixed) - TRAILER_BYTES, google_crc32c.value(bytes(fixed[:-TRAILER_BYTES])))
    return bytes(fixed)


def change_header(data: bytes, random: Random) -> bytes:
    """Other numbers in the header."""
    return fields_changed(data, random, BATCH_FIELDS)


def change_columns(data: bytes, random: Random) -> bytes:
    """Other numbers where the columns' offsets and stamps stand; of a compressed batch, inside the compression."""
    if len(data) <= HEADER_BYTES + TRAILER_BYTES:
        return data
    body = data[HEADER_BYTES:-TRAILER_BYTES]
    packed = data[5] & 7 == CODEC_ZSTD
    if packed:
        try:
            body = zstandard.ZstdDecompressor().decompress(body, max_output_size=64 * 1024)
        except zstandard.ZstdError:
            return data
    width = random.choice((4, 4, 8))
    places = [(at, width) for at in range(0, max(1, min(len(body), 400)), 4)]
    body = fields_changed(body, random, places)
    if random.random() < 0.3:
        body = body[: random.randrange(len(body) + 1)]
    size = len(body) if random.random() < 0.8 else random.choice(BORDERS) & 0xFFFF_FFFF
    if packed:
        body = zstandard.ZstdCompressor(write_content_size=random.random() < 0.8).compress(body)
    head = bytearray(data[:HEADER_BYTES])
    struct.pack_into("<I", head, _COLUMNS_SIZE_AT, size)
    return bytes(head) + body + bytes(TRAILER_BYTES)


def run_batch(data: bytes) -> bool:
    """Open one batch in every way that the product does; what opens has sane offsets and reads the same in parts."""
    header = check_batch(data)
    assert header == peek_header(data)
    assert 0 < header.count == header.end_offset - header.base_offset
    moved = restamp(data, range_index=3, epoch=4)
    assert check_batch(moved).end_offset == header.end_offset
    assert extension_of(moved, header) == extension_of(data, header)
    columns = decode_columns(data)
    assert len(columns.timestamps_ms) == header.count
    for offsets in (columns.value_offsets, columns.key_offsets, columns.header_offsets):
        assert offsets is None or (len(offsets) == header.count + 1 and offsets[0] == 0)
    records = decode_records(data)
    assert [each.offset for each in records] == list(range(header.base_offset, header.end_offset))
    middle = header.base_offset + header.count // 2
    assert decode_records(data, 0, middle) + decode_records(data, middle) == records
    assert [*_read_purely(columns)] == records
    assert record_codec_pure.seal([data[:-TRAILER_BYTES]]) == record_codec.seal([data[:-TRAILER_BYTES]]) == data
    chunk = RecordChunk([columns], middle, None)
    assert list(chunk) == records[header.count // 2 :] == [*chunk[:-1], chunk[-1]]
    again = encode_batch(
        stream_id=header.stream_id,
        range_index=header.range_index,
        epoch=header.epoch,
        base_offset=header.base_offset,
        timestamps_ms=[each.timestamp_ms for each in records],
        values=[each.value for each in records],
        keys=[each.key for each in records],
        headers=[encode_headers(each.headers) for each in records],
        codec=header.codec,
        extension=encode_extension(extension_of(data, header)),
    )
    assert decode_records(again) == records
    assert extension_of(again, check_batch(again)) == extension_of(data, header)
    return True


def _read_purely(columns: Columns) -> Iterator[Record]:
    """The records as the pure loops make them: where the compiled ones are built, `decode_records` uses those."""
    count = columns.header.count
    headers = None
    if columns.header_offsets is not None:
        headers = map(decode_headers, record_codec_pure.cut(columns.headers, columns.header_offsets, 0, count))
    return record_codec_pure.iterate_records(columns, headers, 0, count)


def run_batches(data: bytes) -> bool:
    """Cut a payload into batches: they are all of it, in order."""
    batches = split_batches(data)
    assert b"".join(batches) == data
    return bool(batches)


def run_headers(data: bytes) -> bool:
    """A record's headers, decoded and encoded again, say the same."""
    headers = decode_headers(data)
    if len(headers) <= 255:
        assert decode_headers(encode_headers(headers)) == headers
    return True


def run_extension(data: bytes) -> bool:
    """What decodes as an extension is what the encoder makes of its fields."""
    assert encode_extension(decode_extension(data)) == data
    return True


def run_arrow(data: bytes) -> bool:
    """A batch as Arrow holds what the records hold."""
    from rangelog._read.arrow_chunk import records_from_arrow
    from rangelog_tier.arrow import batch_to_arrow

    table = batch_to_arrow(data)
    table.validate(full=True)
    records = decode_records(data)
    assert table.num_rows == len(records)
    assert list(records_from_arrow(table)) == records
    return True


# ---- frames


def frame_seeds() -> list[bytes]:
    """One frame, many frames, a large one cut off."""
    hello = data_pb2.Hello(protocol_version=1, client="c", token="t", server="rs1", incarnation=9).SerializeToString()
    fetch = data_pb2.Fetch(stream_id=1, offset=3, bytes_max=1 << 20).SerializeToString()
    append = data_pb2.Append(stream_id=1, epoch=1).SerializeToString()
    payload = batch_seeds()[0]
    one = encode_frame(Opcode.HELLO, 1, hello)
    return [
        one,
        one + encode_frame(Opcode.APPEND, 2, append, payload) + encode_frame(Opcode.FETCH, 3, fetch),
        encode_frame(Opcode.CONFIRM, 0, b""),
        frames.encode_head(Opcode.APPEND, 4, append, FRAME_PAYLOAD_BYTES_MAX),
    ]


FRAME_FIELDS = ((0, 2), (2, 1), (3, 1), (4, 4), (8, 4), (12, 4), (16, 4), (20, 4))


def change_frame_header(data: bytes, random: Random) -> bytes:
    """Other numbers in one of the frames' headers."""
    starts = list(frame_starts(data)) or [0]
    return fields_changed(data, random, FRAME_FIELDS, random.choice(starts))


def frame_starts(data: bytes) -> list[int]:
    """Where frames seem to start."""
    starts: list[int] = []
    position = 0
    while 0 <= position <= len(data) - frames.HEADER_BYTES and len(starts) < 64:
        starts.append(position)
        message_bytes, payload_bytes = struct.unpack_from("<II", data, position + 8)
        position += frames.HEADER_BYTES + message_bytes + payload_bytes
    return starts


def repair_frames(data: bytes, random: Random) -> bytes:
    """Make the checksums of all frames fit."""
    fixed = bytearray(data)
    for start in frame_starts(data):
        (message_bytes,) = struct.unpack_from("<I", fixed, start + 8)
        message = bytes(fixed[start + frames.HEADER_BYTES : start + frames.HEADER_BYTES + message_bytes])
        struct.pack_into("<I", fixed, start + 16, google_crc32c.value(message))
        struct.pack_into("<I", fixed, start + 20, google_crc32c.value(bytes(fixed[start : start + 20])))
    return bytes(fixed)


def run_frames(data: bytes) -> bool:
    """Frames come out the same however the bytes are cut, and encode to what came in."""
    whole = _decoder()
    try:
        found = whole.feed(data)
    except FrameError as error:
        raise ProtocolViolation(str(error)) from error
    pieces = _decoder()
    step = 1 + len(data) // 7
    split = [each for at in range(0, len(data), step) for each in pieces.feed(data[at : at + step])]
    assert found == split
    encoded = b"".join(encode_frame(each.opcode, each.request_id, each.message, each.payload) for each in found)
    assert data.startswith(encoded)
    return bool(found)


def _decoder() -> FrameDecoder:
    return FrameDecoder(message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX)


def fetch_answer_seeds() -> list[bytes]:
    """Replies to a fetch from offset 4 of range 1/0: the message behind its length, then the payload."""
    message = data_pb2.FetchReply(durable_offset=12, confirm_offset=9).SerializeToString()
    ended = data_pb2.FetchReply(durable_offset=9, sealed=True, sealed_end_offset=9, last=True).SerializeToString()
    place = {"stream_id": 1, "range_index": 0, "epoch": 1}
    first, second, foreign = (
        encode_batch(**(place | other), base_offset=base, timestamps_ms=[1, 2, 3], values=[b"a", b"b", b"c"])
        for other, base in (({}, 3), ({}, 6), ({"range_index": 1}, 6))
    )
    payloads = (b"", first, first + second, first + foreign, second)
    return [bytes([len(each)]) + each + payload for each in (message, ended) for payload in payloads]


def run_fetch_answer(data: bytes) -> bool:
    """What a fetch returns is of the range, holds the offset, lies end to end, and is all of the payload."""
    length = data[0] if data else 0
    frame = Frame(Opcode.FETCH_REPLY, 1, data[1 : 1 + length], data[1 + length :])
    checked = decode_fetch_answer(frame, RangeKey(1, 0, 0), 4).batches
    end = 4
    for number, (header, _, _) in enumerate(checked.batches):
        assert (header.stream_id, header.range_index) == (1, 0)
        assert header.base_offset <= 4 < header.end_offset if number == 0 else header.base_offset == end
        end = header.end_offset
    assert checked.end_offset == end
    assert b"".join(each.data for each in checked.batches) == frame.payload
    return bool(checked.batches)


_HEADER_SEEDS = [encode_headers({"a": b"1", "é": b"", "n": b"x" * 300}), encode_headers({"": b""}), b"\0", b""]

TARGETS = (
    Target(
        "batch", batch_seeds, run_batch, repair_batch, (change_header, change_columns, change_extension),
        peak_bytes_max=40 * MIB,
    ),
    Target("batch-extension", lambda: EXTENSIONS, run_extension),
    Target("batches", lambda: [b"".join(batch_seeds()[:3]), *batch_seeds()[:2]], run_batches, None, (change_header,)),
    Target("fetch-answer", fetch_answer_seeds, run_fetch_answer),
    Target("record-headers", lambda: _HEADER_SEEDS, run_headers),
    Target(
        "arrow", batch_seeds, run_arrow, repair_batch, (change_header, change_columns, change_extension),
        peak_bytes_max=64 * MIB, isolated=True,
    ),
    Target(
        "frame", frame_seeds, run_frames, repair_frames, (change_frame_header,), peak_bytes_max=3 * FRAME_PAYLOAD_BYTES_MAX,
    ),
)  # fmt: skip
