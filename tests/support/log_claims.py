"""Judges what clients were told of a stream as a whole: its end, where a start by time begins, what does not exist.

An end that was told is a promise: nothing below it goes away. An exact one says more: it leaves out no ack that anybody had
got before it was asked for. A trim excuses what lies below it, and nothing else does.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate

from tests.support.history import Bounded, EndTold, Started
from tests.support.log_facts import NOBODY, OK, Facts

BLOCK = 1024


class _Highest:
    """The highest of some offsets up to a time."""

    def __init__(self, pairs: list[tuple[float, int]]) -> None:
        pairs.sort()
        self._times = [time_s for time_s, _ in pairs]
        self._highest = list(accumulate((offset for _, offset in pairs), max))

    def before(self, time_s: float) -> int:
        """Of those noted before that time; 0 when there is none."""
        place = bisect.bisect_left(self._times, time_s)
        return self._highest[place - 1] if place else 0


class Claims:
    """See the module. `log`: what is at each offset from `base` at the end; None if nobody read it then."""

    def __init__(
        self, facts: Facts, base: int, log: Sequence[int] | None, wrong: Callable[[str, str, int], None]
    ) -> None:
        self._facts, self._base, self._wrong = facts, base, wrong
        self._log_end = base + len(log) if log is not None else None
        appended_s = [facts.invoked_s[number] if number != NOBODY else 0.0 for number in log or ()]
        self._newest_s = list(accumulate(appended_s, max))
        self._acks = [number for number, outcome in enumerate(facts.outcome) if outcome == OK]
        self._acked = _Highest([(facts.returned_s[n], facts.offset[n] + 1) for n in self._acks])
        self._told = _Highest([(each.time_s, each.offset) for each in facts.ends])

    def judge(self) -> None:
        """All rules."""
        for end in self._facts.ends:
            self._check_end(end)
        for bound in self._facts.bounds:
            self._check_bound(bound)
        self._check_refusals()
        self._check_starts()
        self._check_deleted()

    def _check_end(self, end: EndTold) -> None:
        if self._log_end is not None and end.offset > self._log_end:
            beyond = end.offset - self._log_end
            self._wrong(
                "dirty_end", f"{end.reader} was told the end {end.offset}; the log ends {beyond} before", beyond
            )
        elif self._newest_below(end.offset) > end.time_s:
            self._wrong("dirty_end", f"{end.reader} was told the end {end.offset}; below it is what came later", 1)
        if not end.exact:
            return
        acked = self._acked.before(end.invoked_s)
        if end.offset < acked:
            text = f"{end.reader} was told the end {end.offset}; {acked - 1} had been acked before it asked"
            self._wrong("end_short", text, acked - end.offset)
        told = self._told.before(end.invoked_s)
        if end.offset < told:
            self._wrong("end_went_back", f"{end.reader} was told the end {end.offset}; before, {told} had been told", 1)

    def _newest_below(self, offset: int) -> float:
        """When the last record below was appended, of those that are in the log at the end."""
        place = offset - self._base - 1
        return self._newest_s[place] if 0 <= place < len(self._newest_s) else 0.0

    # ---- readers with an end

    def _check_bound(self, bound: Bounded) -> None:
        """The polls of its pass lie end to end from its start to its end; those inside are compared elsewhere."""
        pieces = [piece for piece in self._facts.passes.get(bound.reader, ()) if piece.numbers]
        given = [(piece.offset, piece.end) for piece in pieces] or [(bound.end, bound.end)]
        first, last = given[0][0], given[-1][1]
        trimmed = self._facts.trimmed_at(bound.time_s)
        if pieces and first < bound.start:
            self._wrong("gap", f"{bound.reader} was to begin at {bound.start} and was given {first}", 1)
        if bound.start < first > trimmed:
            self._wrong("gap", f"{bound.reader} was to begin at {bound.start}; the first it saw is {first}", 1)
        if last > bound.end:
            self._wrong("gap", f"{bound.reader} ends at {bound.end} and was given {last - 1}", 1)
        elif last < bound.end > trimmed:
            self._wrong("gap", f"{bound.reader} ended without an error at {last} of {bound.end}", bound.end - last)

    # ---- what does not exist

    def _check_refusals(self) -> None:
        seen = _Highest([(piece.time_s, piece.end) for pieces in self._facts.passes.values() for piece in pieces])
        for each in self._facts.refusals:
            if each.trimmed is not None:
                if each.trimmed > self._facts.trimmed_at(each.time_s):
                    text = f"{each.reader} was told that all below {each.trimmed} is gone"
                    self._wrong("trimmed_early", text, 1)
                continue
            sources = {"acked": self._acked, "told as the end": self._told, "read": seen}
            known = [name for name, source in sources.items() if source.before(each.invoked_s) >= each.offset]
            if known and each.offset:
                text = f"{each.reader} was told that {each.offset} is beyond the end; it had been {known[0]}"
                self._wrong("position_refused", text, 1)

    # ---- starts by time

    def _check_starts(self) -> None:
        if not self._facts.starts:
            return
        stamped = [number for number in self._acks if number in self._facts.timestamps_ms]
        stamped.sort(key=self._facts.offset.__getitem__)
        times = array("q", map(self._facts.timestamps_ms.__getitem__, stamped))
        newest = [max(times[low : low + BLOCK]) for low in range(0, len(times), BLOCK)]
        for start in self._facts.starts:
            self._check_start(start, stamped, times, newest)

    def _check_start(self, start: Started, stamped: Sequence[int], times: array[int], newest: list[int]) -> None:
        facts = self._facts
        below = bisect.bisect_left(stamped, start.offset, key=facts.offset.__getitem__)
        trimmed = facts.trimmed_at(start.time_s)
        for block, highest in enumerate(newest):
            if highest < start.timestamp_ms:
                continue
            for place in range(block * BLOCK, min((block + 1) * BLOCK, below)):
                number = stamped[place]
                early = facts.returned_s[number] < start.invoked_s and facts.offset[number] >= trimmed
                if early and times[place] >= start.timestamp_ms:
                    text = f"{start.reader} asked for {start.timestamp_ms} ms and began at {start.offset}"
                    self._wrong("skipped_by_time", f"{text}; {facts.offset[number]} is of {times[place]} ms", 1)
                    return

    # ---- deletion

    def _check_deleted(self) -> None:
        facts = self._facts
        if facts.deleted is None or not facts.deleted.certain:
            return
        for number in self._acks:
            late_s = facts.invoked_s[number] - facts.deleted.time_s
            if late_s > 0:
                text = f"{facts.offset[number]} was appended {late_s:.6f} s after the stream was gone, and acked"
                self._wrong("acked_after_delete", text, 1)
