"""`rangelog local --detach | status | stop | logs`, as a user types them, and what one range server is good for."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rangelog_cli.local.background import find_running
from tests.support.forked import run_pdctl, run_rangelog
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Runs `rangelog` or `pdctl` with contexts of its own; whatever still runs in the directory is killed at the end."""
    env = os.environ | {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    def run(module: str, *arguments: str, code: int = 0, given: str = "") -> subprocess.CompletedProcess[str]:
        if "--detach" not in arguments:  # that one begins as users begin it, and so does the cluster
            forked = run_pdctl if module == "pdctl" else run_rangelog
            ran = forked(arguments, env=env, given=given.encode(), directory=tmp_path)
            done = subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())
        else:
            done = subprocess.run(
                [sys.executable, "-m", module, *arguments],
                env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, input=given,
            )  # fmt: skip
        assert done.returncode == code, (arguments, done)
        assert "Traceback" not in done.stdout + done.stderr
        return done

    yield run
    running = find_running(tmp_path / "rangelog-data")
    if running is not None:
        os.kill(running.pid, signal.SIGKILL)


def test_a_cluster_of_one_range_server_in_the_background(command: Command, tmp_path: Path) -> None:
    """It comes up, says what one copy means, serves a stream made by default, and is stopped; then pdctl says that it is."""
    cli = "rangelog_cli"
    up = command(cli, "local", "--detach", "--pds", "1", "--range-servers", "1", "--port", "0").stdout
    assert "1 placement driver, 1 range server, 0 brokers" in up and "streams have one copy" in up
    assert "`rangelog local stop --data-dir" in up
    again = command(cli, "local", "--detach", code=1)
    assert "runs already (pid" in again.stderr and again.stderr.count("\n") == 1
    status = command(cli, "local", "status").stdout
    assert "in the background" in status and "2 of 2 listen" in status and "context  local" in status
    assert command("pdctl", "stream", "create", "hello").stdout.startswith(
        "created stream hello: acked by 1 of 1, flushed"
    )
    command("pdctl", "stream", "append", "hello", given="first record\n")
    assert command("pdctl", "stream", "read", "hello").stdout == "first record\n"
    shown = json.loads(command("pdctl", "stream", "show", "hello", "-o", "json").stdout)
    assert (shown["config"]["replicas"], shown["config"]["acks"], shown["end_offset"]) == (1, 1, 1)
    assert shown["health"] == "healthy"
    (listed,) = json.loads(command("pdctl", "stream", "ls", "--long", "-o", "json").stdout)
    assert (listed["end_offset"], listed["record_count"], listed["sealed_end_offset"]) == (1, 1, 0)
    assert listed["last_write_ms"] and listed["writer_connected"] is False
    assert "rs1 | " in command(cli, "local", "logs", "rs1", "-n", "5").stdout
    assert "Stopped the cluster" in command(cli, "local", "stop").stdout
    assert "does not run" in command(cli, "local", "stop").stdout
    assert "does not run" in command(cli, "local", "status", code=1).stdout
    stopped = command("pdctl", "stream", "list", code=4)
    assert "is stopped: start it with `rangelog local --data-dir" in stopped.stderr


def test_a_start_in_the_background_that_fails_says_why(command: Command, tmp_path: Path) -> None:
    """The one line that the process in the background has said, and nothing is left running."""
    failed = command("rangelog_cli", "local", "--detach", "--range-servers", "0", code=1)
    assert failed.stderr == "rangelog: --range-servers 0: choose between 1 and 32\n"
    failed = command("rangelog_cli", "local", "--detach", "--tier", "ftp://x", code=1)
    assert "bad tier URL" in failed.stderr and failed.stderr.count("\n") == 1
    assert find_running(tmp_path / "rangelog-data") is None
    assert "There is no cluster" in command("rangelog_cli", "local", "status", code=1).stdout


def test_a_removed_range_server_is_left_out(command: Command, tmp_path: Path) -> None:
    """While the cluster runs, and at its next start, which says what to do; with an empty directory it is a member again."""
    cli, options = "rangelog_cli", ("--pds", "1", "--range-servers", "2", "--brokers", "0", "--port", "0")
    left_out = "rs2 was removed from the cluster: it is left out; delete"
    command(cli, "local", "--detach", *options)
    command("pdctl", "server", "drain", "rs2", "--wait")
    command("pdctl", "server", "remove", "rs2", "--yes")
    eventually(lambda: "left out       rs2" in command(cli, "local", "status").stdout, "rs2 is not left out", 30)
    assert left_out in command(cli, "local", "logs", "local").stdout
    command(cli, "local", "stop")
    again = command(cli, "local", "--detach").stdout
    assert left_out in again and "1 placement driver, 1 range server," in again
    assert "2 of 2 listen" in command(cli, "local", "status").stdout
    command(cli, "local", "stop")
    shutil.rmtree(tmp_path / "rangelog-data" / "rs2")
    assert "1 placement driver, 2 range servers" in command(cli, "local", "--detach").stdout
    assert "3 of 3 listen" in command(cli, "local", "status").stdout
