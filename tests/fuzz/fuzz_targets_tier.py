"""Tiered objects: a hostile object whose checksums all fit, and a description that does not fit its object.

What holds: the records asked for come out, or Corruption; never another kind of error, however far into Parquet the bytes get.
"""

from __future__ import annotations

import io
import struct
import tempfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import DecodeError

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core.batch import encode_batch, encode_headers
from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from rangelog_core.errors import ObjectNotFound, ProtocolViolation
from rangelog_proto.v1 import common_pb2
from rangelog_tier import parquet
from rangelog_tier.arrow import SCHEMA
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.object_store import ObjectInfo, ObjectTooShort
from tests.fuzz.fuzz_engine import MIB, Target
from tests.fuzz.fuzz_mutation import encoded_changed

KEY = "streams/1/ranges/00000000/object.parquet"
START, COUNT = 100, 12
END = START + COUNT


class OneObject:
    """A store that holds one object."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get(self, key: str) -> bytes:
        """See ObjectStore."""
        if key != KEY:
            raise ObjectNotFound(f"there is no object {key}")
        return self._data

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        data = self.get(key)
        if start < 0 or length < 0 or start + length > len(data):
            raise ObjectTooShort("no such bytes")
        return data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        return ObjectInfo(key, len(self.get(key)), "e")


@cache
def written() -> tuple[bytes, parquet.WrittenObject]:
    """An object of three row groups, as a range server writes it."""
    batches = []
    for base in range(START, END, 4):
        values = [b"v" * (n % 9) for n in range(4)]
        batches.append(
            encode_batch(
                stream_id=1, range_index=0, epoch=2, base_offset=base, timestamps_ms=[1_000 + base + n for n in range(4)],
                values=values, keys=[None if n % 2 else b"k%d" % n for n in range(4)],
                headers=[encode_headers({"h": b"x"} if n else None) for n in range(4)],
                extension=encode_extension({Tag.PRODUCER: encode_producer(Producer(7, 1, base))} if base > START else {}),
            )
        )  # fmt: skip
    production, parquet.ROW_GROUP_ROWS_MAX = parquet.ROW_GROUP_ROWS_MAX, 4
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "object"
            found = parquet.write_object(
                path, batches, stream_id=1, stream_name="s", range_index=0, epoch=2, start_offset=START, end_offset=END
            )
            return path.read_bytes(), found
    finally:
        parquet.ROW_GROUP_ROWS_MAX = production


def described(data: bytes) -> common_pb2.Object:
    """What the placement driver would know of these bytes, had they been uploaded."""
    footer = min(len(data), 8 + int.from_bytes(data[-8:-4], "little"))
    crc = google_crc32c.value(data[len(data) - footer :])
    return common_pb2.Object(
        object_id=1, stream_id=1, start_offset=START, end_offset=END, key=KEY, size_bytes=len(data), footer_size_bytes=footer,
        footer_crc=crc, digest=written()[1].digest, state=common_pb2.OBJECT_STATE_COMMITTED,
    )  # fmt: skip


class _Agreeing:
    """Stands for every checksum: equal to any."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class _Agreed(list[Any]):
    def __getitem__(self, index: Any) -> Any:
        return _Agreeing()


FOREIGN: dict[str, Any] = {
    "stream_id": 1, "range_index": 0, "epoch": 2, "base_offset": START, "timestamps_ms": [1], "values": [b"v"]
}  # fmt: skip


