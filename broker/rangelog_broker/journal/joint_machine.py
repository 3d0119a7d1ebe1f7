"""Several machines on one journal: each command and each piece of a snapshot begins with the number of its machine.

What holds: a part sees its own commands in the order of the journal and nothing else. Numbers are part of the format of
entries, and never given to another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rangelog_broker.journal.machine import JournalMachine
from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion

NUMBER_MAX = 255


class JointMachine:
    """A JournalMachine of parts, by number."""

    def __init__(self, parts: Mapping[int, JournalMachine]) -> None:
        assert all(0 <= number <= NUMBER_MAX for number in parts)
        self.parts = dict(sorted(parts.items()))

    @property
    def size_bytes(self) -> int:
        """About the size of a snapshot."""
        return sum(part.size_bytes for part in self.parts.values())

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """Apply a command to its part. Raises InvalidArgument, and what the part raises."""
        part = self.parts.get(command[0]) if command else None
        if part is None:
            raise InvalidArgument("a command for no machine of this journal")
        return part.apply(command[1:], now_ms)

    def snapshot(self) -> Iterator[bytes]:
        """Return the states of all parts, one after the other; captured at the call."""
        captured = [(bytes((number,)), part.snapshot()) for number, part in self.parts.items()]
        return (head + piece for head, pieces in captured for piece in pieces)

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace all states. Raises Corruption, UnsupportedVersion (a part that this program does not know)."""
        sorted_out: dict[int, list[bytes]] = {number: [] for number in self.parts}
        for piece in pieces:
            if not piece:
                raise Corruption("an empty piece of a snapshot")
            if piece[0] not in sorted_out:
                raise UnsupportedVersion(f"a snapshot has the part {piece[0]}, which this program does not know")
            sorted_out[piece[0]].append(piece[1:])
        for number, part in self.parts.items():
            part.restore(sorted_out[number])


def command_for(number: int, command: bytes) -> bytes:
    """Return a command of one part as a command of the whole.

    >>> command_for(2, b"x")
    b'\\x02x'
    """
    return bytes((number,)) + command
