"""Tiered objects of other versions, and what the headers of batches hold, which objects keep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core.batch import BatchHeader, check_batch, decode_records, encode_batch, encode_headers, extension_of
from rangelog_core.batch_extension import Producer, Tag, decode_producer, encode_extension, encode_producer
from rangelog_core.errors import Corruption, UnsupportedVersion
from rangelog_core.record import Record
from rangelog_core.versions import OBJECT_VERSIONS, VersionRange
from rangelog_proto.v1 import common_pb2
from rangelog_tier import parquet
from rangelog_tier.file_store import FileStore
from rangelog_tier.object_reader import ObjectReader
from rangelog_tier.parquet import write_object

KEY = "streams/7/ranges/3/object.parquet"
GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[1] / "golden" / "objects.json").read_text()
)
EXTENSIONS: tuple[dict[int, bytes], ...] = (
    {},
    {Tag.PRODUCER: encode_producer(Producer(1 << 63, 2, 3))},
    {Tag.PRODUCER: encode_producer(Producer(1 << 63, 2, 4)), 0xFFFF: b"of a newer program"},
    {},
    {0x9000: bytes(900)},
)


def batches(count: int = 5, each: int = 10) -> list[bytes]:
    """Batches of `each` records from offset 100 on, with every kind of extension."""
    return [
        encode_batch(
            stream_id=7,
            range_index=3,
            epoch=2,
            base_offset=100 + each * number,
            timestamps_ms=list(range(each)),
            values=[b"%d" % number] * each,
            extension=encode_extension(EXTENSIONS[number % len(EXTENSIONS)]),
        )
        for number in range(count)
    ]


def put(folder: Path, encoded: list[bytes], start: int, end: int) -> tuple[FileStore, common_pb2.Object]:
    """Write an object; return its store and its description."""
    path = folder / "object"
    place = {"stream_id": 7, "range_index": 3, "start_offset": start, "end_offset": end}
    written = write_object(path, iter(encoded), stream_name="s", epoch=2, **place)  # type: ignore[arg-type]
    store = FileStore(folder / "store")
    store.put_if_absent(KEY, path)
    return store, common_pb2.Object(
        **place,
        key=KEY,
        size_bytes=written.size_bytes,
        digest=written.digest,
        footer_size_bytes=written.footer_size_bytes,
        footer_crc=written.footer_crc,
    )


def read(store: FileStore, described: common_pb2.Object) -> list[Record]:
    """All records."""
    tables = read_object(store, described, described.start_offset, described.end_offset)
    return [record for table in tables for record in records_from_arrow(table)]


def headers_of(store: FileStore, described: common_pb2.Object) -> list[tuple[BatchHeader, dict[int, bytes]]]:
    """All headers that the object keeps."""
    reader = ObjectReader(store, described)
    return [one for group in reader.row_groups(0, 1 << 62) for one in reader.batch_headers(group)]


@pytest.mark.parametrize("rows_max", [1_000, 20])
def test_headers_with_an_extension_survive_the_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int
) -> None:
    """Header and fields of each such batch come back as they were, in one row group or several; records too."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS_MAX", rows_max)
    encoded = batches(12)
    store, described = put(tmp_path, encoded, 100, 220)
    assert read(store, described) == [record for data in encoded for record in decode_records(data)]
    kept = [(check_batch(data), extension_of(data, check_batch(data))) for data in encoded]
    assert headers_of(store, described) == [one for one in kept if one[1]]


def test_producers_can_be_rebuilt_from_objects_alone(tmp_path: Path) -> None:
    """The last batch of each producer, its sequence, first offset and count: all that a log would have said."""
    store, described = put(tmp_path, batches(), 100, 150)
    last: dict[tuple[int, int], tuple[int, int, int]] = {}
    for header, fields in headers_of(store, described):
        if Tag.PRODUCER in fields:
            producer = decode_producer(fields[Tag.PRODUCER])
            last[producer.producer_id, producer.epoch] = (producer.sequence, header.base_offset, header.count)
    assert last == {(1 << 63, 2): (4, 120, 10)}


def test_an_object_that_begins_or_ends_inside_a_batch_keeps_its_header(tmp_path: Path) -> None:
    """The header stands on the batch's first row in the object, and says where the batch really began."""
    encoded = batches()
    store, described = put(tmp_path, encoded[1:3], 115, 125)
    found = headers_of(store, described)
    assert [(header.base_offset, header.end_offset) for header, _ in found] == [(110, 120), (120, 130)]
    column = pq.read_table(tmp_path / "store" / KEY).column("batch_header")
    assert [row for row, value in enumerate(column.to_pylist()) if value is not None] == [0, 5]


def test_every_object_has_the_same_columns(tmp_path: Path) -> None:
    """For other programs all objects of a stream are one table, with the headers of batches or without any."""
    for name, encoded in (("plain", batches(1)), ("extended", batches(2))):
        folder = tmp_path / name
        folder.mkdir()
        store, described = put(folder, encoded, 100, 100 + 10 * len(encoded))
        table = pq.read_table(folder / "store" / KEY)
        assert table.schema.equals(parquet.OBJECT_SCHEMA, check_metadata=False)
        assert table.column("batch_header").null_count == table.num_rows - (name == "extended")
        assert len(headers_of(store, described)) == (name == "extended")


