"""Machines that tests run on journals: small, and with a state that shows every command that was applied, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from rangelog_broker.journal.entry import Piece, encode_entry
from rangelog_broker.journal.fold import Fold
from rangelog_broker.journal.machine import JournalMachine
from rangelog_broker.journal.replay import JournalReplay
from rangelog_broker.journal.sessions import RESULT_BYTES_MAX
from rangelog_core.errors import PreconditionFailed, UnsupportedVersion

COMMANDS_PER_PIECE = 16


class Link(NamedTuple):
    """The result of a command: how many were applied with it, and a hash over all of them and their times."""

    count: int
    digest: bytes


class Chain:
    """A hash over all commands, their times and levels: any that is missing, repeated, reordered or applied otherwise shows.

    `refuse …` is refused, `quote …` with a long message; at `fail …` the machine fails, `later …` it does not know. Every other
    result is a Link, packed. What follows a "|" in a command is not kept.
    """

    def __init__(self) -> None:
        self.level = 0
        self.now_ms = 0
        self.commands: list[bytes] = []
        self.digests: list[bytes] = []

    @property
    def count(self) -> int:
        return len(self.commands)

    @property
    def digest(self) -> bytes:
        return self.digests[-1] if self.digests else b""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.commands)) + 24 * len(self.commands)

    def apply(self, command: bytes, now_ms: int) -> bytes:
        assert now_ms >= self.now_ms, "time does not go back"
        self.now_ms = now_ms
        if command.startswith(b"refuse"):
            raise PreconditionFailed("as asked")
        if command.startswith(b"fail"):
            raise KeyError("a defect")
        if command.startswith(b"quote"):
            raise PreconditionFailed(f"there is no {bytes(RESULT_BYTES_MAX)!r}")
        if command.startswith(b"later"):
            raise UnsupportedVersion("a command of a later version")
        seed = self.digest + bytes((self.level,)) + now_ms.to_bytes(8, "big") + command
        self.commands.append(command.partition(b"|")[0])
        self.digests.append(hashlib.blake2b(seed, digest_size=8).hexdigest().encode())
        return b"%d " % self.count + self.digest

    def snapshot(self) -> Iterator[bytes]:
        rows = [b"%s %s" % pair for pair in zip(self.digests, self.commands, strict=True)]
        pieces = [b"\n".join(rows[at : at + COMMANDS_PER_PIECE]) for at in range(0, len(rows), COMMANDS_PER_PIECE)]
        return iter([b"%d" % self.now_ms, *pieces])

    def restore_begin(self) -> None:
        self.now_ms = -1
        self.commands, self.digests = [], []

    def restore_piece(self, piece: bytes) -> None:
        if self.now_ms < 0:
            self.now_ms = int(piece)
            return
        for row in piece.split(b"\n"):
            digest, command = row.split(b" ", 1)
            self.digests.append(digest)
            self.commands.append(command)

    def restore_end(self) -> None:
        assert self.now_ms >= 0


Machine = TypeVar("Machine", bound=JournalMachine)


def restored(machine: Machine, pieces: Iterable[bytes]) -> Machine:
    """Return the machine with the state of a snapshot."""
    machine.restore_begin()
    for piece in pieces:
        machine.restore_piece(piece)
    machine.restore_end()
    return machine


def reopened(fold: Fold[Machine], machine: Machine) -> Fold[Machine]:
    """Return the fold that the next owner has of a journal that was trimmed to a snapshot; `machine`: in its first state."""
    covers = fold.applied_offset
    pieces = list(fold.snapshot())
    entries = [Piece(1, covers, at, at == len(pieces) - 1, piece) for at, piece in enumerate(pieces)]
    records = [encode_entry(each) for each in entries]
    replay = JournalReplay(machine, covers)
    while replay.next_offset < covers + len(records):  # it goes back once: the pieces are entries, too
        replay.feed(replay.next_offset, records[replay.next_offset - covers])
    return replay.finish(covers + len(records))


def link(result: bytes) -> Link:
    """Unpack a result."""
    count, digest = result.split(b" ")
    return Link(int(count), digest)
