"""A local cluster in the background: who counts as its process, what is stopped, what is shown of its logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.stopped import process_began
from rangelog.context import write_context
from rangelog_cli.local import background
from rangelog_cli.local.background import RUN_FILE, Running, described, find_running, write_running
from rangelog_cli.local.log_files import follow_logs, last_lines
from rangelog_cli.local.plan import make_plan, write_plan
from rangelog_core.errors import InvalidArgument, Unavailable


def test_what_was_written_down_is_found_while_it_lives(tmp_path: Path) -> None:
    """This very process; not one with its number that began at another time, nor one that has ended."""
    mine = Running.this_process(in_background=True, context="local")
    write_running(tmp_path, mine)
    assert find_running(tmp_path) == mine
    write_running(tmp_path, replace(mine, began="1"))
    assert find_running(tmp_path) is None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
    assert process_began(ended.pid) is None
    ended.wait()
    assert process_began(ended.pid) is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "null", '{"nonsense": 1}', '{"left_out": 1}'])
def test_a_damaged_file_names_nobody(tmp_path: Path, content: str) -> None:
    """Nobody is signalled because of it."""
    (tmp_path / RUN_FILE).write_text(content)
    assert find_running(tmp_path) is None


@pytest.mark.parametrize("pid", [0, 1, -1, "5"])
def test_processes_that_are_never_ours(tmp_path: Path, pid: object) -> None:
    """The first process, all processes, a group."""
    fields = {"pid": pid, "began": process_began(1) or "", "started_ms": 0, "in_background": True}
    (tmp_path / RUN_FILE).write_text(json.dumps(fields))
    assert find_running(tmp_path) is None


def test_only_what_wrote_itself_down_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock's owner alone is no cluster of `rangelog local`: it is named and left alone."""
    signalled: list[tuple[int, int]] = []
    monkeypatch.setattr(background.os, "kill", lambda pid, number: signalled.append((pid, number)))
    assert "does not run" in background.stop(tmp_path, 1)
    (tmp_path / "LOCK").write_text(f"{os.getpid()}\n")
    with pytest.raises(Unavailable, match="which is not `rangelog local`"):
        background.stop(tmp_path, 1)
    write_running(tmp_path, replace(Running.this_process(in_background=True), began="1"))
    with pytest.raises(Unavailable, match="which is not `rangelog local`"):
        background.stop(tmp_path, 1)
    assert signalled == []


def test_status_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster, one that does not run, one that runs, and which of its processes do not listen."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write_context("mine", ["127.0.0.1:7000"])
    assert "There is no cluster" in described(tmp_path, None)
    write_plan(tmp_path, make_plan(pds=1, range_servers=2, tier_url="file:///t", base_port=7000))
    assert f"start it with `rangelog local --data-dir {tmp_path}`" in described(tmp_path, None)
    for name in ("pd1", "rs1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "endpoint.json").write_text(json.dumps({"pid": os.getpid()}))
    text = described(tmp_path, replace(Running.this_process(in_background=True, context="mine"), is_up=True))
    assert f"in the background, pid {os.getpid()}" in text and "context  mine" in text
    assert "2 of 3 listen; not rs2: see `rangelog local logs rs2`" in text
    write_running(tmp_path, replace(Running.this_process(in_background=True), is_up=True, left_out=("rs2",)))
    text = described(tmp_path, find_running(tmp_path))
    assert "2 of 2 listen\n" in text and "left out       rs2: removed from the cluster" in text


def test_options_reach_the_process_in_the_background() -> None:
    """As they were given, and only those."""
    given = {
        "pds": 1,
        "range_servers": 0,
        "brokers": None,
        "tier_url": "file:///t",
        "port": 0,
        "tls": False,
        "context": "",
    }
    assert background._as_arguments(given) == [
        "--pds", "1", "--range-servers", "0", "--tier", "file:///t", "--port", "0", "--no-tls",
    ]  # fmt: skip
    assert background._as_arguments({"tls": True, "context": None}) == ["--tls", "--no-context"]
    assert background._as_arguments({"context": "x"}) == ["--context", "x"]
    assert background._as_arguments({"encrypted": False}) == ["--in-clear"]
    assert background._as_arguments({"encrypted": True}) == ["--encrypted"]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The logs of two members."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rs1.log").write_bytes(b"one\ntwo\n\x1b[31mthree\nnot ye")
    (tmp_path / "logs" / "local.log").write_bytes(b"up\n")
    return tmp_path


def test_last_lines(logs: Path) -> None:
    """Each behind its member's name, whole lines only, no control characters for the terminal."""
    assert last_lines(logs, (), 2).lines == ["local | up", "rs1   | two", "rs1   | �[31mthree"]
    assert last_lines(logs, ("rs1",), 1).lines == ["rs1 | �[31mthree"]
    assert last_lines(logs, ("rs1",), 0).lines == []
    with pytest.raises(InvalidArgument, match="there are local, rs1"):
        last_lines(logs, ("rs9",), 1)
    with pytest.raises(InvalidArgument, match="has no logs"):
        last_lines(logs / "logs", (), 1)


def test_added_lines_are_followed(logs: Path) -> None:
    """A line is shown when its end is there, once; a file that begins anew is read from its beginning."""
    path, said, rounds = logs / "logs" / "rs1.log", [], 0
    steps = [
        lambda: path.open("ab").write(b"t\nand") and None,
        lambda: path.open("ab").write(b" more\n") and None,
        lambda: path.write_bytes(b"new\n") and None,
    ]

    def wait(_seconds: float) -> None:
        nonlocal rounds
        if rounds == len(steps):
            raise KeyboardInterrupt
        steps[rounds]()
        rounds += 1

    with pytest.raises(KeyboardInterrupt):
        follow_logs(last_lines(logs, ("rs1",), 0), said.append, wait)
    assert said == ["rs1 | not yet", "rs1 | and more", "rs1 | new"]
