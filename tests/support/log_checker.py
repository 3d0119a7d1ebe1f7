"""Judges histories of a log: what writers were told, what readers saw and what is there at the end must fit together.

O(n log n) in records. What each kind of violation means stands in log_report.KINDS.
"""

from __future__ import annotations

import bisect
import sys
from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat

from tests.support.history import Event
from tests.support.log_claims import Claims
from tests.support.log_facts import FAILED, NOBODY, OK, Facts, Piece
from tests.support.log_report import Report

HOLE_MAX = 1_000_000
"""Offsets further apart are not compared, to bound the memory that a wild offset takes."""


def check_log(*histories: Iterable[Event]) -> Report:
    """Judge the events of all clients, of one stream or of several. Each client's events come in its own order."""
    streams: dict[str, Facts] = {}
    for history in histories:
        for event in history:
            facts = streams.get(event.stream)
            if facts is None:
                facts = streams[event.stream] = Facts()
            facts.add(event)
    report = Report()
    for name in list(streams):
        _Judge(name, streams.pop(name), report).judge()
    return report


class _Judge:
    """One stream."""

    def __init__(self, stream: str, facts: Facts, report: Report) -> None:
        self.stream = stream
        self.facts = facts
        self.report = report
        self.names = facts.names()
        self.trimmed = facts.trimmed_at(facts.finals_s if facts.finals else float("inf"))
        self.base = 0
        self.kind_of_log = ""
        self.log = array("q")
        """The log as it is at the end: the number of the record at each offset from `base`; NOBODY in a hole."""
        self.place = array("q", repeat(-1, len(self.names)))
        """Where each identity lies: in the log, else where it was acked."""

    def judge(self) -> None:
        """All rules."""
        for kind, text in self.facts.oddities:
            self._wrong(kind, text)
        self._merge_finals()
        self._walk_the_log()
        self._check_outcomes()
        self._check_order_of_writers()
        self._check_acks()
        self._check_epochs()
        self._check_real_time()
        self._check_readers()
        Claims(self.facts, self.base, self.log if self.facts.finals else None, self._wrong).judge()

    def _wrong(self, kind: str, text: str, count: int = 1) -> None:
        self.report.wrong(kind, f"{self.stream}: {text}", count)

    def _name(self, number: int) -> str:
        return repr(self.names[number]) if number != NOBODY else "nothing"

    def _at(self, offset: int) -> int:
        index = offset - self.base
        return self.log[index] if 0 <= index < len(self.log) else NOBODY

    # ---- the log at the end

    def _merge_finals(self) -> None:
        """The first source that claims to be whole is the log; all others must agree with it."""
        finals = sorted(self.facts.finals.items(), key=lambda each: not each[0][1])  # stable: whole ones first
        if not finals:
            if self.facts.deleted is not None:
                self.base = sys.maxsize  # all of it is gone: only acks and readers can contradict each other
            return
        for index, ((source, whole), pieces) in enumerate(finals):
            pieces.sort(key=lambda piece: piece.offset)
            pieces = self._without_wild_offsets(source, pieces)
            if index == 0:
                self.base, self.log = pieces[0].offset, array("q")
                self._take(source, pieces)
                self.kind_of_log = source
            if whole:
                self._check_whole(source, pieces)
            if index > 0:
                self._compare(source, pieces)
        self._check_bytes(finals)
        self.report.final += len(self.log)

    def _without_wild_offsets(self, source: str, pieces: list[Piece]) -> list[Piece]:
        for index in range(1, len(pieces)):
            if pieces[index].offset - pieces[index - 1].end > HOLE_MAX:
                text = f"{source} goes from {pieces[index - 1].end} to {pieces[index].offset}"
                self._wrong("gap", f"{text}; what follows is not looked at")
                return pieces[:index]
        return pieces

    def _take(self, source: str, pieces: list[Piece]) -> None:
        for piece in pieces:
            end = self.base + len(self.log)
            self.log.extend(repeat(NOBODY, piece.offset - end))
            again = max(0, end - piece.offset)
            for offset, number in zip(range(piece.offset, min(end, piece.end)), piece.numbers):
                if self._at(offset) != number:
                    text = f"{source} has {self._name(self._at(offset))} and {self._name(number)}"
                    self._wrong("two_values", f"at {offset} {text}")
            self.log.extend(piece.numbers[again:])

    def _check_whole(self, source: str, pieces: list[Piece]) -> None:
        start = pieces[0].offset
        if start > self.trimmed:
            self._wrong("gap", f"{source} starts at {start}; it was trimmed at {self.trimmed} only")
        end = start
        for piece in pieces:
            if piece.offset > end:
                self._wrong("gap", f"{source} has nothing from {end} to {piece.offset}", piece.offset - end)
            end = max(end, piece.end)
        if end != self.base + len(self.log):
            text = f"{source} ends at {end}, {self.kind_of_log} at {self.base + len(self.log)}"
            self._wrong("gap", text, abs(self.base + len(self.log) - end))

    def _compare(self, source: str, pieces: list[Piece]) -> None:
        kind = "hot_not_tier" if _is_tier(source) != _is_tier(self.kind_of_log) else "two_values"
        for piece in pieces:
            for offset, number, here in self._differences(piece):
                if offset < self.base or (here == NOBODY and self._in_a_hole(offset)):
                    continue
                text = f"{source} has {self._name(number)}, {self.kind_of_log} has {self._name(here)}"
                self._wrong(kind, f"at {offset} {text}")

    def _in_a_hole(self, offset: int) -> bool:
        return 0 <= offset - self.base < len(self.log)

    def _differences(self, piece: Piece) -> Iterator[tuple[int, int, int]]:
        """Offsets where a piece differs from the log: offset, its number there, the log's."""
        index = piece.offset - self.base
        if index >= 0 and self.log[index : index + len(piece.numbers)] == piece.numbers:
            return
        for offset, number in enumerate(piece.numbers, piece.offset):
            if (here := self._at(offset)) != number:
                yield offset, number, here

    def _check_bytes(self, finals: list[tuple[tuple[str, bool], list[Piece]]]) -> None:
        """Checksums of one identity's payload agree over all sources, and with what its writer appended."""
        expected = self.facts.crcs
        for (source, _), pieces in finals:
            for piece in pieces:
                for index, crc in enumerate(piece.crcs or ()):
                    number = piece.numbers[index]
                    if expected.setdefault(number, crc) != crc:
                        text = f"{self._name(number)} from {source} has crc {crc:#010x}, not {expected[number]:#010x}"
                        self._wrong("two_values", f"at {piece.offset + index} {text}")

    def _walk_the_log(self) -> None:
        place, writer = self.place, self.facts.writer
        for offset, number in enumerate(self.log, self.base):
            if number == NOBODY:
                continue
            if place[number] != -1:
                self._wrong("duplicated", f"{self._name(number)} is at {place[number]} and at {offset}")
                continue
            place[number] = offset
            if writer[number] == NOBODY:
                self._wrong("phantom", f"{self._name(number)} is at {offset}, and nobody appended it")

    # ---- what writers were told

    def _check_outcomes(self) -> None:
        outcomes, offsets, place = self.facts.outcome, self.facts.offset, self.place
        report = self.report
        for number, writer in enumerate(self.facts.writer):
            if writer == NOBODY:
                continue
            outcome, found = outcomes[number], place[number]
            if outcome == OK:
                report.acked += 1
                if found != offsets[number]:
                    self._check_moved(number, offsets[number], found)
            elif outcome == FAILED:
                report.failed += 1
                if found != -1:
                    self._wrong("failed_found", f"{self._name(number)} failed and is at {found}")
            else:
                report.unknown += 1
                report.unknown_found += found != -1
        if report.acked and not self.facts.finals and self.facts.deleted is None:
            self._wrong("broken_history", "nobody read the log at the end")

    def _check_moved(self, number: int, offset: int, found: int) -> None:
        if found != -1:
            self._wrong("two_values", f"{self._name(number)} was acked at {offset} and is at {found}")
            return
        self.place[number] = offset
        if self.facts.finals and not offset < min(self.trimmed, self.base):
            there = self._name(self._at(offset))
            self._wrong("lost", f"{self._name(number)} was acked at {offset}, where {there} is")

    def _check_order_of_writers(self) -> None:
        writer, sequence, place = self.facts.writer, self.facts.sequence, self.place
        order = sorted(range(len(place)), key=sequence.__getitem__)
        last = [-1] * len(self.facts.writers)
        for number in order:
            here = place[number]
            if here == -1 or writer[number] == NOBODY:
                continue
            before = last[writer[number]]
            if before != -1 and here < place[before]:
                text = f"at {here}, {self._name(before)}, appended earlier, at {place[before]}"
                self._wrong("misordered", f"{self.facts.writers[writer[number]]}: {self._name(number)} is {text}")
            else:
                last[writer[number]] = number

    def _acks(self) -> Iterator[int]:
        return (number for number, outcome in enumerate(self.facts.outcome) if outcome == OK)

    def _check_acks(self) -> None:
        """The map from offset to record over all acks is a function."""
        offsets, writer = self.facts.offset, self.facts.writer
        before = NOBODY
        for number in sorted(self._acks(), key=offsets.__getitem__):
            if before != NOBODY and offsets[before] == offsets[number]:
                kind = "two_values" if writer[before] == writer[number] else "double_owner"
                who = f"{self.facts.writers[writer[before]]} and {self.facts.writers[writer[number]]}"
                text = f"{who} were acked at {offsets[number]}: {self._name(before)} and {self._name(number)}"
                self._wrong(kind, text)
            before = number

    def _check_epochs(self) -> None:
        """Along offsets epochs only rise, whatever the writers were told."""
        epochs, place = self.facts.epoch, self.place
        highest = NOBODY
        for number in sorted((n for n, here in enumerate(place) if here != -1), key=place.__getitem__):
            if epochs[number] == -1:
                continue
            if highest != NOBODY and epochs[number] < epochs[highest]:
                text = f"{self._name(number)} at {place[number]} is of epoch {epochs[number]}, behind"
                self._wrong("double_owner", f"{text} {self._name(highest)} of epoch {epochs[highest]}")
            else:
                highest = number

    def _check_real_time(self) -> None:
        """What was acked before something else was appended lies before it."""
        invoked, returned, place = self.facts.invoked_s, self.facts.returned_s, self.place
        acked = sorted(self._acks(), key=returned.__getitem__)
        began = sorted((n for n, here in enumerate(place) if here != -1), key=invoked.__getitem__)
        highest, done = NOBODY, 0
        for number in began:
            while done < len(acked) and returned[acked[done]] < invoked[number]:
                if highest == NOBODY or place[acked[done]] > place[highest]:
                    highest = acked[done]
                done += 1
            if highest != NOBODY and place[number] < place[highest] and self.facts.writer[number] != NOBODY:
                text = f"{self._name(number)} at {place[number]} was appended after {self._name(highest)} was acked"
                self._wrong("not_real_time", f"{text} at {place[highest]}")

    # ---- what readers saw

    def _check_readers(self) -> None:
        by_offset = sorted(self._acks(), key=self.facts.offset.__getitem__)
        gone: dict[int, int] = {}
        for reader, pieces in self.facts.passes.items():
            position = -1
            for piece in pieces:
                self.report.read += len(piece.numbers)
                self._check_position(reader, position, piece)
                position = max(position, piece.end)
                self._check_confirm(reader, piece)
                for offset, number, here in self._differences(piece):
                    if offset < self.base:
                        self._check_gone(reader, offset, number, gone, by_offset)
                        continue
                    text = (
                        f"{reader} saw {self._name(number)} at {offset}, where {self._name(here)} is ({piece.source})"
                    )
                    self._wrong("dirty_read", text)
                self._check_seen(reader, piece)

    def _check_position(self, reader: str, position: int, piece: Piece) -> None:
        if position == -1 or piece.offset == position:
            return
        if piece.offset < position:
            self._wrong("went_back", f"{reader} saw {piece.offset} after {position - 1} ({piece.source})")
        elif piece.offset > self.facts.trimmed_at(piece.time_s):
            text = f"{reader} went from {position - 1} to {piece.offset} ({piece.source})"
            self._wrong("gap", text, piece.offset - position)

    def _check_confirm(self, reader: str, piece: Piece) -> None:
        confirm = piece.confirm_offset
        if confirm is None:
            return
        if piece.end > confirm:
            self._wrong("dirty_read", f"{reader} saw {piece.end - 1}; the confirm offset was {confirm}")
        if confirm > self.base + len(self.log):
            self._wrong("dirty_read", f"{reader} was told confirm offset {confirm}; the log ends at {len(self.log)}")

    def _check_gone(self, reader: str, offset: int, number: int, gone: dict[int, int], acks: list[int]) -> None:
        """Below the start of the log only acks and other readers can contradict a reader."""
        index = bisect.bisect_left(acks, offset, key=self.facts.offset.__getitem__)
        if index < len(acks) and self.facts.offset[acks[index]] == offset:
            gone.setdefault(offset, acks[index])
        if gone.setdefault(offset, number) != number:
            text = f"{reader} saw {self._name(number)} at {offset}, another client {self._name(gone[offset])}"
            self._wrong("two_values", text)

    def _check_seen(self, reader: str, piece: Piece) -> None:
        facts, numbers = self.facts, piece.numbers
        if not (
            NOBODY in map(facts.writer.__getitem__, numbers)
            or FAILED in map(facts.outcome.__getitem__, numbers)
            or max(map(facts.invoked_s.__getitem__, numbers), default=0.0) > piece.time_s
        ):
            return
        for offset, number in enumerate(numbers, piece.offset):
            if facts.writer[number] == NOBODY:
                self._wrong("phantom", f"{reader} saw {self._name(number)} at {offset}, and nobody appended it")
            elif facts.outcome[number] == FAILED:
                self._wrong("aborted_read", f"{reader} saw {self._name(number)} at {offset}, and it failed")
            elif facts.invoked_s[number] > piece.time_s:
                early_s = facts.invoked_s[number] - piece.time_s
                self._wrong("phantom", f"{reader} saw {self._name(number)} {early_s:.6f} s before it was appended")


def _is_tier(source: str) -> bool:
    return source.partition(":")[0] in ("tier", "object")
