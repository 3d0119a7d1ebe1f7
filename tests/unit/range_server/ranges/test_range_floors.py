"""What a server keeps of dropped ranges, in whatever order they were dropped: no append of an old writer makes one again."""

from __future__ import annotations

from copy import deepcopy
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.errors import StorageFull, WriterFenced
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.entry import Kind
from tests.fakes.faces import LogDisk
from tests.support.small_log import fill, open_store

DROPPED = {7: 2, 20: 6, 12: 9}  # index → the epoch of its fence


def drop_fenced(store: Store, index: int, epoch: int) -> None:
    """A range without records is fenced, sealed and dropped."""
    store.seal(1, index, epoch, 0, lambda hosted: None)
    store.commit_end(1, index, 0, 0, epoch, lambda hosted: None, by_placement_driver=True)
    store.drop(1, index, lambda: None)
    store.wal.kick()


def append_late(store: Store, index: int) -> None:
    """An append of epoch 5 by a writer that was away all the time."""
    data = batch(0, [b"late"], stream_id=1, range_index=index)
    message = SimpleNamespace(stream_id=1, range_index=index, epoch=5, start_offset=0,
                              confirm_offset=0, recovery=False, memory=False)  # fmt: skip
    store.append(None, 0, message, [NewBatch(check_batch(data), batch_crc(data), data)], data)


def check(store: Store, *dropped: int) -> None:
    """The floor is above all that was dropped, and an append of the old writer to any of it is refused."""
    store.space.validate()
    floor = store.floors[1]
    assert (floor.index, floor.epoch) == (max(dropped), max(DROPPED[each] for each in dropped))
    for index in dropped:
        with pytest.raises(WriterFenced):
            append_late(store, index)


@pytest.mark.parametrize("order", list(permutations(DROPPED)))
def test_dropped_ranges_stay_dropped(order: tuple[int, ...]) -> None:
    """Whichever segments were freed when the server restarts, and when it restarts again."""
    disk = LogDisk()
    store = open_store(disk)
    for index in sorted(DROPPED):
        store.seal(1, index, DROPPED[index], 0, lambda hosted: None)
    freed = 0
    for number, index in enumerate(order):
        fill(store, 2 * number)
        drop_fenced(store, index, DROPPED[index])
        fill(store, 2 * number + 1)
        for _ in range(4):
            freed += store.space.reclaim(1)
            store.wal.kick()
            for restarted in (deepcopy(disk),) * 2:
                check(open_store(restarted), *order[: number + 1])
    assert freed >= 4


def test_a_drop_without_room_for_the_floor_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The range is dropped when the placement driver asks again."""
    disk = LogDisk()
    store = open_store(disk)
    for index, epoch in ((20, 6), (12, 9)):
        store.seal(1, index, epoch, 0, lambda hosted: None)
    drop_fenced(store, 20, 6)
    submit = store.wal.submit

    def full(kind: int, *more: Any) -> int:
        if kind == Kind.FLOOR:
            raise StorageFull("no room")
        return submit(kind, *more)

    with monkeypatch.context() as patch:
        patch.setattr(store.wal, "submit", full)
        with pytest.raises(StorageFull):
            drop_fenced(store, 12, 9)
    store.wal.kick()
    store.space.validate()
    assert (1, 12) in store.replicas and (store.floors[1].index, store.floors[1].epoch) == (20, 6)
    store.drop(1, 12, lambda: None)
    store.wal.kick()
    check(open_store(disk), 20, 12)
