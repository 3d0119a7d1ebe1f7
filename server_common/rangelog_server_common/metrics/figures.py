"""The figures that a process exports: each with a name, a meaning and a function that reads it when somebody scrapes. Pure.

What holds: reading a figure costs no more than the series that it yields. Names follow the conventions of Prometheus: the unit
last, `_total` for counters. Labels are names of servers, kinds, codes and calls, never of streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rangelog_server_common.metrics.tally import DurationTally

S = TypeVar("S")
Value = float | DurationTally
Read = Callable[[S], "Value | Mapping[Any, Value] | None"]
"""By one label: a mapping from its value; by several: from a tuple of theirs. None: there is nothing to export now."""


@dataclass(frozen=True, slots=True)
class Figure(Generic[S]):
    """One metric family. Make it with `counter`, `gauge` or `histogram`."""

    kind: str
    name: str
    meaning: str
    read: Read[S]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FigureGroup(Generic[S]):
    """Figures of one source. `look`: called once for each scrape; returns what all of them are read from."""

    look: Callable[[], S]
    figures: Sequence[Figure[S]]


def counter(name: str, meaning: str, read: Read[S], *labels: str) -> Figure[S]:
    """A number that only rises until the process ends. The name ends in `_total`."""
    return Figure("counter", name, meaning, read, labels)


def gauge(name: str, meaning: str, read: Read[S], *labels: str) -> Figure[S]:
    """A number that rises and falls."""
    return Figure("gauge", name, meaning, read, labels)


def histogram(name: str, meaning: str, read: Read[S], *labels: str) -> Figure[S]:
    """Durations. The name ends in `_seconds`."""
    return Figure("histogram", name, meaning, read, labels)
