"""Write the golden files of both wire formats anew. A change of these files is a change of the protocol: raise its version."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from rangelog.batch import CODEC_ZSTD, encode_batch, encode_headers
from rangelog_proto.frame import Opcode, encode_frame
from rangelog_proto.v1 import data_pb2

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "tests" / "unit" / "golden"


def batches() -> dict[str, str]:
    """One batch of each shape, as hex."""
    common: dict[str, Any] = {
        "stream_id": 7,
        "range_index": 3,
        "epoch": 11,
        "base_offset": 1000,
        "timestamps_ms": [5, 7, 6],
    }
    values = [b"alpha", b"", b"gamma" * 20]
    keys = [b"k", None, b""]
    headers = [encode_headers({"a": b"1", "ü": b""}), b"", b""]
    return {
        "values": encode_batch(**common, values=values).hex(),
        "keys": encode_batch(**common, values=values, keys=keys).hex(),
        "headers": encode_batch(**common, values=values, keys=keys, headers=headers).hex(),
        "zstd": encode_batch(**common, values=values, keys=keys, codec=CODEC_ZSTD).hex(),
    }


def frames() -> dict[str, str]:
    """A frame of each opcode, as hex."""
    append = data_pb2.Append(stream_id=7, range_index=3, epoch=11, start_offset=900, confirm_offset=1000)
    made = {opcode.name.lower(): encode_frame(opcode, 42, b"").hex() for opcode in Opcode}
    made["append_with_payload"] = encode_frame(Opcode.APPEND, 43, append.SerializeToString(), b"payload").hex()
    return made


def main() -> None:
    """Write both files."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, content in (("batches.json", batches()), ("frames.json", frames())):
        (GOLDEN / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
