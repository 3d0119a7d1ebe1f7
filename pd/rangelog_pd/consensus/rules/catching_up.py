"""When a learner has caught up, so that it may become a voter: by rounds, as Raft's author has it. Pure.

What holds: a learner counts as caught up after a round (the entries that the leader had when it began) that took less than an
election takes; so the group waits no longer for the rest than for a new leader.

Source: Ongaro, "Consensus: Bridging Theory and Practice", section 4.2.1.
"""

from __future__ import annotations


class Rounds:
    """The rounds of the learners of one leader."""

    def __init__(self) -> None:
        self._rounds: dict[str, tuple[int, float]] = {}

    def caught_up(self, name: str, now_s: float, *, acknowledged: int, last: int, limit_s: float) -> bool:
        """Whether a round of this learner has just ended in time; begins the next one otherwise."""
        target, began_s = self._rounds.setdefault(name, (last, now_s))
        if acknowledged < target:
            return False
        if now_s - began_s <= limit_s:
            return True
        self._rounds[name] = (last, now_s)
        return False

    def clear(self) -> None:
        """Clear all rounds, in a new term or with other members."""
        self._rounds.clear()
