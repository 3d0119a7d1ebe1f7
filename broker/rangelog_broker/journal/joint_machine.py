"""Several machines on one journal: each command and each piece of a snapshot begins with the number of its machine.

What holds: a part sees its own commands in the order of the journal and nothing else. Numbers are part of the format of
entries, and never given to another machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rangelog_broker.journal.machine import JournalMachine
from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion

NUMBER_MAX = 255


class JointMachine:
    """A JournalMachine of parts, by number."""

    def __init__(self, parts: Mapping[int, JournalMachine]) -> None:
        assert all(0 <= number <= NUMBER_MAX for number in parts)
        self.parts = dict(sorted(parts.items()))
        self._level = 0

    @property
    def level(self) -> int:
        """See JournalMachine. All parts have it."""
        return self._level

    @level.setter
    def level(self, level: int) -> None:
        self._level = level
        for part in self.parts.values():
            part.level = level

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return sum(part.size_bytes for part in self.parts.values())

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a command to its part. Raises UnsupportedVersion, InvalidArgument, and what the part raises."""
        if not command:
            raise InvalidArgument("an empty command")
        part = self.parts.get(command[0])
        if part is None:
            raise UnsupportedVersion(
                f"a command for the part {command[0]}, which this program does not know: upgrade this broker"
            )
        return part.apply(command[1:], now_ms)

    def snapshot(self) -> Iterator[bytes]:
        """Return the states of all parts, one after the other; captured at the call."""
        captured = [(bytes((number,)), part.snapshot()) for number, part in self.parts.items()]
        return (head + piece for head, pieces in captured for piece in pieces)

    def restore_begin(self) -> None:
        """See JournalMachine."""
        for part in self.parts.values():
            part.restore_begin()

    def restore_piece(self, piece: bytes) -> None:
        """See JournalMachine. Raises UnsupportedVersion for a part that this program does not know."""
        if not piece:
            raise Corruption("an empty piece of a snapshot")
        part = self.parts.get(piece[0])
        if part is None:
            raise UnsupportedVersion(
                f"a snapshot has the part {piece[0]}, which this program does not know: upgrade this broker"
            )
        part.restore_piece(piece[1:])

    def restore_end(self) -> None:
        """See JournalMachine."""
        for part in self.parts.values():
            part.restore_end()


def command_for(number: int, command: bytes) -> bytes:
    """Return a command of one part as a command of the whole.

    >>> command_for(2, b"x")
    b'\\x02x'
    """
    return bytes((number,)) + command
