"""Batches are moved on so that segments become free: what is copied, what stays true meanwhile, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from eager_compaction import EagerCompaction, compact, submit_moves

from rangelog.batch import batch_crc, check_batch
from rangelog.errors import RangelogError, StorageFull
from rangelog_server.ranges import compaction as planning
from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.reading import is_current, make_plan, read_batches
from rangelog_server.ranges.replica import Health, NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.entry import Kind
from rangelog_server.wal.log import Wal
from rangelog_server.wal.memory_io import MemoryIo

SEGMENT_BYTES = 8 * 1024
SLOW, FAST = (1, 0), (2, 0)

Key = tuple[int, int]


def open_store(disk: MemoryIo, *, capacity_bytes: int = 0, segment_bytes: int = SEGMENT_BYTES) -> Store:
    """Recover from a disk."""
    wal = Wal(Path("/log"), 3, io=disk, segment_bytes=segment_bytes, capacity_bytes=capacity_bytes)
    store = Store(wal, cache_bytes=0)
    store.open()
    return store


def append(store: Store, key: Key, value: bytes, confirm_offset: int = 0) -> bytes:
    """Append one record, and flush."""
    hosted = store.replicas.get(key)
    data = batch(hosted.core.end_offset if hosted else 0, [value], stream_id=key[0], range_index=key[1])
    message = SimpleNamespace(stream_id=key[0], range_index=key[1], epoch=1, start_offset=0,
                              confirm_offset=confirm_offset, recovery=False, memory=False)  # fmt: skip
    store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    store.wal.kick()
    return data


def end(store: Store, key: Key, end_offset: int | None = None) -> None:
    """Seal a range where it ends, or at an offset."""
    at = store.replicas[key].core.end_offset if end_offset is None else end_offset
    store.commit_end(*key, 0, at, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()


def drop(store: Store, key: Key) -> None:
    """Seal a range and drop its replica."""
    end(store, key)
    store.drop(*key, lambda: None)
    store.wal.kick()


def content(store: Store, key: Key) -> list[bytes]:
    """Return what a replica holds, read from the disk."""
    hosted = store.replicas[key]
    return read_batches(store.wal, make_plan(hosted, 0, hosted.core.batch_count))


def fill(store: Store, number: int, count: int = 12) -> None:
    """Another range comes with 12 KB and goes, so that the log moves on by more than a segment."""
    key = (100 + number, 0)
    for _ in range(count):
        append(store, key, bytes(1000))
    drop(store, key)


def moved_once(disk: MemoryIo) -> tuple[Store, list[bytes]]:
    """A store whose slow range has one batch in each of three segments, all but the last one moved on and freed."""
    store = open_store(disk)
    written: list[bytes] = []
    for number in range(3):
        written.append(append(store, SLOW, b"record %d" % number, confirm_offset=number))
        fill(store, number)
    assert compact(store, 10) >= 2
    store.space.validate()
    return store, written


# ---- what is true whatever happens


def test_slow_ranges_do_not_hold_the_log() -> None:
    """Forty ranges with a record each, spread over as many segments, end up together; the other segments are free."""
    store = open_store(MemoryIo())
    written: dict[Key, list[bytes]] = {}
    for number in range(40):
        written[1, number] = [append(store, (1, number), b"slow")]
        fill(store, number)
    store.reclaim()
    assert store.wal.full_count >= 40
    compaction = Compaction(store.space, 1 << 60)
    for now_s in range(1, 400):
        submit_moves(store, compaction, float(now_s))
        store.wal.kick()
        store.reclaim()
    assert store.wal.full_count <= planning.DEAD_SEGMENTS_MIN + 2
    assert {key: content(store, key) for key in written} == written
    store.space.validate()


def test_moved_batches_are_read_after_a_restart() -> None:
    """What was moved and whose first place is gone is there after a restart, with its confirm offset; the range goes on."""
    disk = MemoryIo()
    store, written = moved_once(disk)
    assert min(store.replicas[SLOW].segments) > 1
    disk.kill()
    again = open_store(disk)
    assert not again.problems
    core = again.replicas[SLOW].core
    assert (core.health, core.confirm_offset, content(again, SLOW)) == (Health.SOUND, 2, written)
    again.space.validate()
    written.append(append(again, SLOW, b"and on"))
    compact(again, 10)
    assert content(open_store(disk), SLOW) == written


def test_of_two_copies_the_later_one_is_used() -> None:
    """A crash after the copy was flushed, before its segment was freed: the place freed next is not the one in use."""
    disk = MemoryIo()
    store = open_store(disk)
    data = append(store, SLOW, b"record")
    fill(store, 0)
    compaction = EagerCompaction(store.space)
    assert submit_moves(store, compaction, 1.0) == 1
    store.wal.kick()
    place = store.replicas[SLOW].places[0]
    disk.kill()
    again = open_store(disk)
    assert again.replicas[SLOW].places[0] == place
    again.reclaim()
    assert 1 not in again.wal.segments
    assert content(again, SLOW) == [data]
    assert content(open_store(disk), SLOW) == [data]


def test_copies_that_differ_are_damage() -> None:
    """A copy with other bytes than what it replaces quarantines the replica."""
    disk = MemoryIo()
    store = open_store(disk)
    append(store, SLOW, b"record")
    other = batch(0, [b"forged"])
    store.wal.submit(Kind.MOVED, *SLOW, other, other[:64] + other[-4:], 0, None, batch_crc(other))
    store.wal.kick()
    found = open_store(disk).replicas[SLOW].core
    assert found.health is Health.QUARANTINED
    assert "differs" in found.problem


def test_a_batch_that_was_appended_twice_is_still_damage() -> None:
    """Only a copy may repeat an offset."""
    disk = MemoryIo()
    store = open_store(disk)
    data = append(store, SLOW, b"record")
    append(store, SLOW, b"record 2")
    store.wal.submit(Kind.BATCHES, *SLOW, data, data[:64] + data[-4:], 0, None, batch_crc(data))
    store.wal.kick()
    assert open_store(disk).replicas[SLOW].core.health is Health.QUARANTINED


# ---- a range that changes while its batches are on their way


def begun(store: Store) -> None:
    """Three batches of a slow range, two of them being copied: submitted, not flushed."""
    for number in range(2):
        append(store, SLOW, b"record %d" % number)
    fill(store, 0)
    append(store, SLOW, b"record 2")
    assert submit_moves(store, EagerCompaction(store.space), 1.0) == 1


@pytest.mark.parametrize("end_offset", [0, 1, 2])
def test_what_is_cut_on_its_way_stays_cut(end_offset: int) -> None:
    """The committed end is learnt between a copy and its flush: nothing at or beyond it comes back, then or later."""
    disk = MemoryIo()
    store = open_store(disk)
    begun(store)
    end(store, SLOW, end_offset)
    for turn in range(1, 4):
        store.space.validate()
        assert len(content(store, SLOW)) == store.replicas[SLOW].core.end_offset == end_offset
        compact(store, 10)
        fill(store, turn)
        store = open_store(disk)
        assert not store.problems


def test_a_copy_beyond_a_hole_that_was_cut_is_left_out() -> None:
    """Of what was cut a late copy is left and nothing before it: the replica is what it was sealed as."""
    disk = MemoryIo()
    store = open_store(disk)
    written = [append(store, SLOW, b"record %d" % number) for number in range(2)]
    end(store, SLOW)
    cut = batch(5, [b"cut"])
    store.wal.submit(Kind.MOVED, *SLOW, cut, cut[:64] + cut[-4:], 0, None, batch_crc(cut))
    store.wal.kick()
    again = open_store(disk)
    assert (again.replicas[SLOW].core.health, content(again, SLOW)) == (Health.SOUND, written)


def test_what_is_dropped_on_its_way_stays_dropped() -> None:
    """The replica is dropped between a copy and its flush: it is gone for good, however the log's segments go."""
    disk = MemoryIo()
    store = open_store(disk)
    begun(store)
    drop(store, SLOW)
    for number in range(1, 6):
        store = open_store(disk)
        assert SLOW not in store.replicas
        store.space.validate()
        fill(store, number)
        store.reclaim()
        store.reclaim()


