"""Which servers refuse a writer's appends since they have no room, and whether that is all that it can get. Pure.

What holds: one refusal, or a range that others can ack, is no reason to fail appends: the writer leaves for other servers. They
fail once as many replicas have no room that no ack is possible, and the placement driver had no other servers to give:
it chose ones that the writer had asked it to avoid, or refused another range. The next ack ends that.
"""

from __future__ import annotations


class Room:
    """What one writer knows. `without`: the servers without room, once nothing else is left; empty otherwise."""

    def __init__(self) -> None:
        self.without: tuple[str, ...] = ()
        self._here: set[str] = set()  # in the open range
        self._before: set[str] = set()  # in the ranges before it, since the last ack

    def refused(self, server: str) -> None:
        """A server of the open range has no room."""
        self._here.add(server)

    def entered(self) -> None:
        """Another range is open, for which the servers without room were to be avoided."""
        self._before |= self._here
        self._here.clear()

    def acked(self) -> None:
        """Records are acked."""
        if self._here or self._before:
            self.without = ()
            self._here.clear()
            self._before.clear()

    def is_none_left(self, spare: int, *, refused: bool) -> bool:
        """Whether nothing else is left, which is true once. `spare`: the replicas that acks can do without; `refused`: the
        placement driver has no other range to give."""
        if self.without or len(self._here) <= spare or not (refused or self._here <= self._before):
            return False
        self.without = tuple(sorted(self._here))
        return True
