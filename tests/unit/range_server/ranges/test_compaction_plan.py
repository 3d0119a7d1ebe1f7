"""When batches are moved on, how much is copied, and how fast."""

from __future__ import annotations

from random import Random

import pytest

from rangelog_core.errors import StorageFull
from rangelog_server.ranges import compaction as planning
from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.reading import read_batches
from tests.fakes.faces import LogDisk
from tests.support.eager_compaction import submit_moves
from tests.support.small_log import Key, append, content, drop, fill, open_store


def test_little_that_is_dead_is_left_alone() -> None:
    """A log of few segments is not compacted, however sparse they are."""
    store = open_store(LogDisk())
    append(store, (1, 0), b"record")
    fill(store, 0)
    store.reclaim()
    compaction = Compaction(store.space, 1 << 60)
    assert compaction.next(1.0) is None
    assert compaction.wait_s(1.0) == planning.LOOK_S


def test_what_is_copied_is_at_most_a_third_of_what_is_appended() -> None:
    """Over a long mixed load the copied bytes stay within the stated bound, and so does the space that the log takes."""
    chance = Random(5)
    store = open_store(LogDisk(), segment_bytes=32 * 1024)
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
    store = open_store(LogDisk(), capacity_bytes=8 * 64 * 1024, segment_bytes=64 * 1024)
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
    store = open_store(LogDisk())
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
    """While appends wait for the disk nothing is copied, unless most of the log is dead or space is short."""
    store = open_store(LogDisk())
    for number in range(10):
        append(store, (1, number), b"slow")
        fill(store, number)
    store.reclaim()
    compaction = Compaction(store.space, 1 << 20)
    monkeypatch.setattr(store.wal, "pending_bytes", planning.PENDING_BYTES_MAX + 1)
    assert compaction.next(1.0) is None
    with monkeypatch.context() as much:
        much.setattr(planning, "PRESSING_SEGMENTS_MIN", 8)
        assert Compaction(store.space, 1 << 20).next(1.0) is not None
    monkeypatch.setattr(store.wal, "problem", "no space left on device")
    assert compaction.next(2.0) is not None


def test_appends_have_the_log_to_themselves_for_most_of_the_time() -> None:
    """After copies that took long to flush the next step comes much later, whatever the rate allows."""
    store = open_store(LogDisk())
    for number in range(10):
        append(store, (1, number), b"slow")
        fill(store, number)
    store.reclaim()
    compaction = Compaction(store.space, 1 << 60)
    assert compaction.next(1.0) is not None
    compaction.flushed(1.5, 0.5)
    assert compaction.wait_s(1.5) == 0.5 * planning.REST
    assert compaction.next(2.0) is None
    assert compaction.wait_s(1.5 + 0.5 * planning.REST) == 0.0
