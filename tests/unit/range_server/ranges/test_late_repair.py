"""A copy from a peer that arrives after its replica was dropped: the batches were on their way when the directive came."""

from __future__ import annotations

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import RangeDropped
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from tests.fakes.faces import LogDisk
from tests.support.small_log import Key, open_store

RANGE: Key = (1, 0)


def sealed_replica(store: Store) -> None:
    """Make an empty replica of a sealed range, as the placement driver directs before a copy."""
    store.commit_end(*RANGE, 0, 1, 1, lambda hosted: None, by_placement_driver=True)
    store.wal.kick()


def test_a_dropped_replica_takes_no_batches() -> None:
    """They are refused, no segment counts them, and a restart does not bring the replica back."""
    disk = LogDisk()
    store = open_store(disk)
    sealed_replica(store)
    hosted = store.replicas[RANGE]
    store.drop(*RANGE, lambda: None)
    store.wal.kick()
    data = batch(0, [b"late"])
    with pytest.raises(RangeDropped):
        store.repair(hosted, [NewBatch(check_batch(data), batch_crc(data), data)], lambda: None)
    store.wal.kick()
    store.space.validate()
    assert RANGE not in open_store(disk).replicas


def test_a_replica_that_was_hosted_again_is_another_one() -> None:
    """The late batches belong to the dropped one; the new one is completed by a directive of its own."""
    disk = LogDisk()
    store = open_store(disk)
    sealed_replica(store)
    before = store.replicas[RANGE]
    store.drop(*RANGE, lambda: None)
    store.wal.kick()
    sealed_replica(store)
    data = batch(0, [b"late"])
    with pytest.raises(RangeDropped):
        store.repair(before, [NewBatch(check_batch(data), batch_crc(data), data)], lambda: None)
    store.wal.kick()
    store.space.validate()
    assert store.replicas[RANGE].core.batch_count == 0
    assert open_store(disk).replicas[RANGE].core.batch_count == 0
