"""A member that begins by a fork is, for its supervisor and its users, what a process from scratch is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rangelog_cli.local.process import Process
from rangelog_cli.local.processes import Cluster
from tests.support.forked import ForkedMember
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_a_forked_member_is_a_process_of_its_own(cluster_factory: Callable[..., Cluster]) -> None:
    """Its session, its log and its exit codes are its own; it starts again with its directory."""
    cluster = cluster_factory(pds=1, range_servers=1, brokers=1)
    for member in cluster.members.values():
        assert isinstance(member._popen, ForkedMember)
        assert os.getsid(member.pid) == os.getpgid(member.pid) == member.pid
        assert "serving" in member.log_path.read_text()
    server = cluster.range_servers["rs1"]
    before = server.pid
    cluster.restart("rs1")
    assert server.running and server.pid != before
    cluster.kill("rs1")
    assert not server.running and server.returncode == -9
    server.start()
    server.wait_ready()
    server.request_stop()
    assert server.wait(30) == 0


def test_its_environment_and_its_mistakes(tmp_path: Path) -> None:
    """A bad setting ends it as it ends a process from scratch, which a variable of Python asks for."""
    arguments = ["-m", "rangelog_cli", "range-server", "--name", "rs1", "--data-dir", str(tmp_path / "rs1")]
    ended = []
    for name, extra, kind in (("forked", {}, ForkedMember), ("scratch", {"PYTHONHASHSEED": "1"}, subprocess.Popen)):
        env = {"RANGELOG_SERVER_SEGMENT_SIZE_BYTES": "few"} | extra
        process = Process(name, arguments, log_path=tmp_path / f"{name}.log", env=env)
        process.start()
        assert isinstance(process._popen, kind)
        ended.append((process.wait(60), process.last_words()))
    assert ended[0] == ended[1] and ended[0][0] == 1 and "segment_size_bytes" in ended[0][1], ended


def test_it_ends_with_what_started_it(cluster_factory: Callable[..., Cluster]) -> None:
    """Its lifeline is the supervisor's: closed, the member is gone."""
    cluster = cluster_factory(pds=1, range_servers=1)
    program = (
        "import sys; from pathlib import Path; from rangelog_cli.local import process; from tests.support import forked\n"
        "if __name__ == '__main__':\n"
        "    process.spawn = forked.spawn\n"
        "    member = process.Process('rs2', sys.argv[2:], log_path=Path(sys.argv[1]) / 'log',"
        " ready_file=Path(sys.argv[1]) / 'rs2' / 'endpoint.json')\n"
        "    member.start(); member.wait_ready(); print(member.pid, flush=True); sys.stdin.read()\n"
    )
    home = cluster.directory / "apart"
    home.mkdir()
    script = home / "program.py"
    script.write_text(program)
    arguments = ["-m", "rangelog_cli", "range-server", "--name", "rs2", "--data-dir", str(home / "rs2")]
    arguments += ["--pd", cluster.pd_addresses[0]]
    with subprocess.Popen(
        [sys.executable, str(script), str(home), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as supervisor:  # fmt: skip
        assert supervisor.stdout is not None
        pid = int(supervisor.stdout.readline())
        supervisor.kill()
    eventually(lambda: not Path(f"/proc/{pid}").exists(), "the member outlives its supervisor")
