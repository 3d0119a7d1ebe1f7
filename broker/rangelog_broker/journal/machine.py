"""What a journal runs: a deterministic state machine.

What holds: two machines that restored the same pieces and applied the same commands, with the same times, are equal. A machine
has no clock, draws no lots and does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar


class JournalMachine(Protocol):
    """A deterministic state machine. Commands and results are bytes; their encoding is the machine's own."""

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot. The journal takes snapshots by it."""

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a command at a time in ms since the Unix epoch, which never goes back; return the result.

        Raises RangelogError to refuse the command: the state is unchanged, and the error is the result. Bounds on the state
        are the machine's to keep, in this way. Any other exception ends the journal.
        """

    def snapshot(self) -> Iterator[bytes]:
        """Return the state in pieces of up to a MiB less 1 KiB. Later commands do not change what the iterator yields."""

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state by that of a snapshot. Raises Corruption, UnsupportedVersion."""


M = TypeVar("M", bound=JournalMachine)
