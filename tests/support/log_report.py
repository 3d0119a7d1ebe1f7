"""What the log checker found: counts, and violations with their evidence in one line each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

KINDS = {
    "lost": "acked, not trimmed, and not in the log",
    "duplicated": "one append at two offsets",
    "misordered": "of one writer's appends the later lies first",
    "two_values": "one offset has different records, or different bytes, for different observers",
    "failed_found": "FAILED, and in the log",
    "aborted_read": "FAILED, and a reader saw it",
    "gap": "an offset was skipped",
    "went_back": "a reader saw an offset again or a lower one",
    "dirty_read": "a reader saw what did not stay, or at or past the confirm offset",
    "end_short": "an end that claims to be exact leaves out what was acked before it was asked for",
    "dirty_end": "an end was told that lies beyond the log, or what was below it is no longer there",
    "end_went_back": "an exact end lies below one that had been told before it was asked for",
    "position_refused": "a reader was told that there is no such offset, though there had been",
    "skipped_by_time": "a start by time passed over what was acked before, at or after that time",
    "trimmed_early": "a reader was told of a trim that nobody asked for, and that no retention allows",
    "acked_after_delete": "appended after the stream was deleted, and acked",
    "double_owner": "two writers were acked at one offset, or a lower epoch behind a higher one",
    "not_real_time": "acked before another was appended, and lies behind it",
    "hot_not_tier": "the tiers differ",
    "phantom": "nobody appended it, or it was read before it was appended",
    "broken_history": "a client's notes contradict themselves: the test is wrong, not the product",
}
EXAMPLES_MAX = 10
"""Per kind; the rest is counted."""


class Violation(NamedTuple):
    """One thing that must not be, with its evidence in one line."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass
class Report:
    """Counts of what was checked and of what was wrong, and examples of the latter."""

    acked: int = 0
    failed: int = 0
    unknown: int = 0
    """With no outcome, too."""
    unknown_found: int = 0
    """UNKNOWN to the writer, and in the log."""
    final: int = 0
    """Records in the log at the end."""
    read: int = 0
    """Records that readers saw meanwhile."""
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)

    def wrong(self, kind: str, message: str, count: int = 1) -> None:
        """Note a violation."""
        assert kind in KINDS, kind
        if self.counts[kind] < EXAMPLES_MAX:
            self.violations.append(Violation(kind, message))
        self.counts[kind] += count

    @property
    def clean(self) -> bool:
        """Whether nothing was wrong."""
        return not self.counts

    def figures(self) -> dict[str, int]:
        """All counts, violations of every kind included."""
        totals = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return totals | {kind: self.counts[kind] for kind in KINDS}

    def summary(self) -> str:
        """One line; kinds that did not occur are left out, except those that everybody asks for."""
        asked = ("lost", "duplicated", "misordered")
        more = [kind for kind in KINDS if self.counts[kind] and kind not in asked]
        return "log: " + " ".join(
            f"{name}={self.figures()[name]}"
            for name in ("acked", "failed", "unknown", "unknown_found", "final", "read", *asked, *more)
        )

    def __add__(self, other: Report) -> Report:
        """Both together."""
        both = Report(**{n: getattr(self, n) + v for n, v in vars(other).items() if isinstance(v, int)})
        both.counts = self.counts + other.counts
        both.violations = (self.violations + other.violations)[: EXAMPLES_MAX * len(KINDS)]
        return both
