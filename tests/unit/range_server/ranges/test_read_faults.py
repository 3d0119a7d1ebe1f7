"""A read that fails is no damage yet: the reader is sent elsewhere, and only what stays so costs the replica its good name."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import Corruption, RangeNotFound, Unavailable
from rangelog_core.frame import Frame, Opcode
from rangelog_proto.v1 import data_pb2
from rangelog_server.agent.scrubbing import Scrubbing
from rangelog_server.ranges import read_faults
from rangelog_server.ranges.read_faults import FAULTS_MIN, FORGOTTEN_S, LASTING_S, ReadFault, ReadFaults
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.scrub import AGAIN_S, Scrub
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import DataPlane
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.disk import READ
from tests.fakes.faces import LogDisk
from tests.support.memory_server import Client
from tests.support.waiting import until

KEY = (1, 0)


def value(number: int) -> bytes:
    """What one batch holds: more than a block, so that its middle is in no other batch's blocks."""
    return (b"<%d>" % number) * 4096


def make_store(disk: LogDisk, batches: int = 4) -> Store:
    """One sealed replica."""
    store = Store(Wal(Path("/log"), 3, io=disk, segment_bytes=1 << 20), cache_bytes=0)
    store.open()
    for base in range(batches):
        data = batch(base, [value(base)], stream_id=KEY[0], range_index=KEY[1])
        message = SimpleNamespace(stream_id=KEY[0], range_index=KEY[1], epoch=1, start_offset=0,
                                  confirm_offset=0, recovery=False, memory=False)  # fmt: skip
        store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
        store.wal.kick()
    store.commit_end(*KEY, 0, batches, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()
    return store


def spoil(disk: LogDisk, number: int, error: int) -> None:
    """Have reads fail that touch the middle of one batch."""
    name, start = next((name, start) for name in disk.names if (start := disk.content(name).find(value(number))) >= 0)
    disk.refuse_reads(name, start + 4096, start + 8192, error)


def refuse(disk: LogDisk, number: int) -> Callable[[], None]:
    """Have every read fail; returns what ends it."""

    def fail(call: str) -> None:
        if call == READ:
            raise OSError(number, "as the test wants it")

    disk.fail = fail
    return lambda: setattr(disk, "fail", lambda call: None)


# ---- reading


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EACCES, errno.EMFILE, errno.ENFILE, errno.EINTR])
def test_what_the_machine_lacks_is_no_fault_of_the_disk(number: int) -> None:
    """Nothing can be read now, and that says nothing about the batches."""
    disk = LogDisk()
    store = make_store(disk)
    refuse(disk, number)
    with pytest.raises(Unavailable) as caught:
        read_batches(store.wal, make_plan(store.replicas[KEY], 0, 4))
    assert type(caught.value) is Unavailable and caught.value.retriable


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOENT, errno.EUCLEAN, errno.EBADMSG])
def test_the_batch_that_the_disk_refuses_is_named(number: int) -> None:
    """Of the many that one read covers, exactly the one; those before and after it can be read."""
    disk = LogDisk()
    store = make_store(disk)
    hosted = store.replicas[KEY]
    spoil(disk, 2, number)
    with pytest.raises(ReadFault) as caught:
        read_batches(store.wal, make_plan(hosted, 0, 4))
    assert (caught.value.base_offset, caught.value.end_offset, caught.value.code) == (2, 3, "UNAVAILABLE")
    assert len(read_batches(store.wal, make_plan(hosted, 0, 2)) + read_batches(store.wal, make_plan(hosted, 3, 4))) == 3


def test_a_fault_that_passes_while_it_is_looked_at_is_none() -> None:
    """The read of many fails once, those of each do not: the reader hears nothing of it."""
    disk = LogDisk()
    store = make_store(disk)
    failures = [OSError(errno.EIO, "once")]

    def fail(call: str) -> None:
        if call == READ and failures:
            raise failures.pop()

    disk.fail = fail
    assert len(read_batches(store.wal, make_plan(store.replicas[KEY], 0, 4))) == 4


