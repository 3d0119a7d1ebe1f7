"""`pdctl cursor …` and what other commands do with cursors: over real gRPC, and in memory where records are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from pdctl.main import main
from rangelog import Client
from rangelog.testing import FakeCluster
from rangelog_proto.v1 import common_pb2
from tests.unit.pdctl.in_process_pd import InProcessPd, PdctlOverGrpc

Run = Callable[..., Result]


@pytest.fixture
def flights(topics: InProcessPd) -> int:
    """A sealed stream of 30 records; its id."""
    made = topics.stream("flights")
    topics.ranges("flights", 3, open_end=False)
    return made.stream_id


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    """A cluster in memory with ten records in `flights`, on which pdctl works."""
    cluster = FakeCluster()

    async def connect(*_: Any, **__: Any) -> Client:
        return cluster.client()

    async def fill() -> None:
        async with cluster.client() as client:
            await client.create_stream("flights")
            await client.append("flights", [b"%d" % number for number in range(10)])
            await client.seal_stream("flights")

    asyncio.run(fill())
    monkeypatch.setattr("rangelog.connect", connect)
    yield cluster


def pdctl(*arguments: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(main, ["--pd", "fake:1", *arguments], input=typed, prog_name="pdctl")


def test_a_cursor_is_set_got_listed_and_deleted(run: PdctlOverGrpc, flights: int) -> None:
    """The keys are the documented ones; all forms say the same."""
    made = run.json("cursor", "set", "flights", "billing", "12", "--metadata", "m")
    assert set(made) == {
        "stream", "stream_id", "name", "offset", "behind", "metadata", "version", "set_ms", "created_ms", "expired",
    }  # fmt: skip
    assert (made["stream_id"], made["offset"], made["behind"], made["metadata"]) == (flights, 12, 18, "m")
    assert run.json("cursor", "get", "flights", "billing") == made
    assert run.json("cursor", "list", "flights") == [made]
    assert yaml.safe_load(run("cursor", "get", "flights", "billing", "-o", "yaml").stdout) == made
    heading, row = run("cursor", "list", "flights").stdout.splitlines()
    assert heading.split() == ["NAME", "OFFSET", "BEHIND", "SET", "STATE", "METADATA"]
    assert row.split()[:3] == ["billing", "12", "18"] and row.split()[-2:] == ["live", "m"]
    deleted = run.json("cursor", "delete", "flights", "billing", "--yes")
    assert deleted == {"stream": "flights", "cursor": "billing", "deleted": True}
    assert run.json("cursor", "list", "flights") == []
    assert "no cursors" in run("cursor", "list", "flights").stderr


def test_earliest_and_latest_are_offsets(run: PdctlOverGrpc, flights: int) -> None:
    """Of the moment of the call."""
    run("stream", "trim", "flights", "--to", "10", "--yes")
    assert run.json("cursor", "set", "flights", "a", "earliest")["offset"] == 10
    assert run.json("cursor", "set", "flights", "b", "latest")["offset"] == 30


def test_a_cursor_that_is_there_moves_either_way_when_it_is_confirmed(run: PdctlOverGrpc, flights: int) -> None:
    """Without a terminal --yes is needed; a new one, and one that stays, need none."""
    assert run.json("cursor", "set", "flights", "billing", "12")["offset"] == 12
    assert run.json("cursor", "set", "flights", "billing", "12")["offset"] == 12
    assert "from 12 to 5" in run.fails(2, "cursor", "set", "flights", "billing", "5")
    assert run.json("cursor", "set", "flights", "billing", "5", "--yes")["offset"] == 5


def test_a_cursor_that_moves_meanwhile_is_left_alone(run: PdctlOverGrpc, flights: int, topics: InProcessPd) -> None:
    """The consumer committed between the look and the move: exit code 5."""
    run("cursor", "set", "flights", "billing", "5")

    def moved(name: str) -> None:
        if name == "SetCursors":
            topics.before = lambda name: None
            assert run("cursor", "set", "flights", "billing", "9", "--yes").exit_code == 0

    topics.before = moved
    assert "changed meanwhile" in run.fails(5, "cursor", "set", "flights", "billing", "2", "--yes")
    assert run.json("cursor", "get", "flights", "billing")["offset"] == 9


def test_errors_have_their_exit_codes(run: PdctlOverGrpc, flights: int) -> None:
    """Not found is 3, usage 2, an offset that is not there 1; each says what to do next."""
    assert "pdctl cursor list flights" in run.fails(3, "cursor", "get", "flights", "nope")
    assert "pdctl cursor list flights" in run.fails(3, "cursor", "delete", "flights", "nope", "--yes")
    assert "pdctl stream list" in run.fails(3, "cursor", "list", "nope")
    assert "30" in run.fails(1, "cursor", "set", "flights", "x", "31")
    run.fails(2, "cursor", "set", "flights", "x", "soon")
    run.fails(2, "cursor", "set", "flights", "a/b", "1")
    assert "--yes" in run.fails(2, "cursor", "delete", "flights", "x")


def test_what_retention_keeps_is_a_task(run: PdctlOverGrpc, topics: InProcessPd) -> None:
    """With the cursor that it is kept for."""
    topics.stream("kept", cursor_retention=common_pb2.CURSOR_RETENTION_KEEP, retention_ms=1)
    topics.ranges("kept", 2, open_end=False)
    run("cursor", "set", "kept", "billing", "3")
    for _ in range(100):
        topics.reconcile()
        if found := [each for each in run.json("task", "list") if each["kind"] == "retain-stream"]:
            break
    (task,) = found
    assert task["stream"] == "kept" and "cursor 'billing' at 3" in task["detail"]


def test_reading_from_a_cursor_and_committing(memory: FakeCluster) -> None:
    """What was printed is committed, and no more; without --commit nothing is."""
    assert pdctl("stream", "read", "flights", "--cursor", "billing", "--limit", "2").stdout == "0\n1\n"
    assert pdctl("cursor", "get", "flights", "billing").exit_code == 3
    first = pdctl("stream", "read", "flights", "--cursor", "billing", "--commit", "--limit", "3", "--start", "4")
    assert first.stdout == "4\n5\n6\n"
    assert json.loads(pdctl("cursor", "get", "flights", "billing", "-o", "json").stdout)["offset"] == 7
    rest = pdctl("stream", "read", "flights", "--cursor", "billing", "--commit")
    assert rest.stdout == "7\n8\n9\n"
    assert pdctl("stream", "read", "flights", "--cursor", "billing", "--commit").stdout == ""
    assert pdctl("stream", "read", "flights", "--commit").exit_code == 2


def test_a_trim_says_what_it_removes_before_it_asks(memory: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many records, and which cursors have not passed them; it is done when the name is typed."""
    pdctl("cursor", "set", "flights", "billing", "3")
    pdctl("cursor", "set", "flights", "ahead", "9")
    assert pdctl("stream", "trim", "flights", "--to", "6").exit_code == 2, "no terminal: --yes is needed"
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda self: True, raising=False)
    asked = pdctl("stream", "trim", "flights", "--to", "6", typed="no\n")
    assert asked.exit_code == 1 and "nothing was done" in asked.stderr
    assert "6 records of flights, from offset 0 up to 6" in asked.output
    assert "cursors that have not passed them: billing at 3." in asked.output
