"""JournalReplay of a journal: its records, from the first that is left on, become the fold of all there ever were.

What holds:
- A stream that was never trimmed is replayed from the empty state. Of a trimmed one the state at its start is unknown: entries
  wait until a whole snapshot is there, then those that it does not cover are applied.
- Only a whole snapshot counts: one that its owner did not finish is passed over, as are all once the state is known.
- At the end all entries are applied, or it is an error: a journal never begins with a state that is not the fold.
"""

from __future__ import annotations

from typing import Generic

from rangelog_broker.journal.entry import Entry, Piece, decode_entry
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.machine import M
from rangelog_core.errors import Corruption

HELD_BYTES_MAX = 1 << 30
"""Entries that wait for a snapshot, and its pieces: above it something else is wrong."""


class JournalReplay(Generic[M]):
    """Replays one journal from the start of its stream. Feed it every record, in order; also a standby's, as they come."""

    def __init__(self, machine: M, start_offset: int) -> None:
        """`start_offset`: of the first record that the stream has, its trim offset."""
        self.fold = Fold(machine)
        self.fold.applied_offset = start_offset
        self.next_offset = start_offset
        self.is_known = start_offset == 0  # the state is the fold up to next_offset
        self._start_offset = start_offset
        self._held: list[tuple[int, Entry]] = []
        self._held_bytes = 0
        self._snapshot: tuple[int, int] | None = None  # epoch and offset of the one whose pieces come
        self._pieces: list[bytes] = []

    def feed(self, offset: int, value: bytes) -> None:
        """Take the next record. Raises Corruption, UnsupportedVersion; the journal cannot be used then."""
        if offset != self.next_offset:
            raise Corruption(f"a journal's record {offset} follows {self.next_offset}: records are missing")
        entry = decode_entry(value)
        self.next_offset = offset + 1
        if self.is_known:
            self.fold.apply(offset, entry)
            return
        self._held_bytes += len(value)
        if self._held_bytes > HELD_BYTES_MAX:
            raise Corruption(f"{self._held_bytes} bytes of a trimmed journal without a whole snapshot")
        if isinstance(entry, Piece):
            self._take(entry)
        else:
            self._held.append((offset, entry))

    def finish(self, end_offset: int) -> Fold[M]:
        """Return the fold of all entries below `end_offset`, which a fence has settled. Raises Corruption."""
        if not self.is_known:
            raise Corruption(f"the journal was trimmed to {self._start_offset} and has no whole snapshot")
        if self.next_offset != end_offset:
            raise Corruption(f"the journal ends at {end_offset}, and was read up to {self.next_offset}")
        return self.fold

    def _take(self, piece: Piece) -> None:
        name = piece.epoch, piece.covers
        if piece.number == 0:
            self._snapshot, self._pieces = name, []
        elif name != self._snapshot:
            return  # its first pieces were trimmed, so a later snapshot is whole
        elif piece.number != len(self._pieces):
            raise Corruption(f"piece {piece.number} of a snapshot follows {len(self._pieces)}")
        if piece.covers < self._start_offset:
            self._snapshot = None  # entries between it and the start are gone
            return
        self._pieces.append(piece.data)
        if piece.last:
            self._restore(piece.covers)

    def _restore(self, covers: int) -> None:
        if covers >= self.next_offset:
            raise Corruption(f"a snapshot at {self.next_offset - 1} covers entries up to {covers}")
        self.fold.restore(covers, self._pieces)
        for offset, entry in self._held:
            if offset >= covers:
                self.fold.skip(offset)
                self.fold.apply(offset, entry)
        self.fold.skip(self.next_offset)
        self.is_known = True
        self._held, self._pieces, self._snapshot = [], [], None
