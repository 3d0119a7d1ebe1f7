"""Batches are moved on so that segments become free: what is copied, what stays true meanwhile, and what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rangelog_core.batch import batch_crc
from rangelog_core.errors import Corruption, RangelogError
from rangelog_server.agent import compacting
from rangelog_server.agent.compacting import Compacting
from rangelog_server.ranges import compaction as planning
from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.reading import ReadPlan, is_current, make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import fetch
from rangelog_server.testing import batch
from rangelog_server.wal.entry import Kind
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk
from tests.support.eager_compaction import EagerCompaction, compact, submit_moves
from tests.support.memory_server import Client
from tests.support.small_log import Key, append, content, drop, end, fill, open_store
from tests.support.waiting import until

SLOW, FAST = (1, 0), (2, 0)


def moved_once(disk: LogDisk) -> tuple[Store, list[bytes]]:
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
    store = open_store(LogDisk())
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
    disk = LogDisk()
    store, written = moved_once(disk)
    assert min(store.replicas[SLOW].segments) > 1
    disk.kill()
    again = open_store(disk)
    assert not again.problems
    core = again.replicas[SLOW].core
    assert (core.trust, core.confirm_offset, content(again, SLOW)) == (DiskTrust.SOUND, 2, written)
    again.space.validate()
    written.append(append(again, SLOW, b"and on"))
    compact(again, 10)
    assert content(open_store(disk), SLOW) == written


def test_of_two_copies_the_later_one_is_used() -> None:
    """A crash after the copy was flushed, before its segment was freed: the place freed next is not the one in use."""
    disk = LogDisk()
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
    disk = LogDisk()
    store = open_store(disk)
    append(store, SLOW, b"record")
    other = batch(0, [b"forged"])
    store.wal.submit(Kind.MOVED, *SLOW, other, other[:64] + other[-4:], 0, None, batch_crc(other))
    store.wal.kick()
    found = open_store(disk).replicas[SLOW].core
    assert found.trust is DiskTrust.QUARANTINED
    assert "copies differ" in found.problem


def test_a_batch_that_was_appended_twice_is_still_damage() -> None:
    """Only a copy may repeat an offset."""
    disk = LogDisk()
    store = open_store(disk)
    data = append(store, SLOW, b"record")
    append(store, SLOW, b"record 2")
    store.wal.submit(Kind.BATCHES, *SLOW, data, data[:64] + data[-4:], 0, None, batch_crc(data))
    store.wal.kick()
    assert open_store(disk).replicas[SLOW].core.trust is DiskTrust.QUARANTINED


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
    disk = LogDisk()
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
    disk = LogDisk()
    store = open_store(disk)
    written = [append(store, SLOW, b"record %d" % number) for number in range(2)]
    end(store, SLOW)
    cut = batch(5, [b"cut"])
    store.wal.submit(Kind.MOVED, *SLOW, cut, cut[:64] + cut[-4:], 0, None, batch_crc(cut))
    store.wal.kick()
    again = open_store(disk)
    assert (again.replicas[SLOW].core.trust, content(again, SLOW)) == (DiskTrust.SOUND, written)


def test_what_is_dropped_on_its_way_stays_dropped() -> None:
    """The replica is dropped between a copy and its flush: it is gone for good, however the log's segments go."""
    disk = LogDisk()
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
    store = open_store(LogDisk())
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
    disk = LogDisk()
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
    assert store.replicas[SLOW].core.trust is DiskTrust.SOUND
    assert content(store, SLOW) == [data]


def test_batches_that_lie_in_another_order_are_read() -> None:
    """A range whose later batches stand before its earlier ones in the log is read across them."""
    store = open_store(LogDisk(), segment_bytes=64 * 1024)
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
    disk = LogDisk()
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
    disk = LogDisk()
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
    disk = LogDisk()
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


# ---- who reads meanwhile


async def test_a_fetch_whose_batches_are_moved_is_answered(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The read fails after the batch was moved on: the fetch reads again from the new place, and nothing is quarantined."""
    client = Client(plane).hello()
    client.append(0, b"record")
    client.confirm(1)
    client.wire.frames()
    store, hosted = plane.store, plane.store.replicas[1, 0]
    store.cache._batches.clear()
    (data,) = content(store, (1, 0))
    calls: list[int] = []

    def read(wal: Wal, plan: ReadPlan) -> list[bytes]:
        calls.append(plan.wanted[0].place)
        if len(calls) == 1:
            store.space.move(hosted, plan, [data])
            store.wal.kick()
            raise Corruption("other bytes lie there by now")
        return read_batches(wal, plan)

    monkeypatch.setattr(fetch, "read_batches", read)
    client.fetch(0)
    (reply,) = await client.replies(1)
    assert reply.payload == data
    assert hosted.core.trust is DiskTrust.SOUND
    assert calls[0] < calls[1] == hosted.places[0]


async def test_a_server_frees_its_log_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that runs beside a server's other work moves batches on and frees segments; damage it meets is quarantined."""
    disk = LogDisk()
    store = open_store(disk)
    for number in range(12):
        append(store, (1, number), b"slow %d" % number)
        fill(store, number)
    rotten = store.replicas[1, 3]
    position = rotten.places[0] & 0xFFFFFFFF
    disk.content(f"wal-{rotten.places[0] >> 32:016x}.seg")[position + 70] ^= 1
    monkeypatch.setattr(compacting, "IDLE_PAUSE_S", 0.01)
    monkeypatch.setattr(planning, "LOOK_S", 0.01)
    task = asyncio.create_task(Compacting(store, Compaction(store.space, 1 << 30)).run())
    await until(
        lambda: not (store.wal.full_count > planning.DEAD_SEGMENTS_MIN + 2 or rotten.core.trust is DiskTrust.SOUND),
        within_s=10,
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert rotten.core.trust is DiskTrust.QUARANTINED
    for number in range(12):
        if number != 3:
            assert content(store, (1, number)) == [batch(0, [b"slow %d" % number], range_index=number)]
    store.space.validate()
