"""What a client's readers share of the tier, and that readers give up what they fetch ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rangelog._read import cold as cold_module
from rangelog._read.cold import ColdReader, ColdStores, cold_until
from rangelog._read.reader import Reader
from rangelog.protocol.reading import ReadPreference
from rangelog_core.errors import ConfigInvalid, Corruption, ObjectNotFound, Unavailable
from rangelog_proto.v1 import common_pb2
from rangelog_tier.file_store import FileStore
from rangelog_tier.parquet import write_object
from tests.support.made_batches import make_batches

START, PER_RANGE, RANGES = 100, 40, 3
END = START + PER_RANGE * RANGES
STREAM = common_pb2.Stream(stream_id=1, name="s")


class Driver:
    """The placement driver's part: a stream of sealed ranges, each one object in the store of a directory."""

    def __init__(self, directory: Path) -> None:
        batches, self.records = make_batches(PER_RANGE * RANGES, PER_RANGE, START)
        self.url = f"file://{directory / 'store'}"
        self.store = FileStore(directory / "store")
        self.listed: list[int] = []
        self.found: list[common_pb2.Object] = []
        self.ranges_found: list[common_pb2.Range] = []
        for number, batch in enumerate(batches):
            start = START + number * PER_RANGE
            place = {"stream_id": 1, "range_index": number, "start_offset": start, "end_offset": start + PER_RANGE}
            path = directory / str(number)
            written = write_object(path, [batch], stream_name="s", epoch=2, **place)
            described = common_pb2.Object(**place, key=f"object-{number}", size_bytes=written.size_bytes)
            described.footer_size_bytes, described.footer_crc = written.footer_size_bytes, written.footer_crc
            described.row_groups.extend(written.row_groups)
            self.store.put_if_absent(described.key, path)
            self.found.append(described)
            self.ranges_found.append(a_range(number, start, start + PER_RANGE, hot_dropped=True))

    async def tier_url(self) -> str:
        """See Metadata."""
        return self.url

    async def objects(self, stream_id: int, from_offset: int, page_size: int = 0) -> list[common_pb2.Object]:
        """See Metadata."""
        self.listed.append(from_offset)
        return [each for each in self.found if each.end_offset > from_offset][:page_size]

    async def ranges(
        self, name: str, from_offset: int, *, stream_id: int = 0
    ) -> tuple[common_pb2.Stream, Sequence[common_pb2.Range]]:
        """See Metadata."""
        return STREAM, [each for each in self.ranges_found if each.end_offset > from_offset]


def a_range(
    index: int, start: int, end: int, *, tiered: int | None = None, hot_dropped: bool = False
) -> common_pb2.Range:
    """A sealed range, in the tier as a whole unless it is said up to where."""
    return common_pb2.Range(
        index=index,
        start_offset=start,
        end_offset=end,
        tiered_end_offset=end if tiered is None else tiered,
        hot_dropped=hot_dropped,
        state=common_pb2.RANGE_STATE_SEALED,
    )


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    """See Driver."""
    return Driver(tmp_path)


def a_reader(driver: Any, cold: ColdReader, end: int = END) -> Reader:
    """A reader of the stream from its start."""
    options: dict[str, Any] = {"follow": False, "read_preference": "cold_only", "timeout_s": 0.0, "resolved": True}
    return Reader(driver, None, cold, None, "s", start=START, end=end, **options)  # type: ignore[arg-type]


async def test_a_reader_goes_through_all_ranges_with_one_list_of_objects(driver: Driver) -> None:
    """Objects of ranges behind the one being read come from the same page."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    found = [record async for record in a_reader(driver, ColdReader(driver, stores), END - 1)]  # type: ignore[arg-type]
    assert found == driver.records[:-1]
    assert driver.listed == [START]
    stores.close()


async def test_a_reader_that_is_left_gives_up_what_it_fetches(driver: Driver) -> None:
    """Left in the middle or ended by an error: nothing is held for it."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    cold = ColdReader(driver, stores)  # type: ignore[arg-type]
    chunks = a_reader(driver, cold).chunks()
    assert await anext(chunks) == driver.records[:PER_RANGE]  # type: ignore[arg-type]
    assert cold._ahead is not None
    await chunks.aclose()  # type: ignore[attr-defined]
    assert cold._ahead is None
    driver.store.delete("object-1")
    with pytest.raises(ObjectNotFound):
        async for _ in a_reader(driver, cold):
            pass
    assert cold._ahead is None
    assert not (await stores.fetcher())._used_bytes
    stores.close()


