"""The producers of one shard: which of their batches are in its log and acked, and where.

What holds:
- The table is the fold of the acked batches below an offset: who folds the same batches has the same table.
- Sequences count the batches of one (producer, epoch, shard) from 0 without gaps. A producer that the table does not know, or
  a higher epoch of one, begins at 0.
- A floor is the lowest epoch of a producer that is still taken. A child shard starts with floors at the highest epochs of all
  its ancestors; it never inherits sequences. A producer that expires leaves a floor above its epoch: its late retry is refused.
- Producers with dated epochs (`is_dated`) share one floor, so what expires leaves nothing behind: whoever is not known and has
  an earlier date takes a later one. A child inherits nothing of them, since no other instance has their ids. Named producers
  never expire: there are as many as their users have names for.
- Idle is who has no batch behind the log's end of a day ago, which the table notes with the owner's clock at each snapshot. A
  clock that jumps lets producers expire early: they take another date, and only a batch in doubt at that time stays in doubt.
- Expiry is not in the log: another owner may take more batches of a producer that a snapshot let expire. They follow in any
  fold of the log behind that snapshot, and the floor stays.

Source: the idempotent producer of Apache Kafka (KIP-98), with sequences of batches instead of records; the rules for scales
and snapshots are those that the exhaustive model finds necessary.
"""

from __future__ import annotations

import itertools
import struct
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from rangelog_core.batch_extension import OWN_IDS, Producer, is_dated
from rangelog_core.errors import Corruption

WINDOW = 5
"""Batches remembered for each producer. A producer sends no batch that is so many ahead of its oldest without an outcome:
to count those without an outcome is not enough, since acks may be lost and later ones arrive."""
PRODUCERS_PER_PIECE = 4_096
"""Producers in one piece of a snapshot: at most half a MiB."""

IDLE_MS = 86_400_000
"""A producer without a batch for so long expires."""
MARK_INTERVAL_MS = 3_600_000
OWN_PRODUCERS_MAX = 100_000
"""Producers with ids of their own that a snapshot keeps: those with the latest batches."""

_PRODUCER = struct.Struct("<QIQqB")  # id, epoch, next sequence, 0 (once a timestamp), batches
_BATCH = struct.Struct("<QI")  # base offset, records
_FLOOR = struct.Struct("<QI")  # producer id, epoch
_DATED_FLOOR = struct.Struct("<Q")
_MARK = struct.Struct("<QQ")  # a time in ms, and where the log ended then
_FLOORS, _PRODUCERS, _DATES = b"F", b"P", b"D"


class Standing(Enum):
    """What a batch is to the log."""

    NEXT = "next"  # its producer's next: append it
    HELD = "held"  # it is there, at `offset`
    FORGOTTEN = "forgotten"  # it is there, before those that are remembered
    GAP = "gap"  # batches before it are missing
    FENCED = "fenced"  # a later epoch of its producer was seen, or the producer expired


class Found(NamedTuple):
    """The standing of a batch. `offset`, `end_offset`: of a held one; `epoch`: with FENCED the lowest one that is taken."""

    standing: Standing
    offset: int = -1
    end_offset: int = -1
    epoch: int = 0


class AckedBatch(NamedTuple):
    """A batch in the log."""

    producer: Producer
    offset: int
    end_offset: int


class _Entry:
    __slots__ = ("epoch", "next_sequence", "offsets")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.offsets: deque[tuple[int, int]] = deque(maxlen=WINDOW)  # [base, end) of the last batches


NEXT, GAP, FORGOTTEN = Found(Standing.NEXT), Found(Standing.GAP), Found(Standing.FORGOTTEN)


