"""The bytes on the wire and on disk stay as they were: old data is read by new programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rangelog.batch import check_batch, decode_records
from rangelog.record import Record
from rangelog_proto.frame import FrameDecoder, Opcode
from rangelog_proto.v1 import data_pb2

HERE = Path(__file__).parent
BATCHES: dict[str, str] = json.loads((HERE / "batches.json").read_text())
FRAMES: dict[str, str] = json.loads((HERE / "frames.json").read_text())


@pytest.mark.parametrize("name", sorted(BATCHES))
def test_batches_decode_to_what_they_were(name: str) -> None:
    """Each stored batch still gives the records that went in."""
    data = bytes.fromhex(BATCHES[name])
    header = check_batch(data)
    assert (header.stream_id, header.range_index, header.epoch, header.base_offset) == (7, 3, 11, 1000)
    keys = [None, None, None] if name == "values" else [b"k", None, b""]
    headers: list[dict[str, bytes]] = [{"a": b"1", "ü": b""}, {}, {}] if name == "headers" else [{}, {}, {}]
    values = [b"alpha", b"", b"gamma" * 20]
    assert decode_records(data) == [Record(1000 + n, (5, 7, 6)[n], keys[n], values[n], headers[n]) for n in range(3)]


@pytest.mark.parametrize("name", ["values", "keys", "headers"])
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


def test_frames_decode_to_what_they_were() -> None:
    """Each stored frame still has its opcode, id, message and payload."""
    for name, text in FRAMES.items():
        decoder = FrameDecoder(message_bytes_max=1000, payload_bytes_max=1000)
        (frame,) = decoder.feed(bytes.fromhex(text))
        if name == "append_with_payload":
            assert (frame.opcode, frame.request_id, frame.payload) == (Opcode.APPEND, 43, b"payload")
            assert data_pb2.Append.FromString(frame.message).start_offset == 900
        else:
            assert (frame.opcode.name.lower(), frame.request_id) == (name, 42)
