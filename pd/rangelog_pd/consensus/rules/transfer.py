"""A leader's transfer of its leadership to a member that was chosen. Pure: times and positions in, the next act out.

What holds: while a transfer is under way the leader proposes nothing, so that the target gets all entries; only then is it
asked to stand for election, without waiting. After the time limit the leader goes on as if nothing had been asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

TRANSFER_TIMEOUT_S = 2.0
BEHIND_ENTRIES_MAX = 1000
"""A member that lacks more is not waited for with all proposals held back."""


class Act(Enum):
    """The next step of the leader."""

    WAIT = 0
    ASK = 1
    """Ask the target to take over."""
    GIVE_UP = 2


@dataclass
class Transfer:
    """One transfer."""

    target: str
    term: int
    deadline_s: float
    callback: Callable[[Any, int], None]
    ask_at_s: float = 0.0

    def act(self, now_s: float, *, acknowledged_index: int, last_index: int, repeat_s: float) -> Act:
        """Return what to do now. A request that may have been lost is repeated."""
        if now_s > self.deadline_s:
            return Act.GIVE_UP
        if acknowledged_index < last_index or now_s < self.ask_at_s:
            return Act.WAIT
        self.ask_at_s = now_s + repeat_s
        return Act.ASK
