"""What cutting the store at every call found: crashes whose second half comes at or after the next start."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.disk import ProcessGone
from tests.fakes.faces import LogDisk

SEGMENT_BYTES = 8192
"""Two blocks: what is torn is torn between them."""
LONG_SEGMENT_BYTES = 65_536


def open_store(disk: LogDisk, segment_bytes: int = SEGMENT_BYTES) -> Store:
    """Recover from a disk."""
    store = Store(Wal(Path("/log"), 3, io=disk, segment_bytes=segment_bytes), cache_bytes=0)
    store.open()
    return store


def append(store: Store, stream_id: int, base: int) -> bytes:
    """Append one record: a short one first, then long ones."""
    data = batch(base, [b"%d" % base * (700 if base else 40)], stream_id=stream_id)
    message = SimpleNamespace(
        stream_id=stream_id, range_index=0, epoch=1, start_offset=0, confirm_offset=0, recovery=False, memory=False
    )
    store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
    return data


def torn_in_a_write(disk: LogDisk) -> None:
    """Two ranges with one flushed batch each, and a write of both that was torn by a kill."""
    store = open_store(disk)
    for stream_id in (1, 2):
        append(store, stream_id, 0)
    store.wal.kick()
    for base in (1, 2, 3):
        for stream_id in (1, 2):
            append(store, stream_id, base)
    disk.cut_after = 0
    with pytest.raises(ProcessGone):
        store.wal.kick()
    disk.kill()


@pytest.mark.parametrize("crashes", [1, 2, 3])
@pytest.mark.parametrize("after", range(4))
def test_a_torn_tail_stays_one_when_its_recovery_is_cut_short(after: int, crashes: int) -> None:
    """A crash while a torn tail is being recovered was taken for damage to flushed bytes, and quarantined replicas."""
    disk = LogDisk()
    torn_in_a_write(disk)
    for _ in range(crashes):
        disk.cut_after = after
        try:
            open_store(disk)
        except ProcessGone:
            pass
        disk.kill()
    store = open_store(disk)
    for stream_id in (1, 2):
        core = store.replicas[stream_id, 0].core
        assert core.trust is DiskTrust.DOUBTFUL
        assert core.problem.startswith("the tail of the log was damaged and cut")
        assert core.durable_offset >= 1
    again = open_store(disk)
    assert not again.problems  # its consequences are written down
    assert again.replicas[1, 0].core.trust is DiskTrust.DOUBTFUL


def test_damage_before_the_last_write_is_still_damage_to_flushed_bytes() -> None:
    """Rot in an earlier write beside a torn tail and an unfinished start quarantines the range it is in."""
    disk = LogDisk()
    torn_in_a_write(disk)
    disk.cut_after = 1
    with pytest.raises(ProcessGone):
        open_store(disk)
    disk.kill()
    content = disk.content("wal-0000000000000001.seg")
    content[bytes(content).index(b"0" * 40)] ^= 1
    assert open_store(disk).replicas[1, 0].core.trust is DiskTrust.QUARANTINED


def test_names_that_a_killed_process_left_unflushed_are_flushed_before_anything_goes_there() -> None:
    """A segment renamed by a process that was killed before the directory's flush took acked batches with it."""
    disk = LogDisk()
    disk.cut_after = 4  # create, write, flush, rename
    with pytest.raises(ProcessGone):
        open_store(disk)
    disk.kill()
    store = open_store(disk)
    data = append(store, 1, 0)
    store.wal.kick()
    assert store.replicas[1, 0].core.durable_offset == 1

    class Nothing(Random):
        def random(self) -> float:
            return 0.0  # the power cut keeps durable names alone

    disk.power_loss(Nothing())
    store = open_store(disk)
    assert read_batches(store.wal, make_plan(store.replicas[1, 0], 0, 1)) == [data]


@pytest.mark.parametrize("filled", [True, False])
def test_a_first_write_that_was_killed_leaves_nothing_behind_in_a_prepared_segment(filled: bool) -> None:
    """Its headers were found behind the end at the second start, and the tail doubted, though no flushed byte was missing."""
    disk = LogDisk()
    store = open_store(disk, LONG_SEGMENT_BYTES)
    base = 0
    while filled and store.wal.log_end % LONG_SEGMENT_BYTES < LONG_SEGMENT_BYTES - 9_000:
        append(store, 1, base)
        store.wal.kick()
        base += 1
    for more in range(30):
        append(store, 1, base + more)
    disk.cut_after = 3 if filled else 0  # half of what follows the block with the first header is written
    with pytest.raises(ProcessGone):
        store.wal.kick()
    disk.kill()
    again = open_store(disk, LONG_SEGMENT_BYTES)
    assert not again.problems
    end = again.replicas[1, 0].core.end_offset if (1, 0) in again.replicas else 0
    append(again, 1, end)
    again.wal.kick()
    disk.kill()
    third = open_store(disk, LONG_SEGMENT_BYTES)
    assert not third.problems
    assert third.replicas[1, 0].core.trust is DiskTrust.SOUND
    assert third.replicas[1, 0].core.end_offset == end + 1
