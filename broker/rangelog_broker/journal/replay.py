"""JournalReplay of a journal: its records, from the first that is left on, become the fold of all there ever were.

What holds:
- A stream that was never trimmed is replayed from the empty state. Of a trimmed one the state at its start is unknown, until a
  whole snapshot is read; then the entries that it does not cover are read once more, from `next_offset` on, and applied.
- Only a whole snapshot counts: one that its owner did not finish is forgotten when the next one begins.
- At the end all entries are applied, or it is an error: a journal never begins with a state that is not the fold.
- Nothing is kept but the state: a piece is restored as it comes, in time by its size, and entries that wait are not held.
"""

from __future__ import annotations

from typing import Generic

from rangelog_broker.journal.entry import Piece, decode_entry
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.machine import M
from rangelog_core.errors import Corruption


class JournalReplay(Generic[M]):
    """Replays one journal from the start of its stream; also a standby's, as its records come.

    Feed it the record at `next_offset`, again and again. Where a snapshot ends `next_offset` goes back, once.
    """

    def __init__(self, machine: M, start_offset: int) -> None:
        """`start_offset`: of the first record that the stream has, its trim offset."""
        self.fold = Fold(machine)
        self.fold.applied_offset = start_offset
        self.next_offset = start_offset
        self.is_known = start_offset == 0  # the state is the fold up to next_offset
        self._start_offset = start_offset
        self._snapshot: tuple[int, int] | None = None  # epoch and offset of the one whose pieces come
        self._pieces_count = 0

    def feed(self, offset: int, value: bytes) -> None:
        """Take the next record. Raises Corruption, UnsupportedVersion; the journal cannot be used then."""
        if offset != self.next_offset:
            raise Corruption(f"a journal's record {offset} follows {self.next_offset}: records are missing")
        entry = decode_entry(value)
        self.next_offset = offset + 1
        if self.is_known:
            self.fold.apply(offset, entry)
        elif isinstance(entry, Piece):
            self._take(entry)

    def finish(self, end_offset: int) -> Fold[M]:
        """Return the fold of all entries below `end_offset`, which a fence has settled. Raises Corruption."""
        if not self.is_known:
            raise Corruption(f"the journal was trimmed to {self._start_offset} and has no whole snapshot")
        if self.next_offset != end_offset:
            raise Corruption(f"the journal ends at {end_offset}, and was read up to {self.next_offset}")
        return self.fold

    def _take(self, piece: Piece) -> None:
        name = piece.epoch, piece.covers
        if piece.covers >= self.next_offset:
            raise Corruption(f"a snapshot at {self.next_offset - 1} covers entries up to {piece.covers}")
        if piece.number == 0:
            self._snapshot, self._pieces_count = name, 0
        elif name != self._snapshot:
            return  # its first pieces were trimmed, so a later snapshot is whole
        elif piece.number != self._pieces_count:
            raise Corruption(f"piece {piece.number} of a snapshot follows {self._pieces_count}")
        if piece.covers < self._start_offset:
            self._snapshot = None  # entries between it and the start are gone
            return
        if piece.number == 0:
            self.fold.restore_begin(piece.data)
        else:
            self.fold.restore_piece(piece.data)
        self._pieces_count += 1
        if piece.last:
            self.fold.restore_end(piece.covers)
            self.next_offset = piece.covers
            self.is_known = True