def test_a_quarantined_replica_is_not_copied() -> None:
    """Nothing of it is trusted: its segment waits until it is dropped, and others are freed meanwhile."""
    store = open_store(MemoryIo())
    append(store, SLOW, b"record")
    fill(store, 0)
    append(store, (1, 1), b"record")
    fill(store, 1)
    store.quarantine(store.replicas[SLOW], "a checksum that does not fit")
    compact(store, 10)
    assert 1 in store.wal.segments
    assert store.wal.full_count <= 3
    store.drop(*SLOW, lambda: None)
    store.wal.kick()
    store.reclaim()
    assert 1 not in store.wal.segments


# ---- reads on their way


def test_a_read_from_a_place_that_is_gone_is_no_damage() -> None:
    """A read planned before the move finds other bytes in the recycled segment; the replica stays, and is read anew."""
    disk = MemoryIo()
    store = open_store(disk)
    data = append(store, SLOW, b"record")
    plan = make_plan(store.replicas[SLOW], 0, 1)
    fill(store, 0)
    compact(store, 10)
    assert not is_current(store.replicas[SLOW], plan)
    for number in range(1, 8):
        fill(store, number)
        store.reclaim()
        try:
            assert read_batches(store.wal, plan) == [data]
        except RangelogError as error:
            assert store.read_failed(store.replicas[SLOW], error, 0.0, plan)
    assert store.replicas[SLOW].core.health is Health.SOUND
    assert content(store, SLOW) == [data]


