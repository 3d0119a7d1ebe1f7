"""The core of a shard's owner: whether a producer's batch is appended, waited for, answered or refused. Pure.

What holds:
- A batch is appended when it is its producer's next, behind what is acked and what is in flight; never twice.
- "It is there, at this offset" is answered of acked batches only; a retry of a batch in flight waits for that batch's ack.
- Of a submission each record is appended once: a batch is appended if none of its records is in a log or in flight.
- A refusal (gap, fenced, closed) says nothing about what was written: the outcome of the batch stays unknown.
- The table that snapshots are taken from is the fold of the acked batches, exactly those below the confirm offset.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rangelog_broker.shards.producer_table import GAP, NEXT, AckedBatch, Found, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_broker.shards.submission_window import OTHER_CONTENT, PlacedRun
from rangelog_core.batch_extension import MergedFrom, Producer, Submission
from rangelog_core.errors import InternalError, PreconditionFailed


class InFlight(NamedTuple):
    """A batch that is appended and not acked: who asks for it again waits for its end to be confirmed."""

    offset: int
    end_offset: int


class MergedBatch(NamedTuple):
    """A batch of a transaction's run in flight."""

    merged: MergedFrom
    offset: int
    end_offset: int


class SubmittedBatch(NamedTuple):
    """A batch of a submission in flight."""

    submission: Submission
    offset: int
    end_offset: int


class _Pending:
    """The batches in flight of one producer, all of one epoch."""

    __slots__ = ("batches", "epoch", "first_sequence")

    def __init__(self, epoch: int, first_sequence: int) -> None:
        self.epoch = epoch
        self.first_sequence = first_sequence
        self.batches: deque[InFlight] = deque()


class ShardOwner:
    """One owner of one shard, under one epoch of its stream."""

    def __init__(self, state: ShardState, next_offset: int, shard_id: int = 0) -> None:
        """`state`: the fold of all batches below `next_offset`, read after the fence."""
        self.state = state
        self._shard_id = shard_id
        self.table = state.table
        self.next_offset = next_offset
        self.confirm_offset = next_offset
        self._in_flight: deque[AckedBatch | MergedBatch | SubmittedBatch] = deque()
        self._pending: dict[int, _Pending] = {}
        self._submitted: dict[bytes, list[SubmittedBatch]] = {}  # in flight, by digest

    def offer(self, origin: Producer | Submission, records: int) -> Found | InFlight | list[PlacedRun]:
        """Take a batch. NEXT: it is to be appended now, at the returned offset; InFlight: it is, and waits for its ack.

        Any other standing is the answer, as are the places of records of a submission: nothing changes. Raises
        PreconditionFailed where other records were submitted under the name, Overloaded where no new submission is taken.
        """
        found = self._find(origin)
        if not isinstance(found, Found) or found.standing is not Standing.NEXT:
            return found
        offset, end_offset = self.next_offset, self.next_offset + records
        if isinstance(origin, Submission):
            self.state.submissions.check_room(origin)
            submitted = SubmittedBatch(origin, offset, end_offset)
            self._in_flight.append(submitted)
            self._submitted.setdefault(origin.digest, []).append(submitted)
        else:
            self._in_flight.append(AckedBatch(origin, offset, end_offset))
            pending = self._pending.get(origin.producer_id)
            if pending is None or pending.epoch != origin.epoch:
                pending = self._pending[origin.producer_id] = _Pending(origin.epoch, origin.sequence)
            pending.batches.append(InFlight(offset, end_offset))
        self.next_offset = end_offset
        return Found(Standing.NEXT, offset, end_offset)

    def is_new(self, origin: Producer | Submission) -> bool:
        """Return whether a batch is neither acked nor in flight, as far as this owner knows, nor refused for good."""
        found = self._find(origin)
        return isinstance(found, Found) and found.standing in (Standing.NEXT, Standing.GAP)

    def merge(self, merged: MergedFrom, records: int) -> int:
        """Take the next batch of a run; return the offset at which it is to be appended now."""
        offset = self.next_offset
        self.next_offset = offset + records
        self._in_flight.append(MergedBatch(merged, offset, self.next_offset))
        return offset

    def confirmed(self, confirm_offset: int) -> None:
        """Note that all batches below an offset are acked. Raises InternalError for an offset inside a batch in flight."""
        in_flight = self._in_flight
        while in_flight and in_flight[0].end_offset <= confirm_offset:
            batch = in_flight.popleft()
            if isinstance(batch, MergedBatch):
                self.state.note_merged(batch.merged)
            elif isinstance(batch, SubmittedBatch):
                self.state.note_submitted(batch.submission, self._shard_id, batch.offset)
                left = self._submitted[batch.submission.digest]
                left.remove(batch)
                if not left:
                    del self._submitted[batch.submission.digest]
            else:
                self.state.note(batch)
                self._settle(batch)
            self.confirm_offset = batch.end_offset
        if confirm_offset > self.confirm_offset:
            raise InternalError(
                f"offset {confirm_offset} is confirmed, which lies in a batch or beyond {self.next_offset}"
            )

    def _find(self, origin: Producer | Submission) -> Found | InFlight | list[PlacedRun]:
        if isinstance(origin, Submission):
            return self._find_submitted(origin)
        producer_id, epoch, sequence = origin
        pending = self._pending.get(producer_id)
        if pending is None or epoch > pending.epoch:
            return self.table.find(origin)
        if epoch < pending.epoch:
            return Found(Standing.FENCED, epoch=max(pending.epoch, self.table.floor(producer_id)))
        place = sequence - pending.first_sequence
        if place < 0:
            return self.table.find(origin)
        if place < len(pending.batches):
            return pending.batches[place]
        return GAP if place > len(pending.batches) else NEXT

    def _find_submitted(self, submission: Submission) -> Found | InFlight | list[PlacedRun]:
        ahead = None
        for each in self._submitted.get(submission.digest, ()):
            if each.submission.content != submission.content:
                raise PreconditionFailed(OTHER_CONTENT)
            if _overlap(each.submission.runs, submission.runs):
                ahead = each
        if ahead is not None:  # the last of them: once it is confirmed, the others are
            return InFlight(ahead.offset, ahead.end_offset)
        return self.state.submissions.find(submission) or NEXT

    def _settle(self, batch: AckedBatch) -> None:
        pending = self._pending.get(batch.producer.producer_id)
        if pending is not None and pending.epoch == batch.producer.epoch:
            pending.batches.popleft()
            pending.first_sequence += 1
            if not pending.batches:
                del self._pending[batch.producer.producer_id]


def _overlap(first: tuple[tuple[int, int], ...], second: tuple[tuple[int, int], ...]) -> bool:
    """Whether two lists of rising runs have a record in common."""
    at = 0
    for start, count in first:
        while at < len(second) and second[at][0] + second[at][1] <= start:
            at += 1
        if at < len(second) and second[at][0] < start + count:
            return True
    return False
