"""The checker of tables' histories: it takes what is right, and finds each kind of spoiled history."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.support.table_history import CONFLICT, UNKNOWN, Operation, check_table

K = b"k"


def put(start: float, end: float, value: bytes, result: object, **condition: object) -> Operation:
    return Operation(start, end, "put", K, result, value, **condition)  # type: ignore[arg-type]


def get(start: float, end: float, result: object) -> Operation:
    return Operation(start, end, "get", K, result)


def delete(start: float, end: float, result: object, **condition: object) -> Operation:
    return Operation(start, end, "delete", K, result, **condition)  # type: ignore[arg-type]


GOOD = {
    "one after the other": [put(0, 1, b"a", 1), get(2, 3, (b"a", 1)), delete(4, 5, True), get(6, 7, None)],
    "a read during a write sees either": [put(0, 9, b"a", 1), get(1, 2, None), get(3, 4, (b"a", 1))],
    "an unknown write that happened": [put(0, 1, b"a", UNKNOWN), get(2, 3, (b"a", 1))],
    "an unknown write that did not": [put(0, 1, b"a", UNKNOWN), get(2, 3, None)],
    "an unknown write that happens late": [put(0, 1, b"a", UNKNOWN), get(2, 3, None), get(4, 5, (b"a", 1))],
    "an unknown write whose condition did not hold": [
        put(0, 1, b"a", 1),
        put(2, 3, b"b", UNKNOWN, if_absent=True),
        get(4, 5, (b"a", 1)),
    ],
    "two conditional writes, one conflict": [
        put(0, 1, b"a", 1),
        put(2, 5, b"b", 2, if_version=1),
        put(3, 6, b"c", CONFLICT, if_version=1),
        get(7, 8, (b"b", 2)),
    ],
    "writes at once in the order of their versions": [put(0, 5, b"b", 2), put(1, 5, b"a", 1), get(6, 7, (b"b", 2))],
    "a row that is set again after its removal": [
        put(0, 1, b"a", 1),
        delete(2, 3, True),
        put(4, 5, b"b", 3, if_absent=True),
        delete(6, 7, CONFLICT, if_version=1),
    ],
}

BAD = {
    "a lost write": [put(0, 1, b"a", 1), get(2, 3, None)],
    "a stale read": [put(0, 1, b"a", 1), put(2, 3, b"b", 2), get(4, 5, (b"a", 1))],
    "a read that goes back": [put(0, 9, b"a", 1), get(1, 2, (b"a", 1)), get(3, 4, None)],
    "a read of what was never written": [get(0, 1, (b"x", 1))],
    "a read before the write": [get(0, 1, (b"a", 1)), put(2, 3, b"a", 1)],
    "a lost update": [
        put(0, 1, b"a", 1),
        put(2, 5, b"b", 2, if_version=1),
        put(3, 6, b"c", 3, if_version=1),
    ],
    "both of two who were first": [put(0, 3, b"a", 1, if_absent=True), put(1, 4, b"b", 2, if_absent=True)],
    "a conflict without a reason": [put(0, 1, b"a", CONFLICT, if_absent=True)],
    "a write that happened twice": [
        put(0, 1, b"a", UNKNOWN),
        get(2, 3, (b"a", 1)),
        delete(4, 5, True),
        get(6, 7, (b"a", 1)),
    ],
    "versions against the order": [put(0, 1, b"a", 2), put(2, 3, b"b", 1)],
    "a version for two values": [put(0, 1, b"a", 1), put(2, 3, b"b", 1)],
    "a value with two versions": [put(0, 1, b"a", 1), get(2, 3, (b"a", 2))],
    "a removal of what is not there": [delete(0, 1, True)],
    "a removal that found nothing": [put(0, 1, b"a", 1), delete(2, 3, False)],
}


@pytest.mark.parametrize("name", GOOD)
def test_right_histories_pass(name: str) -> None:
    """Also where an outcome is unknown."""
    check_table(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_spoiled_histories_are_found(name: str) -> None:
    """Each violates the promise in another way."""
    with pytest.raises(AssertionError):
        check_table(BAD[name])


def walk(seed: int, width: float, unknown: float) -> list[Operation]:
    """A right history: each operation takes effect at one instant between its start and its end; the next one 10 later."""
    rng = random.Random(seed)
    row: tuple[bytes, int] | None = None
    version = seen = 0
    history: list[Operation] = []
    for number in range(60):
        instant = 10.0 * number
        start, end = instant - rng.uniform(0, width), instant + rng.uniform(0, width)
        value = b"%d" % number
        kind = rng.choice(["get", "get", "put", "absent", "version", "delete"])
        if kind == "get":
            history.append(get(start, end, row))
            seen = row[1] if row is not None else seen
            continue
        if kind == "delete":
            history.append(delete(start, end, row is not None))
            row = None
            continue
        condition = {"absent": {"if_absent": True}, "version": {"if_version": seen or 1}}.get(kind, {})
        holds = {"absent": row is None, "version": row is not None and row[1] == (seen or 1)}.get(kind, True)
        if holds:
            version += 1
            row = value, version
        told: object = version if holds else CONFLICT
        if rng.random() < unknown:
            told = UNKNOWN
        elif holds:
            seen = version
        history.append(put(start, end, value, told, **condition))
    return history


@pytest.mark.parametrize("seed", range(30))
def test_right_walks_pass(seed: int) -> None:
    """Whatever overlaps, and whatever is unknown."""
    check_table(walk(seed, 25, 0.1))


@pytest.mark.parametrize("seed", range(10))
def test_each_wrong_read_between_operations_is_found(seed: int) -> None:
    """Where nothing overlaps and all is known, a read has one right answer."""
    history = walk(seed, 4, 0)
    check_table(history)
    for place, operation in enumerate(history):
        if operation.kind == "get":
            wrong = None if operation.result is not None else (b"0", 1)
            with pytest.raises(AssertionError):
                check_table([*history[:place], replace(operation, result=wrong), *history[place + 1 :]])