def test_a_segment_that_is_gone_is_a_replica_that_is_gone() -> None:
    """The replica was dropped and its segment given back after the plan was made: nothing is damaged."""
    store = make_store(LogDisk())
    plan = make_plan(store.replicas[KEY], 0, 4)
    store.wal.segments.clear()
    with pytest.raises(RangeNotFound):
        read_batches(store.wal, plan)


# ---- the core


def fault(base_offset: int = 5) -> ReadFault:
    """Of a batch of ten records."""
    return ReadFault("refused", base_offset, base_offset + 10)


def test_a_fault_is_lasting_by_number_and_time() -> None:
    """Many at once are one event, two far apart may be two: it takes both."""
    at_once = ReadFaults()
    assert not any(at_once.failed(KEY, fault(), 100.0 + n / 100) for n in range(50))
    assert at_once.failed(KEY, fault(), 100.0 + LASTING_S)
    rare = ReadFaults()
    assert not any(rare.failed(KEY, fault(), n * LASTING_S) for n in range(FAULTS_MIN - 1))
    assert rare.failed(KEY, fault(), (FAULTS_MIN - 1) * LASTING_S)


def test_each_batch_has_its_own_count() -> None:
    """Faults of others, of this range or another, do not add up."""
    faults = ReadFaults()
    for n in range(20):
        assert not faults.failed((n, 0), fault(), n * LASTING_S)
        assert not faults.failed(KEY, fault(n * 10), n * LASTING_S)


@pytest.mark.parametrize(("start", "end", "clears"), [(5, 15, True), (14, 20, True), (0, 6, True),
                                                      (15, 99, False), (0, 5, False)])  # fmt: skip
def test_a_read_that_succeeds_clears_what_it_covers(start: int, end: int, clears: bool) -> None:
    """Nothing else."""
    faults = ReadFaults()
    for n in range(FAULTS_MIN - 1):
        faults.failed(KEY, fault(), float(n))
    faults.succeeded(KEY, start, end)
    faults.succeeded((7, 7), 0, 1000)
    assert faults.failed(KEY, fault(), LASTING_S) is not clears


def test_old_faults_and_dropped_replicas_are_forgotten() -> None:
    """A fault a day is not a batch that is lost, and a new replica of a range starts clean."""
    faults = ReadFaults()
    assert not any(faults.failed(KEY, fault(), n * (FORGOTTEN_S + 1)) for n in range(20))
    for n in range(FAULTS_MIN - 1):
        faults.failed(KEY, fault(), 1e6 + n)
    faults.forget(KEY)
    assert not faults.failed(KEY, fault(), 1e6 + LASTING_S)


def test_the_store_draws_the_consequences() -> None:
    """A checksum quarantines at once, a lasting fault then, what the machine lacks never; a drop forgets."""
    store = make_store(LogDisk())
    hosted = store.replicas[KEY]
    for n in range(10):
        store.read_failed(hosted, Unavailable("too many open files"), n * LASTING_S)
    for n in range(FAULTS_MIN - 1):
        store.read_failed(hosted, fault(1), n * LASTING_S)
        assert hosted.core.trust is DiskTrust.SOUND
    store.read_failed(hosted, fault(1), FAULTS_MIN * LASTING_S)
    assert hosted.core.trust is DiskTrust.QUARANTINED and KEY in store.changed
    store.drop(*KEY, lambda: None)
    assert not store.read_faults._faults
    rotten = make_store(LogDisk())
    rotten.read_failed(rotten.replicas[KEY], Corruption("bits rot"), 0.0)
    assert rotten.replicas[KEY].core.trust is DiskTrust.QUARANTINED


# ---- fetches


def with_records(plane: DataPlane) -> Client:
    """A client that appended four records, which are no longer in memory."""
    client = Client(plane).hello()
    for base in range(4):
        client.append(base, value(base), confirm_offset=base)
    client.confirm(4)
    client.wire.frames()
    plane.store.cache._batches.clear()
    return client


def disk_of(plane: DataPlane) -> LogDisk:
    """What its log is on."""
    disk = plane.store.wal.io
    assert isinstance(disk, LogDisk)
    return disk


