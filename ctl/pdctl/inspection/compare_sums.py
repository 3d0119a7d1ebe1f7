"""Compares the batches of the copies of one range by their checksums, in step. Pure: pages in, verdicts out.

What holds: a copy is "ok" only if its own pages tile the whole span and agree, batch by batch, with the other copies; no other
source counts. Of copies that disagree at one batch the majority is right; without one, all of them differ. A copy with other
batch borders is compared with a right one record by record, by the caller. At most one page per copy is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

OK, DIFFERS, MISSING, UNREACHABLE, BEHIND = "ok", "differs", "missing", "unreachable", "behind"


class Sum(NamedTuple):
    """One batch of a copy."""

    base_offset: int
    end_offset: int
    crc: int


@dataclass(slots=True)
class Verdict:
    """The verdict on one copy or object; `offset`: where first, if it is not ok."""

    result: str = OK
    offset: int | None = None
    why: str = ""


@dataclass(slots=True)
class _Copy:
    position: int
    sums: deque[Sum] = field(default_factory=deque)
    verdict: Verdict | None = None


class SumComparison:
    """The comparison of the copies of [start, end) of one range."""

    def __init__(self, names: Sequence[str], start: int, end: int) -> None:
        self._start, self._end = start, end
        self._copies = {name: _Copy(start) for name in names}
        self.by_records: list[tuple[str, str, int]] = []
        """(copy, right copy, offset): to be compared record by record from the offset on."""

    def wanted(self) -> list[tuple[str, int]]:
        """Return the copies whose next page is needed, each with its first offset; none: the comparison is over."""
        return [
            (name, copy.position)
            for name, copy in self._copies.items()
            if copy.verdict is None and not copy.sums and copy.position < self._end
        ]

    def page(self, name: str, sums: Sequence[Sum]) -> None:
        """Take a copy's page from the wanted offset on, then compare as far as all have been heard."""
        copy = self._copies[name]
        position = copy.position
        if not sums:
            self.fail(name, MISSING, position, f"it holds nothing from {position} on")
        for number, each in enumerate(sums):
            inside = number == 0 and position == self._start and each.base_offset <= position < each.end_offset
            if each.base_offset != position and not inside:
                self.fail(name, DIFFERS, position, f"a batch starts at {each.base_offset} where {position} follows")
                break
            position = each.end_offset
            copy.sums.append(each)
        copy.position = position
        self._compare()

    def fail(self, name: str, result: str, offset: int | None, why: str) -> None:
        """Note why a copy is not whole; it is compared no further."""
        copy = self._copies[name]
        if copy.verdict is None:
            copy.verdict = Verdict(result, offset, why)
        copy.sums.clear()
        self._compare()

    def verdicts(self) -> dict[str, Verdict]:
        """Return what was found of each copy; call it when no page is wanted."""
        return {name: copy.verdict or Verdict() for name, copy in self._copies.items()}

    def _compare(self) -> None:
        while True:
            live = {name: copy for name, copy in self._copies.items() if copy.verdict is None}
            waiting = [copy for copy in live.values() if not copy.sums]
            if not live or waiting:
                return
            heads: dict[Sum, list[str]] = {}
            for name, copy in live.items():
                heads.setdefault(copy.sums[0], []).append(name)
            right = max(heads, key=lambda head: len(heads[head]))
            if len(heads) > 1:
                self._disagree(heads, right)
            for name in heads[right]:
                if self._copies[name].sums:
                    self._copies[name].sums.popleft()

    def _disagree(self, heads: dict[Sum, list[str]], right: Sum) -> None:
        count = sum(len(names) for names in heads.values())
        has_majority = 2 * len(heads[right]) > count
        for head, names in heads.items():
            if head == right:
                continue
            same_borders = (head.base_offset, head.end_offset) == (right.base_offset, right.end_offset)
            for name in names:
                copy = self._copies[name]
                copy.sums.clear()
                if not same_borders:
                    copy.verdict = Verdict()  # its records decide
                    self.by_records.append((name, heads[right][0], right.base_offset))
                    continue
                others = ", ".join(heads[right])
                why = f"crc {head.crc:08x}, and {right.crc:08x} on {others}"
                copy.verdict = Verdict(DIFFERS, head.base_offset, why)
                if not has_majority:
                    self._none_right(
                        heads[right], right, f"crc {right.crc:08x}, and {head.crc:08x} on {', '.join(names)}"
                    )

    def _none_right(self, names: Sequence[str], head: Sum, why: str) -> None:
        for name in names:
            copy = self._copies[name]
            if copy.verdict is None:
                copy.verdict = Verdict(DIFFERS, head.base_offset, f"{why}: no majority says which is right")
                copy.sums.clear()


def worst(verdicts: Sequence[Verdict], *, is_open: bool, acks: int) -> str:
    """Return the word for a range by its copies: of an open one, as many as acks need are enough."""
    results = [each.result for each in verdicts]
    for word in (DIFFERS, MISSING):
        if word in results:
            return word
    if is_open and results.count(OK) >= acks:
        return OK
    if UNREACHABLE in results:
        return UNREACHABLE
    return MISSING if BEHIND in results else OK
