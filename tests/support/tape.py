"""The simplest state machine for tests of consensus: the list of its commands."""

from __future__ import annotations


class Tape:
    """A state that is the list of its commands; none holds a line feed."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, index: int, command: bytes) -> bytes:
        """Append and answer the index."""
        self.commands.append(command)
        return b"%d" % index

    def freeze(self) -> list[bytes]:
        """Lines."""
        return [b"\n".join(self.commands)]

    def restore(self, data: bytes) -> None:
        """Lines back."""
        self.commands = data.split(b"\n") if data else []
