"""Histories in files: what was noted is there after a kill, in whatever state the last line is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.history import (
    TAGS,
    Bounded,
    Deleted,
    Ended,
    EndTold,
    Event,
    FileHistory,
    Final,
    History,
    Invoked,
    Refused,
    Retained,
    Saw,
    Started,
    Trimmed,
    from_line,
    merged,
    read_history,
    to_line,
)

EVENTS: list[Event] = [
    Invoked("s", "w", 3, 7, (b"w:7", bytes(range(256))), 1.5, (1, 2)),
    Invoked("s", "w", None, 9, (b"w:9",), 1.5),
    Ended("s", "w", 7, 2, "ok", 2.5, 100, 3),
    Ended("s", "w", 9, 1, "unknown", 2.5),
    Saw("s", "r", 100, (b"w:7",), "hot", 3.5, 101),
    Saw("s", "r", 101, (), "unknown", 3.5),
    Final("s", "tier", 100, (b"w:7",), (5,)),
    Final("s", "replica:1", 100, (b"w:7",), None, whole=False),
    Final("s", "reader", 100, (b"w:7",), None, whole=True, time_s=9.5),
    Trimmed("s", 50, 4.5),
    Invoked("s", "w", 3, 11, (b"w:11", b"w:12"), 1.5, None, (1_000, 999)),
    Retained("s", 6.0),
    EndTold("s", "r", 101, 2.0, 2.5, exact=False),
    Started("s", "r", 1_000, 101, 2.0, 2.5),
    Bounded("s", "r", 100, 101, 2.5),
    Refused("s", "r", 101, 2.0, 2.5),
    Refused("s", "r", 10, 2.0, 2.5, trimmed=50),
    Deleted("s", 5.0, certain=True),
]


def test_events_survive_their_line() -> None:
    """Every event comes back as it was, bytes of any value included."""
    assert {type(event) for event in EVENTS} == set(TAGS)
    for event in EVENTS:
        line = to_line(event)
        assert "\n" not in line
        assert from_line(line) == event


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    """A file that is cut anywhere gives the events whose lines are complete."""
    path = tmp_path / "client"
    history = FileHistory(path)
    history.note(*EVENTS[1:5])
    history.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        assert list(read_history(path)) == EVENTS[1 : 1 + data[:cut].count(b"\n")]


def test_a_client_that_goes_on_after_a_kill(tmp_path: Path) -> None:
    """Who opens the file again cuts off the torn line and appends."""
    path = tmp_path / "client"
    for _ in range(2):
        history = FileHistory(path)
        history.note(EVENTS[0])
        history.close()
        with path.open("ab") as file:
            file.write(b'["s","s"')
    assert list(read_history(path)) == [EVENTS[0], EVENTS[0]]


def test_damage_in_the_middle_is_not_overlooked(tmp_path: Path) -> None:
    """Only the end of a file may be torn."""
    path = tmp_path / "client"
    path.write_text(f"{to_line(EVENTS[0])}\nnonsense\n{to_line(EVENTS[0])}\n")
    with pytest.raises(ValueError, match="Expecting value"):
        list(read_history(path))
    path.write_text('["x",1]\n')
    with pytest.raises(ValueError, match="no event"):
        list(read_history(path))


def test_clients_in_memory_are_merged() -> None:
    """The same notes as in files, without files."""
    first, second = History(), History()
    first.invoked("s", "w", 0, [b"0"], 1.0)
    first.ok("s", "w", 0, 0, 2.0)
    second.saw("s", "r", 0, [b"0"], 3.0)
    assert [type(event) for event in merged([first, second])] == [Invoked, Ended, Saw]
