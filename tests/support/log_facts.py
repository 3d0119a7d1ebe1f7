"""The events of one stream, packed: each identity is a number, what is known of it stands in arrays at that number.

A million records take some 200 MB here, whatever the histories were; the events themselves are not kept.
"""

from __future__ import annotations

import bisect
import sys
from array import array
from collections.abc import Iterator
from itertools import accumulate, repeat
from typing import NamedTuple

from tests.support.history import (
    Bounded,
    Deleted,
    Ended,
    EndTold,
    Event,
    Final,
    Invoked,
    Refused,
    Retained,
    Saw,
    Started,
    Trimmed,
)

NOTHING, OK, FAILED, UNKNOWN = range(4)
OUTCOMES = {"ok": OK, "failed": FAILED, "unknown": UNKNOWN}
NOBODY = -1


class Piece(NamedTuple):
    """Consecutive records that somebody saw."""

    offset: int
    numbers: array[int]
    source: str
    time_s: float = 0.0
    confirm_offset: int | None = None
    crcs: tuple[int, ...] | None = None

    @property
    def end(self) -> int:
        """One past the last."""
        return self.offset + len(self.numbers)


class Facts:
    """Everything that clients noted about one stream."""

    def __init__(self) -> None:
        self.numbers: dict[bytes, int] = {}
        self.writer = array("i")
        """An index into `writers`; NOBODY: the identity was seen but never appended."""
        self.sequence = array("q")
        self.epoch = array("q")
        self.invoked_s = array("d")
        self.returned_s = array("d")
        self.outcome = bytearray()
        self.offset = array("q")
        """Where it was acked, -1 if it was not."""
        self.crcs: dict[int, int] = {}
        self.writers: list[str] = []
        self.finals: dict[tuple[str, bool], list[Piece]] = {}
        self.passes: dict[str, list[Piece]] = {}
        self.trims: list[tuple[float, int]] = []
        self.timestamps_ms: dict[int, int] = {}
        """Of the records whose writer gave one."""
        self.ends: list[EndTold] = []
        self.starts: list[Started] = []
        self.bounds: list[Bounded] = []
        self.refusals: list[Refused] = []
        self.deleted: Deleted | None = None
        self.retention_s: float | None = None
        self.finals_s = 0.0
        """When the log was read at the end; only known where somebody noted it."""
        self._young: tuple[list[float], list[int]] | None = None
        self.oddities: list[tuple[str, str]] = []
        """What is wrong already while it is read: kind and message."""
        self._writer_numbers: dict[str, int] = {}
        self._runs: dict[str, tuple[list[int], list[tuple[int, int]]]] = {}

    def add(self, event: Event) -> None:
        """Take one event in; a client's own events in the order in which it noted them."""
        if isinstance(event, Invoked):
            self._invoked(event)
        elif isinstance(event, Ended):
            self._ended(event)
        elif isinstance(event, Saw):
            piece = Piece(event.offset, self._seen(event), event.source, event.time_s, event.confirm_offset)
            self.passes.setdefault(event.reader, []).append(piece)
        elif isinstance(event, Final):
            piece = Piece(event.offset, self._seen(event), event.source, crcs=event.crcs)
            self.finals.setdefault((event.source, event.whole), []).append(piece)
            self.finals_s = max(self.finals_s, float("inf") if event.time_s is None else event.time_s)
        elif isinstance(event, Trimmed):
            self.trims.append((event.time_s, event.start_offset))
        else:
            self._add_claim(event)

    def _add_claim(self, event: Event) -> None:
        """What somebody was told of the stream as a whole."""
        if isinstance(event, EndTold):
            self.ends.append(event)
        elif isinstance(event, Started):
            self.starts.append(event)
        elif isinstance(event, Bounded):
            self.bounds.append(event)
        elif isinstance(event, Refused):
            self.refusals.append(event)
        elif isinstance(event, Deleted):
            self.deleted = event
        elif isinstance(event, Retained):
            self.retention_s = event.retention_s

    def trimmed_at(self, time_s: float) -> int:
        """Offsets below this may have been gone by then. Only once all events are in."""
        asked = max((offset for at_s, offset in self.trims if at_s <= time_s), default=0)
        return asked if self.retention_s is None else max(asked, self._old_at(time_s, self.retention_s))

    def _old_at(self, time_s: float, retention_s: float) -> int:
        """The lowest offset that was acked within the retention; all below may be gone."""
        if self._young is None:
            acks = sorted((self.returned_s[n], self.offset[n]) for n, how in enumerate(self.outcome) if how == OK)
            lowest = list(accumulate((offset for _, offset in reversed(acks)), min))
            self._young = [at_s for at_s, _ in acks], lowest[::-1]
        times, lowest_from = self._young
        first = bisect.bisect_right(times, time_s - retention_s)
        return lowest_from[first] if first < len(times) else sys.maxsize

    def names(self) -> list[bytes]:
        """The identities by number."""
        return list(self.numbers)

    def _grow(self, count: int) -> None:
        self.writer.extend(repeat(NOBODY, count))
        for column in (self.sequence, self.epoch, self.offset):
            column.extend(repeat(-1, count))
        for times in (self.invoked_s, self.returned_s):
            times.extend(repeat(0.0, count))
        self.outcome.extend(bytes(count))

    def _number(self, identity: bytes) -> int:
        number = self.numbers.setdefault(identity, len(self.numbers))
        if number == len(self.writer):
            self._grow(1)
        return number

    def _seen(self, event: Saw | Final) -> array[int]:
        try:
            return array("q", map(self.numbers.__getitem__, event.identities))
        except KeyError:
            return array("q", map(self._number, event.identities))

    def _invoked(self, event: Invoked) -> None:
        first, count = len(self.numbers), len(event.identities)
        if self.numbers.keys().isdisjoint(event.identities) and len(set(event.identities)) == count:
            self.numbers.update(zip(event.identities, range(first, first + count)))
            self._grow(count)
            self._append(event, 0, first, count)
            return
        for index, identity in enumerate(event.identities):
            number = self._number(identity)
            if self.writer[number] != NOBODY:
                self.oddities.append(("broken_history", f"{identity!r} is appended a second time by {event.writer}"))
                continue
            self._append(event, index, number, 1)

    def _append(self, event: Invoked, index: int, first: int, count: int) -> None:
        writer = self._writer_numbers.setdefault(event.writer, len(self.writers))
        if writer == len(self.writers):
            self.writers.append(event.writer)
        sequence = event.sequence + index
        here = slice(first, first + count)
        self.writer[here] = array("i", repeat(writer, count))
        self.sequence[here] = array("q", range(sequence, sequence + count))
        self.epoch[here] = array("q", repeat(-1 if event.epoch is None else event.epoch, count))
        self.invoked_s[here] = array("d", repeat(event.time_s, count))
        if event.crcs is not None:
            self.crcs.update(zip(range(first, first + count), event.crcs[index : index + count]))
        if event.timestamps_ms is not None:
            self.timestamps_ms.update(zip(range(first, first + count), event.timestamps_ms[index : index + count]))
        starts, runs = self._runs.setdefault(event.writer, ([], []))
        if starts and sequence < starts[-1] + runs[-1][1]:
            self.oddities.append(("broken_history", f"{event.writer} uses its number {sequence} again"))
            return
        starts.append(sequence)
        runs.append((first, count))

    def _ended(self, event: Ended) -> None:
        known = 0
        for distance, first, count in self._find(event.writer, event.sequence, event.count):
            known += count
            offset = -1 if event.offset is None else event.offset + distance
            self._settle_run(event, first, count, offset)
        if known != event.count:
            text = f"{event.writer} tells of {event.count} appends from its number {event.sequence}; {known} were made"
            self.oddities.append(("broken_history", text))

    def _settle_run(self, event: Ended, first: int, count: int, offset: int) -> None:
        here = slice(first, first + count)
        if any(self.outcome[here]):
            for index in range(count):
                self._settle(event, first + index, offset if offset == -1 else offset + index)
            return
        self.outcome[here] = bytes((OUTCOMES[event.outcome],)) * count
        self.returned_s[here] = array("d", repeat(event.time_s, count))
        if offset != -1:
            self.offset[here] = array("q", range(offset, offset + count))
        if event.epoch is not None:
            self.epoch[here] = array("q", repeat(event.epoch, count))

    def _settle(self, event: Ended, number: int, offset: int) -> None:
        outcome = OUTCOMES[event.outcome]
        if self.outcome[number] == OK and (outcome != OK or self.offset[number] != offset):
            kind = "duplicated" if outcome == OK else "broken_history"
            text = f"number {self.sequence[number]} of {event.writer}: acked at {self.offset[number]}, then "
            self.oddities.append((kind, text + (f"acked at {offset}" if outcome == OK else event.outcome)))
            return
        self.outcome[number], self.offset[number] = outcome, offset
        self.returned_s[number] = event.time_s
        if event.epoch is not None:
            self.epoch[number] = event.epoch

    def _find(self, writer: str, sequence: int, count: int) -> Iterator[tuple[int, int, int]]:
        """The runs of numbers that these appends have: distance from `sequence`, first number, how many."""
        starts, runs = self._runs.get(writer, ([], []))
        end = sequence + count
        for index in range(max(0, bisect.bisect_right(starts, sequence) - 1), len(starts)):
            if starts[index] >= end:
                return
            first, length = runs[index]
            low, high = max(sequence, starts[index]), min(end, starts[index] + length)
            if low < high:
                yield low - sequence, first + low - starts[index], high - low
