"""Machines that tests run on journals: small, and with a state that shows every command that was applied, in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from rangelog_core.errors import PreconditionFailed


class Chain:
    """A hash over all commands and their times: any that is missing, repeated, reordered or applied at another time shows.

    `refuse …` is refused; every result is the number of the command and the hash so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self.digest = bytes(8)
        self.commands: list[bytes] = []
        self.now_ms = 0

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.commands)) + 16

    def apply(self, command: bytes, now_ms: int) -> bytes:
        assert now_ms >= self.now_ms, "time does not go back"
        self.now_ms = now_ms
        if command.startswith(b"refuse"):
            raise PreconditionFailed("as asked")
        self.count += 1
        self.digest = hashlib.blake2b(self.digest + now_ms.to_bytes(8, "big") + command, digest_size=8).digest()
        self.commands.append(command)
        return self.count.to_bytes(4, "big") + self.digest

    def snapshot(self) -> Iterator[bytes]:
        commands = self.commands[:]
        return iter([self.digest, *(b"\n".join(commands[at : at + 16]) for at in range(0, len(commands), 16))])

    def restore(self, pieces: Iterable[bytes]) -> None:
        self.digest, *joined = pieces
        self.commands = [command for piece in joined for command in piece.split(b"\n")]
        self.count = len(self.commands)
