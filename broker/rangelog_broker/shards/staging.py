"""What transactions have staged at one shard, and which of it the shard's log holds already. Pure.

What holds (source: the exhaustive model of transactions):
- A transaction is (producer id of its transactional id, number): the number rises with each one, so what is late is never taken
  for another transaction's.
- Batches that one producer stages here are numbered as those that it sends to a log: from 0 in each epoch, without gaps,
  through all its transactions. A retry gets the answer of the first one. What is staged is in the side log, acked, or in
  flight; only what is acked is ever merged.
- Nothing staged is dropped but by the coordinator's word. Of a commit a run is merged: the batches of one transaction and one
  staging shard, in order, behind each other. Each says how many follow, so that who takes over finds a run that is not whole.
- What is merged is known from the shard's own log: per producer id the latest number, and per staging shard how far. A merge of
  an earlier number is finished: no commit is decided before those before it are merged everywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rangelog_broker.shards.producer_table import Standing
from rangelog_core.batch_extension import MergedFrom, Producer
from rangelog_core.errors import Corruption

_ROW = struct.Struct("<QQQQ")  # producer id, number, staging shard, next sequence
_STAGER = struct.Struct("<QIQ")  # producer id, epoch, next sequence
ROWS_PER_PIECE = 8_192
MERGES, STAGERS = b"M", b"S"


class TransactionKey(NamedTuple):
    """A transaction, as shards know it."""

    producer_id: int
    number: int


class StagedBatch(NamedTuple):
    """A batch of a transaction. `data`: as its producer encoded it."""

    sequence: int
    data: bytes


class _Staged:
    """What one transaction has staged here."""

    __slots__ = ("acked", "batches", "first_record", "name")

    def __init__(self, name: str, first_record: int) -> None:
        self.name = name
        self.first_record = first_record
        self.batches: list[StagedBatch] = []
        self.acked = 0


class Staging:
    """The staged batches of one shard; the fold of its side log."""

    def __init__(self) -> None:
        self._transactions: dict[TransactionKey, _Staged] = {}
        self._next: dict[int, tuple[int, int]] = {}  # producer id → epoch, next sequence
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._transactions)

    def offer(self, producer: Producer) -> Standing:
        """Return what a batch is to those staged before it. Nothing changes."""
        epoch, following = self._next.get(producer.producer_id, (producer.epoch, 0))
        if producer.epoch < epoch:
            return Standing.FENCED
        if producer.epoch > epoch:
            following = 0
        if producer.sequence < following:
            return Standing.HELD
        return Standing.GAP if producer.sequence > following else Standing.NEXT

    def add(self, number: int, name: str, producer: Producer, data: bytes, record: int) -> None:
        """Take a producer's next batch, of its transaction `number`, at a record of the side log. Raises Corruption."""
        standing = self.offer(producer)
        if standing in (Standing.HELD, Standing.FENCED):
            raise Corruption(f"a side log has {producer} at {record}, where it cannot follow")
        key = TransactionKey(producer.producer_id, number)
        staged = self._transactions.get(key)
        if staged is None:
            staged = self._transactions[key] = _Staged(name, record)
        self._next[producer.producer_id] = producer.epoch, producer.sequence + 1
        staged.batches.append(StagedBatch(producer.sequence, data))
        self.size_bytes += len(data)

    def acked(self, key: TransactionKey, sequence: int) -> None:
        """Note that a batch and those before it are in the side log for good."""
        staged = self._transactions.get(key)
        while staged is not None and staged.acked < len(staged.batches):
            if staged.batches[staged.acked].sequence > sequence:
                return
            staged.acked += 1

    def all_acked(self) -> None:
        """Note that everything is: it was read from the log."""
        for staged in self._transactions.values():
            staged.acked = len(staged.batches)

    def batches(self, key: TransactionKey) -> list[StagedBatch]:
        """Return the acked batches of a transaction, in order."""
        staged = self._transactions.get(key)
        return staged.batches[: staged.acked] if staged is not None else []

    def drop(self, key: TransactionKey) -> None:
        """Forget a transaction, by the coordinator's word or because all of it is merged and acked."""
        staged = self._transactions.pop(key, None)
        if staged is not None:
            self.size_bytes -= sum(len(batch.data) for batch in staged.batches)

    def transactions(self) -> list[tuple[TransactionKey, str]]:
        """Return each transaction that has staged something, with its transactional id."""
        return [(key, staged.name) for key, staged in self._transactions.items()]

    @property
    def first_record(self) -> int | None:
        """The side log is needed from this record on; None: nothing is staged."""
        return min((staged.first_record for staged in self._transactions.values()), default=None)

    # ---- snapshots: the producers' numbers; what is staged stays in the side log itself

    def snapshot(self) -> Iterator[bytes]:
        """Return the producers' numbers in pieces."""
        rows = [(producer_id, *known) for producer_id, known in self._next.items()]
        return (
            STAGERS + b"".join([_STAGER.pack(*row) for row in rows[at : at + ROWS_PER_PIECE]])
            for at in range(0, len(rows), ROWS_PER_PIECE)
        )

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Add the numbers of a snapshot to those of the entries that were read. Raises Corruption."""
        for piece in pieces:
            if len(piece) % _STAGER.size != 1:
                raise Corruption("a snapshot of what producers have staged is cut short")
            for producer_id, epoch, following in _STAGER.iter_unpack(piece[1:]):
                self._next[producer_id] = max((epoch, following), self._next.get(producer_id, (0, 0)))


class Merges:
    """Which staged batches the log of one shard holds; the fold of its batches with a TRANSACTION field."""

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, dict[int, int]]] = {}  # producer id → number, staging shard → next sequence
        self.open_run: MergedFrom | None = None
        """The last batch of the log, if more of its run follow."""

    def next_sequence(self, key: TransactionKey, shard_id: int) -> int | None:
        """Return the first sequence of a run that is not merged here; None: all of the transaction is finished."""
        latest = self._latest.get(key.producer_id)
        if latest is None or latest[0] < key.number:
            return 0
        return latest[1].get(shard_id, 0) if latest[0] == key.number else None

    def note(self, merged: MergedFrom) -> None:
        """Add a merged batch of the log. Raises Corruption for one that cannot be there."""
        key = TransactionKey(merged.producer_id, merged.number)
        expected = self.next_sequence(key, merged.shard_id)
        if expected is None or merged.sequence < expected:
            raise Corruption(f"the log has {merged}, which it had before")
        number, shards = self._latest.get(merged.producer_id, (0, {}))
        if number != merged.number:
            shards = {}
        shards[merged.shard_id] = merged.sequence + 1
        self._latest[merged.producer_id] = merged.number, shards
        self.open_run = merged if merged.follow else None

    def other(self) -> None:
        """Note a batch that is no transaction's. Raises Corruption inside a run."""
        if self.open_run is not None:
            raise Corruption(f"something stands behind {self.open_run}, whose run is not whole")

    # ---- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Return the table in pieces. Take it where no run is open."""
        rows = [
            (producer_id, number, shard_id, following)
            for producer_id, (number, shards) in self._latest.items()
            for shard_id, following in shards.items()
        ]
        return (
            MERGES + b"".join([_ROW.pack(*row) for row in rows[at : at + ROWS_PER_PIECE]])
            for at in range(0, len(rows), ROWS_PER_PIECE)
        )

    @classmethod
    def restore(cls, pieces: Iterable[bytes]) -> Merges:
        """Return the table of a snapshot's pieces of this kind. Raises Corruption."""
        merges = cls()
        for piece in pieces:
            if len(piece) % _ROW.size != 1:
                raise Corruption("a snapshot of merged transactions is cut short")
            for producer_id, number, shard_id, following in _ROW.iter_unpack(piece[1:]):
                known, shards = merges._latest.get(producer_id, (number, {}))
                if known != number:
                    raise Corruption("a snapshot of merged transactions has two numbers of one producer")
                shards[shard_id] = following
                merges._latest[producer_id] = number, shards
        return merges


def run_of(
    key: TransactionKey, shard_id: int, batches: Iterable[StagedBatch], merged_before: int
) -> list[tuple[MergedFrom, bytes]]:
    """Return what is to be merged of a run: the batches from a sequence on, each with its place.

    >>> [place.follow for place, _ in run_of(TransactionKey(1, 2), 3, [StagedBatch(0, b"x"), StagedBatch(1, b"y")], 0)]
    [1, 0]
    """
    wanted = [batch for batch in batches if batch.sequence >= merged_before]
    return [
        (MergedFrom(key.producer_id, key.number, shard_id, batch.sequence, len(wanted) - place - 1), batch.data)
        for place, batch in enumerate(wanted)
    ]
