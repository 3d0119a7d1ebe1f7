"""What was tried and what was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.fakes.disk import Step

PROBLEMS_MAX = 20
WRONG = ("never written", "out of nothing", "differs", "is back", "never here", "above the writer's", "too early")
LOST = (" is lost", "it is gone", "does not start", "forgot", "its vote went", "unreadable", "quarantined", "a hole")


@dataclass
class Tally:
    """What was tried and what was found."""

    cuts: Counter[str] = field(default_factory=Counter)
    disks: Counter[str] = field(default_factory=Counter)
    recoveries: int = 0
    second_cuts: int = 0
    doubts: int = 0
    problems: list[str] = field(default_factory=list)

    def cut(self, step: Step | None) -> None:
        """Count a cut before a call, or after the last one."""
        self.cuts[step.call if step else "at the end"] += 1

    def add(self, other: Tally) -> None:
        """Put another one's counts to this one's."""
        self.cuts += other.cuts
        self.disks += other.disks
        self.recoveries += other.recoveries
        self.second_cuts += other.second_cuts
        self.doubts += other.doubts
        self.problems += other.problems

    @property
    def lost(self) -> int:
        """Promises that did not hold."""
        return sum(any(word in problem for word in LOST) for problem in self.problems)

    @property
    def served_wrong(self) -> int:
        """Bytes or metadata that nobody wrote."""
        return sum(any(word in problem for word in WRONG) for problem in self.problems)

    @property
    def full(self) -> bool:
        """Whether more problems would not help."""
        return len(self.problems) >= PROBLEMS_MAX
