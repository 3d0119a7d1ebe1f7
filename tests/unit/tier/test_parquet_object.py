"""Tiered objects: what goes in comes out; damage is corruption, never other data."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rangelog._read.arrow_chunk import read_object, records_from_arrow
from rangelog_core.batch import check_batch, encode_batch
from rangelog_core.errors import ConfigInvalid, Corruption, InvalidArgument, ObjectNotFound, RangelogError
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2
from rangelog_tier import parquet
from rangelog_tier.file_store import FileStore
from rangelog_tier.object_store import ObjectTooShort
from rangelog_tier.parquet import write_object
from tests.support.made_batches import make_batches

KEY = "streams/1/ranges/0/object.parquet"


def put(tmp_path: Path, batches: list[bytes], start: int, end: int) -> tuple[FileStore, common_pb2.Object]:
    """Write an object into a store; return what the placement driver would know of it."""
    tmp_path.mkdir(exist_ok=True)
    path = tmp_path / "object"
    written = write_object(
        path,
        iter(batches),
        stream_id=1,
        stream_name="s",
        range_index=0,
        epoch=2,
        start_offset=start,
        end_offset=end,
    )
    store = FileStore(tmp_path / "store")
    store.put_if_absent(KEY, path)
    described = common_pb2.Object(
        stream_id=1,
        start_offset=start,
        end_offset=end,
        key=KEY,
        size_bytes=written.size_bytes,
        digest=written.digest,
        row_groups=written.row_groups,
        footer_size_bytes=written.footer_size_bytes,
        footer_crc=written.footer_crc,
    )
    return store, described


def read(store: FileStore, described: common_pb2.Object, start: int, end: int) -> list[Record]:
    """All records of [start, end)."""
    return [record for table in read_object(store, described, start, end) for record in records_from_arrow(table)]


def test_round_trip_of_any_span(tmp_path: Path) -> None:
    """Every record comes back as it was, from the start or from the middle."""
    batches, records = make_batches(1000, 37)
    store, described = put(tmp_path, batches, 100, 1100)
    assert read(store, described, 100, 1100) == records
    assert read(store, described, 345, 777) == records[245:677]
    assert described.row_groups[0].timestamp_ms_min == min(record.timestamp_ms for record in records)


def test_span_need_not_end_where_batches_do(tmp_path: Path) -> None:
    """An object may start and end inside a batch."""
    batches, records = make_batches(100, 40)
    store, described = put(tmp_path, batches, 110, 190)
    assert read(store, described, 110, 190) == records[10:90]


def test_plain_parquet_reads_it(tmp_path: Path) -> None:
    """Anybody's Parquet reader sees the rows and what they are."""
    batches, records = make_batches(50, 50)
    put(tmp_path, batches, 100, 150)
    table = pq.read_table(tmp_path / "store" / KEY)
    assert table.column("value").to_pylist() == [record.value for record in records]
    assert table.schema.metadata[b"rangelog.stream"] == b"s"


def test_a_gap_is_refused(tmp_path: Path) -> None:
    """A missing batch, or a missing end, makes no object."""
    batches, _ = make_batches(100, 20)
    for wrong, end in ((batches[:1] + batches[2:], 200), (batches, 300)):
        with pytest.raises(InvalidArgument):
            put(tmp_path, wrong, 100, end)


def test_every_damage_is_found(tmp_path: Path) -> None:
    """Flip a bit of every third byte of a small object, or cut it short: always Corruption, never other records."""
    batches, records = make_batches(60, 30)
    store, described = put(tmp_path, batches, 100, 160)
    path = tmp_path / "store" / KEY
    good = path.read_bytes()
    chance = random.Random(1)
    for position in range(len(b"PAR1"), len(good), 3):  # nobody looks at the leading magic
        path.write_bytes(good[:position] + bytes([good[position] ^ 1 << chance.randrange(8)]) + good[position + 1 :])
        with pytest.raises(Corruption):
            read(store, described, 100, 160)
    path.write_bytes(good)
    assert read(store, described, 100, 160) == records
    for length in range(0, len(good), 97):
        path.write_bytes(good[:length])
        with pytest.raises(Corruption):
            read(store, described, 100, 160)
    path.unlink()
    with pytest.raises(ObjectNotFound):
        read(store, described, 100, 160)


def test_another_objects_bytes_are_refused(tmp_path: Path) -> None:
    """A whole, valid object under the wrong key is Corruption, not another span's records."""
    batches, _ = make_batches(90, 30)
    _, other = put(tmp_path / "other", batches[:2], 100, 160)
    store, described = put(tmp_path / "this", batches[1:], 130, 190)
    (tmp_path / "this" / "store" / KEY).write_bytes((tmp_path / "other" / "store" / KEY).read_bytes())
    for name in ("size_bytes", "footer_size_bytes", "footer_crc"):
        setattr(described, name, getattr(other, name))
    with pytest.raises(Corruption, match="differs from"):
        read(store, described, 130, 190)