def test_batches_that_lie_in_another_order_are_read() -> None:
    """A range whose later batches stand before its earlier ones in the log is read across them."""
    store = open_store(MemoryIo(), segment_bytes=64 * 1024)
    written = [append(store, SLOW, b"first")]
    for number in range(6):
        fill(store, number)
    written += [append(store, SLOW, b"record %d" % number) for number in range(3)]
    compact(store, 1)
    assert store.replicas[SLOW].places[0] > store.replicas[SLOW].places[1]
    assert content(store, SLOW) == written


# ---- what goes with a segment


def without_compaction(store: Store, until: Callable[[], bool]) -> None:
    number = 1000
    while not until():
        fill(store, number)
        store.reclaim()
        store.reclaim()
        number += 1
        assert number < 1050


def test_a_tombstone_outlives_states_that_were_replaced() -> None:
    """A state in a segment that another range holds does not bring a dropped replica back when all else of it is freed."""
    disk = MemoryIo()
    store = open_store(disk)
    append(store, FAST, b"record")
    fill(store, 0)
    assert store.wal.current_sequence > 1
    append(store, SLOW, b"holds this segment")
    held = store.wal.current_sequence
    store.seal(*FAST, 2, 0, lambda hosted: None)  # a state that the next one replaces
    store.wal.kick()
    fill(store, 1)
    drop(store, FAST)
    last = store.wal.current_sequence
    without_compaction(store, lambda: min(each for each in store.wal.segments if each != held) > last + 2)
    assert held in store.wal.segments
    assert FAST not in open_store(disk).replicas


