"""The sums of a stream over its ranges, for `pdctl stream show`. Pure.

What holds: hot bytes are by the servers' last reports, of the largest copy of each range and of all copies; problems are the
placement driver's own words, the first PROBLEMS_MAX of them; memory does not depend on the number of ranges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PROBLEMS_MAX = 20


@dataclass(slots=True)
class StreamTotals:
    """The totals of the ranges seen so far."""

    hot_bytes: int = 0
    hot_bytes_all_copies: int = 0
    tiered_bytes: int = 0
    copies: dict[str, int] = field(default_factory=dict)
    problem_count: int = 0
    problems: list[dict[str, Any]] = field(default_factory=list)
    start_offset: int | None = None
    last: Any = None

    def add(self, inspected: Any) -> None:
        """Add a range; they come in order."""
        of = inspected.range
        sizes = [each.size_bytes for each in inspected.copies]
        self.hot_bytes += max(sizes, default=0)
        self.hot_bytes_all_copies += sum(sizes)
        self.tiered_bytes += inspected.tiered_bytes
        whole = min(inspected.wanted, sum(each.whole for each in inspected.copies))  # a replaced copy may be left
        word = f"{whole} of {inspected.wanted}" if inspected.wanted else "tier only"
        self.copies[word] = self.copies.get(word, 0) + 1
        if inspected.problem:
            self.problem_count += 1
            if len(self.problems) < PROBLEMS_MAX:
                self.problems.append({"range_index": of.index, "problem": inspected.problem})
        if self.start_offset is None:
            self.start_offset = of.start_offset
        self.last = of

    @property
    def health(self) -> str:
        """healthy, or degraded."""
        return "degraded" if self.problem_count else "healthy"

    def reasons(self) -> list[str]:
        """Return one line for each of the first ranges with a problem."""
        lines = [f"range {each['range_index']}: {each['problem']}" for each in self.problems]
        if self.problem_count > len(lines):
            lines.append(f"… and {self.problem_count - len(lines)} further ranges")
        return lines