def foreign_objects() -> list[bytes]:
    """Parquet files that others wrote: other columns, nulls where none belong, other offsets, no rows, no metadata."""
    _, metadata = written()
    told = pq.ParquetFile(io.BytesIO(written()[0])).schema_arrow.metadata
    row = {"offset": START, "timestamp": 1_000_000, "key": None, "value": b"v", "headers": [("h", b"x")]}
    rows = [row | {"offset": START + n} for n in range(COUNT)]
    whole = parquet.OBJECT_SCHEMA.with_metadata(told)
    tables = [
        pa.Table.from_pylist(rows[:COUNT], schema=SCHEMA.with_metadata(told)),
        *(
            pa.Table.from_pylist([row | {"batch_header": header} for row in rows], schema=whole)
            for header in (None, b"", b"x" * 80, encode_batch(**FOREIGN, extension=encode_extension({9: b""})))
        ),
        pa.Table.from_pylist([*rows[1:], row], schema=SCHEMA.with_metadata(told)),
        pa.Table.from_pylist([], schema=SCHEMA.with_metadata(told)),
        pa.table({"offset": pa.array([1, 2])}),
    ]
    files = []
    for table in tables:
        sink = io.BytesIO()
        with pq.ParquetWriter(sink, table.schema, compression="zstd") as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({"rangelog.row_group_crcs": "1", "rangelog.row_group_ends": "99"})
        files.append(sink.getvalue())
    assert metadata.row_groups
    return files


def change_footer(data: bytes, random: Random) -> bytes:
    """Other bytes in the footer, whose length still fits."""
    size = int.from_bytes(data[-8:-4], "little")
    start = len(data) - 8 - size
    if not 0 < start < len(data) - 8:
        return data
    footer = bytearray(data[start:-8])
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(footer))
        if random.random() < 0.7:
            footer[at] = random.choice((0, 1, 2, 0x7F, 0x80, 0xFF, footer[at] ^ 1, random.randrange(256)))
        else:
            footer[at : at + random.randrange(4)] = random.randbytes(random.randrange(4))
        if not footer:
            return data
    return data[:start] + bytes(footer) + struct.pack("<I", len(footer)) + data[-4:]


def run_object(data: bytes) -> bool:
    """See the module; every checksum that we keep is made to fit."""
    reader = ObjectReader(OneObject(data), described(data))  # type: ignore[arg-type]
    reader._crcs = _Agreed(reader._crcs)
    offsets: list[int] = []
    for group in reader.row_groups(START, END):
        for header, fields in reader.batch_headers(group):
            assert group.first < header.end_offset
            assert header.header_size == 64 + len(encode_extension(fields))
    for table in reader.read(START, END):
        table.validate(full=True)
        offsets += [record.offset for record in records_from_arrow(table)]
    assert len(offsets) == COUNT
    assert (offsets[0], offsets[-1]) == (START, END - 1)
    return True


def description_seeds() -> list[bytes]:
    """The right one, and one from before footers were summed."""
    whole = described(written()[0])
    early = common_pb2.Object()
    early.CopyFrom(whole)
    early.footer_size_bytes = early.footer_crc = 0
    return [whole.SerializeToString(), early.SerializeToString()]


def change_description(data: bytes, random: Random) -> bytes:
    """Another description."""
    size = len(written()[0])
    return encoded_changed(data, common_pb2.Object, random, (0, 1, START, END, size, size - 1, size + 1, KEY))


def run_description(data: bytes) -> bool:
    """A description that lies never yields records that were not asked for."""
    try:
        wanted = common_pb2.Object.FromString(data)
    except DecodeError as error:
        raise ProtocolViolation("no description") from error
    store: Any = OneObject(written()[0])
    for start, end in ((START, END), (START + 3, START + 9), (0, 1 << 62)):
        offsets = [
            each.offset for table in read_object(store, wanted, start, end) for each in records_from_arrow(table)
        ]
        assert offsets == list(range(max(start, START), min(end, END)))
    return True


TARGETS = (
    Target(
        "tier-object", lambda: [written()[0], *foreign_objects()], run_object, None, (change_footer,), plain_share=0.3,
        peak_bytes_max=32 * MIB, isolated=True, ci_inputs=62,
    ),
    Target(
        "tier-description", description_seeds, run_description, None, (change_description,), plain_share=0.15,
        peak_bytes_max=32 * MIB, isolated=True, ci_inputs=37,
    ),
)  # fmt: skip
