"""R13–R17: readers of event files: merged, followed, behind crashes, filtered, from positions and times."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rangelog_core.errors import Corruption, InvalidArgument, OffsetOutOfRange, Overloaded, StreamNotFound
from rangelog_files.block_filters import OffsetFilter, TimeFilter, checked_offset_filter
from rangelog_files.event_file import HEAD_BYTES, EventFileWriter
from rangelog_files.merging import WRITERS_MAX, FilePosition
from rangelog_files.writer_cursor import POLL_MS_MAX, POLL_MS_MIN
from tests.unit.files.memory_files import DAY_MS, DAY_S, Clock, MemoryFiles, Written, bodies, place, reader_of

FOUR = [[0, 5, 5, 9], [1, 2, 2**40], [5], [3, 4, 6]]


def written(
    files: MemoryFiles, times: list[list[int]], *, closed: bool = True, index_bytes: int | None = None
) -> list[bytes]:
    """Files of several writers with one event a block; returns the bodies in the order that a reader gives them."""
    expected = []
    for number, of_writer in enumerate(times):
        file = Written(files, place(f"w{number}"), index_bytes=index_bytes)
        for position, time_ms in enumerate(of_writer):
            file.block(time_ms, b"%d-%d" % (number, position))
            expected.append((time_ms, number, position))
        if closed:
            file.end()
    return [b"%d-%d" % (number, position) for _, number, position in sorted(expected)]


@pytest.mark.parametrize("closed", [True, False])
def test_r13_writers_are_merged_by_time_and_by_path(closed: bool) -> None:
    """Whether their files are closed or not: each is asked before anything is handed out."""
    files = MemoryFiles()
    expected = written(files, FOUR, closed=closed)
    assert bodies(reader_of(files)) == expected


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 30)).map(sorted), max_size=5), st.booleans())
def test_r13_any_merge_is_in_order(times: list[list[int]], closed: bool) -> None:
    """Empty files too."""
    files = MemoryFiles()
    expected = written(files, [*times, [7]], closed=closed)
    assert bodies(reader_of(files)) == expected


def test_r13_a_silent_writer_does_not_block() -> None:
    """While files are followed, an open file without news holds no other writer up."""
    files, clock = MemoryFiles(), Clock()
    Written(files, place("silent"))
    busy = Written(files, place("busy"))
    reader = reader_of(files, clock, follow=True)
    for number in range(20):
        busy.block(number, b"%d" % number)
        batch = reader.next_batch(timeout_s=10)
        assert batch is not None and batch.events[0].body == b"%d" % number
    assert clock.now_ms <= 20 * POLL_MS_MIN


def test_r13_a_writer_that_begins_while_others_are_followed_is_found() -> None:
    """Within the longest time between two listings."""
    files, clock = MemoryFiles(), Clock()
    Written(files, place("a")).block(1, b"a")
    reader = reader_of(files, clock, follow=True)
    assert bodies(reader, 20) == [b"a"]
    begun_ms = clock.now_ms
    Written(files, place("b")).block(2, b"b")
    assert reader.next_batch(60) is not None
    assert clock.now_ms - begun_ms <= POLL_MS_MAX


def test_r14_a_file_is_followed_through_half_written_blocks() -> None:
    """Each byte of a file appears by itself: all events come, none twice."""
    files, clock = MemoryFiles(), Clock()
    source = MemoryFiles()
    file = Written(source, place())
    for number in range(12):
        file.block(number, b"%d" % number, b"+")
    file.end()
    data = bytes(source.data[place().data_path])
    files.append(place(), data[:0])
    for position in range(len(data)):
        clock.events.append((position * 10, lambda at=position: files.append(place(), data[at : at + 1])))
    found = bodies(reader_of(files, clock, follow=True), 60)
    assert found == [body for number in range(12) for body in (b"%d" % number, b"+")]
    assert len([path for path in files.opened if path == place().data_path]) >= 10


def test_r14_waits_grow_and_begin_again_with_news() -> None:
    """100 ms, twice as long each time, up to the bound; after news 100 ms again."""
    files, clock = MemoryFiles(), Clock()
    file = Written(files, place())
    reader = reader_of(files, clock, follow=True)
    assert bodies(reader, 30) == []
    assert clock.waited[:6] == [100, 200, 400, 800, 1_600, 3_200] and max(clock.waited) == POLL_MS_MAX
    file.block(1, b"x")
    assert reader.next_batch(10) is not None
    clock.waited.clear()
    assert bodies(reader, 1) == []
    assert clock.waited[:3] == [POLL_MS_MIN, 2 * POLL_MS_MIN, 4 * POLL_MS_MIN]


def test_r15_behind_a_crash_comes_the_next_sequence() -> None:
    """Half a block at the end of the dead writer's file is left out; nothing else is."""
    files, clock = MemoryFiles(), Clock()
    dead = Written(files, place())
    dead.block(1, b"a")
    whole = len(files.data[place().data_path])
    dead.block(2, b"half")
    del files.data[place().data_path][whole + HEAD_BYTES + 3 :]
    reader = reader_of(files, clock, follow=True)
    assert bodies(reader, 20) == [b"a"]
    restarted = Written(files, place(sequence=1))
    restarted.block(3, b"b")
    assert bodies(reader, 20) == [b"b"]
    assert [each.path for each in reader.position()] == [place(sequence=1).data_path]


