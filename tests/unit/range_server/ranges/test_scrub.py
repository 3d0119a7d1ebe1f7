"""Scrubbing reads every sealed replica in its turn, at its pace, and takes damaged ones out of service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_server.agent.scrubbing import Scrubbing
from rangelog_server.ranges import scrub as scrub_module
from rangelog_server.ranges.reading import read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.scrub import Scrub
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk
from tests.support.waiting import until

SEALED = [(1, 0), (1, 1), (4, 0)]
OPEN = (2, 0)
BATCHES = 5


def make_store(disk: LogDisk) -> Store:
    """Three sealed replicas and an open one."""
    store = Store(Wal(Path("/log"), 3, io=disk, segment_bytes=8192), cache_bytes=0)
    store.open()
    for key in (*SEALED, OPEN):
        for base in range(BATCHES):
            data = batch(base, [b"%d/%d " % key * 60], stream_id=key[0], range_index=key[1])
            message = SimpleNamespace(stream_id=key[0], range_index=key[1], epoch=1, start_offset=0,
                                      confirm_offset=0, recovery=False, memory=False)  # fmt: skip
            store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    for key in SEALED:
        store.commit_end(*key, 0, BATCHES, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    return store


def one_pass(scrub: Scrub, store: Store, now_s: float) -> tuple[list[tuple[tuple[int, int], int]], float]:
    """Run a pass on a clock of its own; return (replica, batch) in the order of reading, and when it was over."""
    read: list[tuple[tuple[int, int], int]] = []
    passes = scrub.passes
    while scrub.passes == passes:
        step = scrub.next(store.replicas, now_s)
        if step is not None:
            read_batches(store.wal, step.plan, from_disk=True)
            read += [(step.hosted.key, wanted.base_offset) for wanted in step.plan.wanted]
        now_s += scrub.wait_s(now_s)
        if step is None and scrub.passes > passes:
            break
    return read, now_s


def test_each_batch_of_each_sealed_replica_is_read_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in steps of bounded size, and the open replica is left alone."""
    monkeypatch.setattr(scrub_module, "STEP_BYTES", 1000)
    store = make_store(LogDisk())
    read, _ = one_pass(Scrub(10_000, 1.0), store, 50.0)
    assert read == [(key, base) for key in SEALED for base in range(BATCHES)]


def test_the_pace_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than so many bytes a second, and passes begin so far apart."""
    monkeypatch.setattr(scrub_module, "STEP_BYTES", 1000)
    store = make_store(LogDisk())
    size = sum(store.replicas[key].core.size_bytes for key in SEALED)
    scrub = Scrub(size // 10, 60.0)
    _, over_s = one_pass(scrub, store, 100.0)
    assert scrub.read_bytes == size
    assert over_s == pytest.approx(160.0)
    assert scrub.next(store.replicas, 159.0) is None
    assert scrub.next(store.replicas, 160.0) is not None
    slow = Scrub(size // 100, 60.0)
    _, over_s = one_pass(slow, store, 100.0)
    assert over_s == pytest.approx(200.0, abs=2.0)  # ten bytes in a thousand a second: the pace, not the interval


def test_what_goes_away_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that is dropped in the middle of a pass ends nothing."""
    monkeypatch.setattr(scrub_module, "STEP_BYTES", 1000)
    store = make_store(LogDisk())
    scrub = Scrub(1 << 30, 1.0)
    first = scrub.next(store.replicas, 0.0)
    assert first is not None
    store.drop(*first.hosted.key, lambda: None)
    store.drop(*SEALED[2], lambda: None)
    store.wal.kick()
    read, _ = one_pass(scrub, store, 0.5)
    assert read == [(SEALED[1], base) for base in range(BATCHES)]


def test_nothing_to_scrub_is_not_a_busy_loop() -> None:
    """An empty server is looked at once an interval."""
    store = Store(Wal(Path("/log"), 3, io=LogDisk(), segment_bytes=8192))
    store.open()
    scrub = Scrub(1000, 30.0)
    assert scrub.next(store.replicas, 5.0) is None
    assert scrub.wait_s(5.0) == 30.0


async def test_rot_in_an_idle_replica_is_found_and_reported() -> None:
    """A flipped byte that nobody reads: the replica is quarantined and in the next report, the others are not."""
    disk = LogDisk()
    store = make_store(disk)
    hosted = store.replicas[SEALED[1]]
    name = "wal-0000000000000001.seg"
    content = disk.content(name)
    content[bytes(content).index(b"1/1 ") + 30] ^= 4
    store.changed.clear()
    scrubbing = asyncio.create_task(Scrubbing(store, Scrub(1 << 30, 0.01)).run())
    await until(lambda: hosted.core.trust is DiskTrust.QUARANTINED, within_s=5)
    scrubbing.cancel()
    assert list(store.changed) == [SEALED[1]]
    assert [store.replicas[key].core.trust for key in (*SEALED, OPEN)].count(DiskTrust.SOUND) == 3
