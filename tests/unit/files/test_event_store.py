"""A stream of event files by its public verbs: written and read, truncated, its properties changed while it is used."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rangelog
from rangelog_core.errors import (
    ConfigInvalid,
    Corruption,
    InvalidArgument,
    MissingExtra,
    PreconditionFailed,
    StreamExists,
    StreamNotFound,
    WriterClosed,
)
from rangelog_files.event_store import EventStore, open_files
from rangelog_files.merging import FilePosition
from rangelog_files.property_store import PropertyWatch
from rangelog_files.stream_properties import EventStreamProperties, decode_properties
from tests.unit.files.written_events import DAY_MS, START_MS, StoodClock, WrittenStream


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EventStore]:
    async with rangelog.open_files(f"file://{tmp_path}/who", create=True, look_interval_s=0.05) as opened:
        yield opened


async def _values(store: EventStore, **options: object) -> list[bytes]:
    return [record.value async for record in store.reader(**options)]  # type: ignore[arg-type]


async def test_r6_what_is_written_is_read_with_times_keys_and_headers(store: EventStore) -> None:
    """An event without a time of its own has that of its block."""
    async with store.writer() as writer:
        ack = await writer.append(b"a", key=b"k", headers={"h": b"1"}, timestamp=datetime(2020, 1, 1, tzinfo=UTC))
        await writer.append(b"b")
    first, second = [record async for record in store.reader()]
    assert (first.path, first.offset, first.written_ms) == ack
    assert (first.value, first.key, first.headers) == (b"a", b"k", {"h": b"1"})
    assert first.timestamp == datetime(2020, 1, 1, tzinfo=UTC)
    assert (second.value, second.key, second.headers, second.timestamp_ms) == (b"b", None, {}, second.written_ms)


async def test_r13_a_reader_that_follows_sees_two_writers(store: EventStore) -> None:
    """Twenty events of two writers while both are open; a later reader goes on at its position."""
    async with store.writer() as one, store.writer() as two:
        reader = store.reader(follow=True)
        events = reader.__aiter__()
        for number in range(20):
            await (one, two)[number % 2].append(b"%d" % number)
        found = [(await asyncio.wait_for(anext(events), 30)).value for _ in range(20)]
        assert sorted(found, key=int) == [b"%d" % number for number in range(20)]
        position = reader.position()
        await one.append(b"later")
    assert await _values(store, start=position) == [b"later"]


async def test_r14_a_read_that_is_cancelled_loses_nothing(store: EventStore) -> None:
    """A wait that ran out, and then the event."""
    async with store.writer() as writer:
        batches = store.reader(follow=True).batches()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(batches), 0.0)
        await writer.append(b"1")
    batches = store.reader(follow=True).batches()
    assert [each.value for each in await asyncio.wait_for(anext(batches), 30)] == [b"1"]


async def test_starts(tmp_path: Path) -> None:
    """Times, shares, and starts that are refused."""
    clock = StoodClock()
    async with open_files(f"file://{tmp_path}/who", create=True, clock_ms=clock) as store:
        async with store.writer() as writer:
            for number in range(5):
                await writer.append(b"%d" % number)
                clock.now_ms += 60_000
        start = datetime.fromtimestamp(START_MS / 1_000, UTC)
        assert await _values(store, start=start + timedelta(minutes=3)) == [b"3", b"4"]
        assert await _values(store, start=start, end=start + timedelta(minutes=2)) == [b"0", b"1"]
        assert await _values(store, start=timedelta(minutes=2)) == [b"3", b"4"]
        assert await _values(store, start="latest") == []
        assert len(await _values(store)) == 5
        shares = [await _values(store, share=(number, 2)) for number in range(2)]
        assert sorted(shares[0] + shares[1]) == [b"0", b"1", b"2", b"3", b"4"]
        for bad in (7, "now", datetime(2020, 1, 1), timedelta(seconds=-1), [("a", 1)]):
            with pytest.raises(InvalidArgument):
                store.reader(start=bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument):
            store.reader(follow=True, end=start)
        with pytest.raises(InvalidArgument):
            await _values(store, start=[FilePosition("other/00001/1401408000.86400/a.000000.dat", 0)])


# ---- generations


async def test_r22_a_truncation_hides_all_events_before_it(store: EventStore) -> None:
    """A new reader sees none of them, and an open writer goes on in the new generation."""
    async with store.writer() as writer:
        await writer.append(b"old")
        assert await store.truncate() == 2
        assert await _values(store) == []
        ack = await writer.append(b"new")
    assert ack.path.startswith("who/00002/")
    assert await _values(store) == [b"new"]


async def test_r22_truncated_under_load_by_two_callers(store: EventStore) -> None:
    """Each call raises the generation by one; what is acked after the last of them is in the last generation."""
    events: list[tuple[int, bytes, str]] = []  # as acked
    stop = threading.Event()

    with store.threaded_writer() as one, store.threaded_writer() as two, ThreadPoolExecutor(8) as pool:

        def load(number: int) -> None:
            count = 0
            while not stop.is_set():
                body = b"%d-%d" % (number, count)
                events.append((number, body, (one, two)[number % 2].append(body).path))
                count += 1

        done = [pool.submit(load, number) for number in range(6)]
        try:
            numbers: list[int] = []
            for _ in range(5):
                numbers += await asyncio.gather(store.truncate(), store.truncate())
            last = [body for _, body, _ in list(events)]
            wanted = len(last) + 60
            while len(events) < wanted:
                await asyncio.sleep(0)
        finally:
            stop.set()
        for each in done:
            each.result(60)
    assert sorted(numbers) == list(range(2, 12))
    assert (await store.properties()).generation == 11
    found = await _values(store)
    before = set(last)
    # A call that was under way as the last truncation returned may be of the generation before: at most one of each thread.
    first_after = {
        number: next(body for of, body, _ in events if of == number and body not in before) for number in range(6)
    }
    for number, body, path in events:
        if body not in before and body != first_after[number]:
            assert path.startswith("who/00011/"), "acked in a generation that was over when it was appended"
            assert body in found
    assert len(found) == len(set(found))


async def test_r22_a_reader_that_follows_goes_on_in_the_next_generation(store: EventStore) -> None:
    """Without being opened again."""
    async with store.writer() as writer:
        await writer.append(b"old")
        reader = store.reader(follow=True)
        events = reader.__aiter__()
        assert (await anext(events)).value == b"old"
        await store.truncate()
        await writer.append(b"new")
        assert (await asyncio.wait_for(anext(events), 30)).value == b"new"
        assert reader.generation == 2


async def test_r22_dropped_generations_are_removed(store: EventStore, tmp_path: Path) -> None:
    """Their directories are gone, and the open writer is not disturbed."""
    async with store.writer() as writer:
        await writer.append(b"old")
        await store.truncate()
        assert await store.drop_unread() == ["who/00001"]
        await writer.append(b"new")
    assert await _values(store) == [b"new"]
    assert not (tmp_path / "who/00001").exists()


async def test_r22_files_without_properties_are_read_in_their_last_generation(
    store: EventStore, tmp_path: Path
) -> None:
    """Copied files have none; a stream made over them keeps the generation."""
    async with store.writer() as writer:
        await writer.append(b"old")
        await store.truncate()
        await writer.append(b"new")
    (tmp_path / "who/properties.json").unlink()
    assert await _values(store) == [b"new"]
    assert (await store.create(ttl_s=60.0)).generation == 2


# ---- properties


async def test_r23_of_two_changes_from_one_version_one_wins(store: EventStore) -> None:
    """The other one raises PreconditionFailed and changes nothing."""
    version = (await store.properties()).version
    results = await asyncio.gather(
        *(store.change_properties(version, writers=number) for number in (3, 4)), return_exceptions=True
    )
    won = [each for each in results if isinstance(each, EventStreamProperties)]
    assert len(won) == 1 and sum(isinstance(each, PreconditionFailed) for each in results) == 1
    assert (await store.properties()).writers == won[0].writers
    assert won[0].version == version + 1


async def test_r23_changes_of_any_version_are_all_made(store: EventStore) -> None:
    """Ten at once are ten versions."""
    await asyncio.gather(*(store.change_properties(writers=number + 1) for number in range(10)))
    assert (await store.properties()).version == 11


def test_r23_a_lost_notice_costs_one_interval(tmp_path: Path) -> None:
    """The file looks unchanged, and yet is read again after the interval."""
    stream = WrittenStream(tmp_path)
    now_s = 0.0
    same = os.stat(tmp_path)
    watch = PropertyWatch(stream.properties, tmp_path, interval_s=1.0, clock_s=lambda: now_s, stat=lambda path: same)
    assert watch.look().generation == 1
    stream.properties.truncate()
    assert watch.look().generation == 1, "the notice is not lost: this test tests nothing"
    now_s = 1.0
    assert watch.look().generation == 2


def test_r23_a_change_is_seen_at_the_next_look(tmp_path: Path) -> None:
    """Each of twenty truncations, without waiting."""
    stream = WrittenStream(tmp_path)
    watch = stream.watch()
    for generation in range(1, 20):
        assert watch.look().generation == generation
        stream.properties.truncate()


async def test_r24_ttl_is_changed_while_it_is_read(tmp_path: Path) -> None:
    """A reader that follows, new readers, and the removal of what is too old."""
    clock = StoodClock()
    opened = open_files(f"file://{tmp_path}/who", create=True, look_interval_s=0.0, clock_ms=clock)
    async with opened as store, store.writer() as writer:
        await writer.append(b"old")
        clock.now_ms += 100_000
        reader = store.reader(follow=True)
        events = reader.__aiter__()
        assert (await anext(events)).value == b"old"
        await store.change_properties(ttl_s=50.0)
        await writer.append(b"new")
        assert (await asyncio.wait_for(anext(events), 30)).value == b"new"
        assert await _values(store) == [b"new"]
        await store.change_properties(ttl_s=None)
        assert await _values(store) == [b"old", b"new"]
        clock.now_ms += 3 * DAY_MS
        await writer.append(b"days later")
        await store.change_properties(ttl_s=60.0)
        assert len(await store.drop_unread()) == 1
        assert await _values(store) == [b"days later"]


async def test_r24_writers_are_added_and_removed_without_loss(store: EventStore) -> None:
    """A writer too many is refused with a known outcome, and the acked events stay."""
    await store.change_properties(writers=1)
    async with store.writer() as one:
        with pytest.raises(PreconditionFailed, match="1 writers"):
            await store.writer().open()
        await store.change_properties(writers=2)
        two = store.writer()
        await two.open()
        await one.append(b"1")
        await two.append(b"2")
        await store.change_properties(writers=1)
        with pytest.raises(WriterClosed) as caught:
            await two.append(b"3")
        assert not caught.value.outcome_unknown
        await one.append(b"3")
        await two.close(flush=False)
    assert sorted(await _values(store)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "values", [{"generation": 7}, {"ttl_s": 0}, {"ttl_s": "1"}, {"writers": 0}, {"writers": True}, {"partition_s": -1}]
)
async def test_r23_a_bad_property_is_refused(store: EventStore, values: dict[str, object]) -> None:
    """Before anything is changed."""
    with pytest.raises(ConfigInvalid):
        await store.change_properties(**values)  # type: ignore[arg-type]
    assert (await store.properties()).version == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b"[" * 100_000, b'{"version": 1}', b'{"version": "1", "generation": 1}', b"\xff",
     b'{"version": 1, "generation": 99999999999999999999}', b" " * 100_000],
)  # fmt: skip
def test_r23_a_damaged_file_of_properties_is_named(data: bytes) -> None:
    """A typed error, however it is damaged."""
    with pytest.raises(Corruption, match=r"who/properties\.json"):
        decode_properties(data, "who/properties.json")


def test_r23_unknown_properties_are_kept() -> None:
    """Those of a later version outlive a change by this one."""
    found = decode_properties(b'{"version": 1, "generation": 2, "owner": "me"}', "x")
    assert decode_properties(found.changed(ttl_s=5).truncated().encode(), "x").others == {"owner": "me"}


# ---- opening


@pytest.mark.parametrize("url", ["", "who", "http://a/b", "file://host/a/b", "file:///who", "file://", "s3:"])
def test_a_bad_url_is_refused(url: str) -> None:
    """By a typed error, as the function is called."""
    with pytest.raises((ConfigInvalid, InvalidArgument)):
        rangelog.open_files(url)


async def test_a_stream_is_made_once_and_not_by_who_only_opens_it(tmp_path: Path) -> None:
    """A reader and a writer of a missing stream leave no directory behind."""
    async with rangelog.open_files(f"file://{tmp_path}/who") as store:
        with pytest.raises(StreamNotFound):
            await _values(store)
        with pytest.raises(StreamNotFound):
            await store.writer().open()
        assert list(tmp_path.glob("who/*")) == []
        await store.create(ttl_s=5.0, writers=2)
        with pytest.raises(StreamExists):
            await store.create()
        assert await _values(store) == []


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """MissingExtra, as the function is called."""
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtra, match=r"pip install 'rangelog\[files\]'"):
        rangelog.open_files("file:///data/who")