async def test_after_an_error_objects_are_asked_for_anew(driver: Driver) -> None:
    """An object that was replaced meanwhile is found under its new key."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    cold = ColdReader(driver, stores)  # type: ignore[arg-type]
    data = driver.store.get("object-1")
    driver.store.delete("object-1")
    _, position = await cold.read(STREAM, START, lambda: END)
    with pytest.raises(ObjectNotFound):
        await cold.read(STREAM, position, lambda: END)
    driver.store.put_if_absent("again", data)
    driver.found[1].key = "again"
    table, _ = await cold.read(STREAM, position, lambda: END)
    assert table.column("offset")[0].as_py() == position
    cold.close()
    stores.close()


def repack(driver: Driver, directory: Path, *, delete: bool = True) -> None:
    """Replace all objects by one, which belongs to the last range."""
    batches, _ = make_batches(PER_RANGE * RANGES, PER_RANGE, START)
    place = {"stream_id": 1, "range_index": RANGES - 1, "start_offset": START, "end_offset": END}
    written = write_object(directory / "joined", batches, stream_name="s", epoch=2, **place)
    driver.store.put_if_absent("joined", directory / "joined")
    for each in driver.found if delete else ():
        driver.store.delete(each.key)
    described = common_pb2.Object(**place, key="joined", size_bytes=written.size_bytes, row_groups=written.row_groups)
    described.footer_size_bytes, described.footer_crc = written.footer_size_bytes, written.footer_crc
    driver.found = [described]


async def test_objects_are_replaced_under_a_reader(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has listed them, and finds none of them any more: it lists again, and goes on in the one that has all records."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    list_objects = driver.objects

    async def repacked_meanwhile(stream_id: int, from_offset: int, page_size: int = 0) -> list[common_pb2.Object]:
        found = await list_objects(stream_id, from_offset, page_size)
        if len(driver.found) > 1:
            repack(driver, tmp_path)
        return found

    monkeypatch.setattr(driver, "objects", repacked_meanwhile)
    for start in (START, START + PER_RANGE + 3):
        reader = a_reader(driver, ColdReader(driver, stores))  # type: ignore[arg-type]
        reader._start = start
        assert [record async for record in reader] == driver.records[start - START :]
    stores.close()


async def test_objects_are_replaced_between_two_pages(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier ones are still in the store: the rows that it has from them are not read again from the new one."""
    monkeypatch.setattr(cold_module, "_OBJECTS_PAGE_SIZE", 2)
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    list_objects = driver.objects

    async def repacked_meanwhile(stream_id: int, from_offset: int, page_size: int = 0) -> list[common_pb2.Object]:
        found = await list_objects(stream_id, from_offset, page_size)
        if len(driver.found) > 1:
            repack(driver, tmp_path, delete=False)
        return found

    monkeypatch.setattr(driver, "objects", repacked_meanwhile)
    reader = a_reader(driver, ColdReader(driver, stores))  # type: ignore[arg-type]
    assert [record async for record in reader] == driver.records
    assert driver.listed == [START, START + 2 * PER_RANGE]
    stores.close()


async def test_a_time_in_an_object_of_several_ranges(driver: Driver, tmp_path: Path) -> None:
    """Is looked for in each range by itself: what is found lies in it."""
    repack(driver, tmp_path)
    (joined,) = driver.found
    del joined.row_groups[:]
    for number in range(4):  # not one for each range
        joined.row_groups.add(
            start_offset=START + number * 30, count=30, timestamp_ms_min=10 * number, timestamp_ms_max=10 * number + 9
        )
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    cold = ColdReader(driver, stores)  # type: ignore[arg-type]
    found = [[await cold.find_timestamp(STREAM, each, ms) for each in driver.ranges_found] for ms in (0, 25, 31, 60)]
    assert found == [[100, 140, 180], [None, 160, 180], [None, None, 190], [None, None, None]]
    cold.close()
    stores.close()


