"""One workload for the production store on a crash disk: everything that writes to the log, in an order drawn by a seed.

The log's two threads are queues that the workload empties a step at a time, so commits, new segments, recycling and the
loop's completions interleave, and the same seed gives the same calls.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import SimpleNamespace

from rangelog_core.batch import batch_crc, check_batch
from rangelog_core.batch_extension import encode_extension
from rangelog_core.errors import RangelogError, StorageFull
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.replica import NewBatch
from rangelog_server.ranges.store import Store
from rangelog_server.testing import batch
from rangelog_server.wal.committer import Committer, Pending
from rangelog_server.wal.encryption import LogKeys
from rangelog_server.wal.log import LoopCall, Wal
from tests.crash_points.store_promises import Acks, Key, Promises
from tests.fakes.faces import LogDisk
from tests.support.eager_compaction import EagerCompaction, submit_moves

SALT = 77
RANGES: tuple[Key, ...] = ((1, 0), (1, 1), (2, 0), (3, 0))


class SteppedCommitter:
    """In place of CommitterThread: the production committer, a group at a time."""

    def __init__(self, committer: Committer, flushed: Callable[[list[Pending]], None]) -> None:
        self._committer, self._flushed = committer, flushed
        self.waiting: list[Pending] = []

    def put(self, entries: list[Pending]) -> None:
        """See CommitterThread."""
        self.waiting += entries

    def step(self) -> None:
        """Write and flush what waits."""
        entries, self.waiting = self.waiting, []
        if entries:
            self._committer.commit(entries)
            self._flushed(entries)

    def stop(self, timeout_s: float) -> None:
        """See CommitterThread."""
        self.step()


class SteppedWal(Wal):
    """The production log; its threads are queues."""

    def __init__(self, io: LogDisk, segment_bytes: int, keys: LogKeys | None = None) -> None:
        super().__init__(Path("/log"), SALT, io=io, segment_bytes=segment_bytes, keys=keys)
        self.files.free_files_max = 1
        self.jobs: list[Callable[[], None]] = []
        self.loop: list[Callable[[], None]] = []

    def start(self, loop_call: LoopCall, loop_soon: LoopCall | None = None) -> None:
        """See Wal."""
        self._loop_call = loop_call
        self._loop_soon = loop_soon
        self.committer = SteppedCommitter(self._committer, self._flushed_on_thread)
        self._thread = self.committer  # type: ignore[assignment]
        self._want_spare()

    def _commit_here(self) -> None:
        super()._commit_here()
        self._committer.last_commit_s = 0.0  # the real time that it took decides nothing here

    def _do(self, job: Callable[[], None]) -> None:
        if self._loop_call is None:
            job()
        else:
            self.jobs.append(job)

    def _work_one(self) -> None:
        if self.jobs:
            self.jobs.pop(0)()
        elif self.files.has_surplus:
            self.files.shrink()

    def step(self, chance: Random) -> None:
        """One of the threads, or the loop, goes on."""
        which = chance.randrange(3)
        if which == 0:
            self.committer.step()
        elif which == 1 and (self.jobs or self.files.has_surplus):
            self._work_one()
        elif self.loop:
            self.loop.pop(0)()

    def drain(self) -> None:
        """Until nothing waits."""
        while self.committer.waiting or self.jobs or self.loop:
            self.committer.step()
            while self.loop:
                self.loop.pop(0)()
            if not self.committer.waiting:
                self._work_one()


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is drawn."""

    seed: int
    segment_bytes: int = 4096
    value_bytes_max: int = 300
    rounds: int = 40
    keys: Callable[[], LogKeys] | None = None
    """Returns the keys of a start; None: the log is in clear."""


def open_store(
    io: LogDisk, segment_bytes: int, *, started_before: bool = True, keys: Callable[[], LogKeys] | None = None
) -> Store:
    """Recover with the production start-up code."""
    store = Store(SteppedWal(io, segment_bytes, keys() if keys is not None else None), cache_bytes=0)
    store.open(started_before=started_before)
    return store


