"""The chain of the audit log: whatever is done to its lines afterwards is found, and said."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rangelog_core.audit import FIRST_PREVIOUS, LINE_BYTES_MAX, ChainCheck, encode_line, hash_line, parse_line
from rangelog_core.errors import Corruption


def made(count: int) -> list[bytes]:
    """So many lines of one log."""
    lines: list[bytes] = []
    previous = FIRST_PREVIOUS
    for number in range(1, count + 1):
        lines.append(encode_line(number, 1_000 + number, previous, {"call": f"Call{number}", "outcome": "OK"}))
        previous = hash_line(lines[-1])
    return lines


def checked(lines: Sequence[bytes], of: Sequence[bytes]) -> ChainCheck:
    """Check lines against the end of a log."""
    check = ChainCheck()
    for line in lines:
        check.add(line)
    check.end(len(of), hash_line(of[-1]) if of else FIRST_PREVIOUS)
    return check


def test_a_log_as_it_was_written_is_intact() -> None:
    """Also an empty one."""
    lines = made(5)
    assert checked(lines, lines).sequence == 5
    assert checked([], []).sequence == 0


def test_a_line_is_one_form_of_its_content() -> None:
    """Sorted, without spaces, ASCII; what is empty is left out. Anybody can compute its hash."""
    line = encode_line(
        1, 5, FIRST_PREVIOUS, {"outcome": "OK", "call": "C", "resource": "stream ü\n", "count": 0, "peer": ""}
    )
    assert line == (
        b'{"call":"C","outcome":"OK","previous":"'
        + b"00" * 32
        + b'","resource":"stream \\u00fc\\n","sequence":1,"time_ms":5}'
    )
    assert parse_line(line)["resource"] == "stream ü\n"


@given(st.integers(1, 6), st.data())
def test_any_changed_byte_is_found(count: int, data: st.DataObject) -> None:
    """Wherever it is, and in whatever line."""
    lines = made(count)
    number = data.draw(st.integers(0, count - 1))
    place = data.draw(st.integers(0, len(lines[number]) - 1))
    value = data.draw(st.integers(0, 255).filter(lambda each: each != lines[number][place]))
    changed = bytearray(lines[number])
    changed[place] = value
    with pytest.raises(Corruption):
        checked([*lines[:number], bytes(changed), *lines[number + 1 :]], lines)


@given(st.lists(st.integers(0, 5), max_size=8).filter(lambda order: order != list(range(6))))
def test_any_other_order_is_found(order: list[int]) -> None:
    """Removed, repeated, swapped or cut off."""
    lines = made(6)
    with pytest.raises(Corruption):
        checked([lines[number] for number in order], lines)


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ([0, 1, 3], "after entry 2: entries 3 to 3 are missing"),
        ([1, 2, 3], "at the start: entries 1 to 1 are missing"),
        ([0, 1, 1, 2], "after entry 2: entry 2 comes again, or out of order"),
        ([0, 1, 2], "the log was cut: it ends with entry 3, and entry 4 was written"),
    ],
)
def test_what_is_wrong_is_said(order: list[int], said: str) -> None:
    """And where."""
    lines = made(4)
    with pytest.raises(Corruption, match=said):
        checked([lines[number] for number in order], lines)


def test_a_forged_log_is_found_by_its_end() -> None:
    """Whoever makes all lines anew has a chain that fits, with another last hash."""
    lines = made(4)
    forged = [encode_line(1, 9, FIRST_PREVIOUS, {"call": "Other", "outcome": "OK"})]
    for number in range(2, 5):
        forged.append(encode_line(number, 9, hash_line(forged[-1]), {"call": "Other", "outcome": "OK"}))
    with pytest.raises(Corruption, match="entry 4, the last one, was changed"):
        checked(forged, lines)
    with pytest.raises(Corruption, match="beyond the last one"):
        checked(made(5), lines)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"1", b"null", b"\xff", b'{"sequence":1}', b"[" * 5_000,
        json.dumps({"sequence": True, "time_ms": 1, "previous": "", "call": "", "outcome": ""}).encode(),
        json.dumps({"sequence": 1, "time_ms": 1, "previous": "", "call": "", "outcome": "", "x": [1]}).encode(),
        json.dumps({"sequence": 1, "time_ms": 1.5, "previous": "", "call": "", "outcome": ""}).encode(),
        b" " * (LINE_BYTES_MAX + 1),
    ],
)  # fmt: skip
def test_what_is_no_entry_is_refused(line: bytes) -> None:
    """With a typed error, however it looks."""
    with pytest.raises(Corruption):
        parse_line(line)
