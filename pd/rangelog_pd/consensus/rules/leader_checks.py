"""Reads without an entry: the leader makes sure that it still leads when the read was asked for (Raft's ReadIndex).

Source: Ongaro, "Consensus: Bridging Theory and Practice", section 6.4.

What holds: a round that begins after a read was asked for is won when a majority, the leader included, answers in the
leader's own term. Each of them had then heard of no later term, so no later leader can have committed anything before the
round began; the leader's commit index at that time, once applied, covers all that was acknowledged before the read. A commit
index counts only once an entry of the leader's own term is committed. A member without its disk's memory does not answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

FEATURE_LEVEL_LEADER_CHECKS = 2


@dataclass(slots=True)
class CheckRound:
    """One question to all."""

    number: int
    term: int
    index: int
    waiting: list[Callable[[int], None]]
    answered: dict[str, None] = field(default_factory=dict)
    is_won: bool = False


class LeaderChecks:
    """Rounds of one member, one after the other. Owned by the tick thread."""

    def __init__(self, members: int) -> None:
        self._majority = members // 2 + 1
        self._number = 0
        self.round: CheckRound | None = None
        self._next: list[Callable[[int], None]] = []

    def ask(self, then: Callable[[int], None]) -> None:
        """A read was asked for: `then` gets the index that it has to see, in the next round."""
        self._next.append(then)

    def begin(self, term: int, commit_index: int) -> CheckRound | None:
        """Begin the next round, if the last one is over and anybody waits. Returns the question to send."""
        if self.round is not None or not self._next:
            return None
        self._number += 1
        self.round = CheckRound(self._number, term, commit_index, self._next)
        self._next = []
        self._count()
        return self.round

    def answered(self, peer: str, term: int, number: int) -> None:
        """A peer answered."""
        if self.round is not None and (self.round.term, self.round.number) == (term, number):
            self.round.answered[peer] = None
            self._count()

    def finish(self, applied_index: int) -> None:
        """Let those read whose round is won and whose index is applied."""
        won = self.round
        if won is not None and won.is_won and won.index <= applied_index:
            self.round = None
            for then in won.waiting:
                then(applied_index)

    def give_up(self) -> list[Callable[[int], None]]:
        """This member leads no more, or in another term: return all that waited."""
        waiting = [*(self.round.waiting if self.round is not None else ()), *self._next]
        self.round, self._next = None, []
        return waiting

    def _count(self) -> None:
        if self.round is not None and len(self.round.answered) + 1 >= self._majority:
            self.round.is_won = True
