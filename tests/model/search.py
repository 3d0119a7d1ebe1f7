"""Every reachable state of a small model, breadth first: what holds in all of them, and from which nothing good follows.

A model gives a start and, for a state, its successors with a label each. Every state is kept once and numbered; the
graph itself is only numbers, four bytes an edge. The trace of a finding is a shortest one.
"""

from __future__ import annotations

import sys
import time
from array import array
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

PROGRESS_EVERY_S = 10.0

State = TypeVar("State", bound=Hashable)


@dataclass(slots=True)
class Result:
    """What a search found. `trace` leads from the start to the violation, or else to the first dead end."""

    states: int = 0
    transitions: int = 0
    depth: int = 0
    violation: str = ""
    dead_ends: int = 0
    trace: list[str] = field(default_factory=list)
    path: list[Any] = field(default_factory=list)  # the states of the trace, the start included

    @property
    def finding(self) -> str:
        """The violation, "dead-end", or nothing."""
        return self.violation or ("dead-end" if self.dead_ends else "")


class LimitReached(Exception):
    """The model has more states than it was allowed."""


class _Graph(Generic[State]):
    """States by number, how each was first reached, and, where asked for, every edge."""

    def __init__(self, initial: State) -> None:
        self.numbers: dict[State, int] = {initial: 0}
        self.targets = array("I")  # of every edge, in the order of their sources
        self.ends = array("Q")  # where the edges of each source end
        self._parents = array("I", [0])
        self._labels = array("H", [0])
        self._texts: dict[str, int] = {}

    def add(self, state: State, parent: int, label: str) -> int:
        """Number a new state."""
        number = self.numbers[state] = len(self.numbers)
        self._parents.append(parent)
        self._labels.append(self._texts.setdefault(label, len(self._texts)))
        return number

    def trace_to(self, number: int, result: Result) -> None:
        """Note the way from the start to this state: its labels and its states."""
        texts = list(self._texts)
        way = [number]
        while way[-1]:
            way.append(self._parents[way[-1]])
        way.reverse()
        wanted = dict.fromkeys(way)
        states = {number: state for number, state in enumerate(self.numbers) if number in wanted}
        result.trace = [texts[self._labels[number]] for number in way[1:]]
        result.path = [states[number] for number in way]

    def hopeless(self, good: bytearray) -> list[int]:
        """Return the states from which no state marked in `good` is reached, by going the edges backward."""
        count = len(self.numbers)
        first = array("Q", bytes(8 * (count + 1)))  # where the incoming edges of each state begin
        for target in self.targets:
            first[target + 1] += 1
        for number in range(count):
            first[number + 1] += first[number]
        incoming = array("I", bytes(4 * len(self.targets)))
        place = first[:]
        begin = 0
        for source, end in enumerate(self.ends):
            for target in self.targets[begin:end]:
                incoming[place[target]] = source
                place[target] += 1
            begin = end
        stack = [number for number in range(count) if good[number]]
        while stack:
            number = stack.pop()
            for source in incoming[first[number] : first[number + 1]]:
                if not good[source]:
                    good[source] = 1
                    stack.append(source)
        return [number for number in range(count) if not good[number]]


def explore(
    initial: State,
    successors: Callable[[State], Iterable[tuple[str, State]]],
    invariant: Callable[[State], str],
    goal: Callable[[State], bool] | None = None,
    *,
    limit: int = 8_000_000,
    name: str = "",
) -> Result:
    """Search until all is seen or `invariant` names what is broken (empty: nothing is).

    `goal`: also count the states from which no state that it accepts can be reached. Raises LimitReached.
    """
    graph = _Graph(initial)
    good = bytearray([goal is not None and goal(initial)])
    result = Result(violation=invariant(initial))
    frontier = [initial]
    source = 0
    said_at = time.monotonic()
    while frontier and not result.violation:
        following: list[State] = []
        for state in frontier:
            for label, found in successors(state):
                result.transitions += 1
                number = graph.numbers.get(found)
                if number is None:
                    number = graph.add(found, source, label)
                    following.append(found)
                    result.violation = invariant(found)
                    if result.violation:
                        graph.trace_to(number, result)
                        result.states, result.depth = len(graph.numbers), result.depth + 1
                        return result
                    if goal is not None:
                        good.append(goal(found))
                if goal is not None:
                    graph.targets.append(number)
            graph.ends.append(len(graph.targets))
            source += 1
        if len(graph.numbers) > limit:
            raise LimitReached(f"{name}: more than {limit} states")
        if time.monotonic() - said_at > PROGRESS_EVERY_S:
            said_at = time.monotonic()
            print(f"  {name}: {len(graph.numbers):,} states, depth {result.depth}", file=sys.stderr, flush=True)
        result.depth += bool(following)
        frontier = following
    result.states = len(graph.numbers)
    if goal is not None:
        hopeless = graph.hopeless(good)
        result.dead_ends = len(hopeless)
        if hopeless:
            graph.trace_to(hopeless[0], result)
    return result
