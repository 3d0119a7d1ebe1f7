"""The bytes on the wire and on disk stay as they were: old data is read by new programs."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from rangelog_core.batch import check_batch, decode_records, extension_of
from rangelog_core.batch_extension import Producer, Tag, decode_producer, encode_producer
from rangelog_core.errors import UnsupportedVersion
from rangelog_core.frame import RESERVED_OPCODES, FrameDecoder, Opcode
from rangelog_core.record import Record
from rangelog_proto.v1 import data_pb2

HERE = Path(__file__).parent
BATCHES: dict[str, str] = json.loads((HERE / "batches.json").read_text())
FRAMES: dict[str, dict[str, Any]] = json.loads((HERE / "frames.json").read_text())


@pytest.mark.parametrize("name", sorted(set(BATCHES) - {"critical"}))
def test_batches_decode_to_what_they_were(name: str) -> None:
    """Each stored batch still gives the records that went in."""
    data = bytes.fromhex(BATCHES[name])
    header = check_batch(data)
    assert (header.stream_id, header.range_index, header.epoch, header.base_offset) == (7, 3, 11, 1000)
    keys = [None, None, None] if name == "values" else [b"k", None, b""]
    headers: list[dict[str, bytes]] = [{"a": b"1", "ü": b""}, {}, {}] if name == "headers" else [{}, {}, {}]
    values = [b"alpha", b"", b"gamma" * 20]
    assert decode_records(data) == [Record(1000 + n, (5, 7, 6)[n], keys[n], values[n], headers[n]) for n in range(3)]


def test_header_fields_are_what_they_were() -> None:
    """Stored header extensions have their fields; records behind an unknown critical one are refused, not misread."""
    data = bytes.fromhex(BATCHES["extension"])
    fields = extension_of(data, check_batch(data))
    assert fields == {Tag.PRODUCER: encode_producer(Producer(21, 22, 23)), 0xFFFE: b"optional", 0xFFFF: b"x"}
    assert decode_producer(fields[Tag.PRODUCER]) == Producer(producer_id=21, epoch=22, sequence=23)
    critical = bytes.fromhex(BATCHES["critical"])
    assert list(extension_of(critical, check_batch(critical))) == [0x7FFF, Tag.PRODUCER]
    with pytest.raises(UnsupportedVersion, match=r"32767.*upgrade"):
        decode_records(critical)


@pytest.mark.parametrize("name", ["values", "keys", "headers", "extension", "critical"])
def test_encoding_makes_the_same_bytes(name: str) -> None:
    """The encoder still makes these bytes (zstd's may differ between its versions)."""
    import importlib.util

    tool = Path(__file__).resolve().parents[3] / "tools" / "make_golden.py"
    spec = importlib.util.spec_from_file_location("make_golden", tool)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.batches()[name] == BATCHES[name]
    assert module.frames() == FRAMES


@pytest.mark.parametrize("opcode", Opcode)
def test_frames_decode_to_what_they_were(opcode: Opcode) -> None:
    """Each stored frame still has its opcode, id and payload, and its message every field."""
    stored = FRAMES[opcode.name.lower()]
    decoder = FrameDecoder(message_bytes_max=1000, payload_bytes_max=1000)
    (frame,) = decoder.feed(bytes.fromhex(stored["hex"]))
    assert (frame.opcode, frame.request_id) == (opcode, stored["request_id"])
    assert frame.payload == stored["payload"].encode()
    message = getattr(data_pb2, opcode.name.title().replace("_", ""))()
    message.ParseFromString(frame.message)
    assert MessageToDict(message, preserving_proto_field_name=True) == stored["message"]
    assert {field.name for field in message.DESCRIPTOR.fields} == set(stored["message"]), (
        "a field without a golden value"
    )


def test_the_page_says_what_the_code_does() -> None:
    """docs/PROTOCOL.md lists each opcode under its number, each message with its fields, and both headers as packed."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "PROTOCOL.md").read_text()
    for opcode in Opcode:
        assert f"| {int(opcode)} | {opcode.name} |" in page
    for number, name in RESERVED_OPCODES.items():
        assert f"{number} {name}" in page
        assert number not in set(Opcode)
    for tag in Tag:
        assert f"| {int(tag):,} | {tag.name} |" in page
    for message in data_pb2.DESCRIPTOR.message_types_by_name.values():
        row = next(line for line in page.split("\n") if line.startswith(f"| {message.name} |"))
        for field in message.fields:
            assert f"{field.number} `{field.name}`" in row, f"{message.name}.{field.name}"
    for heading, sizes, last in (("## Frame", struct.calcsize("<HBBIIIII"), None), ("## Record batch", 64, "−4")):
        section = page.split(heading)[1].split("\n\n")[1]
        rows = re.findall(r"^\| (\d+|−4) \| (\d+) \|", section, re.MULTILINE)
        position = 0
        for at, size in rows:
            assert at in (str(position), last), (heading, at)
            position += int(size) if at != last else 0
        assert position == sizes, heading
