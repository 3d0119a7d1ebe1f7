"""Reading objects one behind the other: the same rows as one by one, fetched before they are asked for, within bounds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from rangelog._read import object_fetcher
from rangelog._read.arrow_chunk import ArrowChunk, records_from_arrow
from rangelog._read.look_ahead import LookAhead, joined
from rangelog._read.object_fetcher import ObjectFetcher, Spare, parts, suitable_part
from rangelog_core.errors import Corruption, ObjectNotFound, Unavailable
from rangelog_core.record import Record
from rangelog_proto.v1 import common_pb2
from rangelog_tier import object_reader, parquet
from rangelog_tier.file_store import FileStore
from rangelog_tier.object_reader import ByteSpan, RowGroup
from rangelog_tier.object_store import ObjectTooShort
from rangelog_tier.parquet import write_object
from tests.support.made_batches import make_batches

START, PER_OBJECT, OBJECTS = 100, 90, 5
END = START + PER_OBJECT * OBJECTS
PATIENCE_S = 20.0


class Watched(FileStore):
    """Notes what is asked of it; `spoil` may change what it answers."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.asked: list[tuple[str, int, int]] = []
        self.spoil: Callable[[str, int, memoryview], None] = lambda key, start, target: None

    def read_into(self, key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        self.asked.append((key, start, len(target)))
        took_s = super().read_into(key, start, target, stopped)
        self.spoil(key, start, target)
        return took_s


class Tiered:
    """A stream of which everything is in a store, in several objects with several row groups each."""

    def __init__(self, directory: Path) -> None:
        batches, self.records = make_batches(PER_OBJECT * OBJECTS, 30, START)
        self.store = Watched(directory / "store")
        self.objects: list[common_pb2.Object] = []
        for number, start in enumerate(range(START, END, PER_OBJECT)):
            path = directory / str(number)
            place = {"stream_id": 1, "range_index": number, "start_offset": start, "end_offset": start + PER_OBJECT}
            written = write_object(path, batches[number * 3 : number * 3 + 3], stream_name="s", epoch=2, **place)
            described = common_pb2.Object(**place, key=f"object-{number}", size_bytes=written.size_bytes)
            described.digest = written.digest
            described.footer_size_bytes, described.footer_crc = written.footer_size_bytes, written.footer_crc
            self.store.put_if_absent(described.key, path)
            self.objects.append(described)
        self.fetcher = ObjectFetcher(self.store)

    async def listed(self, position: int) -> Sequence[common_pb2.Object]:
        """Two at a time, as a placement driver gives pages."""
        return [each for each in self.objects if each.end_offset > position][:2]

    def read(self, start: int = START, end: int = END) -> LookAhead:
        """Begin to read."""
        return LookAhead(self.fetcher, self.listed, start, end)


@pytest.fixture
async def tiered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tiered]:
    """See Tiered; row groups of 30 records."""
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS_MAX", 30)
    found = Tiered(tmp_path)
    yield found
    found.fetcher.close()


async def rest(ahead: LookAhead) -> list[Record]:
    """All records up to the end; closes it."""
    found: list[Record] = []
    try:
        while (table := await asyncio.wait_for(ahead.next(), PATIENCE_S)) is not None:
            found += records_from_arrow(table)
    finally:
        ahead.close()
    return found


def in_tails_and_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every object one that is too large to be asked for at once."""
    monkeypatch.setattr(object_reader, "WHOLE_BYTES_MAX", 10)
    monkeypatch.setattr(object_reader, "_TAIL_READ_BYTES", 10)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("part_bytes", [64 << 20, 100])
async def test_rows_come_in_order_whatever_the_requests(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch, part_bytes: int, large: bool
) -> None:
    """Any span: from the middle of a row group, across objects, in one request each or in many."""
    if large:
        in_tails_and_row_groups(monkeypatch)
    for start, end in ((START, END), (START + 41, END - 7), (START + 95, START + 96), (END - 1, END)):
        tiered.fetcher.part_bytes = part_bytes
        assert await rest(tiered.read(start, end)) == tiered.records[start - START : end - START]
    assert max(size for _, _, size in tiered.store.asked) <= part_bytes
    assert not tiered.fetcher._used_bytes


async def test_only_what_is_wanted_is_fetched(tiered: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an object that is wanted in part: its end and the row groups concerned, those that follow each other as one."""
    in_tails_and_row_groups(monkeypatch)
    await rest(tiered.read(START + 31, START + 89))
    (_, tail, tail_size), (_, first, size) = tiered.store.asked
    assert tail + tail_size == tiered.objects[0].size_bytes
    assert 4 < first < first + size <= tail