class ProducerTable:
    """See the module. `find` and `note` take constant time."""

    def __init__(self, floors: Mapping[int, int] | None = None) -> None:
        """`floors`: of a child shard, the `epochs` of all its ancestors."""
        self._entries: dict[int, _Entry] = {}
        self._floors: dict[int, int] = dict(floors or {})
        self._recent: OrderedDict[int, None] = (
            OrderedDict()
        )  # producers with ids of their own, by the end of their last batch
        self._dated_floor = 0
        self._marks: list[tuple[int, int]] = []  # (time in ms, end of the log), both rising: at most those of a day
        self.begins_in_the_middle = False
        """The first batch of a producer that is noted may be any of its batches: those before it were trimmed unseen."""

    def __len__(self) -> int:
        return len(self._entries)

    def floor(self, producer_id: int) -> int:
        """Return the lowest epoch of a producer that is taken."""
        floor = self._floors.get(producer_id, 0)
        entry = self._entries.get(producer_id)
        return entry.epoch if entry is not None and entry.epoch > floor else floor

    def find(self, producer: Producer) -> Found:
        """Return what a batch is to the acked part of the log; nothing changes."""
        producer_id, epoch, sequence = producer
        entry = self._entries.get(producer_id)
        floor = self.floor(producer_id)
        if entry is None and floor < self._dated_floor and is_dated(producer_id, epoch):
            floor = self._dated_floor
        if epoch < floor:
            return Found(Standing.FENCED, epoch=floor)
        if entry is None or entry.epoch < epoch:
            return GAP if sequence else NEXT
        ahead = sequence - entry.next_sequence
        if ahead >= 0:
            return GAP if ahead else NEXT
        if -ahead > len(entry.offsets):
            return FORGOTTEN
        return Found(Standing.HELD, *entry.offsets[ahead])

    def note(self, batch: AckedBatch) -> None:
        """Add the log's next batch. Raises Corruption when it cannot follow those before it."""
        producer_id, epoch, sequence = batch.producer
        entry = self._entries.get(producer_id)
        if not self._follows(entry, batch.producer):
            raise Corruption(f"the log has {batch.producer} at {batch.offset}, where it cannot follow")
        if entry is None or entry.epoch < epoch:
            entry = self._entries[producer_id] = _Entry(epoch)
        entry.next_sequence = sequence + 1
        entry.offsets.append((batch.offset, batch.end_offset))
        if producer_id >= OWN_IDS:
            self._recent[producer_id] = None
            self._recent.move_to_end(producer_id)

    def _follows(self, entry: _Entry | None, producer: Producer) -> bool:
        """Whether the log may have this batch next."""
        producer_id, epoch, sequence = producer
        if entry is not None and entry.epoch >= epoch:
            return entry.epoch == epoch and sequence == entry.next_sequence
        if entry is None and (
            self.begins_in_the_middle or (is_dated(producer_id, epoch) and epoch < self._dated_floor)
        ):
            return True
        floor = self._floors.get(producer_id, 0)
        return sequence == 0 if epoch >= floor else epoch + 1 == floor  # the floor is that of an expiry

    def epochs(self) -> dict[int, int]:
        """Return the floor of each producer that another instance may follow: what a child shard starts with."""
        known = {each: self.floor(each) for each, entry in self._entries.items() if not is_dated(each, entry.epoch)}
        return self._floors | known

    def expire_idle(self, time_ms: int, end_offset: int) -> int:
        """Forget who was idle for a day at this time, when the log ends there; return how many producers they were."""
        marks = self._marks = [mark for mark in self._marks if mark[0] <= time_ms]  # the clock may have gone back
        if not marks or time_ms - marks[-1][0] >= MARK_INTERVAL_MS:
            marks.append((time_ms, end_offset))
        below = 0
        while marks[0][0] <= time_ms - IDLE_MS:
            below = marks.pop(0)[1]
        return self.expire(below, OWN_PRODUCERS_MAX)

    def expire(self, below: int, kept_max: int = 1 << 62) -> int:
        """Forget the producers with ids of their own whose batches all end at or below an offset; return how many they were.

        Of the others the latest `kept_max` stay. Takes time for those that go.
        """
        before = len(self._recent)
        while self._recent:
            producer_id = next(iter(self._recent))
            if len(self._recent) <= kept_max and self._entries[producer_id].offsets[-1][1] > below:
                break
            del self._recent[producer_id]
            epoch = self._entries.pop(producer_id).epoch
            if is_dated(producer_id, epoch):
                self._dated_floor = max(epoch + 1, self._dated_floor)
            else:
                self._floors[producer_id] = max(epoch + 1, self._floors.get(producer_id, 0))
        return before - len(self._recent)

    # ---- snapshots

    def snapshot(self) -> Iterator[bytes]:
        """Return the table in pieces; later batches do not change what the iterator yields."""
        floors = list(self._floors.items())
        rows = [
            (producer_id, entry.epoch, entry.next_sequence, 0, tuple(entry.offsets))
            for producer_id, entry in self._entries.items()
        ]
        dates = []
        if self._marks or self._dated_floor:
            dates.append(
                _DATES + _DATED_FLOOR.pack(self._dated_floor) + b"".join(_MARK.pack(*each) for each in self._marks)
            )
        return itertools.chain(dates, _pieces(floors, rows))

    @classmethod
    def restore(cls, pieces: Iterable[bytes]) -> ProducerTable:
        """Return the table of a snapshot. Raises Corruption."""
        table = cls()
        try:
            for piece in pieces:
                if piece[:1] == _FLOORS:
                    table._floors.update(_FLOOR.iter_unpack(piece[1:]))
                elif piece[:1] == _PRODUCERS:
                    table._restore(piece)
                elif piece[:1] == _DATES:
                    (table._dated_floor,) = _DATED_FLOOR.unpack_from(piece, 1)
                    table._marks = list(_MARK.iter_unpack(piece[1 + _DATED_FLOOR.size :]))
                else:
                    raise Corruption("a snapshot of producers has a piece of an unknown kind")
        except struct.error as error:
            raise Corruption("a snapshot of producers does not decode") from error
        own = [each for each in table._entries if each >= OWN_IDS]
        table._recent = OrderedDict.fromkeys(sorted(own, key=lambda each: table._entries[each].offsets[-1][1]))
        return table

    def _restore(self, piece: bytes) -> None:
        at = 1
        while at < len(piece):
            producer_id, epoch, next_sequence, _, count = _PRODUCER.unpack_from(piece, at)
            at += _PRODUCER.size
            if not 0 < count <= min(WINDOW, next_sequence):
                raise Corruption(f"a snapshot of producers has {count} of {next_sequence} batches of one producer")
            entry = self._entries[producer_id] = _Entry(epoch)
            entry.next_sequence = next_sequence
            for _ in range(count):
                offset, records = _BATCH.unpack_from(piece, at)
                at += _BATCH.size
                entry.offsets.append((offset, offset + records))


def _pieces(
    floors: list[tuple[int, int]], rows: list[tuple[int, int, int, int, tuple[tuple[int, int], ...]]]
) -> Iterator[bytes]:
    for at in range(0, len(floors), PRODUCERS_PER_PIECE):
        yield _FLOORS + b"".join([_FLOOR.pack(*each) for each in floors[at : at + PRODUCERS_PER_PIECE]])
    for at in range(0, len(rows), PRODUCERS_PER_PIECE):
        parts = [_PRODUCERS]
        for *head, offsets in rows[at : at + PRODUCERS_PER_PIECE]:
            parts.append(_PRODUCER.pack(*head, len(offsets)))
            parts += [_BATCH.pack(start, end - start) for start, end in offsets]
        yield b"".join(parts)
