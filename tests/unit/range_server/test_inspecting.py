"""What a range server tells of the places and checksums of a replica's batches, and what a read of them finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import RangeNotFound
from rangelog_proto.v1 import range_server_pb2 as pb
from rangelog_server.inspecting import BatchLists, locate_batch
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk

KEY = (1, 0)
BATCHES = 4


def value(number: int) -> bytes:
    """What a batch holds, more than a block of the disk."""
    return (b"<%d>" % number) * 4096


def data_of(number: int) -> bytes:
    """The batch of two records from offset 2 * number on."""
    return batch(2 * number, [value(number), b"x"], stream_id=KEY[0], range_index=KEY[1])


@pytest.fixture
def disk() -> LogDisk:
    """A disk in memory."""
    return LogDisk()


@pytest.fixture
def store(disk: LogDisk) -> Store:
    """One open replica with four batches."""
    made = Store(Wal(Path("/log"), 3, io=disk, segment_bytes=1 << 20), cache_bytes=1 << 20)
    made.open()
    for number in range(BATCHES):
        data = data_of(number)
        message = SimpleNamespace(stream_id=KEY[0], range_index=KEY[1], epoch=1, start_offset=0,
                                  confirm_offset=0, recovery=False, memory=False)  # fmt: skip
        made.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)
        made.wal.kick()
    return made


@pytest.fixture
async def lists(store: Store) -> AsyncIterator[BatchLists]:
    """The lists of that store."""
    made = BatchLists(store)
    yield made
    made.close()


def _request(**fields: object) -> pb.ListBatchesRequest:
    return pb.ListBatchesRequest(stream_id=KEY[0], range_index=KEY[1], **fields)  # type: ignore[arg-type]


def test_a_batch_is_where_it_is_said_to_be(store: Store, disk: LogDisk) -> None:
    """The bytes at the named position of the named segment are the batch, and its checksum is the named one."""
    told = locate_batch(store.replicas[KEY], 5, last=False)
    assert (told.batch.base_offset, told.batch.count) == (4, 2)
    name = next(each for each in disk.names if f"{told.batch.log_file:0}" in each and each.endswith(".seg"))
    at = told.batch.log_position
    assert disk.content(name)[at : at + told.batch.length_bytes] == data_of(2)
    assert told.batch.crc == batch_crc(data_of(2)) and not told.writer_connected


def test_an_offset_that_is_not_held_has_no_batch(store: Store) -> None:
    """Beyond the end, and in a replica that trusts none of its records, nothing is claimed."""
    assert not locate_batch(store.replicas[KEY], 2 * BATCHES, last=False).HasField("batch")
    assert locate_batch(store.replicas[KEY], 0, last=True).batch.base_offset == 2 * BATCHES - 2
    store.quarantine(store.replicas[KEY], "a test")
    assert not locate_batch(store.replicas[KEY], 1, last=False).HasField("batch")


def test_a_writer_is_named_while_it_is_connected(store: Store) -> None:
    """The latest appender's connection; a fenced replica has no writer any more."""
    hosted = store.replicas[KEY]
    connection = SimpleNamespace(client="host/7", closed=False, ask_confirm=lambda hosted: None)
    hosted.writing = lambda: connection
    told = locate_batch(hosted, 0, last=True)
    assert (told.writer_connected, told.writer) == (True, "host/7")
    connection.closed = True
    assert not locate_batch(hosted, 0, last=True).writer_connected
    connection.closed = False
    hosted.core.seal(2)
    assert not locate_batch(hosted, 0, last=True).writer_connected


async def test_all_batches_are_listed_in_pages(lists: BatchLists) -> None:
    """From the batch that holds the offset on, up to the end, no more than the page allows."""
    first = await lists.page(_request(from_offset=1, page_size=3))
    assert [each.base_offset for each in first.batches] == [0, 2, 4]
    rest = await lists.page(_request(from_offset=6))
    assert [(each.base_offset, each.crc) for each in rest.batches] == [(6, batch_crc(data_of(3)))]
    assert [each.base_offset for each in (await lists.page(_request(end_offset=3))).batches] == [0, 2]
    assert not (await lists.page(_request(from_offset=99))).batches
    with pytest.raises(RangeNotFound):
        await lists.page(pb.ListBatchesRequest(stream_id=9))


async def test_a_flipped_bit_is_found_by_a_read_only(lists: BatchLists, store: Store, disk: LogDisk) -> None:
    """The headers in memory cannot see it; the read names the batch, and the replica is quarantined for repair."""
    name = next(each for each in disk.names if disk.content(each).find(value(2)) >= 0)
    disk.names[name].rot(disk.content(name).find(value(2)) + 5000, 0x20)
    assert len((await lists.page(_request())).batches) == BATCHES
    found = await lists.page(_request(read=True))
    assert [each.base_offset for each in found.batches] == [0, 2]
    assert found.problem_offset == 4 and "offset 4" in found.problem
    assert store.replicas[KEY].core.trust is DiskTrust.QUARANTINED


async def test_a_read_page_is_bounded_in_bytes(lists: BatchLists, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends after so many bytes, but has one batch at least; reads are counted for the caller's rate."""
    monkeypatch.setattr("rangelog_server.inspecting.READ_PAGE_BYTES", 10)
    found = await lists.page(_request(read=True))
    assert len(found.batches) == 1 and found.read_bytes == len(data_of(0)) and not found.problem
