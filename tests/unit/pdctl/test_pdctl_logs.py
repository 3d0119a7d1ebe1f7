"""`pdctl logs`: one order for the entries of several processes, text on one line each, processes that do not answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from pdctl.logs.asking import LogFollower, LoggingProcess, LogQuery, chosen, take_all
from pdctl.logs.lines import as_json, as_text, as_yaml, has_text, logged, merged
from pdctl.session import NothingFound, Session
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.log_ring import LogRing
from rangelog_server_common.recent_log import RecentLog

SESSION = Session("127.0.0.1:1", None, None, None, None, 5.0)


def test_one_order() -> None:
    """By time over processes; within a process as it was logged, though its clock was set back."""
    entries = [
        logged("rs1", 1, 10, "{}"),
        logged("rs1", 2, 40, "{}"),
        logged("rs1", 3, 5, "{}"),
        logged("pd1", 9, 20, "{}"),
    ]
    found = [(each.process, each.number) for each in merged(reversed(entries))]
    assert found == [("rs1", 1), ("pd1", 9), ("rs1", 2), ("rs1", 3)]


def test_text() -> None:
    """Time, level, process, event, fields; nothing that a terminal would obey; no line is lost for not being JSON."""
    line = {"timestamp": "2026-01-31T12:00:00Z", "level": "warning", "process": "rs1", "event": "slow\n\x1b[31mdisk", "ms": 7,
            "path": "/a b"}  # fmt: skip
    entry = logged("rs1", 1, 10, json.dumps(line))
    assert as_text(entry) == '2026-01-31T12:00:00Z warning  rs1 slow �[31mdisk ms=7 path="/a b"'
    assert json.loads(as_json(entry)) == line and yaml.safe_load(as_yaml(entry)) == line
    assert has_text(entry, "SLOW") and has_text(entry, "ms=7") and not has_text(entry, "upload")
    assert as_text(logged("rs1", 1, 10, "not json")).endswith("rs1 not json")
    assert as_json(logged("rs1", 1, 10, r'{"path": "\udce4"}')).encode() == rb'{"path": "\udce4"}'
    assert as_text(logged("rs1", 1, 10, "[1]")).endswith("rs1 [1]")


def test_names() -> None:
    """None: all; a name that no process has is an error that tells those that there are."""
    known = [LoggingProcess("placement driver", "pd1", "a:1"), LoggingProcess("range server", "rs1", "b:1")]
    assert chosen(known, ()) == known and chosen(known, ["rs1"]) == known[1:]
    with pytest.raises(NothingFound, match="no process is called 'rs9': there are pd1, rs1"):
        chosen(known, ["rs1", "rs9"])


async def _serve(log: RecentLog, monkeypatch: pytest.MonkeyPatch) -> tuple[GrpcServer, str]:
    from rangelog_server_common import grpc_server, logs_service

    monkeypatch.setattr(grpc_server, "add_logs_service", lambda server: logs_service.add_logs_service(server, log))
    server = GrpcServer()
    return server, f"127.0.0.1:{await server.start('127.0.0.1:0', ())}"


def _events(entries: list[Any]) -> list[str]:
    return [each.fields["event"] for each in entries]


async def test_following(monkeypatch: pytest.MonkeyPatch) -> None:
    """At first the newest, then what is new; what was gone is counted; a new process there is read from its start."""
    log = RecentLog(LogRing(count_max=50))
    note = lambda event: log.note({"event": event, "level": "info"}, str)  # noqa: E731
    for number in range(5):
        note(f"e{number}")
    server, address = await _serve(log, monkeypatch)
    follower = LogFollower(SESSION, LoggingProcess("broker", "b1", address), LogQuery("info", 0, 2))
    assert _events(await follower.take()) == ["e3", "e4"]
    assert await follower.take() == []
    note("e5")
    assert _events(await follower.take()) == ["e5"] and follower.missed == 0
    for number in range(60):
        note(f"f{number}")
    assert _events(await follower.take()) == [f"f{number}" for number in range(10, 60)] and follower.missed == 10
    log.run += 1
    log._ring = LogRing()
    note("started again")
    assert _events(await follower.take()) == ["started again"] and follower.missed == 0
    await server.stop(0)


async def test_those_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Are told with the reason; the others' entries are there."""
    log = RecentLog()
    log.note({"event": "alive", "level": "info"}, str)
    server, address = await _serve(log, monkeypatch)
    wanted = LogQuery("info", 0, 2)
    gone, unknown = LoggingProcess("range server", "rs1", "127.0.0.1:1"), LoggingProcess("broker", "b2", "")
    processes = [LoggingProcess("broker", "b1", address), gone, unknown]
    found, failed = await take_all([LogFollower(SESSION, each, wanted) for each in processes])
    assert _events(found) == ["alive"] and set(failed) == {gone, unknown}
    assert "address is not known" in failed[unknown].message
    await server.stop(0)
