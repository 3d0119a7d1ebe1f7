"""The waits of tests: a state that does not come is a wait that ran out, records that do not come are a verdict."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog_core.errors import ClientClosed, StreamNotFound, Unavailable
from tests.support import cluster_findings
from tests.support.waiting import SHOWN_MAX, WaitRanOut, arrives, eventually, until, until_arrived

SOON_S = 0.02


def raising(*errors: Exception) -> Any:
    """A look that raises each error once and holds then."""
    left: Iterator[Exception] = iter(errors)

    def holds() -> str:
        for error in left:
            raise error
        return "it holds"

    return holds


def test_what_was_found_is_returned() -> None:
    """The first true value ends the wait, whatever was seen before."""
    seen = iter([None, [], 0, [3]])
    assert eventually(lambda: next(seen), "a value") == [3]


async def test_what_was_found_is_returned_on_the_loop() -> None:
    """Of plain and of asynchronous looks."""
    seen = iter([None, "plain", 0, "asynchronous"])

    async def look() -> Any:
        return next(seen)

    assert await until(lambda: next(seen), "a value") == "plain"
    assert await until(look, "a value") == "asynchronous"


async def test_a_state_that_does_not_come_is_no_verdict() -> None:
    """WaitRanOut names what was waited for, the limit and the last value, and is not an AssertionError."""
    for error in (blocking(list, "all are here"), await awaited(list, "all are here")):
        assert isinstance(error, TimeoutError) and not isinstance(error, AssertionError)
        assert str(error) == "not within 0.02 s: all are here; last seen: []"


def blocking(holds: Any, what: str = "") -> WaitRanOut:
    """The error of a wait that runs out."""
    with pytest.raises(WaitRanOut) as raised:
        eventually(holds, what, SOON_S)
    return raised.value


async def awaited(holds: Any, what: str = "") -> WaitRanOut:
    """The same on the event loop."""
    with pytest.raises(WaitRanOut) as raised:
        await until(holds, what, SOON_S)
    return raised.value


async def test_the_line_of_the_condition_stands_for_its_name() -> None:
    """Who gives no name for what is waited for finds the source of the condition."""
    never = 0
    assert "awaited(lambda: never > 1)" in str(await awaited(lambda: never > 1))


def test_a_long_value_is_cut() -> None:
    """A message has at most so many characters of a value."""

    class Long(list[int]):
        def __repr__(self) -> str:
            return "x" * 10 * SHOWN_MAX

    assert len(str(blocking(Long, "a value"))) < SHOWN_MAX + 200


async def test_what_is_unavailable_does_not_hold_yet() -> None:
    """A retriable Unavailable is looked at again; the last one is the last value seen."""
    assert eventually(raising(Unavailable("an election")), "an answer") == "it holds"
    assert await until(raising(Unavailable("an election")), "an answer") == "it holds"
    assert "an election" in str(blocking(raising(*[Unavailable("an election")] * 10_000)))


@pytest.mark.parametrize("error", [AssertionError("lost"), StreamNotFound("s"), ClientClosed("closed"), TimeoutError()])
async def test_other_errors_end_the_wait(error: Exception) -> None:
    """What a look asserts is a verdict, and an error that does not pass is not waited out."""
    with pytest.raises(type(error)) as raised:
        eventually(raising(error), "an answer")
    assert raised.value is error
    with pytest.raises(type(error)) as raised:
        await until(raising(error), "an answer")
    assert raised.value is error


async def test_a_look_that_does_not_end_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the event loop a look has a limit."""
    monkeypatch.setattr("tests.support.waiting._LOOK_S_MAX", SOON_S)
    assert "a look that does not end" in str(await awaited(asyncio.Event().wait))


def test_there_is_a_look_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that stands still between two looks does not make the wait fail."""
    now_s = iter([0.0, 0.0, 0.0, 1_000.0])
    monkeypatch.setattr(
        "tests.support.waiting.time", SimpleNamespace(monotonic=lambda: next(now_s), sleep=lambda _: None)
    )
    seen = iter([False, True])
    assert eventually(lambda: next(seen), "a state", 60)


async def test_records_that_do_not_come_are_a_verdict() -> None:
    """AssertionError with what is missing, what is extra, and where the difference begins."""
    read, expected = [b"a", b"x", b"c"], [b"a", b"b", b"c", b"d"]
    with pytest.raises(AssertionError) as raised:
        arrives(lambda: read, expected, "all acked records", SOON_S)
    assert str(raised.value) == (
        "records are not as expected after 0.02 s: all acked records; read 3, expected 4, first difference at 1: "
        "b'x' for b'b'; missing 2: b'b', b'd'; extra 1: b'x'"
    )
    with pytest.raises(AssertionError) as again:
        await until_arrived(lambda: read, expected, "all acked records", SOON_S)
    assert str(again.value) == str(raised.value)


@pytest.mark.parametrize(
    ("read", "expected", "difference"),
    [
        (3, 4, "read 3, expected 4"),
        ({1, 2}, {2, 3}, "missing 1: 3; extra 1: 1"),
        ({1: b"a"}, {1: b"b"}, "first difference at 0: (1, b'a') for (1, b'b')"),
        ([1], [1, 1], "first difference at 1: the end for 1"),
    ],
)
def test_differences(read: Any, expected: Any, difference: str) -> None:
    """Of counts, sets, tables and repeated records."""
    with pytest.raises(AssertionError) as raised:
        arrives(lambda: read, expected, "records", SOON_S)
    assert difference in str(raised.value)


def test_what_cannot_be_read_is_a_verdict() -> None:
    """Records that stay unreadable may be lost: no second try hides it."""
    with pytest.raises(AssertionError, match=r"nothing could be read.*no replica answers"):
        arrives(raising(*[Unavailable("no replica answers")] * 10_000), [b"a"], "all acked records", SOON_S)


async def test_records_that_come_are_returned() -> None:
    """Equal by default; `by` takes at least as many, or these among others."""
    counts = iter(range(10))
    assert arrives(lambda: next(counts), 5, "five records") == 5
    assert arrives(lambda: {1, 2, 3}, {1, 3}, "both records", by=operator.ge) == {1, 2, 3}

    async def read() -> list[int]:
        return [next(counts)]

    assert await until_arrived(read, [8], "the ninth record") == [8]


def test_clusters_are_examined(tmp_path: Path) -> None:
    """The message tells which processes of a registered cluster run; an examination that fails is told, not raised."""
    members = {"pd1": SimpleNamespace(running=True), "rs1": SimpleNamespace(running=False)}
    cluster: Any = SimpleNamespace(directory=tmp_path / "c", members=members, connect_string="127.0.0.1:1", tls=None)
    with cluster_findings.registered(cluster):
        told = str(blocking(lambda: False, "a state"))
        assert "/c: pd1 running; rs1 stopped\npdctl: no placement driver at 127.0.0.1:1" in told
        del cluster.connect_string
        assert "its examination fails: AttributeError" in str(blocking(lambda: False, "a state"))
    assert "pd1" not in str(blocking(lambda: False, "a state"))
