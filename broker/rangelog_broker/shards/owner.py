"""The core of a shard's owner: whether a producer's batch is appended, waited for, answered or refused. Pure.

What holds:
- A batch is appended when it is its producer's next, behind what is acked and what is in flight; never twice.
- "It is there, at this offset" is answered of acked batches only; a retry of a batch in flight waits for that batch's ack.
- A refusal (gap, fenced, closed) says nothing about what was written: the outcome of the batch stays unknown.
- The table that snapshots are taken from is the fold of the acked batches, exactly those below the confirm offset.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from rangelog_broker.shards.producer_table import GAP, NEXT, AckedBatch, Found, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch_extension import MergedFrom, Producer
from rangelog_core.errors import InternalError


class InFlight(NamedTuple):
    """A batch that is appended and not acked: who asks for it again waits for its end to be confirmed."""

    offset: int
    end_offset: int


class MergedBatch(NamedTuple):
    """A batch of a transaction's run in flight."""

    merged: MergedFrom
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

    def __init__(self, state: ShardState, next_offset: int) -> None:
        """`state`: the fold of all batches below `next_offset`, read after the fence."""
        self.state = state
        self.table = state.table
        self.next_offset = next_offset
        self.confirm_offset = next_offset
        self._in_flight: deque[AckedBatch | MergedBatch] = deque()
        self._pending: dict[int, _Pending] = {}

    def offer(self, producer: Producer, records: int) -> Found | InFlight:
        """Take a batch. NEXT: it is to be appended now, at the returned offset; InFlight: it is, and waits for its ack.

        Any other standing is the answer: nothing changes.
        """
        found = self._find(producer)
        if not isinstance(found, Found) or found.standing is not Standing.NEXT:
            return found
        offset, end_offset = self.next_offset, self.next_offset + records
        self.next_offset = end_offset
        self._in_flight.append(AckedBatch(producer, offset, end_offset))
        pending = self._pending.get(producer.producer_id)
        if pending is None or pending.epoch != producer.epoch:
            pending = self._pending[producer.producer_id] = _Pending(producer.epoch, producer.sequence)
        pending.batches.append(InFlight(offset, end_offset))
        return Found(Standing.NEXT, offset, end_offset)

    def is_new(self, producer: Producer) -> bool:
        """Return whether a batch is neither acked nor in flight, as far as this owner knows, nor refused for good."""
        found = self._find(producer)
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
            else:
                self.state.note(batch)
                self._settle(batch)
            self.confirm_offset = batch.end_offset
        if confirm_offset > self.confirm_offset:
            raise InternalError(
                f"offset {confirm_offset} is confirmed, which lies in a batch or beyond {self.next_offset}"
            )

    def _find(self, producer: Producer) -> Found | InFlight:
        producer_id, epoch, sequence = producer
        pending = self._pending.get(producer_id)
        if pending is None or epoch > pending.epoch:
            return self.table.find(producer)
        if epoch < pending.epoch:
            return Found(Standing.FENCED, epoch=max(pending.epoch, self.table.floor(producer_id)))
        place = sequence - pending.first_sequence
        if place < 0:
            return self.table.find(producer)
        if place < len(pending.batches):
            return pending.batches[place]
        return GAP if place > len(pending.batches) else NEXT

    def _settle(self, batch: AckedBatch) -> None:
        pending = self._pending.get(batch.producer.producer_id)
        if pending is not None and pending.epoch == batch.producer.epoch:
            pending.batches.popleft()
            pending.first_sequence += 1
            if not pending.batches:
                del self._pending[batch.producer.producer_id]
