"""What the owner of a shard derives from its log: what each producer has sent, and what of transactions is merged.

What holds: the state is the fold of the acked batches below an offset, whoever folds them. A snapshot of it is taken between
two runs, never inside one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rangelog_broker.shards.producer_table import AckedBatch, ProducerTable
from rangelog_broker.shards.staging import MERGES, STAGERS, Merges
from rangelog_core.batch import BatchHeader
from rangelog_core.batch_extension import MergedFrom, origin_of
from rangelog_core.errors import Corruption


class ShardState:
    """See the module."""

    def __init__(self, table: ProducerTable, merges: Merges | None = None) -> None:
        self.table = table
        self.merges = merges or Merges()

    @classmethod
    def first(cls, floors: Mapping[int, int]) -> ShardState:
        """Return the state of a shard without a batch, whose predecessors leave these floors."""
        return cls(ProducerTable(floors))

    def note(self, batch: AckedBatch) -> None:
        """Add a producer's batch, the log's next one. Raises Corruption."""
        self.merges.other()
        self.table.note(batch)

    def fold(self, header: BatchHeader, fields: Mapping[int, bytes]) -> None:
        """Add the log's next batch by its header. Raises Corruption."""
        origin = origin_of(fields)
        if origin is None:
            raise Corruption(f"the batch at {header.base_offset} of a shard names neither producer nor transaction")
        if isinstance(origin, MergedFrom):
            self.merges.note(origin)
            return
        end = header.base_offset + header.count
        self.note(AckedBatch(origin, header.base_offset, end))

    def note_merged(self, merged: MergedFrom) -> None:
        """Add a merged batch, the log's next one. Raises Corruption."""
        self.merges.note(merged)

    def forget_transactions(self) -> None:
        """Begin anew with transactions, at the cut of a restore: their coordinators have, and what they staged is lost.

        A run that the cut has divided stays as it is; from here on producers' batches follow each other as always.
        """
        self.merges = Merges()
        self.table.begins_in_the_middle = False

    @property
    def can_be_captured(self) -> bool:
        """Whether no run is open."""
        return self.merges.open_run is None

    def snapshot(self) -> Iterator[bytes]:
        """Return the state in pieces; later batches do not change what the iterator yields."""
        pieces = (self.table.snapshot(), self.merges.snapshot())
        return (piece for each in pieces for piece in each)

    @classmethod
    def restore(cls, pieces: Iterable[bytes]) -> ShardState:
        """Return the state of a snapshot. Raises Corruption."""
        kept = [piece for piece in pieces if piece]  # that of an empty state is empty
        of_merges = [piece for piece in kept if piece[:1] == MERGES]
        of_table = [piece for piece in kept if piece[:1] not in (MERGES, STAGERS)]
        return cls(ProducerTable.restore(of_table), Merges.restore(of_merges))
