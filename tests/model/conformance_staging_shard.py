"""The product's side of one shard in a walk: the pure cores of its owner, over two streams that are lists."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from rangelog_broker.shards.finished import FinishedShards
from rangelog_broker.shards.owner import ShardOwner
from rangelog_broker.shards.producer_table import Standing
from rangelog_broker.shards.restore import ShardRows
from rangelog_broker.shards.side_entry import SideFold, encode_snapshot, encode_staged
from rangelog_broker.shards.staging import StagedBatch, Staging, TransactionKey, run_of
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch import decode_records, extension_of, peek_header, with_extension
from rangelog_core.batch_extension import MergedFrom, Producer, Tag, decode_merged, encode_extension, encode_merged
from rangelog_proto.v1 import topic_pb2
from tests.support.owner_cluster import made_batch

T = TypeVar("T")
ORDINARY_PRODUCER = 99
LogEntry = tuple[MergedFrom | None, tuple[int, ...]]


class Ended(FinishedShards):
    """The final states of ended shards, which are all at hand."""

    def __init__(self, rows: dict[int, topic_pb2.Shard]) -> None:
        super().__init__(None, None, Rows(rows))  # type: ignore[arg-type]
        self.folds: dict[int, SideFold] = {}

    async def _side(self, key: tuple[int, int]) -> SideFold:
        return self.folds[key[1]]


class Rows(ShardRows):
    """Rows from a table."""

    def __init__(self, rows: dict[int, topic_pb2.Shard]) -> None:
        self._found = rows

    async def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """See ShardRows."""
        return self._found[shard_id]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits for something")


class ShardSide:
    """One shard: its streams, durable up to `acked` and `side_acked`, and its owner's memory."""

    def __init__(self, row: topic_pb2.Shard, ended: Ended) -> None:
        self.row = row
        self.log: list[tuple[int, bytes]] = []  # offset, batch
        self.acked = 0
        self.side: list[bytes] = []
        self.side_start = 0
        self.side_acked = 0
        self.staging = Staging()
        self.owner = ShardOwner(ShardState.first({}), 0)
        self.snapshots = 0
        self._ended = ended
        self._ordinary = 0

    # ---- staging

    def stage(self, name: str, number: int, producer: Producer, data: bytes) -> None:
        """Append a staged batch to the side log."""
        standing = self.staging.offer(producer)
        assert standing is Standing.NEXT, standing
        self.staging.add(number, name, producer, data, self.side_start + len(self.side))
        self.side.append(encode_staged(number, name, producer, data))

    def side_landed(self, key: TransactionKey, sequence: int) -> None:
        """The first entry in flight is durable."""
        self.side_acked += 1
        self.staging.acked(key, sequence)

    def snapshot(self) -> bool:
        """Write a snapshot, durable at once; return whether it can be taken."""
        if self.side_acked < self.side_start + len(self.side) or not self.owner.state.can_be_captured:
            return False
        pieces = (*self.owner.state.snapshot(), *self.staging.snapshot())
        self.side += encode_snapshot(1, self.owner.confirm_offset, pieces)
        self.side_acked = self.side_start + len(self.side)
        self.snapshots += 1
        return True

    def trim(self, key: TransactionKey) -> bool:
        """Trim the side log behind a dropped transaction's first entry, as far as the product does."""
        self.staging.drop(key)
        first = next(place for place, value in enumerate(self.side) if value[0] == 2)
        kept = self.staging.first_record
        assert kept is None or kept > self.side_start + first, "what is dropped is not needed any more"
        if not self.snapshot():
            return False
        del self.side[: first + 1]
        self.side_start += first + 1
        return True

    # ---- the log

    def ordinary(self) -> None:
        """Append a batch that is of no transaction."""
        producer = Producer(ORDINARY_PRODUCER, 0, self._ordinary)
        self._ordinary += 1
        data = made_batch(producer, b"-")
        found = self.owner.offer(producer, 1)
        self.log.append((found.offset, data))

    def merge(self, key: TransactionKey, origin: int) -> int:
        """Append what is to be merged; return how many batches it is."""
        return self._append(self._run(key, origin))

    def left(self, key: TransactionKey, origin: int) -> int:
        """Return how many batches the acked log lacks."""
        return len(self._run(key, origin))

    def _run(self, key: TransactionKey, origin: int) -> Sequence[tuple[MergedFrom, bytes]]:
        following = self.owner.state.merges.next_sequence(key, origin)
        return [] if following is None else run_of(key, origin, self.batches(key, origin), following)

    def batches(self, key: TransactionKey, origin: int) -> list[StagedBatch]:
        """Return what is staged for this shard, here or at one that has ended."""
        if origin == self.row.shard_id:
            return self.staging.batches(key)
        return at_once(self._ended.staged_for(self.row, origin, key))

    def _append(self, run: Sequence[tuple[MergedFrom, bytes]]) -> int:
        for place, data in run:
            batch = with_extension(data, encode_extension({Tag.TRANSACTION: encode_merged(place)}))
            self.log.append((self.owner.merge(place, peek_header(batch).count), batch))
        return len(run)

    def landed(self) -> None:
        """The first batch in flight is acked."""
        offset, data = self.log[self.acked]
        self.acked += 1
        self.owner.confirmed(offset + peek_header(data).count)

    def entries(self) -> list[LogEntry]:
        """Return the batches of the log, those in flight included."""
        found: list[LogEntry] = []
        for _, data in self.log:
            merged = extension_of(data, peek_header(data)).get(Tag.TRANSACTION)
            if merged is None:
                found.append((None, ()))
            else:
                found.append((decode_merged(merged), records_of(data)))
        return found

    # ---- takeovers, and the end

    def fence_log(self, landed: int) -> None:
        """So many batches in flight land."""
        self.acked += landed
        del self.log[self.acked :]

    def fence_side(self, landed: int) -> None:
        """So many entries in flight land."""
        self.side_acked += landed
        del self.side[self.side_acked - self.side_start :]

    def take_over(self) -> None:
        """Restore the state of the next owner, and finish the run inside which the log ends."""
        fold, state = self._restored()
        self.staging = fold.staging
        offset, data = self.log[-1] if self.log else (0, b"")
        end = offset + peek_header(data).count if data else 0
        self.owner = ShardOwner(state, end)
        last = state.merges.open_run
        if last is not None:
            key = TransactionKey(last.producer_id, last.number)
            run = run_of(key, last.shard_id, self.batches(key, last.shard_id), last.sequence + 1)
            assert len(run) == last.follow, f"{len(run)} batches are left of {last}"
            self._append(run)

    def end(self) -> None:
        """The end is committed: what it has staged and merged is asked for by others."""
        fold, state = self._restored()
        self.staging = fold.staging
        self.row.ended_version = 2
        self._ended.put((self.row.topic_id, self.row.shard_id), state)
        self._ended.folds[self.row.shard_id] = fold

    def _restored(self) -> tuple[SideFold, ShardState]:
        fold = SideFold()
        for place, value in enumerate(self.side):
            fold.feed(self.side_start + place, value)
        fold.staging.all_acked()
        state, start = ShardState.first({}), 0
        if fold.best is not None:
            state, start = ShardState.restore(fold.best.pieces), fold.best.offset
        for offset, data in self.log:
            if offset >= start:
                header = peek_header(data)
                state.fold(header._replace(base_offset=offset), extension_of(data, header), 0)
        return fold, state


def records_of(data: bytes) -> tuple[int, ...]:
    """Return the numbers of the records of a batch."""
    return tuple(int(record.value) for record in decode_records(data))
