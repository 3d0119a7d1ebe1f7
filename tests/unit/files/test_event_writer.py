"""Writers of event files: sequences, partitions, locks, flushes, and a disk that is full at any call."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from rangelog_core.errors import (
    AccessDenied,
    InvalidArgument,
    Overloaded,
    PreconditionFailed,
    RangelogError,
    RecordTooLarge,
    StorageFull,
    StreamNotFound,
    WriterClosed,
)
from rangelog_core.record import AppendRecord
from rangelog_files.event_writer import EventWriter
from rangelog_files.events import Event
from rangelog_files.index_file import parse_index
from rangelog_files.stream_properties import EventStreamProperties
from tests.support.waiting import until
from tests.unit.files.written_events import DAY_MS, START_MS, STREAM, WrittenStream, no_room_at

FOLDER = f"{STREAM}/00001/1401408000.86400"


@pytest.fixture
def stream(tmp_path: Path) -> WrittenStream:
    return WrittenStream(tmp_path)


def test_r5_each_start_opens_the_next_sequence_and_old_files_stay(stream: WrittenStream) -> None:
    """Five starts: 000000 to 000004, and no byte of an earlier file changes."""
    before: dict[str, bytes] = {}
    for number in range(5):
        with stream.writer() as writer:
            ack = writer.append(b"%d" % number)
        assert ack.path == f"{FOLDER}/file.0.{number:06}.dat"
        for path, content in before.items():
            assert (stream.root / path).read_bytes() == content
        before[ack.path] = (stream.root / ack.path).read_bytes()
    assert stream.bodies() == [b"0", b"1", b"2", b"3", b"4"]


def test_r2_an_event_is_written_to_its_file_and_nowhere_else(stream: WrittenStream) -> None:
    """No entry of any other store for each event: of 1,000 events one write and one flush each, an index entry now and then."""
    with stream.writer() as writer:
        ack = writer.append(b"first")
        stream.files.calls.clear()
        before = {
            path: path.read_bytes() for path in stream.root.rglob("*") if path.is_file() and path.suffix != ".idx"
        }
        for _ in range(1_000):
            writer.append(b"x" * 100)
        assert {"write", "flush"} == set(stream.files.calls)
        assert 1_000 <= stream.files.calls.count("write") <= 1_100
        changed = [path for path, content in before.items() if path.read_bytes() != content]
        assert changed == [stream.root / ack.path]


def test_r5_a_writer_without_an_event_makes_no_file(stream: WrittenStream) -> None:
    """Opening takes the lock alone."""
    with stream.writer():
        pass
    assert stream.paths() == []


def test_r6_a_closed_file_has_an_end_mark_with_its_time(stream: WrittenStream) -> None:
    """An open one has no end mark; key, header and time are in the file."""
    with stream.writer() as writer:
        ack = writer.append(b"a", key=b"k", headers={"h": b"1"}, timestamp=1_700_000_000_000)
        assert stream.decoder(ack.path)[0].ended is None
        stream.clock.now_ms += 1_500
    decoder, found = stream.decoder(ack.path)
    assert decoder.ended is not None and decoder.ended.closed_ms == START_MS + 1_500
    assert [each.event for each in found] == [Event(b"a", {"h": b"1"}, b"k", 1_700_000_000_000)]
    assert found[0][:3] == ack


def test_r3_partitions_follow_the_clock_and_a_clock_that_goes_back_reopens_none(stream: WrittenStream) -> None:
    """Over midnight, an hour back, and a start while it is back."""
    stream.clock.now_ms = START_MS + DAY_MS - 1
    with stream.writer() as writer:
        first = writer.append(b"late")
        stream.clock.now_ms += 1
        second = writer.append(b"next day")
        stream.clock.now_ms += 600_000
        later = writer.append(b"ten minutes later")
        stream.clock.now_ms -= 3_600_000
        third = writer.append(b"an hour back")
    with stream.writer() as writer:
        fourth = writer.append(b"an hour back, started again")
    assert first.path == f"{FOLDER}/file.0.000000.dat"
    next_day = f"{STREAM}/00001/1401494400.86400"
    assert [each.path for each in (second, third, fourth)] == [f"{next_day}/file.0.00000{n}.dat" for n in (0, 0, 1)]
    times = [each.timestamp_ms for each in (first, second, later, third)]
    assert times == sorted(times)
    assert fourth.timestamp_ms >= second.timestamp_ms
    assert stream.decoder(first.path)[0].ended is not None, "the file of the day before has no end mark"


def test_r7_an_index_has_an_entry_each_interval(tmp_path: Path) -> None:
    """About ten entries for 100 blocks, and each is the place of a block."""
    stream = WrittenStream(tmp_path, EventStreamProperties(index_interval_bytes=1_000))
    with stream.writer() as writer:
        for _ in range(100):
            ack = writer.append(b"x" * 100)
            stream.clock.now_ms += 1
    decoder, found = stream.decoder(ack.path)
    assert decoder.properties is not None
    index = parse_index((tmp_path / ack.path.replace(".dat", ".idx")).read_bytes(), decoder.properties.values["id"])
    begins = {each.timestamp_ms: each.offset for each in found}
    assert 8 <= len(index.entries) <= 20
    assert all(begins[entry.timestamp_ms] == entry.offset for entry in index.entries)


def test_r4_two_writers_on_one_prefix_the_second_is_refused_and_told_whose_it_is(stream: WrittenStream) -> None:
    """Until the first is closed; another prefix is free."""
    with stream.writer("a"):
        with pytest.raises(PreconditionFailed, match=f"process {os.getpid()} on "), stream.writer("a"):
            pass
        with stream.writer("b") as other:
            other.append(b"1")
    with stream.writer("a") as again:
        again.append(b"2")
    assert [path.rpartition("/")[2] for path in stream.paths()] == ["a.000000.dat", "b.000000.dat"]


def test_r4_writers_without_a_prefix_share_no_file(stream: WrittenStream) -> None:
    """Each takes the first free number."""
    with stream.writer(None) as one, stream.writer(None) as two:
        assert one.append(b"1").path != two.append(b"2").path
        assert (one.prefix, two.prefix) == ("file.0", "file.1")
    with stream.writer(None) as three:
        assert three.prefix == "file.0"


def test_r8_an_ack_comes_after_the_flush_of_the_file_and_of_the_names_that_lead_to_it(stream: WrittenStream) -> None:
    """By the calls of the file system, in their order."""
    with stream.writer() as writer:
        stream.files.calls.clear()
        writer.append(b"1")
        first, stream.files.calls[:] = list(stream.files.calls), []
        writer.append(b"2")
        assert stream.files.calls == ["write", "flush"], "an ack without a flush"
    made = [position for position, call in enumerate(first) if call == "create"]
    assert len(made) == 2 and "flush_directory" in first[made[-1] :], "the names of new files are not flushed"
    assert first[-1] == "flush"
    assert first.count("flush_directory") == 4, "stream, generation and partition are names as well"


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_r8_a_disk_that_fails_at_any_call_costs_what_was_not_acked(tmp_path: Path, error: int) -> None:
    """The workload makes about 30 calls; in run n the n-th fails, in a write after half of its bytes."""
    wanted = {errno.ENOSPC: StorageFull, errno.EDQUOT: StorageFull, errno.EROFS: AccessDenied}.get(error)
    number = 0
    while True:
        stream = WrittenStream(tmp_path / str(number))
        stream.files.fails = lambda call, at, n=number: error if at == n else None  # type: ignore[misc]
        acked, refused = _appended(stream)
        failed = len(stream.files.calls) > number
        found = stream.bodies()
        assert len(found) == len(set(found)), "an event is there twice"
        assert set(acked) <= set(found), f"call {number} ({stream.files.calls[number]}): an acked event is lost"
        known = [body for body, told in refused if not told.outcome_unknown]
        assert not set(known) & set(found), "an event that is said to be in no file is in one"
        assert len(refused) <= 1 and (not refused or wanted is None or isinstance(refused[0][1], wanted))
        if not failed:
            break
        number += 1
    assert number > 20 and len(acked) == 8


def _appended(stream: WrittenStream) -> tuple[list[bytes], list[tuple[bytes, RangelogError]]]:
    acked: list[bytes] = []
    refused: list[tuple[bytes, RangelogError]] = []
    try:
        writer = stream.writer()
        writer.__enter__()
    except RangelogError:
        writer = stream.writer()
        writer.__enter__()
    for number in range(8):
        body = b"event %d" % number
        try:
            writer.append(body)
            acked.append(body)
        except RangelogError as error:
            refused.append((body, error))
        if number == 4:
            stream.clock.now_ms += DAY_MS
    try:
        writer.close()
    except RangelogError:
        assert len(acked) == 8, "two errors of one fault"
    return acked, refused


def test_r11_after_a_failed_flush_the_file_is_given_up(stream: WrittenStream) -> None:
    """It gets no further byte and no end mark; the next event is in the next sequence."""
    with stream.writer() as writer:
        first = writer.append(b"1")
        stream.files.fails = lambda call, at: errno.EIO if call == "flush" else None
        with pytest.raises(RangelogError) as caught:
            writer.append(b"2")
        assert caught.value.outcome_unknown
        content = (stream.root / first.path).read_bytes()
        stream.files.fails = lambda call, at: None
        third = writer.append(b"3")
    assert (stream.root / first.path).read_bytes() == content, "a file was written to after its flush had failed"
    assert third.path == f"{FOLDER}/file.0.000001.dat"
    assert stream.decoder(first.path)[0].ended is None


def test_a_full_disk_is_not_filled_with_empty_files(stream: WrittenStream) -> None:
    """Three tries leave no file."""
    stream.files.fails = lambda call, at: errno.ENOSPC if call == "write" else None
    with stream.writer() as writer:
        for _ in range(3):
            with pytest.raises(StorageFull):
                writer.append(b"1")
    assert stream.paths() == []


def test_r7_an_index_that_cannot_be_written_costs_no_event(tmp_path: Path) -> None:
    """The index ends there, and the event file goes on."""
    stream = WrittenStream(tmp_path, EventStreamProperties(index_interval_bytes=1))
    with stream.writer() as writer:
        writer.append(b"1")
        stream.files.calls.clear()
        stream.files.fails = no_room_at(1)
        writer.append(b"2")
        assert stream.files.calls == ["write", "write", "flush"], "the second write is that of the index"
        writer.append(b"3")
    assert stream.bodies() == [b"1", b"2", b"3"]
    assert len(stream.paths()) == 1


def test_a_symbolic_link_inside_a_store_is_not_followed(stream: WrittenStream, tmp_path: Path) -> None:
    """A generation that is a link: refused, and nothing is made behind it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (stream.root / STREAM / "00001").symlink_to(elsewhere)
    with stream.writer() as writer, pytest.raises(InvalidArgument, match="symbolic link"):
        writer.append(b"1")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("prefix", ["..", "a/b", "", ".hidden", "a\x00b", "é", "x" * 300])
