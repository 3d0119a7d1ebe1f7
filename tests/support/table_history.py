"""Histories of a table's rows, and whether they are linearizable per key (T7). Nothing of the product is used here.

A history is what clients saw: for each operation its start and end on one counter, what it asked for and what it was told. It
is linearizable if each operation can be given one instant between its start and its end so that a single row, changed at these
instants only, explains all answers. An operation with an unknown outcome may have one instant at any time after its start, or
none.
Each value is written once, so it names its write; a write's version is above that of every write before it.

The search is that of Wing and Gong (1993) with Lowe's memory of what was tried.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

UNKNOWN, CONFLICT = "unknown", "conflict"
Seen = tuple[bytes, int]
"""A value and its version."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation on one key.

    `kind`: "get", "put" or "delete". `value`: of a put. `if_absent`, `if_version`: the condition of a change; a version is one
    that a client has seen, as that of its put or of a row that it got. `result`: of a get a `Seen` or None; of a put its
    version; of a delete whether the row was there; or UNKNOWN; or CONFLICT.
    """

    start: float
    end: float
    kind: str
    key: bytes
    result: object
    value: bytes = b""
    if_absent: bool = False
    if_version: int = 0


class _Row(NamedTuple):
    value: bytes | None
    version: int  # of the last write of which it is known


def check_table(history: Iterable[Operation]) -> None:
    """Raise AssertionError, with the key, for a history that is not linearizable per key."""
    by_key: dict[bytes, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    for key, operations in by_key.items():
        versions = _versions(operations)
        assert _explained(operations, versions), f"key {key!r} is not linearizable: {sorted(operations, key=_start)}"


def _start(operation: Operation) -> float:
    return operation.start


def _versions(operations: list[Operation]) -> dict[bytes, int]:
    """Return value → version. A value has one version, a version one value."""
    found: dict[bytes, int] = {}
    for each in operations:
        seen: Seen | None = None
        if each.kind == "put" and isinstance(each.result, int):
            seen = each.value, each.result
        elif each.kind == "get" and isinstance(each.result, tuple):
            seen = each.result
        if seen is not None:
            assert found.setdefault(*seen) == seen[1], f"value {seen[0]!r} has two versions"
    assert len(set(found.values())) == len(found), f"two values of key {operations[0].key!r} have one version"
    return found


def _explained(operations: list[Operation], versions: dict[bytes, int]) -> bool:
    ordered = sorted(operations, key=_start)
    ends = [math.inf if each.result == UNKNOWN else each.end for each in ordered]
    certain = sum(1 << place for place, each in enumerate(ordered) if each.result != UNKNOWN)
    by_end = sorted(range(len(ordered)), key=lambda place: -ends[place])  # what ends first is tried first
    tried: set[tuple[int, _Row]] = set()
    stack: list[tuple[int, _Row]] = [(0, _Row(None, 0))]
    while stack:
        done, row = stack.pop()
        if done & certain == certain:
            return True
        if (done, row) in tried:
            continue
        tried.add((done, row))
        earliest_end = min(end for place, end in enumerate(ends) if not done >> place & 1)
        for place in by_end:
            each = ordered[place]
            if each.start <= earliest_end and not done >> place & 1:
                after = _after(each, row, versions)
                if after is not None:
                    stack.append((done | 1 << place, after))
    return False


def _after(operation: Operation, row: _Row, versions: dict[bytes, int]) -> _Row | None:
    """Return the row after an operation; None: it cannot have had this answer here."""
    if operation.kind == "get":
        wanted = operation.result[0] if isinstance(operation.result, tuple) else None
        return row if row.value == wanted else None
    holds = True
    if operation.if_absent:
        holds = row.value is None
    elif operation.if_version:
        holds = row.value is not None and versions.get(row.value) == operation.if_version
    if operation.result == CONFLICT:
        return None if holds else row
    if operation.result == UNKNOWN and not holds:
        return row
    if not holds:
        return None
    if operation.kind == "delete":
        if operation.result != UNKNOWN and operation.result != (row.value is not None):
            return None
        return _Row(None, row.version)
    version = versions.get(operation.value)
    if version is None:
        return _Row(operation.value, row.version)
    return _Row(operation.value, version) if version > row.version else None
