"""Judges histories of the placement driver: is there one order of all calls that the rules and the clocks allow?

Per stream, a search in the manner of Wing, Gong and Lowe: take a call that began before any waiting one had returned, ask
the model whether its answer fits, go on; step back where nothing fits; never look at the same place twice. Two shortcuts
keep it small without missing anything: a call that fits and changes nothing is taken at once (taking it later cannot help),
and of UNKNOWN calls that ask for the same, the one made first goes first.

Before it, linear rules with plain messages: what is said once of an epoch, an end, a border, an id stays so for ever.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tests.support.pd_history import READS, Call, ObjectView, RangeView, by_stream
from tests.support.pd_model import Facts, StreamState, next_states

PLACES_MAX = 300_000
"""Of the search, per stream; beyond it the stream counts as undecided."""
EXAMPLES_MAX = 20


@dataclass
class PdReport:
    """Counts; `clean` when nothing is wrong and every stream was decided."""

    streams: int = 0
    ok: int = 0
    refused: int = 0
    unknown: int = 0
    places: int = 0
    """That the search went through."""
    undecided: int = 0
    """Streams on which the search was given up."""
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def wrong(self, kind: str, message: str) -> None:
        """Note a violation."""
        self.counts[kind] += 1
        if len(self.violations) < EXAMPLES_MAX:
            self.violations.append(f"{kind}: {message}")

    @property
    def clean(self) -> bool:
        """See the class."""
        return not self.counts and not self.undecided

    def figures(self) -> dict[str, int]:
        """All counts."""
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return numbers | {"violations": self.counts.total()}

    def summary(self) -> str:
        """One line."""
        return "pd: " + " ".join(f"{name}={value}" for name, value in self.figures().items())


def check_pd(calls: Iterable[Call], *, places_max: int = PLACES_MAX) -> PdReport:
    """Judge the calls of all clients. Streams must not have been deleted, nor trimmed by a retention."""
    report = PdReport()
    merged = _merge_repeats(list(calls), report)
    for call in merged:
        setattr(report, call.outcome, getattr(report, call.outcome) + 1)
    said = _Said(report)
    for call in merged:
        said.take(call)
    said.check_epochs_rise()
    for stream, some in by_stream(merged):
        report.streams += 1
        facts = Facts(said.stream_ids.get(stream, 0), said.objects)
        search = _Search(some, facts, places_max)
        if (wrong := search.run()) is not None:
            report.wrong("not_linearizable", f"{stream}: {wrong}")
        report.places += search.places
        report.undecided += search.gave_up
    return report


def _merge_repeats(calls: list[Call], report: PdReport) -> list[Call]:
    """Calls of one request id are one call; their answers must be one answer. Reads without an answer say nothing."""
    first: dict[str, Call] = {}
    merged: list[Call] = []
    for call in calls:
        if call.name in READS and call.outcome == "unknown":
            continue
        known = first.get(call.request_id) if call.request_id else None
        if known is None:
            call = replace(call)
            merged.append(call)
            if call.request_id:
                first[call.request_id] = call
            continue
        known.invoked_s = min(known.invoked_s, call.invoked_s)
        if call.outcome == "unknown":
            continue
        told = (call.outcome, call.code, call.reply)
        if known.outcome != "unknown" and (known.outcome, known.code, known.reply) != told:
            report.wrong("two_answers", f"request {call.request_id}: {known}, then {call}")
            continue
        known.outcome, known.code, known.reply = told
        known.returned_s = min(known.returned_s, call.returned_s)
    return merged


class _Said:
    """What answers said that can never change; each contradiction is a violation with both calls in it."""

    def __init__(self, report: PdReport) -> None:
        self.report = report
        self.stream_ids: dict[str, int] = {}
        self.objects: dict[int, ObjectView] = {}
        self._first: dict[tuple[Any, ...], tuple[Any, Call]] = {}
        self._opens: dict[str, list[tuple[int, Call]]] = {}

    def take(self, call: Call) -> None:
        """Compare an answer with all before it."""
        reply = call.reply
        if reply is None:
            return
        if reply.stream is not None:
            self._once("stream_id", (call.stream,), reply.stream.stream_id, call)
            self._once("stream_id", ("name of", reply.stream.stream_id), call.stream, call)
            self.stream_ids.setdefault(call.stream, reply.stream.stream_id)
        if call.name == "open_writer" and reply.stream is not None:
            self._once("epoch_twice", (call.stream, reply.stream.epoch), call.request_id, call)
            self._opens.setdefault(call.stream, []).append((reply.stream.epoch, call))
        for each in (*reply.ranges, *((reply.next_range,) if reply.next_range else ())):
            self._take_range(call, each)
        for found in reply.objects:
            self._once("object_id", (found.object_id,), (call.stream, found), call)
            self.objects.setdefault(found.object_id, found)

    def _take_range(self, call: Call, each: RangeView) -> None:
        if not each.epoch and each.start == each.end:
            return  # an empty range whose place the next one took: the placement driver has forgotten it
        self._once("range_changed", (call.stream, each.index), (each.epoch, each.start), call)
        if each.index > 0:
            self._once("ranges_do_not_tile", (call.stream, each.index - 1, "end"), each.start, call)
        if each.end is not None:
            self._once("two_ends", (call.stream, each.index, "end"), each.end, call)

    def _once(self, kind: str, about: tuple[Any, ...], value: Any, call: Call) -> None:
        """The border of two ranges is said by either: an end that is not the next start is found here, too."""
        place = (about[-1] if about[-1] == "end" else kind, *about)
        known, earlier = self._first.setdefault(place, (value, call))
        if known != value:
            self.report.wrong(kind, f"{about}: {known} by {earlier}; {value} by {call}")

    def check_epochs_rise(self) -> None:
        """An open that began after another was answered gets a higher epoch."""
        for opens in self._opens.values():
            by_return = sorted(opens, key=lambda each: each[1].returned_s)
            highest, done = -1, 0
            for epoch, call in sorted(opens, key=lambda each: each[1].invoked_s):
                while done < len(by_return) and by_return[done][1].returned_s < call.invoked_s:
                    highest = max(highest, by_return[done][0])
                    done += 1
                if epoch <= highest:
                    self.report.wrong("epoch_fell", f"{call}; epoch {highest} was handed out before it began")


class _Place(NamedTuple):
    """Where the search is: which calls were taken, and the state after them."""

    taken: int
    """A bit for each."""
    state: StreamState


class _Search:
    """One stream."""

    def __init__(self, calls: list[Call], facts: Facts, places_max: int) -> None:
        self.calls = sorted(calls, key=lambda call: call.invoked_s)
        self.facts = facts
        self.places = 0
        self.gave_up = False
        self._places_max = places_max
        self._required = sum(1 << n for n, call in enumerate(self.calls) if call.outcome != "unknown")
        self._furthest = _Place(0, StreamState())

    def run(self) -> str | None:
        """None when an order was found (or the search given up); else how far it came and what did not fit there."""
        waiting = [_Place(0, StreamState())]
        seen: set[_Place] = set()
        while waiting:
            place = self._take_what_changes_nothing(waiting.pop())
            if place.taken & self._required == self._required:
                return None
            if place in seen:
                continue
            seen.add(place)
            self.places += 1
            if self.places > self._places_max:
                self.gave_up = True
                return None
            if self._progress(place) > self._progress(self._furthest):
                self._furthest = place
            waiting += reversed(list(self._branches(place)))
        return self._evidence()

    def _progress(self, place: _Place) -> int:
        return (place.taken & self._required).bit_count()

    def _candidates(self, taken: int) -> Iterator[tuple[int, Call]]:
        """Calls not taken yet that began before any of them (UNKNOWN ones never end) had returned."""
        returned_s = math.inf
        found: list[tuple[int, Call]] = []
        for number, call in enumerate(self.calls):
            if taken >> number & 1:
                continue
            if call.invoked_s > returned_s:
                break
            found.append((number, call))
            returned_s = min(returned_s, call.returned_s)
        return ((number, call) for number, call in found if call.invoked_s <= returned_s)

    def _take_what_changes_nothing(self, place: _Place) -> _Place:
        again = True
        while again:
            again = False
            for number, call in self._candidates(place.taken):
                if call.outcome != "unknown" and next_states(place.state, call, self.facts) == [place.state]:
                    place = _Place(place.taken | 1 << number, place.state)
                    again = True
        return place

    def _branches(self, place: _Place) -> Iterator[_Place]:
        """Answered calls first: most histories are explained without any UNKNOWN call having been done."""
        same: set[str] = set()
        later: list[_Place] = []
        for number, call in self._candidates(place.taken):
            states = next_states(place.state, call, self.facts)
            if call.outcome != "unknown":
                yield from (_Place(place.taken | 1 << number, state) for state in states)
                continue
            asked = f"{call.name} {sorted(call.arguments.items())}"
            if asked not in same:
                same.add(asked)
                later += [_Place(place.taken | 1 << number, state) for state in states]
        yield from later

    def _evidence(self) -> str:
        place = self._furthest
        stuck = [str(call) for _, call in self._candidates(place.taken) if call.outcome != "unknown"]
        count = self._required.bit_count()
        return f"after {self._progress(place)} of {count} calls the state is {place.state}; then no order fits {stuck}"


# ---- histories that have the index in the log of consensus


class Applied(NamedTuple):
    """A command whose place in the log is known (a simulator knows it; the API does not say)."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    command: bytes
    result: bytes | None
    """None: no client was told."""
    invoked_s: float
    returned_s: float = math.inf


def check_applied(commands: Sequence[Applied], machine: Callable[[], Any]) -> list[str]:
    """Replay commands by index on a fresh machine (`apply(index, command) -> result`) and compare. Linear time.

    The index also has to agree with the clocks: what was answered before another was asked stands before it.
    Returns violations.
    """
    wrong: list[str] = []
    fresh = machine()
    ordered = sorted(commands, key=lambda each: each.index)
    for each in ordered:
        result = fresh.apply(each.index, each.command)
        if each.result is not None and each.result != result:
            wrong.append(f"entry {each.index} was answered {each.result!r}; replayed it gives {result!r}")
    earliest_return = math.inf
    for each in reversed(ordered):
        if earliest_return < each.invoked_s:
            wrong.append(f"entry {each.index} was asked for after a later entry had been answered")
        earliest_return = min(earliest_return, each.returned_s)
    return wrong