async def test_the_next_objects_are_fetched_meanwhile(tiered: Tiered) -> None:
    """While the first rows are looked at, all that there is room for is asked for, by nobody's doing."""
    asked, loop = asyncio.Event(), asyncio.get_running_loop()
    last = tiered.objects[-1].key
    tiered.store.spoil = lambda key, *_: key == last and loop.call_soon_threadsafe(asked.set)  # type: ignore[func-returns-value]
    ahead = tiered.read()
    assert await ahead.next() is not None
    await asyncio.wait_for(asked.wait(), PATIENCE_S)
    ahead.close()


async def test_what_is_ahead_is_bounded(tiered: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for and not yet handed out is never more than there is room for."""
    size = max(each.size_bytes for each in tiered.objects)
    monkeypatch.setattr(object_fetcher, "BYTES_MAX", 2 * size)
    most = 0
    given = START

    def watch(key: str, *_: object) -> None:
        nonlocal most
        handed_out = (given - START) // PER_OBJECT
        most = max(most, int(key.rpartition("-")[2]) + 1 - handed_out)

    tiered.store.spoil = watch
    ahead = tiered.read()
    while (table := await ahead.next()) is not None:
        given += table.num_rows
    ahead.close()
    assert given == END
    assert 2 <= most <= 3  # two, and one more whose room was made by the row group that is decoded ahead


async def test_a_reader_that_stands_still_holds_up_no_other(tiered: Tiered, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all room taken by another reader, one goes on with one span at a time."""
    monkeypatch.setattr(object_fetcher, "BYTES_MAX", 1)
    idle = tiered.read()
    assert await idle.next() is not None
    assert await rest(tiered.read()) == tiered.records
    idle.close()
    assert not tiered.fetcher._used_bytes


async def test_what_goes_wrong_ahead_is_raised_in_its_turn(tiered: Tiered) -> None:
    """A missing object, or one that nobody lists, is no reason to withhold what is before it."""
    tiered.store.delete(tiered.objects[2].key)
    for expected in (ObjectNotFound, Corruption):
        ahead = tiered.read()
        found: list[Record] = []
        with pytest.raises(expected):
            while (table := await ahead.next()) is not None:
                found += records_from_arrow(table)
        ahead.close()
        assert found == tiered.records[: 2 * PER_OBJECT]
        del tiered.objects[2:3]


@pytest.mark.parametrize("large", [False, True])
async def test_bytes_that_come_wrong_or_short_are_asked_for_again(
    tiered: Tiered, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    """Any byte of an answer may be wrong, or the rest of it missing: what is read is right."""
    if large:
        in_tails_and_row_groups(monkeypatch)
    end = START + PER_OBJECT

    def spoil(key: str, start: int, target: memoryview) -> None:
        if start <= place < start + len(target):
            target[place - start] ^= 1
            if place % 2:
                raise ObjectTooShort("a short answer")

    tiered.store.spoil = spoil
    for each in range(4, tiered.objects[0].size_bytes, 37):
        place = each
        assert await rest(tiered.read(START, end)) == tiered.records[:PER_OBJECT]


async def test_what_stays_wrong_is_corruption(tiered: Tiered) -> None:
    """The store holds other bytes than were written: no rows of them."""
    key = tiered.objects[0].key
    path = tiered.store._path(key)
    data = path.read_bytes()
    path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    with pytest.raises(Corruption):
        await rest(tiered.read())


async def test_closing_leaves_no_thread_busy(tiered: Tiered) -> None:
    """A thread in the middle of a request ends at its next piece, and the room that was taken is given back."""
    under_way, ended, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def hang(key: str, start: int, target: memoryview, stopped: Callable[[], bool]) -> float:
        loop.call_soon_threadsafe(under_way.set)
        while not stopped():
            pass
        ended.set()
        raise Unavailable("stopped")

    tiered.store.read_into = hang  # type: ignore[method-assign]
    ahead = tiered.read()
    waiting = asyncio.create_task(ahead.next())
    await asyncio.wait_for(under_way.wait(), PATIENCE_S)
    ahead.close()
    waiting.cancel()
    assert await asyncio.to_thread(ended.wait, PATIENCE_S)
    assert not tiered.fetcher._used_bytes
    assert not ahead._held


async def test_a_client_that_is_closed_keeps_no_reader_waiting(tiered: Tiered) -> None:
    """Requests that wait for a thread never begin; the reader is told, and so is one that comes later."""
    under_way, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    def hang(key: str, start: int, target: memoryview) -> None:
        loop.call_soon_threadsafe(under_way.set)
        go_on.wait(PATIENCE_S)

    tiered.store.spoil = hang
    tiered.fetcher.part_bytes = 100
    ahead = tiered.read()
    await asyncio.wait_for(under_way.wait(), PATIENCE_S)
    tiered.fetcher.close()
    go_on.set()
    for reading in (ahead, tiered.read()):
        with pytest.raises(Unavailable, match=r"closed|was cancelled"):
            await asyncio.wait_for(reading.next(), PATIENCE_S)
        reading.close()


def test_a_stopped_read_ends_between_two_pieces(tmp_path: Path) -> None:
    """A store's thread looks whether anybody still wants what it reads."""
    store = FileStore(tmp_path)
    store.put_if_absent("o", bytes(5 << 20))
    pieces = iter((False, False, True))
    target = memoryview(bytearray(b"\1") * (5 << 20))
    with pytest.raises(Unavailable):
        store.read_into("o", 0, target, lambda: next(pieces))
    assert bytes(target[: 2 << 20]) == bytes(2 << 20)
    assert set(target[2 << 20 :]) == {1}


def test_parts_are_even_and_cover_the_span() -> None:
    """No request is larger than asked for, and none is a small rest."""
    found = parts(ByteSpan(10, 110), 30)
    assert [each.begin for each in found] == [10, 35, 60, 85]
    assert [each.end for each in found] == [35, 60, 85, 110]
    assert parts(ByteSpan(5, 5), 30) == []


def test_requests_suit_the_store() -> None:
    """A store that sends slowly gets small ones, several at once; one that takes long to begin gets large ones."""
    large, small = object_fetcher.PART_BYTES_MAX, object_fetcher.PART_BYTES_MIN
    size = 16 << 20

    def settled(came_s: float, waited_s: float) -> int:
        part = object_fetcher.PART_BYTES_FIRST
        for _ in range(40):
            part = suitable_part(size, came_s, waited_s, part)
        return part

    assert settled(came_s=size / 10e6, waited_s=0.02) == small
    assert settled(came_s=size / 90e6, waited_s=0.02) == pytest.approx(90e6 * object_fetcher.PART_S, rel=0.01)
    assert settled(came_s=size / 500e6, waited_s=0.1) == large
    assert settled(came_s=0.0, waited_s=0.0) == large
    assert suitable_part(100, 1.0, 1.0, size) == size  # a small answer says nothing


def test_memory_is_used_again_unless_somebody_looks_at_it() -> None:
    """What a table may still point into is not written over."""
    spare = Spare()
    buffer = spare.take(3 << 20)
    assert len(buffer) >= 3 << 20
    with memoryview(buffer):
        spare.give(buffer)
        assert spare.take(100) is not buffer
    assert spare.take(5 << 20) is not buffer
    assert spare.take(100) is buffer
    assert spare.take(100) is not buffer


def test_row_groups_are_joined_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours share a request; one that is larger than the bound has its own."""
    edges = [0, 10 << 20, 20 << 20, 60 << 20, 61 << 20]
    groups = [RowGroup(n, n, 1, ByteSpan(low, high)) for n, (low, high) in enumerate(pairwise(edges))]
    assert [[each.number for each in run] for run in joined(groups)] == [[0, 1], [2], [3]]


async def test_a_chunk_is_a_sequence_of_records(tiered: Tiered) -> None:
    """Length, iteration and indexing are those of a list of the records."""
    ahead = tiered.read()
    table = await ahead.next()
    ahead.close()
    chunk, expected = ArrowChunk(table), tiered.records[:30]
    assert chunk == expected
    assert (len(chunk), chunk[0], chunk[-1], chunk[3:9:2]) == (30, expected[0], expected[-1], expected[3:9:2])
    assert expected[4] in chunk
    with pytest.raises(IndexError):
        chunk[30]