def code_of(frame: Frame) -> str:
    """An error's code, or nothing."""
    return data_pb2.Error.FromString(frame.message).code if frame.opcode is Opcode.ERROR else ""


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM, errno.EACCES, errno.EMFILE])
async def test_a_fetch_that_cannot_be_read_now_is_told_so(plane: DataPlane, number: int) -> None:
    """UNAVAILABLE, so that the reader asks another replica; this one stays in service and serves when it can again."""
    client = with_records(plane)
    heal = refuse(disk_of(plane), number)
    for _ in range(5):
        client.fetch(0)
        assert [code_of(frame) for frame in await client.replies(1)] == ["UNAVAILABLE"]
    assert plane.store.find(1, 0).core.trust is DiskTrust.SOUND
    heal()
    client.fetch(0)
    (frame,) = await client.replies(1)
    assert frame.opcode is Opcode.FETCH_REPLY and len(frame.payload) > 4 * 4096
    assert not plane.store.read_faults._faults


async def test_a_fault_that_stays_quarantines(plane: DataPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the loop's own time."""
    monkeypatch.setattr(read_faults, "LASTING_S", 0.0)
    client = with_records(plane)
    refuse(disk_of(plane), errno.EIO)
    for _ in range(FAULTS_MIN):
        assert plane.store.find(1, 0).core.trust is DiskTrust.SOUND
        client.fetch(0)
        assert [code_of(frame) for frame in await client.replies(1)] == ["UNAVAILABLE"]
    assert plane.store.find(1, 0).core.trust is DiskTrust.QUARANTINED
    client.fetch(0)
    assert [code_of(frame) for frame in await client.replies(1)] == ["CORRUPTION"]


async def test_a_fetch_of_a_replica_that_is_dropped_meanwhile(plane: DataPlane) -> None:
    """RANGE_NOT_FOUND, whatever reading it answers: its segment may be another's by then."""
    client = with_records(plane)
    refuse(disk_of(plane), errno.EIO)
    client.fetch(0)
    plane.store.drop(1, 0, lambda: None)
    assert [code_of(frame) for frame in await client.replies(1)] == ["RANGE_NOT_FOUND"]
    assert not plane.store.read_faults._faults


# ---- the scrubber


def test_a_refused_step_is_taken_again() -> None:
    """After a pause, before anything else: until it succeeds or the replica is out of service."""
    store = make_store(LogDisk())
    scrub = Scrub(1 << 30, 10.0)
    step = scrub.next(store.replicas, 0.0)
    assert step is not None
    scrub.again(step, 1.0)
    assert scrub.next(store.replicas, AGAIN_S) is None
    again = scrub.next(store.replicas, 1.0 + AGAIN_S)
    assert again is not None and again.plan == step.plan
    scrub.again(step, 100.0)
    store.quarantine(store.replicas[KEY], "bits rot")
    assert scrub.next(store.replicas, 200.0) is None
    assert scrub.passes == 1


async def scrubbed(store: Store, over: Callable[[], bool]) -> None:
    """Scrub until something is so."""
    scrubbing = asyncio.create_task(Scrubbing(store, Scrub(1 << 30, 0.01)).run())
    await until(over, within_s=5)
    assert not scrubbing.done()
    scrubbing.cancel()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOMEM])
async def test_the_scrubber_outlives_what_passes(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is quarantined by one refused read, and scrubbing goes on."""
    monkeypatch.setattr("rangelog_server.ranges.scrub.AGAIN_S", 0.01)
    disk = LogDisk()
    store = make_store(disk)
    spoil(disk, 1, number)
    reads = Counter[str]()
    disk.fail = lambda call: reads.update([call])
    await scrubbed(store, lambda: reads[READ] > 20)
    assert store.replicas[KEY].core.trust is DiskTrust.SOUND


async def test_the_scrubber_finds_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the disk goes on refusing, though nobody reads it."""
    monkeypatch.setattr("rangelog_server.ranges.scrub.AGAIN_S", 0.01)
    monkeypatch.setattr(read_faults, "LASTING_S", 0.02)
    disk = LogDisk()
    store = make_store(disk)
    spoil(disk, 1, errno.EIO)
    await scrubbed(store, lambda: store.replicas[KEY].core.trust is DiskTrust.QUARANTINED)
