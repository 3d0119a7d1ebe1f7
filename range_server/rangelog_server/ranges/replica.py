"""One replica of one range: the rules by which it accepts, refuses, fences, cuts and serves. Pure: the caller does the I/O.

What holds: (numbers as in docs/RELIABILITY.md)

* The log is a gapless prefix from `start_offset`: a batch is accepted at `end_offset` or not at all (I3).
* `durable_offset` moves only when the caller reports that the flush which covers it has returned (I1).
* One offset, one content: a batch that the replica already has is acked when its checksum is equal, and refused with an
  error otherwise (I4).
* After a fence no batch of a lower epoch is accepted; of the fence's own epoch only recovery copies (I7).
* Readers get the records below both the confirm offset and the durable end; `confirm_offset` never decreases (I5).
* A committed end never changes, and only records at or beyond it are ever cut (I6, I11).
* A replica with an untrusted tail (state DOUBTFUL) accepts recovery copies only and answers a seal with DOUBTFUL; a
  quarantined one answers UNKNOWN (I10).

The write-ahead log is ordered: when a fence is durable, so is every append taken before it. That makes "fence and read
the end" one step.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rangelog_core.batch import BatchHeader
from rangelog_core.errors import (
    AppendConflict,
    Corruption,
    OffsetOutOfRange,
    OutOfOrder,
    PreconditionFailed,
    ProtocolViolation,
    WriterFenced,
)


class DiskTrust(Enum):
    """How far the replica's own disk can be trusted."""

    SOUND = "sound"
    DOUBTFUL = "doubtful"  # an untrusted tail: a damaged one was cut, and may have held more
    QUARANTINED = "quarantined"  # damage elsewhere: no record is trusted