def test_objects_of_one_span_are_not_the_same_bytes(tmp_path: Path) -> None:
    """A store that answers with an earlier upload of the same span cannot pass it for a later one that it spoiled."""
    batches, _ = make_batches(20, 20)
    place = {"stream_id": 1, "range_index": 0, "start_offset": 100, "end_offset": 120}
    written = [
        write_object(tmp_path / f"{number}", iter(batches), stream_name="s", epoch=2, object_id=number, **place)
        for number in (1, 2)
    ]
    assert written[0].digest != written[1].digest
    store = FileStore(tmp_path / "store")
    store.put_if_absent(KEY, tmp_path / "1")
    described = common_pb2.Object(
        **place,
        object_id=2,
        key=KEY,
        size_bytes=written[0].size_bytes,
        footer_size_bytes=written[0].footer_size_bytes,
        footer_crc=written[0].footer_crc,
    )
    with pytest.raises(Corruption, match="differs from"):
        read(store, described, 100, 120)


def test_row_groups_are_bounded_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger object has several row groups; the index says what each holds, and only what is needed is fetched."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS_MAX", 13_000)
    batches, records = make_batches(30_000, 3_000)
    batches = [restamp_values(batch) for batch in batches]
    _, described = put(tmp_path, batches, 100, 30_100)
    assert [(group.start_offset, group.count) for group in described.row_groups] == [
        (100, 12_000),
        (12_100, 12_000),
        (24_100, 6_000),
    ]
    asked: list[tuple[int, int]] = []

    class Counting(FileStore):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            asked.append((start, length))
            return super().get_range(key, start, length)

    counted = Counting(tmp_path / "store")
    found = read(counted, described, 13_000, 13_010)
    assert [record.offset for record in found] == [record.offset for record in records[12_900:12_910]]
    assert len(asked) == 2  # the end and one row group
    assert asked[1][1] < described.size_bytes / 2


def restamp_values(batch: bytes) -> bytes:
    """The same offsets with values that do not compress, so that a row group is larger than an object's end."""
    header = check_batch(batch)
    chance = random.Random(header.base_offset)
    return encode_batch(
        stream_id=1,
        range_index=0,
        epoch=2,
        base_offset=header.base_offset,
        timestamps_ms=[header.base_offset] * header.count,
        values=[chance.randbytes(20) for _ in range(header.count)],
    )


def test_hostile_description_is_corruption(tmp_path: Path) -> None:
    """What the placement driver lists may be wrong: sizes that do not fit are Corruption."""
    batches, _ = make_batches(20, 20)
    store, described = put(tmp_path, batches, 100, 120)
    for name, value in (("size_bytes", 1 << 40), ("footer_size_bytes", described.size_bytes + 1), ("end_offset", 999)):
        wrong = common_pb2.Object()
        wrong.CopyFrom(described)
        setattr(wrong, name, value)
        with pytest.raises(Corruption):
            read(store, wrong, 100, 120)


@pytest.mark.parametrize("answer", [0, 1])
def test_a_store_that_answers_wrongly_once_is_asked_again(tmp_path: Path, answer: int) -> None:
    """Any byte of one answer may be wrong, or its end missing: the object is whole, and so is what is read of it."""
    batches, records = make_batches(20, 20)
    _, described = put(tmp_path, batches, 100, 120)

    class Wrong(FileStore):
        asked = 0
        place = 0

        def get_range(self, key: str, start: int, length: int) -> bytes:
            data = super().get_range(key, start, length)
            self.asked += 1
            if self.asked == answer + 1:
                place = self.place % len(data)
                data = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            elif self.asked == answer + 2:
                raise ObjectTooShort("a short answer")
            return data

    store = Wrong(tmp_path / "store")
    for store.place in range(0, described.size_bytes, 23):
        store.asked = 0
        assert read(store, described, 100, 120) == records


@pytest.mark.parametrize(
    "error", [ConfigInvalid("no credentials for s3://b: set AWS_ACCESS_KEY_ID"), InvalidArgument("x")]
)
def test_what_keeps_the_reader_from_the_store_is_not_taken_for_damage(tmp_path: Path, error: RangelogError) -> None:
    """Only an object that lacks bytes is damaged; a reader without credentials is told of those, each time."""
    batches, _ = make_batches(20, 20)
    _, described = put(tmp_path, batches, 100, 120)

    class Closed(FileStore):
        def get_range(self, key: str, start: int, length: int) -> bytes:
            raise error

    with pytest.raises(type(error), match=error.message):
        read(Closed(tmp_path / "store"), described, 100, 120)
