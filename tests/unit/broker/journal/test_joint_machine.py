"""Several machines on one journal: each sees its own commands, and has its own part of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rangelog_broker.journal.joint_machine import JointMachine, command_for
from rangelog_core.errors import Corruption, InvalidArgument, UnsupportedVersion
from tests.support.journal_machines import restored


class Listing:
    """A machine that keeps its commands, one piece of a snapshot each."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    @property
    def size_bytes(self) -> int:
        """See JournalMachine."""
        return sum(map(len, self.seen))

    def apply(self, command: bytes, now_ms: int) -> bytes:
        """See JournalMachine."""
        if command == b"refused":
            raise InvalidArgument("refused")
        self.seen.append(command)
        return b"%d at %d" % (len(self.seen), now_ms)

    def snapshot(self) -> Iterator[bytes]:
        """See JournalMachine."""
        return iter(list(self.seen))

    def restore_begin(self) -> None:
        """See JournalMachine."""
        self.seen = []

    def restore_piece(self, piece: bytes) -> None:
        """See JournalMachine."""
        self.seen.append(piece)

    def restore_end(self) -> None:
        """See JournalMachine."""


def make() -> JointMachine:
    """Machines 1 and 7."""
    return JointMachine({7: Listing(), 1: Listing()})


def seen(machine: JointMachine) -> dict[int, list[bytes]]:
    """What the parts have."""
    return {number: part.seen for number, part in machine.parts.items()}  # type: ignore[attr-defined]


def test_commands_go_to_their_machine() -> None:
    """In order, with the entry's time; results come back."""
    machine = make()
    assert machine.apply(command_for(1, b"a"), 5) == b"1 at 5"
    assert machine.apply(command_for(7, b"b"), 6) == b"1 at 6"
    assert machine.apply(command_for(1, b""), 7) == b"2 at 7"
    assert seen(machine) == {1: [b"a", b""], 7: [b"b"]}
    assert machine.size_bytes == 2


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (b"", InvalidArgument),
        (command_for(1, b"refused"), InvalidArgument),
        (b"\x02x", UnsupportedVersion),
        (b"\xff", UnsupportedVersion),
    ],
)
def test_what_is_refused_changes_nothing(command: bytes, error: type[Exception]) -> None:
    """The machine's refusal is the result, for every owner; a command for an unknown part is for a later program."""
    machine = make()
    with pytest.raises(error):
        machine.apply(command, 0)
    assert seen(machine) == {1: [], 7: []}


def test_a_snapshot_restores_every_machine() -> None:
    """Captured at the call: later commands are not in it; parts without a piece are restored to nothing."""
    machine = make()
    for number in range(3):
        machine.apply(command_for(1, b"%d" % number), 0)
    pieces = machine.snapshot()
    machine.apply(command_for(7, b"later"), 0)
    again = make()
    again.apply(command_for(7, b"before"), 0)
    restored(again, pieces)
    assert seen(again) == {1: [b"0", b"1", b"2"], 7: []}
    assert list(again.snapshot()) == [b"\x010", b"\x011", b"\x012"]


@pytest.mark.parametrize(("piece", "error"), [(b"", Corruption), (b"\x02x", UnsupportedVersion)])
def test_a_strange_piece_is_refused(piece: bytes, error: type[Exception]) -> None:
    """By a typed error."""
    machine = make()
    with pytest.raises(error):
        restored(machine, [b"\x01x", piece])
