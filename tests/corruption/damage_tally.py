"""How files are damaged, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

PROBLEMS_MAX = 20


@dataclass
class Damages:
    """Counts of one part. `problems`: wrong bytes served, or a loss that nobody was told of."""

    flips: int = 0
    cuts: int = 0
    others: int = 0  # files removed, emptied, put in another's place
    wrong_answers: int = 0  # of a store whose object is whole
    outcomes: Counter[str] = field(default_factory=Counter)
    repaired: int = 0
    served_wrong: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, other: Damages) -> None:
        """Put another one's counts to this one's."""
        self.flips += other.flips
        self.cuts += other.cuts
        self.others += other.others
        self.wrong_answers += other.wrong_answers
        self.outcomes += other.outcomes
        self.repaired += other.repaired
        self.served_wrong += other.served_wrong
        self.problems += other.problems

    @property
    def detected(self) -> int:
        """Damages that made a difference and were noticed."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.startswith("detected"))

    @property
    def full(self) -> bool:
        """Whether more problems would not help."""
        return len(self.problems) >= PROBLEMS_MAX


@dataclass(frozen=True, slots=True)
class Thoroughness:
    """Every `flip_stride`-th byte, so many of its bits; every `cut_stride`-th length. `shift`: moves where they begin."""

    flip_stride: int
    bits: int
    cut_stride: int
    shift: int = 0

    def flips(self, length: int, chance: Random) -> Iterator[tuple[int, int]]:
        """Yield (position, mask)."""
        first = (chance.randrange(self.flip_stride) + self.shift) % self.flip_stride
        for position in range(first, length, self.flip_stride):
            for bit in chance.sample(range(8), self.bits):
                yield position, 1 << bit

    def cuts(self, length: int, chance: Random) -> Iterator[int]:
        """Yield lengths."""
        yield from range((chance.randrange(self.cut_stride) + self.shift) % self.cut_stride, length, self.cut_stride)


SHORT = Thoroughness(67, 1, 131)
SHORT_ENCRYPTED = Thoroughness(179, 1, 353)
"""Of files of three times the length, each of whose starts makes keys and a segment."""
WHOLE = Thoroughness(1, 8, 1)
