"""Reads without a log entry: the leader verifies that it led when the read was requested (Raft's ReadIndex).

Source: Ongaro, "Consensus: Bridging Theory and Practice", section 6.4.

What holds: a round that starts after a read was requested is won when a majority of the voters, the leader included if it is
one, replies in the leader's own term. Each of them then knew no later term, so no later leader can have committed an entry
before the round started; the leader's commit index at that time, once applied, covers all commands that were acknowledged
before the read. A commit index counts only once an entry of the leader's own term is committed. A member that lost its disk
does not reply. The voters may change during a round: a later leader was elected by a majority of those before or after the
change, and each of these has a member in common with the majority that replied.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

FEATURE_LEVEL_LEADER_CHECKS = 2


@dataclass(slots=True)
class CheckRound:
    """One check that is sent to all members."""

    number: int
    term: int
    index: int
    waiting: list[Callable[[int], None]]
    answered: dict[str, None] = field(default_factory=dict)
    is_won: bool = False


class LeaderChecks:
    """The rounds of one member, one at a time. Owned by the tick thread."""

    def __init__(self, name: str, voters: Collection[str]) -> None:
        self._name = name
        self._voters = frozenset(voters)
        self._number = 0
        self.round: CheckRound | None = None
        self._next: list[Callable[[int], None]] = []

    def follow(self, voters: Collection[str]) -> None:
        """Count these members from now on."""
        self._voters = frozenset(voters)
        self._count()

    def ask(self, then: Callable[[int], None]) -> None:
        """Request a read: `then` gets the index that must be applied for it, after the next round."""
        self._next.append(then)

    def begin(self, term: int, commit_index: int) -> CheckRound | None:
        """Start the next round, if the last one is over and a read waits. Returns the message to send."""
        if self.round is not None or not self._next:
            return None
        self._number += 1
        self.round = CheckRound(self._number, term, commit_index, self._next)
        self._next = []
        self._count()
        return self.round

    def answered(self, peer: str, term: int, number: int) -> None:
        """Count a peer's reply."""
        if self.round is not None and (self.round.term, self.round.number) == (term, number):
            self.round.answered[peer] = None
            self._count()

    def finish(self, applied_index: int) -> None:
        """Release the reads whose round is won and whose index is applied."""
        won = self.round
        if won is not None and won.is_won and won.index <= applied_index:
            self.round = None
            for then in won.waiting:
                then(applied_index)

    def give_up(self) -> list[Callable[[int], None]]:
        """Return all waiting reads, since this member leads no more, or in another term."""
        waiting = [*(self.round.waiting if self.round is not None else ()), *self._next]
        self.round, self._next = None, []
        return waiting

    def _count(self) -> None:
        if self.round is None:
            return
        answered = self._voters.intersection((*self.round.answered, self._name))
        if 2 * len(answered) > len(self._voters):
            self.round.is_won = True