class SealOutcome(Enum):
    """The kind of a fenced replica's answer."""

    FENCED = "fenced"
    DOUBTFUL = "doubtful"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch of an append: header and checksum, checked by the caller. `data` is opaque here."""

    header: BatchHeader
    crc: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SealAnswer:
    """The answer to a seal. Valid once the fence is durable."""

    outcome: SealOutcome
    durable_offset: int
    last_batch_crc: int
    confirm_offset: int


class Replica:
    """One replica; one instance per range on a server. Every method takes constant or logarithmic time."""

    __slots__ = (
        "_bases",
        "_crcs",
        "_ends",
        "confirm_offset",
        "durable_offset",
        "end_offset",
        "epoch",
        "fenced",
        "fenced_by",
        "problem",
        "range_index",
        "sealed_end_offset",
        "size_bytes",
        "start_offset",
        "stream_id",
        "trust",
    )

    def __init__(self, stream_id: int, range_index: int, start_offset: int, epoch: int) -> None:
        self.stream_id = stream_id
        self.range_index = range_index
        self.start_offset = start_offset
        self.epoch = epoch
        self.fenced = False
        self.fenced_by = ""  # what the client that raised the fence calls itself; not written
        self.end_offset = start_offset  # accepted, perhaps not yet durable
        self.durable_offset = start_offset
        self.confirm_offset = start_offset
        self.sealed_end_offset: int | None = None
        self.trust = DiskTrust.SOUND
        self.problem = ""
        self.size_bytes = 0
        self._bases = array("Q")
        self._ends = array("Q")
        self._crcs = array("L")

    # ---- appends

    def append(
        self, epoch: int, batches: Sequence[NewBatch], confirm_offset: int, *, recovery: bool = False
    ) -> Sequence[NewBatch]:
        """Accept consecutive batches; return those to write, in order (none: the replica has all of them already).

        Raises WriterFenced, OutOfOrder (with the expected offset), AppendConflict, ProtocolViolation, Corruption
        (the tail is untrusted), PreconditionFailed (sealed). Raised before anything changes.
        """
        self._check_epoch(epoch, recovery=recovery)
        self._check_sound(recovery=recovery)
        fresh = self._fresh(batches)
        if fresh:
            if self.sealed_end_offset is not None:
                raise PreconditionFailed(f"the range is sealed at {self.sealed_end_offset}")
            self._take(fresh)
        if not recovery:
            self._advance_confirm(confirm_offset)
        return fresh

    def repair(self, batches: Sequence[NewBatch]) -> Sequence[NewBatch]:
        """Accept a peer's batches of a sealed range, up to the committed end; return those to write.

        For copies that the placement driver directs: the committed end decides, not the epoch. Raises as append does.
        """
        if self.sealed_end_offset is None:
            raise PreconditionFailed("only a sealed range is repaired from a peer")
        if self.trust is DiskTrust.QUARANTINED:
            raise Corruption(f"the replica is quarantined: {self.problem}")
        fresh = self._fresh(batches)
        if fresh and fresh[-1].header.end_offset > self.sealed_end_offset:
            raise ProtocolViolation(f"a repair beyond the committed end {self.sealed_end_offset}")
        self._take(fresh)
        return fresh

    def flushed(self, end_offset: int) -> int:
        """Note that the flush of all below `end_offset` has returned; return the new durable offset."""
        limit = self.end_offset if self.sealed_end_offset is None else min(self.end_offset, self.sealed_end_offset)
        self.durable_offset = max(self.durable_offset, min(end_offset, limit))
        if self.sealed_end_offset is not None and self.durable_offset >= self.sealed_end_offset:
            self._complete()
        return self.durable_offset

    def confirm(self, epoch: int, confirm_offset: int) -> bool:
        """Apply the writer's confirm offset; return whether readers may see more. Confirms of a stale writer are ignored."""
        if epoch != self.epoch or self.fenced:
            return False
        return self._advance_confirm(confirm_offset)

    # ---- seal

    def seal(self, epoch: int, by: str = "") -> None:
        """Raise the fence. The caller writes it and replies with `seal_answer()` once that is durable, not before.

        `by`: what the client calls itself, for the error of the writer that is fenced. Raises WriterFenced when the replica
        has a higher epoch.
        """
        if epoch < self.epoch:
            raise self._overtaken()
        self.fenced_by = by or (self.fenced_by if epoch == self.epoch else "")
        self.epoch = epoch
        self.fenced = True

    def seal_answer(self) -> SealAnswer:
        """Return the answer to a seal, after the fence has become durable."""
        outcome = {
            DiskTrust.SOUND: SealOutcome.FENCED,
            DiskTrust.DOUBTFUL: SealOutcome.DOUBTFUL,
            DiskTrust.QUARANTINED: SealOutcome.UNKNOWN,
        }[self.trust]
        crc = self._crcs[-1] if self._crcs else 0
        return SealAnswer(outcome, self.durable_offset, crc, self.readable_end())

    def commit_end(self, end_offset: int, *, epoch: int | None = None) -> bool:
        """Apply the end that the placement driver committed; return whether it is new and must be written.

        `epoch` None: the placement driver itself sent it; a client's message counts from the current epoch up. Raises
        WriterFenced, or PreconditionFailed when the replica has another end: an end never changes.
        """
        if epoch is not None and epoch < self.epoch:
            raise self._overtaken()
        if self.sealed_end_offset is not None:
            if self.sealed_end_offset != end_offset:
                raise PreconditionFailed(
                    f"range {self.stream_id}/{self.range_index} is sealed at {self.sealed_end_offset}, not {end_offset}"
                )
            return False
        if end_offset < self.start_offset:
            raise ProtocolViolation(f"an end of {end_offset} before the start {self.start_offset}")
        self.epoch = max(self.epoch, epoch or 0)
        self.fenced = True
        self.sealed_end_offset = end_offset
        self._cut(end_offset)
        return True

    @property
    def complete(self) -> bool:
        """Whether the range is sealed and all records below the end are durable here."""
        return (
            self.sealed_end_offset is not None
            and self.durable_offset >= self.sealed_end_offset
            and self.trust is not DiskTrust.QUARANTINED
        )

    # ---- reads

    def readable_end(self, sealed_end_offset: int = 0, recovery_epoch: int = 0) -> int:
        """Return the end of the readable records. `sealed_end_offset`: a committed end that the caller knows (0: none).

        A recovery read, under the fence's epoch, reaches to the durable end. Raises WriterFenced for any other epoch.
        """
        if recovery_epoch:
            if not self.fenced or recovery_epoch != self.epoch:
                raise self._overtaken()
            return self.durable_offset
        known = self.sealed_end_offset if self.sealed_end_offset is not None else sealed_end_offset
        return min(self.durable_offset, max(self.confirm_offset, known))

    def check_fetch(self, offset: int, readable_end: int) -> None:
        """Check the offset of a fetch. Raises OffsetOutOfRange with the nearest readable offset, or Corruption."""
        if self.trust is DiskTrust.QUARANTINED:
            raise Corruption(f"the replica is quarantined: {self.problem}")
        if offset < self.start_offset:
            raise OffsetOutOfRange(f"the range starts at {self.start_offset}", offset=self.start_offset)
        ended = self.sealed_end_offset is not None and offset >= self.sealed_end_offset
        if offset > readable_end and (ended or self.sealed_end_offset is None):
            raise OffsetOutOfRange(f"offset {offset} is beyond {readable_end}", offset=readable_end)

    def batch_number(self, offset: int) -> int:
        """Return the position, in order of appends, of the batch that holds `offset`, or -1."""
        number = bisect_right(self._bases, offset) - 1
        return number if number >= 0 and offset < self._ends[number] else -1

    @property
    def batch_count(self) -> int:
        """The number of batches of the replica."""
        return len(self._bases)

    def batch_span(self, number: int) -> tuple[int, int]:
        """Return [base, end) of one batch."""
        return self._bases[number], self._ends[number]

    def batch_checksum(self, number: int) -> int:
        """Return the checksum of one batch, as it was appended."""
        return self._crcs[number]

    # ---- damage and recovery

    def doubt(self, problem: str) -> None:
        """Mark the tail as untrusted: a damaged tail was cut, which may have held more records."""
        if self.trust is DiskTrust.SOUND and not self.complete:
            self.trust, self.problem = DiskTrust.DOUBTFUL, problem

    def quarantine(self, problem: str) -> None:
        """Trust no record of this replica after damage, until it is copied as a new replica."""
        self.trust, self.problem = DiskTrust.QUARANTINED, problem

    def replay_append(self, header: BatchHeader, crc: int) -> None:
        """Accept a batch that recovery found on the disk. Raises OutOfOrder when the log on the disk has a gap."""
        if header.base_offset != self.end_offset:
            raise OutOfOrder(f"batch {header.base_offset} at log end {self.end_offset}", offset=self.end_offset)
        self._push(header, crc)
        self.durable_offset = self.end_offset

    def validate(self) -> None:
        """Assert the invariants; for tests and the simulator."""
        assert self.start_offset <= self.durable_offset <= self.end_offset
        assert len(self._bases) == len(self._ends) == len(self._crcs)
        edges = [self.start_offset, *self._ends]
        assert list(self._bases) == edges[:-1]
        assert self.readable_end() <= self.durable_offset
        if self.sealed_end_offset is not None:
            assert self.fenced
            assert self.durable_offset <= self.sealed_end_offset

    # ---- inside

    def _overtaken(self) -> WriterFenced:
        by = f", by {self.fenced_by}" if self.fenced_by else ""
        return WriterFenced(f"epoch {self.epoch} fenced this range{by}", epoch=self.epoch)

    def _check_epoch(self, epoch: int, *, recovery: bool) -> None:
        if epoch < self.epoch or (epoch == self.epoch and self.fenced and not recovery):
            raise self._overtaken()
        if epoch > self.epoch:
            raise ProtocolViolation(f"epoch {epoch} appends to a range of epoch {self.epoch} without a seal")
        if recovery and not self.fenced:
            raise ProtocolViolation("a recovery copy without a fence")

    def _check_sound(self, *, recovery: bool) -> None:
        """Check trust: behind an untrusted tail only copies under the fence may follow. Raises Corruption."""
        allowed = (DiskTrust.SOUND, DiskTrust.DOUBTFUL) if recovery else (DiskTrust.SOUND,)
        if self.trust not in allowed:
            raise Corruption(f"the replica is {self.trust.value}: {self.problem}")

    def _fresh(self, batches: Sequence[NewBatch]) -> Sequence[NewBatch]:
        """Return the batches that the replica lacks, after a check that the others are equal to its own."""
        expected = self.end_offset
        for number, batch in enumerate(batches):
            base = batch.header.base_offset
            if base == expected:
                rest = batches[number:] if number else batches
                self._check_consecutive(rest)
                return rest
            if base > expected:
                raise OutOfOrder(f"append at {base}, expected {expected}", offset=expected)
            held = self.batch_number(base)
            if held < 0 or self._bases[held] != base or self._ends[held] != batch.header.end_offset:
                raise AppendConflict(f"offset {base} was appended with other batch borders", offset=expected)
            if self._crcs[held] != batch.crc:
                raise AppendConflict(f"offset {base} was appended with other bytes", offset=expected)
        return ()

    @staticmethod
    def _check_consecutive(batches: Sequence[NewBatch]) -> None:
        previous = batches[0].header
        for batch in batches[1:]:
            if batch.header.base_offset != previous.end_offset:
                raise OutOfOrder("a frame's batches are not consecutive", offset=previous.end_offset)
            previous = batch.header

    def _take(self, batches: Sequence[NewBatch]) -> None:
        for batch in batches:
            self._push(batch.header, batch.crc)

    def _push(self, header: BatchHeader, crc: int) -> None:
        self._bases.append(header.base_offset)
        self._ends.append(header.end_offset)
        self._crcs.append(crc)
        self.end_offset = header.end_offset
        self.size_bytes += header.length

    def _advance_confirm(self, confirm_offset: int) -> bool:
        before = self.readable_end()
        if confirm_offset > self.confirm_offset:
            self.confirm_offset = confirm_offset
        return self.readable_end() > before

    def _cut(self, end_offset: int) -> None:
        """Cut all batches at or beyond the committed end, which is always a border of batches."""
        while self._bases and self._bases[-1] >= end_offset:
            self._bases.pop()
            self._ends.pop()
            self._crcs.pop()
        self.end_offset = self._ends[-1] if self._ends else self.start_offset
        self.durable_offset = min(self.durable_offset, self.end_offset, end_offset)
        if self.durable_offset >= end_offset:
            self._complete()

    def _complete(self) -> None:
        if self.sealed_end_offset is not None:
            self.confirm_offset = max(self.confirm_offset, self.sealed_end_offset)
        if self.trust is DiskTrust.DOUBTFUL:
            self.trust, self.problem = DiskTrust.SOUND, ""
