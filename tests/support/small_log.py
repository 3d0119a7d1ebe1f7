"""A store over a log of small segments in memory: ranges that stay, and others that come and go, so that the log moves on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from rangelog_core.batch import batch_crc, check_batch
from rangelog_server.ranges.reading import make_plan, read_batches
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.log import Wal
from tests.fakes.faces import LogDisk

SEGMENT_BYTES = 8 * 1024

Key = tuple[int, int]


def open_store(disk: LogDisk, *, capacity_bytes: int = 0, segment_bytes: int = SEGMENT_BYTES) -> Store:
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