class Workload:
    """See the module. `promises` holds at every moment what was promised up to there."""

    def __init__(self, store: Store, promises: Promises, scenario: Scenario) -> None:
        assert isinstance(store.wal, SteppedWal)
        self.store, self.wal, self.promises = store, store.wal, promises
        self.chance = Random(scenario.seed)
        self.scenario = scenario
        self._churned = 0
        self._compaction = EagerCompaction(store.space)
        self._now_s = 0.0
        self.moved = 0  # copies submitted
        loop = self.wal.loop.append
        self.wal.start(loop, loop if scenario.seed % 2 else None)  # flushed in the loop, or by the thread alone

    def run(self) -> None:
        """All of it."""
        self._metadata_alone()
        actions = [self._append] * 6 + [self._churn] * 3
        actions += [
            self._seal,
            self._recover,
            self._end,
            self._drop,
            self._copy_back,
            self._reclaim,
            self._append_again,
        ]
        actions += [self._move_on] * 4
        for _ in range(self.scenario.rounds):
            with suppress(RangelogError):
                self.chance.choice(actions)()
            self._go_on()
        self.settle()

    def settle(self) -> None:
        """Write what waits, and hear of it."""
        self.wal.kick()
        self.wal.drain()

    def _go_on(self) -> None:
        if self.chance.random() < 0.7:
            self.wal.kick()
        for _ in range(self.chance.randrange(8)):
            self.wal.step(self.chance)
        if self.wal.waits_for_segment:
            self.settle()

    def _metadata_alone(self) -> None:
        """A fence, a tombstone and a floor in the first segment, whose batches are few: to be carried forward."""
        self._fence((5, 0), 3)
        self.append((6, 0), 1)
        self.settle()
        self._commit_end((6, 0), self.promises.life((6, 0)).next_offset)
        self.settle()
        self.drop((6, 0))
        self.append((7, 0), 1)
        self.settle()
        self._state_that_is_replaced()

    def _state_that_is_replaced(self) -> None:
        """A dropped replica has entries in the first segment, which another range holds, and in a later one."""
        self._fence((8, 0), 3)
        self.settle()
        self._churn()
        self._commit_end((8, 0), 0)
        self.settle()
        self.drop((8, 0))
        self.settle()

    # ---- what is done

    def append(self, key: Key, count: int, *, recovery: bool = False, memory: bool = False) -> None:
        """Append batches behind what was submitted. Raises as Store.append does."""
        life = self.promises.life(key)
        epoch = max(life.epochs) if recovery else 1
        made: list[bytes] = []
        offset = life.next_offset
        for _ in range(count):
            size = self.chance.randrange(1, self.scenario.value_bytes_max)
            values = [self.chance.randbytes(size)] * self.chance.randrange(1, 3)
            extension = encode_extension({0x8001: b"who", 0xFFFF: bytes(20)} if offset % 2 else {})
            made.append(batch(offset, values, stream_id=key[0], range_index=key[1], extension=extension))
            offset += len(values)
        confirmed = 0 if recovery else max(life.confirmed, min(life.acked_end, self.chance.randrange(offset + 1)))
        self._offer(key, made, epoch, confirmed, recovery=recovery, memory=memory)
        life.batches += made
        life.confirmed = max(life.confirmed, confirmed)

    def _offer(self, key: Key, made: list[bytes], epoch: int, confirm_offset: int, *, recovery: bool = False,
               memory: bool = False) -> None:  # fmt: skip
        message = SimpleNamespace(stream_id=key[0], range_index=key[1], epoch=epoch, start_offset=0,
                                  confirm_offset=confirm_offset, recovery=recovery, memory=memory)  # fmt: skip
        new = [NewBatch(check_batch(data), batch_crc(data), data) for data in made]
        appender = None if memory else Acks(self.promises.life(key))
        self.store.append(appender, 0, message, new, b"".join(made))

    def _append(self) -> None:
        self.append(self.chance.choice(RANGES), self.chance.randrange(1, 4), memory=self.chance.random() < 0.1)

    def _append_again(self) -> None:
        key = self.chance.choice(RANGES)
        life = self.promises.life(key)
        if life.batches:
            self._offer(key, [self.chance.choice(life.batches)], 1, 0)

    def _seal(self) -> None:
        key = self.chance.choice(RANGES)
        self._fence(key, max(self.promises.life(key).epochs) + self.chance.randrange(2))

    def _fence(self, key: Key, epoch: int) -> None:
        life = self.promises.life(key)

        def done(hosted: HostedReplica) -> None:
            life.fenced_epoch = max(life.fenced_epoch, epoch)

        self.store.seal(*key, epoch, 0, done)
        life.epochs.append(epoch)
        self.wal.kick()

    def _recover(self) -> None:
        key = self.chance.choice(RANGES)
        if self.promises.life(key).end is None:
            self.append(key, 1, recovery=True)

    def _end(self) -> None:
        key = self.chance.choice(RANGES)
        life = self.promises.life(key)
        edges = [0, *(check_batch(data).end_offset for data in life.batches)]
        self._commit_end(key, edges[max(0, len(edges) - 1 - self.chance.randrange(3))])

    def _commit_end(self, key: Key, end: int) -> None:
        life = self.promises.life(key)

        def done(hosted: HostedReplica) -> None:
            life.ended = True

        end = end if life.end is None else life.end
        self.store.commit_end(*key, 0, end, max(life.epochs), done, by_placement_driver=True)
        life.end = end
        life.epochs.append(max(life.epochs))
        self.wal.kick()

    def _drop(self) -> None:
        key = self.chance.choice(RANGES)
        if self.promises.life(key).ended:
            self.drop(key)

    def drop(self, key: Key) -> None:
        """Drop a replica."""
        life = self.promises.life(key)

        def done() -> None:
            life.dropped = True

        self.store.drop(*key, done)
        life.dropping = True
        self.wal.kick()

    def _copy_back(self) -> None:
        """The placement driver brings a dropped replica back, copied from a peer."""
        key = self.chance.choice(RANGES)
        lives = self.promises.lives.get(key, [])
        if not lives or not lives[-1].dropped:
            return
        old = lives[-1]
        whole = [data for data in old.batches if old.end is not None and check_batch(data).base_offset < old.end]
        self._commit_end(key, old.end or 0)
        self.settle()
        life, hosted = self.promises.life(key), self.store.replicas[key]
        for data in whole:

            def done(end: int = check_batch(data).end_offset) -> None:
                life.acked_end = max(life.acked_end, end)

            self.store.repair(hosted, [NewBatch(check_batch(data), batch_crc(data), data)], done)
            life.batches.append(data)
            self._go_on()

    def _churn(self) -> None:
        """Another range comes, is sealed and dropped, so that the log moves on and segments become idle."""
        self._churned += 1
        key = (9, self._churned)
        for _ in range(3):
            with suppress(StorageFull):
                self.append(key, 2)
            self._go_on()
        self.settle()
        self._commit_end(key, self.promises.life(key).next_offset)
        self._go_on()
        self.drop(key)
        self._go_on()
        self._reclaim()

    def _reclaim(self) -> None:
        self.store.reclaim()

    def _move_on(self) -> None:
        """Batches are moved on; whatever comes next comes before, between or after their flush and the segment's end."""
        for _ in range(self.chance.randrange(1, 4)):
            self._now_s += 100.0
            self.moved += submit_moves(self.store, self._compaction, self._now_s)
            self._go_on()
        self._reclaim()
