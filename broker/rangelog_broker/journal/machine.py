"""What a journal runs: a deterministic state machine.

What holds: two machines that restored the same pieces and applied the same commands, with the same times, are equal. A machine
has no clock, draws no lots and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar


class JournalMachine(Protocol):
    """A deterministic state machine. Commands and results are bytes; their encoding is the machine's own."""

    level: int
    """The feature level by whose rules commands are applied; 0 at first. It is set between two commands, and only rises."""

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot. The journal takes snapshots by it."""

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a command at a time in ms since the Unix epoch, which never goes back; return the result.

        Raises RangelogError to refuse the command: the state is unchanged, and the error is the result. Bounds on the state
        are the machine's to keep, in this way. UnsupportedVersion, for a command that this program does not know, ends the
        journal; any other exception is a defect: the result is INTERNAL, and what was changed before it was raised stays.
        """

    def snapshot(self) -> Iterator[bytes]:
        """Return the state in pieces of up to a MiB less 1 KiB. Later commands do not change what the iterator yields."""

    def restore_begin(self) -> None:
        """Forget the state: the pieces of a snapshot follow. What was restored before is of a snapshot that has no end."""

    def restore_piece(self, piece: bytes) -> None:
        """Take the next piece, in time by its size. Raises Corruption, UnsupportedVersion."""

    def restore_end(self) -> None:
        """Note that all pieces were taken: the state is that of the snapshot. Raises Corruption."""


M = TypeVar("M", bound=JournalMachine)