async def test_readers_share_one_store(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that begin at once open it once; another address is another store; closed, nobody gets one."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    one, two = await asyncio.gather(stores.fetcher(), stores.fetcher())
    assert one is two
    driver.url += "-other"
    Path(driver.url.removeprefix("file://")).mkdir()
    assert await stores.fetcher() is not one
    driver.url = ""
    with pytest.raises(ConfigInvalid):
        await stores.fetcher()
    stores.close()
    driver.url = "file:///tmp"
    with pytest.raises(Unavailable):
        await stores.fetcher()


async def test_a_hole_between_objects_is_corruption(driver: Driver) -> None:
    """Also for who looks for a time."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    cold = ColdReader(driver, stores)  # type: ignore[arg-type]
    del driver.found[1]
    _, position = await cold.read(STREAM, START, lambda: END)
    with pytest.raises(Corruption, match=f"no object covers offset {position}"):
        await cold.read(STREAM, position, lambda: END)
    whole = a_range(0, START, END)
    with pytest.raises(Corruption):
        await cold.find_timestamp(STREAM, whole, 1 << 50)
    stores.close()


async def test_a_time_is_found_over_several_pages(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row group that may hold it, or none."""
    monkeypatch.setattr(cold_module, "_OBJECTS_PAGE_SIZE", 2)
    cold = ColdReader(driver, ColdStores(driver, None))  # type: ignore[arg-type]
    whole = a_range(0, START, END)
    for number, each in enumerate(driver.found):
        each.row_groups[0].timestamp_ms_max = 1000 * (number + 1)
    assert await cold.find_timestamp(STREAM, whole, 1000) == START
    assert await cold.find_timestamp(STREAM, whole, 2001) == START + 2 * PER_RANGE
    assert await cold.find_timestamp(STREAM, whole, 3001) is None


async def test_a_time_is_looked_for_behind_what_was_trimmed(driver: Driver) -> None:
    """Objects may have lost the rows below the trim offset, which a range of before still has."""
    cold = ColdReader(driver, ColdStores(driver, None))  # type: ignore[arg-type]
    del driver.found[0]
    trimmed = common_pb2.Stream()
    trimmed.CopyFrom(STREAM)
    trimmed.trim_offset = START + PER_RANGE
    assert await cold.find_timestamp(trimmed, a_range(0, START, END), 0) == START + PER_RANGE


def test_reading_on_is_cold_until_a_range_is_read_elsewhere() -> None:
    """Ranges behind count while they follow without gap, are in the tier and are read from there first."""
    ranges = [
        a_range(0, 0, 10, hot_dropped=True),
        a_range(1, 10, 20, hot_dropped=True),
        a_range(2, 20, 30),
        a_range(3, 30, 40, tiered=35),
        a_range(4, 40, 50),
    ]
    assert cold_until(ranges, 0, ReadPreference.HOT_FIRST) == 20
    assert cold_until(ranges, 2, ReadPreference.HOT_FIRST) == 30
    assert cold_until(ranges, 0, ReadPreference.COLD_FIRST) == 35
    assert cold_until(ranges, 0, ReadPreference.COLD_ONLY) == 35
    assert cold_until([ranges[0], a_range(1, 10, 20, tiered=0)], 0, ReadPreference.COLD_ONLY) == 10


async def test_a_reader_hears_of_a_store_that_the_tier_got_meanwhile(driver: Driver, tmp_path: Path) -> None:
    """What is not where it looks is looked for in the tier as it is now."""
    stores = ColdStores(driver, None)  # type: ignore[arg-type]
    cold = ColdReader(driver, stores)  # type: ignore[arg-type]
    chunks = a_reader(driver, cold).chunks()
    assert await anext(chunks) == driver.records[:PER_RANGE]  # type: ignore[arg-type]
    cold.close()  # what was fetched ahead is given up
    (tmp_path / "store").rename(tmp_path / "moved")
    (tmp_path / "store").mkdir()
    driver.url = f"1=file://{tmp_path / 'moved'}"
    rest = [record async for chunk in chunks for record in chunk]
    assert rest == driver.records[PER_RANGE:]
    stores.close()