def test_a_second_tombstone_covers_what_the_first_one_did() -> None:
    """A range that was dropped, hosted again and dropped again does not come back from a segment of its first life."""
    disk = MemoryIo()
    store = open_store(disk)
    append(store, SLOW, b"holds this segment")
    append(store, FAST, b"record")
    fill(store, 0)
    drop(store, FAST)
    fill(store, 1)
    store.commit_end(*FAST, 0, 0, 2, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    drop(store, FAST)
    last = store.wal.current_sequence
    without_compaction(store, lambda: min(each for each in store.wal.segments if each != 1) > last + 2)
    assert 1 in store.wal.segments
    assert FAST not in open_store(disk).replicas


def test_metadata_is_carried_forward_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call writes a bounded number of states again, however many replicas had one in the segment; all are kept."""
    monkeypatch.setattr("rangelog_server.ranges.space.SLICE_ENTRIES", 10)
    disk = MemoryIo()
    store = open_store(disk, segment_bytes=64 * 1024)
    keys = [(1, number) for number in range(35)]
    for key in keys:
        store.seal(*key, 2, 0, lambda hosted: None)
    store.wal.kick()
    fill(store, 0, count=80)
    steps: list[int] = []
    written = store.write_state
    for _ in range(20):
        count = [0]

        def counting(hosted: object, done: object = None, count: list[int] = count) -> None:
            count[0] += 1
            written(hosted, done)  # type: ignore[arg-type]

        monkeypatch.setattr(store, "write_state", counting)
        store.reclaim()
        steps.append(count[0])
    assert sum(steps) == 35
    assert max(steps) <= 10
    assert 1 not in store.wal.segments
    assert not store.space.is_busy
    assert set(keys) <= set(open_store(disk).replicas)


# ---- when, how much, how fast


def test_little_that_is_dead_is_left_alone() -> None:
    """A log of few segments is not compacted, however sparse they are."""
    store = open_store(MemoryIo())
    append(store, SLOW, b"record")
    fill(store, 0)
    store.reclaim()
    compaction = Compaction(store.space, 1 << 60)
    assert compaction.next(1.0) is None
    assert compaction.wait_s(1.0) == planning.LOOK_S


def test_what_is_copied_is_at_most_a_third_of_what_is_appended() -> None:
    """Over a long mixed load the copied bytes stay within the stated bound, and so does the space that the log takes."""
    chance = Random(5)
    store = open_store(MemoryIo(), segment_bytes=32 * 1024)
    compaction = Compaction(store.space, 1 << 60)
    appended, live, now_s = 0, 0, 0.0
    open_ranges: list[Key] = []
    for number in range(900):
        key = (10 + number, 0)
        for _ in range(chance.randrange(1, 12)):
            appended += len(append(store, key, bytes(chance.randrange(1, 1000))))
        open_ranges.append(key)
        if len(open_ranges) > 60:
            drop(store, open_ranges.pop(chance.randrange(len(open_ranges) // 3)))
        for _ in range(3):
            now_s += 1.0
            submit_moves(store, compaction, now_s)
            store.wal.kick()
            store.reclaim()
    live = store.space.usage.batch_bytes
    assert 0 < compaction.copied_bytes <= appended / 3
    assert store.wal.full_count * 32 * 1024 <= 4 * live + (planning.DEAD_SEGMENTS_MIN + 2) * 32 * 1024
    store.space.validate()


def test_a_full_log_gets_free_again() -> None:
    """At its capacity, with nearly all of it dead, the log takes no append; copies go to the reserve, and then it does."""
    store = open_store(MemoryIo(), capacity_bytes=8 * 64 * 1024, segment_bytes=64 * 1024)
    number = 0
    written: dict[Key, list[bytes]] = {}
    with pytest.raises(StorageFull):
        while True:
            written[1, number] = [append(store, (1, number), b"slow")]
            for _ in range(60):
                append(store, (100 + number, 0), bytes(1000))
            drop(store, (100 + number, 0))
            number += 1
    written = {key: data for key, data in written.items() if data}
    assert store.wal.is_short
    compaction = Compaction(store.space, 1 << 60)
    for now_s in range(1, 100):
        submit_moves(store, compaction, float(now_s))
        store.wal.kick()
        store.reclaim()
        store.wal.retry_spare()
    append(store, (1, 999), b"goes on")
    assert {key: content(store, key) for key in written} == written


def test_the_rate_is_kept() -> None:
    """Over any time no more is asked for than the rate allows and one step; a step comes only when its time has come."""
    store = open_store(MemoryIo())
    for number in range(40):
        for _ in range(3):
            append(store, (1, number), bytes(200))
        fill(store, number)
    store.reclaim()
    rate = 1000
    compaction = Compaction(store.space, rate)
    now_s, asked, largest = 0.0, 0, 0
    for _ in range(100):
        step = compaction.next(now_s)
        if step is not None:
            asked += step.size_bytes
            largest = max(largest, step.size_bytes)
            for part in step.parts:
                store.space.move(part.hosted, part.plan, read_batches(store.wal, part.plan))
        store.wal.kick()
        store.reclaim()
        assert asked <= now_s * rate + largest
        now_s += 0.05
    assert asked


def test_copies_wait_while_much_is_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """While appends wait for the disk nothing is copied, unless space is short."""
    store = open_store(MemoryIo())
    for number in range(10):
        append(store, (1, number), b"slow")
        fill(store, number)
    store.reclaim()
    compaction = Compaction(store.space, 1 << 20)
    monkeypatch.setattr(store.wal, "pending_bytes", planning.PENDING_BYTES_MAX + 1)
    assert compaction.next(1.0) is None
    monkeypatch.setattr(store.wal, "problem", "no space left on device")
    assert compaction.next(2.0) is not None
