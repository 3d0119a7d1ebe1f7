"""What the owner of a shard derives from its log: what producers have sent, what of transactions is merged, what was submitted.

What holds: the state is the fold of the acked batches below an offset, whoever folds them. A snapshot of it is taken between
two runs, never inside one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rangelog_broker.shards.producer_table import AckedBatch, ProducerTable
from rangelog_broker.shards.staging import MERGES, STAGERS, Merges
from rangelog_broker.shards.submission_window import ENTRIES, MARKS, SubmissionWindow
from rangelog_core.batch import BatchHeader
from rangelog_core.batch_extension import MergedFrom, Submission, origin_of
from rangelog_core.errors import Corruption


class ShardState:
    """See the module."""

    def __init__(
        self, table: ProducerTable, merges: Merges | None = None, submissions: SubmissionWindow | None = None
    ) -> None:
        self.table = table
        self.merges = merges or Merges()
        self.submissions = submissions or SubmissionWindow()

    @classmethod
    def first(cls, predecessors: Iterable[ShardState] = ()) -> ShardState:
        """Return the state of a shard without a batch, by the final states of its predecessors."""
        floors: dict[int, int] = {}
        submissions = SubmissionWindow()
        for each in predecessors:
            for producer_id, epoch in each.table.epochs().items():
                if epoch > floors.get(producer_id, -1):
                    floors[producer_id] = epoch
            submissions.inherit(each.submissions)
        return cls(ProducerTable(floors), submissions=submissions)

    def note(self, batch: AckedBatch) -> None:
        """Add a producer's batch, the log's next one. Raises Corruption."""
        self.merges.other()
        self.table.note(batch)

    def note_submitted(self, submission: Submission, shard_id: int, offset: int) -> None:
        """Add a batch of a submission, the log's next one. Raises Corruption."""
        self.merges.other()
        self.submissions.note(submission, shard_id, offset)

    def fold(self, header: BatchHeader, fields: Mapping[int, bytes], shard_id: int) -> None:
        """Add the log's next batch by its header, in the log of this shard. Raises Corruption, ProtocolViolation."""
        origin = origin_of(fields, header.count)
        if origin is None:
            raise Corruption(f"the batch at {header.base_offset} of a shard names neither producer nor transaction")
        if isinstance(origin, MergedFrom):
            self.merges.note(origin)
            return
        if isinstance(origin, Submission):
            self.note_submitted(origin, shard_id, header.base_offset)
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
        pieces = (self.table.snapshot(), self.merges.snapshot(), self.submissions.snapshot())
        return (piece for each in pieces for piece in each)

    @classmethod
    def restore(cls, pieces: Iterable[bytes]) -> ShardState:
        """Return the state of a snapshot. Raises Corruption."""
        kept = [piece for piece in pieces if piece]  # that of an empty state is empty
        of_merges = [piece for piece in kept if piece[:1] == MERGES]
        submitted = [piece for piece in kept if piece[:1] in (ENTRIES, MARKS)]
        of_table = [piece for piece in kept if piece[:1] not in (MERGES, STAGERS, ENTRIES, MARKS)]
        return cls(ProducerTable.restore(of_table), Merges.restore(of_merges), SubmissionWindow.restore(submitted))