def test_r15_late_bytes_of_an_old_file_are_not_passed_over() -> None:
    """The writer writes on after the reader was at the end, dies, and begins its next file before the reader looks again."""
    files, clock = MemoryFiles(), Clock()
    dead = Written(files, place())
    dead.block(1, b"a")
    reader = reader_of(files, clock, follow=True)
    assert bodies(reader, 1) == [b"a"]
    dead.block(2, b"late")
    Written(files, place(sequence=1)).block(3, b"b")
    assert bodies(reader, 20) == [b"late", b"b"]


def test_r15_every_moment_of_a_crash() -> None:
    """The file is cut at every byte, and the next file appears between any two reads: whole blocks only, and all of them."""
    source = MemoryFiles()
    file = Written(source, place())
    ends = [len(source.data[place().data_path])]
    for number in range(3):
        ends.append(ends[-1] + len(file.block(number, b"%d" % number)))
    data = bytes(source.data[place().data_path])
    for cut in range(len(data) + 1):
        for moment in range(4):
            files, clock = MemoryFiles(), Clock()
            files.append(place(), data[: cut // 2])
            done = [
                lambda files=files, cut=cut: files.append(place(), data[cut // 2 : cut]),
                lambda files=files: Written(files, place(sequence=1)).block(9, b"next"),
            ]
            clock.events = [(50 + 90 * moment, done[0]), (60 + 90 * moment, done[1])]
            expected = [b"%d" % number for number in range(3) if ends[number + 1] <= cut]
            assert bodies(reader_of(files, clock, follow=True), 30) == [*expected, b"next"], (cut, moment)


def test_r15_the_next_partition_only_after_the_present_one() -> None:
    """Without an end mark the reader stays until the day is over, also where the next day's file is there already."""
    files, clock = MemoryFiles(), Clock(DAY_MS - 5_000)
    dead = Written(files, place())
    dead.block(1, b"a")
    Written(files, place(day=1)).block(DAY_MS, b"tomorrow")
    reader = reader_of(files, clock, follow=True)
    assert bodies(reader, 3) == [b"a"]
    again = Written(files, place(sequence=1))
    again.block(2, b"b")
    assert clock.now_ms < DAY_MS
    assert bodies(reader, 20) == [b"b", b"tomorrow"]
    assert clock.now_ms >= DAY_MS


def test_r15_behind_an_end_mark_the_next_file_comes_at_once() -> None:
    """Also that of a later partition."""
    files, clock = MemoryFiles(), Clock()
    closed = Written(files, place())
    closed.block(1, b"a")
    closed.end()
    Written(files, place(day=2)).block(2 * DAY_MS, b"b")
    assert bodies(reader_of(files, clock, follow=True), 0.05) == [b"a", b"b"]


@pytest.mark.parametrize("index_bytes", [None, 0, 300])
def test_r16_the_bounds_of_the_time_are_exact(index_bytes: int | None) -> None:
    """Also where several blocks have one time, and an index entry is in the midst of them."""
    times = [10, 20, 20, 20, 20, 30, 30, 40]
    files = MemoryFiles()
    written(files, [times], index_bytes=index_bytes)
    for from_ms in range(8, 43):
        for until_ms in (None, 20, 21, 30, 41):
            expected = [
                b"0-%d" % position
                for position, time_ms in enumerate(times)
                if time_ms >= from_ms and (until_ms is None or time_ms < until_ms)
            ]
            assert bodies(reader_of(files, times=TimeFilter(from_ms, until_ms))) == expected, (from_ms, until_ms)


def big_file(files: MemoryFiles, blocks: int, index_bytes: int | None = None) -> int:
    """A file of one writer with blocks of 40 kB at each full second; returns its size."""
    file = Written(files, place(), index_bytes=index_bytes)
    for number in range(blocks):
        file.block(number * 1_000, b"%d" % number, bytes(40_000))
    file.end()
    return len(files.data[place().data_path])


def test_r16_expired_blocks_are_passed_over_without_reading_them() -> None:
    """By the clock at each block: a TTL of ten seconds, boundary included."""
    files, clock = MemoryFiles(), Clock(100_000)
    size = big_file(files, 100)
    reader = reader_of(files, clock, times=TimeFilter(ttl_ms=10_000))
    found = [body for body in bodies(reader) if body != bytes(40_000)]
    assert found == [b"%d" % number for number in range(90, 100)]
    assert reader.bytes_read < size * 0.35


def test_r7_an_index_saves_reading_and_a_missing_or_wrong_one_only_costs_time() -> None:
    """The same events for a thousand times with the index, without, cut, flipped, and with that of another file."""
    files, other = MemoryFiles(), MemoryFiles()
    rng = random.Random(7)
    times = sorted(rng.randrange(0, 50_000) for _ in range(150))
    written(files, [times], index_bytes=200)
    written(other, [[time_ms // 2 for time_ms in times]], index_bytes=100)
    name = place("w0").index_path
    index = bytes(files.data[name])
    swapped = bytearray(index)
    swapped[-16:-8], swapped[-32:-24] = swapped[-32:-24], swapped[-16:-8]
    wrong = [
        index,
        None,
        index[: rng.randrange(len(index))],
        bytes(other.data[name]),
        b"",
        bytes(swapped),
        b"I1" + bytes(90),
    ]
    wrong.append(bytes(other.data[name]).replace(b"who", b"hoo"))
    for trial in range(1_000):
        from_ms = rng.randrange(-1 if trial else 0, 50_100)
        chosen = wrong[trial % (len(wrong) + 1)] if trial % (len(wrong) + 1) < len(wrong) else flipped(index, rng)
        files.data.pop(name, None)
        if chosen is not None:
            files.data[name] = bytearray(chosen)
        expected = [b"0-%d" % position for position, time_ms in enumerate(times) if time_ms >= from_ms]
        assert bodies(reader_of(files, times=TimeFilter(from_ms))) == expected, (trial, from_ms)


def flipped(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some bits flipped, most of them in entries."""
    changed = bytearray(data)
    for _ in range(rng.randrange(1, 9)):
        changed[rng.randrange(40, len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def test_r7_an_index_that_lies_about_times_is_not_believed() -> None:
    """Its entries fit the file's blocks, but for the time of one."""
    files = MemoryFiles()
    written(files, [[10, 20, 30, 40]], index_bytes=0)
    name = place("w0").index_path
    files.data[name][-16:-8] = (11).to_bytes(8, "little")  # the last block, of 40 ms, instead of the second
    del files.data[name][-64:-16]
    assert bodies(reader_of(files, times=TimeFilter(15))) == [b"0-1", b"0-2", b"0-3"]


def test_r7_seeking_by_the_index_reads_little() -> None:
    """A time near the end of 4 MB."""
    files = MemoryFiles()
    size = big_file(files, 100, index_bytes=80_000)
    reader = reader_of(files, times=TimeFilter(95_000))
    assert len(bodies(reader)) == 10
    with_index = reader.bytes_read
    del files.data[place().index_path]
    reader = reader_of(files, times=TimeFilter(95_000))
    assert len(bodies(reader)) == 10
    assert with_index < size / 10 and with_index < reader.bytes_read / 2


def test_r17_shares_of_readers_are_all_events_once_and_nearly_even() -> None:
    """For groups of one to seven, and blocks of any size."""
    files = MemoryFiles()
    rng = random.Random(5)
    file = Written(files, place())
    count = 0
    for number in range(700):
        size = rng.choice((1, 1, 2, 50))
        file.block(number, *(b"%d" % (count + each) for each in range(size)))
        count += size
    for readers in range(1, 8):
        shares = [bodies(reader_of(files, share=checked_offset_filter(each, readers))) for each in range(readers)]
        assert Counter(body for share in shares for body in share) == Counter(b"%d" % each for each in range(count))
        assert all(0.9 * count / readers < len(share) < 1.1 * count / readers for share in shares), readers


@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16, 20, 64, 100, 128, 4096])
def test_r17_shares_are_even_whatever_the_size_of_blocks(stride: int) -> None:
    """Offsets that rise by one number, as those of blocks with one event do."""
    for readers in (2, 3, 4, 5, 8, 16):
        counts = Counter(
            number
            for offset in range(300, 300 + stride * 4_000, stride)
            for number in range(readers)
            if OffsetFilter(number, readers).takes(offset)
        )
        assert sum(counts.values()) == 4_000
        assert all(0.7 * 4_000 / readers < counts[number] < 1.3 * 4_000 / readers for number in range(readers)), readers


@pytest.mark.parametrize(("number", "readers"), [(0, 0), (1, 1), (-1, 2), (0, -1), (0, 10_001)])
def test_r17_a_share_that_no_reader_has_is_refused(number: int, readers: int) -> None:
    """Numbers count from 0."""
    with pytest.raises(InvalidArgument):
        checked_offset_filter(number, readers)


@pytest.mark.parametrize("index_bytes", [None, 100])
def test_a_reader_resumes_from_every_position(index_bytes: int | None) -> None:
    """Between blocks, within them, and between files; nothing comes twice, and nothing is missing."""
    files = MemoryFiles()
    for number, prefix in enumerate("ab"):
        for sequence in range(2):
            file = Written(files, place(prefix, sequence), index_bytes=index_bytes)
            for block in range(4):
                file.block(
                    100 * sequence + 10 * block + number,
                    *(b"%s%d%d%d" % (prefix.encode(), sequence, block, each) for each in range(3)),
                )
            file.end()
    everything = bodies(reader_of(files))
    assert len(everything) == len(set(everything)) == 48
    for taken in range(17):
        reader = reader_of(files)
        first = []
        for _ in range(taken):
            batch = reader.next_batch()
            first += [event.body for event in batch.events] if batch else []
        assert first + bodies(reader_of(files, start=reader.position())) == everything
    batch = reader_of(files).next_batch()
    assert batch is not None
    within = [FilePosition(batch.path.data_path, batch.offsets[2])]
    rest = bodies(reader_of(files, start=within))
    assert sorted(rest) == sorted(everything[2:])


def test_a_position_within_a_block_needs_no_index() -> None:
    """The events before it are left out."""
    files = MemoryFiles()
    big_file(files, 50, index_bytes=80_000)
    offsets = [(batch.path.data_path, offset) for batch in all_batches(files) for offset in batch.offsets]
    for with_index in (True, False):
        if not with_index:
            del files.data[place().index_path]
        for number in (0, 1, 51, 99):
            assert len(bodies(reader_of(files, start=[FilePosition(*offsets[number])]))) == 100 - number


def all_batches(files: MemoryFiles) -> list:
    """All batches of a reader."""
    reader = reader_of(files)
    return list(iter(reader.next_batch, None))


@pytest.mark.parametrize("offset", [2**63, 10**9, 1_000])
def test_a_position_beyond_its_file_is_refused(offset: int) -> None:
    """It is of another file: events would be missing."""
    files = MemoryFiles()
    written(files, [[1, 2]])
    for follow in (False, True):
        with pytest.raises(OffsetOutOfRange, match="w0"):
            reader_of(files, start=[FilePosition(place("w0").data_path, offset)], follow=follow).next_batch(5)


@pytest.mark.parametrize("path", ["../x", place(generation=2).data_path, "other/00001/0.86400/a.000000.dat", ""])
def test_a_position_of_another_stream_is_refused(path: str) -> None:
    """Before anything is read."""
    with pytest.raises(InvalidArgument):
        reader_of(MemoryFiles(), start=[FilePosition(path, 0)])


def test_a_file_that_is_gone_is_left() -> None:
    """Such as one that was removed since the position was saved."""
    files = MemoryFiles()
    Written(files, place(sequence=5)).block(1, b"a")
    gone = [FilePosition(place(sequence=4).data_path, 77)]
    assert bodies(reader_of(files, start=gone)) == [b"a"]


def test_a_missing_generation_is_an_error() -> None:
    """It is not an empty stream."""
    files = MemoryFiles()
    written(files, [[1]])
    with pytest.raises(StreamNotFound, match="generation 2"):
        reader_of(files, generation=2).next_batch()


def test_pruned_reads_open_only_matching_partitions() -> None:
    """One day of thirty: the files of the others are not opened, and less than a 25th of the bytes is read."""
    files = MemoryFiles()
    for day in range(30):
        for prefix in "ab":
            file = Written(files, place(prefix, day=day))
            for hour in range(24):
                file.block(day * DAY_MS + hour * 3_600_000, b"%d" % day, bytes(1_000))
            file.end((day + 1) * DAY_MS - 1)
    reader = reader_of(files, times=TimeFilter(7 * DAY_MS, 8 * DAY_MS))
    assert len(bodies(reader)) == 24 * 4
    assert {path.split("/")[2] for path in files.opened} == {f"{7 * DAY_S}.{DAY_S}"}
    assert reader.bytes_read <= sum(map(len, files.data.values())) / 25


def test_a_damaged_file_is_an_error_each_time_and_can_be_left() -> None:
    """Every block before the damage comes; with `leave_damaged` the next file follows, and the damage is noted."""
    files = MemoryFiles()
    file = Written(files, place())
    file.block(1, b"a")
    size = len(files.data[place().data_path])
    file.block(2, b"b")
    file.end()
    files.data[place().data_path][size + HEAD_BYTES + 3] ^= 4
    Written(files, place(sequence=1)).block(3, b"c")
    reader = reader_of(files)
    assert reader.next_batch() is not None
    for _ in range(3):
        with pytest.raises(Corruption, match=r"a\.000000\.dat: the block at byte"):
            reader.next_batch()
    leaving = reader_of(files, leave_damaged=True)
    assert bodies(leaving) == [b"a", b"c"]
    assert [(each.path, each.offset) for each in leaving.damaged] == [(place().data_path, size)]


def test_events_that_do_not_fit_the_schema_are_an_error_and_can_be_left() -> None:
    """A checksum that fits proves only that a writer meant the bytes."""
    files = MemoryFiles()
    file = Written(files, place())
    file.block(1, b"a")
    lying = EventFileWriter("x")
    files.append(place("b"), lying.begin() + lying._headed(5, b"\4" + b"\1" * 9))
    Written(files, place("b", sequence=1)).block(9, b"c")
    reader = reader_of(files)
    assert reader.next_batch() is not None
    for _ in range(2):
        with pytest.raises(Corruption, match=r"b\.000000\.dat"):
            reader.next_batch()
    leaving = reader_of(files, leave_damaged=True)
    assert bodies(leaving) == [b"a", b"c"]
    assert len(leaving.damaged) == 1


def test_too_many_writers_are_refused() -> None:
    """A reader holds a piece of a file of each."""
    files = MemoryFiles()
    for number in range(WRITERS_MAX + 1):
        files.append(place(f"w{number}"), b"")
    with pytest.raises(Overloaded):
        reader_of(files).next_batch()


def test_a_reader_that_follows_has_no_end() -> None:
    """It would wait for what it does not want."""
    with pytest.raises(InvalidArgument):
        reader_of(MemoryFiles(), follow=True, times=TimeFilter(until_ms=5))


def test_many_idle_writers_are_listed_seldom() -> None:
    """One listing is for all of them."""
    files, clock = MemoryFiles(), Clock()
    for number in range(100):
        Written(files, place(f"w{number}"))
    assert bodies(reader_of(files, clock, follow=True), 60) == []
    assert files.listings <= 60_000 / POLL_MS_MAX * 3
