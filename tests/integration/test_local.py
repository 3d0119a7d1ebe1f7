"""`rangelog local` as a user meets it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import rangelog
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

StartLocal = Callable[..., Any]
UP = "rangelog is up"
FEW = ("--pds", "1", "--range-servers", "2", "--brokers", "0")


async def test_data_survives_ctrl_c_and_restart(start_local: StartLocal) -> None:
    """Ctrl-C ends everything with exit code 0; the next start has every record, more servers, fewer brokers; pdctl finds it."""
    local = start_local(from_scratch=True)
    local.wait_for(UP)
    context = json.loads((local.config_home / "rangelog" / "context.json").read_text())
    assert ",".join(context["pd"]) == local.connect_string
    async with await rangelog.connect(local.connect_string) as client:
        await client.create_stream("kept")
        async with client.writer("kept") as writer:
            for number in range(100):
                await writer.append(b"%d" % number)
    shown = re.search(r"REST +(http://[0-9.:]+), http://[0-9.:]+\n", local.printed())
    assert shown is not None, local.printed()
    with urllib.request.urlopen(shown[1] + "/v1/streams", timeout=60) as answer:
        assert [each["name"] for each in json.loads(answer.read())["streams"]] == ["kept"]
    pids = local.pids()
    assert sorted(pids) == ["broker1", "broker2", "pd1", "pd2", "pd3", "rs1", "rs2", "rs3"]
    os.kill(local.process.pid, signal.SIGINT)
    assert local.process.wait(30) == 0, local.printed()
    assert local.pids() == {}
    assert "Traceback" not in local.printed()

    again = start_local("--range-servers", "4", "--brokers", "1")
    again.wait_for(UP)
    assert again.connect_string == local.connect_string
    assert sorted(again.pids()) == ["broker1", "pd1", "pd2", "pd3", "rs1", "rs2", "rs3", "rs4"]
    async with await rangelog.connect(again.connect_string) as client:
        values = [record.value async for record in client.reader("kept", start="earliest", follow=False)]
    assert values == [b"%d" % number for number in range(100)]


def test_crashed_member_is_started_again_and_said_so(start_local: StartLocal) -> None:
    """kill -9 of one member shows up as one line, and the member comes back."""
    local = start_local(*FEW)
    local.wait_for(UP)
    pid = local.pids()["rs2"]
    os.kill(pid, signal.SIGKILL)
    local.wait_for("rs2 was ended by SIGKILL; starting it again in 0.5 s")
    eventually(lambda: local.pids().get("rs2", pid) != pid, "rs2 is not back", 30)


def test_locked_directory_is_refused_in_one_line(start_local: StartLocal) -> None:
    """A second cluster in the same directory says who uses it, and leaves it alone."""
    local = start_local(*FEW)
    local.wait_for(UP)
    second = start_local(*FEW)
    assert second.process.wait(30) == 1
    said = second.printed().splitlines()
    assert said[-1].startswith("rangelog: ")
    assert f"in use by another cluster (pid {local.process.pid})" in said[-1]
    assert local.process.running


def test_busy_port_is_refused_in_one_line(start_local: StartLocal) -> None:
    """A port that somebody else listens on is named before anything is started or written."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        local = start_local(port=str(port))
        assert local.process.wait(30) == 1
    assert local.printed() == (
        f"rangelog: port {port} (pd1, API) is in use: stop what listens there, or choose other ports with --port\n"
    )
    assert not (local.data_dir / "cluster.json").exists()


def test_killed_supervisor_leaves_nothing_behind(start_local: StartLocal) -> None:
    """After kill -9 of `rangelog local` all its members are gone, and the directory can be used again."""
    local = start_local("--pds", "1", "--range-servers", "1", "--brokers", "1")
    local.wait_for(UP)
    local.process.kill()
    eventually(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in local.pids().values()), "members are left", 15)
    start_local().wait_for(UP)
