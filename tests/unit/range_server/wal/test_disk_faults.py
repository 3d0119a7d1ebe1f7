"""A disk that fails or is full: nothing is promised that is not there, and what can go on goes on."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import Overloaded, StorageFull
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal import files
from rangelog_server.wal.committer import LogFailed
from rangelog_server.wal.entry import Kind
from rangelog_server.wal.files import SegmentFiles
from rangelog_server.wal.log import Wal
from tests.fakes.disk import FLUSH, WRITE
from tests.fakes.faces import LogDisk

SEGMENT_BYTES = 8 * 1024


class Acks:
    """An appender that counts."""

    def __init__(self) -> None:
        self.durable_offset = 0

    def acked(self, hosted: object, request_id: int) -> None:
        self.durable_offset = hosted.core.durable_offset  # type: ignore[attr-defined]

    def send_acks(self) -> None:
        pass

    def settled(self, size_bytes: int) -> None:
        pass


def open_store(disk: LogDisk) -> Store:
    """Recover from a disk."""
    store = Store(Wal(Path("/log"), 1, io=disk, segment_bytes=SEGMENT_BYTES), cache_bytes=0)
    store.open()
    return store


def append(store: Store, base: int, acks: Acks | None = None, *, stream_id: int = 1, size: int = 1000) -> None:
    """Append one record and flush."""
    data = batch(base, [b"x" * size], stream_id=stream_id)
    message = SimpleNamespace(
        stream_id=stream_id, range_index=0, epoch=1, start_offset=0, confirm_offset=0, recovery=False, memory=False
    )
    store.append(acks, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    store.wal.kick()


@pytest.mark.parametrize("call", [WRITE, FLUSH])
def test_failed_write_or_flush_is_fatal_and_nothing_is_acked(call: str) -> None:
    """EIO: no ack for what was in the group, the fatal hook is called, and the next start has all that was acked."""
    for good in range(6):
        disk = LogDisk()
        store = open_store(disk)
        told: list[str] = []
        store.wal.on_fatal = told.append
        acks = Acks()
        for base in range(good):
            append(store, base, acks)

        def fail(name: str) -> None:
            if name == call:
                raise OSError(errno.EIO, "Input/output error")

        disk.fail = fail
        with pytest.raises(LogFailed):
            append(store, good, acks)
        assert told
        assert acks.durable_offset == good
        disk.kill()
        if good:
            assert open_store(disk).replicas[1, 0].core.durable_offset >= good


def test_full_disk_refuses_appends_and_serves_the_rest() -> None:
    """ENOSPC: appends get StorageFull and change nothing; reads, fences and ends go on; space brings appends back."""
    disk = LogDisk()
    disk.free_bytes = 3 * SEGMENT_BYTES
    store = open_store(disk)
    acks = Acks()
    append(store, 0, stream_id=2)
    base = 0
    with pytest.raises(StorageFull):
        while base < 100:
            append(store, base, acks)
            base += 1
    assert 15 < base < 25
    assert acks.durable_offset == base
    hosted = store.replicas[1, 0]
    assert hosted.core.end_offset == base
    with pytest.raises(StorageFull):
        append(store, base, acks)

    assert len(read_batches(store.wal, make_plan(hosted, 0, base))) == base
    fenced: list[int] = []
    store.seal(2, 0, 5, 0, lambda other: fenced.append(other.core.durable_offset))
    store.wal.kick()
    assert fenced == [1]
    ended: list[bool] = []
    store.commit_end(2, 0, 0, 1, 5, lambda other: ended.append(other.core.complete))
    store.wal.kick()
    assert ended == [True]

    disk.free_bytes = 4 * SEGMENT_BYTES
    append(store, base, acks)
    assert acks.durable_offset == base + 1
    again = open_store(disk)
    assert again.replicas[1, 0].core.durable_offset == base + 1
    assert again.replicas[2, 0].core.epoch == 5


def test_a_segment_that_is_not_ready_is_no_full_disk() -> None:
    """Appends are refused as overload while the next segment is prepared; as a full disk once it could not be."""
    disk = LogDisk()
    store = open_store(disk)
    wal, jobs = store.wal, deque[Callable[[], None]]()
    wal._do = jobs.append  # type: ignore[assignment, method-assign]
    acks, base = Acks(), 0

    def work() -> None:
        while jobs:
            jobs.popleft()()

    for is_full in (False, True, False):
        disk.free_bytes = 0 if is_full else 100 * SEGMENT_BYTES
        with pytest.raises(Overloaded):
            while True:
                append(store, base, acks)
                base += 1
        assert wal.waits_for_segment and acks.durable_offset == base
        with pytest.raises(Overloaded):
            wal.submit(Kind.SERVER, 0, 0, bytes(wal.entry_bytes_max), b"")
        work()
        if is_full:
            with pytest.raises(StorageFull, match="No space left"):
                append(store, base, acks)
            with pytest.raises(StorageFull, match="No space left"):
                wal.submit(Kind.SERVER, 0, 0, bytes(wal.entry_bytes_max), b"")
            disk.free_bytes = 100 * SEGMENT_BYTES
            work()
        append(store, base, acks)
        base += 1
        work()
    assert acks.durable_offset == base


def test_dropping_ranges_gives_space_back_on_a_full_disk() -> None:
    """When a range is dropped its segments are recycled, and appends go on in them."""
    disk = LogDisk()
    disk.free_bytes = 3 * SEGMENT_BYTES
    store = open_store(disk)
    with pytest.raises(StorageFull):
        for base in range(100):
            append(store, base)
    end = store.replicas[1, 0].core.end_offset
    store.commit_end(1, 0, 0, end, 1, lambda hosted: None, by_placement_driver=True)
    store.drop(1, 0, lambda: None)
    store.wal.kick()
    assert store.reclaim() == 2
    acks = Acks()
    for base in range(10):
        append(store, base, acks, stream_id=3)
    assert acks.durable_offset == 10
    again = open_store(disk)
    assert sorted(again.replicas) == [(3, 0)]
    assert not again.problems


def test_a_surplus_is_given_back_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many freed segments some are kept; of the rest a little at a time leaves the disk, also over a restart."""
    monkeypatch.setattr(files, "SHRINK_BYTES", SEGMENT_BYTES // 4)
    disk = LogDisk()
    wal_files = SegmentFiles(Path("/log"), disk, SEGMENT_BYTES, 1)
    wal_files.free_files_max = 2
    for segment in [wal_files.prepare(sequence) for sequence in range(1, 6)]:
        wal_files.release(segment)
    used = []
    before = disk.free_bytes
    for _ in range(6):
        assert wal_files.has_surplus
        wal_files.shrink()
        used.append(disk.free_bytes - before)
    assert used == [SEGMENT_BYTES // 4 * step for step in range(1, 7)]
    assert wal_files.used_bytes == 7 * SEGMENT_BYTES // 2

    again = SegmentFiles(Path("/log"), disk, SEGMENT_BYTES, 1)
    again.free_files_max = 2
    assert not again.open_all()
    while again.has_surplus:
        again.shrink()
    assert again.used_bytes == 2 * SEGMENT_BYTES
    assert disk.free_bytes - before == 3 * SEGMENT_BYTES
    fresh = [again.prepare(sequence) for sequence in range(10, 12)]  # what is left is whole
    assert [disk.size(segment.fd) for segment in fresh] == [SEGMENT_BYTES] * 2
    assert again.used_bytes == 2 * SEGMENT_BYTES


def test_capacity_is_a_full_disk() -> None:
    """capacity_bytes bounds the log like the disk does."""
    wal = Wal(Path("/log"), 1, io=LogDisk(), segment_bytes=SEGMENT_BYTES, capacity_bytes=2 * SEGMENT_BYTES)
    store = Store(wal)
    store.open()
    with pytest.raises(StorageFull, match="capacity"):
        for base in range(100):
            append(store, base)
    assert wal.used_bytes == 2 * SEGMENT_BYTES