@pytest.mark.parametrize("version", sorted(GOLDEN))
def test_objects_of_every_version_are_read(tmp_path: Path, version: str) -> None:
    """A stored object of each version that there was gives its records; what it says of batches, too."""
    stored = dict(GOLDEN[version])
    store = FileStore(tmp_path / "store")
    store.put_if_absent(KEY, bytes.fromhex(stored.pop("hex")))
    place = {"stream_id": 7, "range_index": 3, "start_offset": 1000, "end_offset": 1006, "object_id": 9}
    described = common_pb2.Object(key=KEY, **place, **stored)
    expected = []
    for n in range(3):
        expected.append(Record(1000 + 2 * n, 5 + n, None, b"v%d" % n, {"h": b"x"}))
        expected.append(Record(1001 + 2 * n, 7, b"k", b"", {}))
    assert read(store, described) == expected
    found = [
        (header.base_offset, header.count, header.epoch, fields) for header, fields in headers_of(store, described)
    ]
    assert found == ([] if version == "1" else [(1002, 2, 11, {Tag.PRODUCER: encode_producer(Producer(21, 22, 23))})])


def test_the_versions_that_are_read_have_golden_files() -> None:
    """One stored object for each."""
    assert sorted(map(int, GOLDEN)) == list(range(OBJECT_VERSIONS.lowest, OBJECT_VERSIONS.highest + 1))


@pytest.mark.parametrize("columns", ["the same", "others"])
def test_an_object_of_a_newer_version_is_refused_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    """The error names object and versions, whatever its columns are; the object is not touched, nor asked for again."""
    monkeypatch.setattr(parquet, "OBJECT_VERSIONS", VersionRange(1, OBJECT_VERSIONS.highest + 1))
    if columns == "others":
        wide = parquet.OBJECT_SCHEMA.append(pa.field("more", pa.int64()))
        monkeypatch.setattr(parquet, "OBJECT_SCHEMA", wide)
        original = parquet.ObjectWriter.add

        def add(self: Any, table: pa.Table) -> None:
            original(self, table.append_column("more", pa.nulls(table.num_rows, pa.int64())))

        monkeypatch.setattr(parquet.ObjectWriter, "add", add)
    store, described = put(tmp_path, batches(), 100, 150)
    file = tmp_path / "store" / KEY
    before = file.read_bytes()
    with pytest.raises(
        UnsupportedVersion, match=rf"{KEY} is of version 3, this program reads 1 to 2: upgrade this program"
    ):
        read(store, described)
    assert file.read_bytes() == before


def test_metadata_that_is_not_known_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later program may add keys without raising the version."""
    original = parquet._parquet_writer
    monkeypatch.setattr(
        parquet,
        "_parquet_writer",
        lambda sink, metadata, keys: original(sink, metadata | {"rangelog.colour": "blue"}, keys),
    )
    encoded = batches()
    store, described = put(tmp_path, encoded, 100, 150)
    assert pq.read_schema(tmp_path / "store" / KEY).metadata[b"rangelog.colour"] == b"blue"
    assert read(store, described) == [record for data in encoded for record in decode_records(data)]


@pytest.mark.parametrize("version", ["", "0", "-1", "two", "9" * 5000])
def test_a_version_that_is_no_number_is_corruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Nobody wrote that."""
    original = parquet._parquet_writer
    monkeypatch.setattr(
        parquet,
        "_parquet_writer",
        lambda sink, metadata, keys: original(sink, metadata | {parquet.FORMAT_VERSION: version}, keys),
    )
    store, described = put(tmp_path, batches(), 100, 150)
    with pytest.raises(Corruption):
        read(store, described)


def test_a_header_that_is_not_of_its_row_is_corruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers of other batches, cut short, or not headers at all are found out when they are asked for."""
    data = batches(2)[1]
    whole = data[: check_batch(data).header_size]
    for number, wrong in enumerate((whole[:64], whole + bytes(8), b"x" * 72, batches(3)[2][: len(whole)])):
        folder = tmp_path / str(number)
        folder.mkdir()

        def column(group: Any, wrong: bytes = wrong) -> pa.Array:
            return pa.array([None] * 10 + [wrong] + [None] * (group.rows - 11), type=pa.binary())

        monkeypatch.setattr(parquet, "_header_column", column)
        store, described = put(folder, batches(2), 100, 120)
        assert len(read(store, described)) == 20
        with pytest.raises(Corruption, match=r"batch header|another batch"):
            headers_of(store, described)


def test_what_this_program_does_not_know_is_not_tiered(tmp_path: Path) -> None:
    """A batch with an unknown critical field is refused by the writer of objects, as undamaged."""
    data = encode_batch(
        stream_id=7, range_index=3, epoch=2, base_offset=100, timestamps_ms=[1], values=[b"v"],
        headers=[encode_headers(None)], extension=encode_extension({9: b""}),
    )  # fmt: skip
    with pytest.raises(UnsupportedVersion, match="upgrade"):
        put(tmp_path, [data], 100, 101)
