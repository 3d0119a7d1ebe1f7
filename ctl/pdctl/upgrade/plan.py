"""How far an upgrade is: who runs an earlier program, and in which order they are replaced. Judges the reports of the
processes, without I/O.

What holds: the newest program is the newest that any process reports, or that of this `pdctl`. A process that reports no level
is older. Placement drivers come before range servers, these before brokers; the leader is the last placement driver, so that
leadership moves once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

_NUMBER = re.compile(r"\d+")


class ProcessKind(StrEnum):
    """The kind of a process, in the order of an upgrade."""

    PLACEMENT_DRIVER = "placement-driver"
    RANGE_SERVER = "range-server"
    BROKER = "broker"


class ProgramVersion(NamedTuple):
    """Which program it is. A level counts for more than a version."""

    feature_level: int
    """0: not told."""
    version: str
    """Empty: not told."""

    @property
    def order(self) -> tuple[int, list[int]]:
        """The sort key of programs."""
        return self.feature_level, [int(each[:9]) for each in _NUMBER.findall(self.version)[:8]]


@dataclass(frozen=True)
class ProcessProgram:
    """One process of the cluster, and the program that it runs."""

    name: str
    kind: ProcessKind
    program: ProgramVersion
    alive: bool = True
    leader: bool = False


def newest(processes: Iterable[ProcessProgram], own: ProgramVersion) -> ProgramVersion:
    """Return the newest program that is known, the one of this command included."""
    return max((own, *(each.program for each in processes)), key=lambda program: program.order)


def is_older(process: ProcessProgram, than: ProgramVersion) -> bool:
    """Whether a process runs an earlier program: one that reports no level does, one that reports no version may not."""
    if process.program.feature_level != than.feature_level or not process.program.version:
        return process.program.feature_level < than.feature_level
    return process.program.order < than.order


def candidates(processes: Sequence[ProcessProgram], program: ProgramVersion) -> list[ProcessProgram]:
    """Return which of them is replaced next: those of the first kind that has older ones, in order."""
    older = [each for each in processes if is_older(each, program)]
    for kind in ProcessKind:
        if found := [each for each in older if each.kind == kind]:
            return sorted(found, key=lambda each: (each.leader, each.name))
    return []


def other_broker(processes: Iterable[ProcessProgram], name: str) -> bool:
    """Whether another broker can take over what a broker owns."""
    return any(each.kind == ProcessKind.BROKER and each.alive and each.name != name for each in processes)