def test_a_bad_prefix_is_refused_before_anything_is_made(stream: WrittenStream, prefix: str) -> None:
    """No lock file either."""
    with pytest.raises(InvalidArgument), stream.writer(prefix):
        pass
    assert not list(stream.root.glob(f"{STREAM}/.control/*"))


def test_one_bad_event_is_refused_alone(stream: WrittenStream) -> None:
    """Too large, of a wrong type, or with a time in seconds; the next one is written."""
    with stream.writer() as writer:
        with pytest.raises(RecordTooLarge):
            writer.append(bytes(2 << 20))
        with pytest.raises(InvalidArgument):
            writer.append("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="seconds"):
            writer.append(b"1", timestamp=1_764_165_000)
        writer.append(b"2")
    assert stream.bodies() == [b"2"]
    with pytest.raises(WriterClosed):
        writer.append(b"3")


def test_a_stream_that_does_not_exist_has_no_writer(stream: WrittenStream) -> None:
    """StreamNotFound, as the writer is opened."""
    (stream.root / STREAM / "properties.json").unlink()
    with pytest.raises(StreamNotFound), stream.writer():
        pass


# ---- on an event loop


def _loop_writer(stream: WrittenStream, bytes_max: int = 1 << 20) -> EventWriter:
    return EventWriter(stream.place, None, inflight_bytes_max=bytes_max, append_timeout_s=60.0)


async def test_r10_on_a_loop_events_are_in_order_and_share_flushes(stream: WrittenStream) -> None:
    """3,000 submits at once, and a batch with a key and a time."""
    async with _loop_writer(stream) as writer:
        futures = [writer.submit(b"%d" % number) for number in range(3_000)]
        await writer.flush()
        assert all(each.done() for each in futures)
        assert writer.groups < 100
        acks = await writer.append_batch([b"more", AppendRecord(b"keyed", key=b"k", timestamp_ms=1_700_000_000_000)])
    assert stream.bodies() == [b"%d" % number for number in range(3_000)] + [b"more", b"keyed"]
    assert stream.events()[-1].event == Event(b"keyed", {}, b"k", 1_700_000_000_000)
    assert stream.events()[-1][:3] == acks[-1]


async def test_on_a_loop_an_error_is_told_by_future_by_flush_and_by_close(stream: WrittenStream) -> None:
    """Once each, and a second close is quiet."""
    stream.files.fails = lambda call, at: errno.ENOSPC if call == "flush" else None
    writer = _loop_writer(stream)
    await writer.open()
    future = writer.submit(b"1")
    with pytest.raises(StorageFull):
        await writer.flush()
    assert isinstance(future.exception(), StorageFull)
    await writer.flush()
    writer.submit(b"2")
    with pytest.raises(StorageFull):
        await writer.close()
    await writer.close()
    with pytest.raises(WriterClosed):
        await writer.append(b"3")


async def test_on_a_loop_an_error_that_append_has_raised_is_not_raised_again(stream: WrittenStream) -> None:
    """A program that handles it and goes on ends well."""
    stream.files.fails = lambda call, at: errno.ENOSPC if call == "flush" else None
    async with _loop_writer(stream) as writer:
        with pytest.raises(StorageFull):
            await writer.append(b"1")
        stream.files.fails = lambda call, at: None
        await writer.append(b"2")


async def test_on_a_loop_a_cancelled_opening_leaves_the_prefix_free(stream: WrittenStream) -> None:
    """The lock that its thread takes meanwhile is released."""
    opening = asyncio.ensure_future(EventWriter(stream.place, "a", inflight_bytes_max=1, append_timeout_s=60.0).open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    async def opened() -> bool:
        try:
            async with EventWriter(stream.place, "a", inflight_bytes_max=1, append_timeout_s=60.0):
                return True
        except PreconditionFailed:
            return False

    await until(opened, "the prefix is free")


async def test_on_a_loop_the_bytes_in_flight_are_bounded(stream: WrittenStream) -> None:
    """Overloaded without `ready`; `append` waits by itself."""
    async with _loop_writer(stream, 10_000) as writer:
        with pytest.raises(Overloaded):
            for _ in range(1_000):
                writer.submit(bytes(100))
        await writer.ready()
        assert writer.submit(b"1") is not None
        await asyncio.gather(*(writer.append(bytes(5_000)) for _ in range(100)))


async def test_on_a_loop_two_writers_on_one_prefix(stream: WrittenStream) -> None:
    """The second one is refused as it is opened."""
    async with EventWriter(stream.place, "a", inflight_bytes_max=1, append_timeout_s=60.0) as writer:
        await writer.append(b"1")
        with pytest.raises(PreconditionFailed, match="has a writer"):
            await EventWriter(stream.place, "a", inflight_bytes_max=1, append_timeout_s=60.0).open()
