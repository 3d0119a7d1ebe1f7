"""Machines that tests run on journals: small, and with a state that shows every command that was applied, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rangelog_core.errors import PreconditionFailed

COMMANDS_PER_PIECE = 16


class Link(NamedTuple):
    """The result of a command: how many were applied with it, and a hash over all of them and their times."""

    count: int
    digest: bytes


class Chain:
    """A hash over all commands and their times: any that is missing, repeated, reordered or applied at another time shows.

    `refuse …` is refused; every other result is a Link, packed. What follows a "|" in a command is not kept.
    """

    def __init__(self) -> None:
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
        seed = self.digest + now_ms.to_bytes(8, "big") + command
        self.commands.append(command.partition(b"|")[0])
        self.digests.append(hashlib.blake2b(seed, digest_size=8).hexdigest().encode())
        return b"%d " % self.count + self.digest

    def snapshot(self) -> Iterator[bytes]:
        rows = [b"%s %s" % pair for pair in zip(self.digests, self.commands, strict=True)]
        pieces = [b"\n".join(rows[at : at + COMMANDS_PER_PIECE]) for at in range(0, len(rows), COMMANDS_PER_PIECE)]
        return iter([b"%d" % self.now_ms, *pieces])

    def restore(self, pieces: Iterable[bytes]) -> None:
        now, *joined = pieces
        rows = [row.split(b" ", 1) for piece in joined for row in piece.split(b"\n")]
        self.now_ms = int(now)
        self.digests = [digest for digest, _ in rows]
        self.commands = [command for _, command in rows]


def link(result: bytes) -> Link:
    """Unpack a result."""
    count, digest = result.split(b" ")
    return Link(int(count), digest)
