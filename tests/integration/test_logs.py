"""`pdctl logs` on a real cluster with TLS and a token: every process answers, the dead are named, secrets are nowhere."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.net.tls import TlsConfig
from tests.integration.conftest import TEST_SETTINGS
from tests.integration.helpers.pdctl_command import COMMAND, Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOKEN = "t0ken-of-this-test-9d1c"
ENV = {f"RANGELOG_{role}_TOKEN": TOKEN for role in ("PD", "SERVER", "BROKER")}
ENV |= TEST_SETTINGS | {"RANGELOG_PD_LOG_FORMAT": "logfmt"}
NAMES = {"pd1", "rs1", "rs2", "rs3", "broker1"}


def pdctl(cluster: Cluster, tls: TlsConfig) -> Pdctl:
    """pdctl with a token and a certificate."""
    command = Pdctl(cluster)
    command.environment |= {f"RANGELOG_TLS_{key.upper()}": path for key, path in asdict(tls).items()}
    command.environment["RANGELOG_TOKEN"] = TOKEN
    return command


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A placement driver, three range servers and a broker."""
    with Cluster.open(tmp_path / "cluster", pds=1, range_servers=3, brokers=1, tls=True, env=ENV) as made:
        assert made.tls is not None
        ask = pdctl(made, made.tls)
        eventually(lambda: ask("cluster", "status").returncode == 0, "a healthy cluster")
        yield made


def _entries(text: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in text.splitlines()]


async def test_logs_of_a_cluster(cluster: Cluster) -> None:
    """All processes, in order of time; by name, level and text; refused without rights; no secret in it, nor on stderr."""
    assert cluster.tls is not None and cluster.client_tls is not None
    ask = pdctl(cluster, cluster.tls)
    async with await rangelog.connect(cluster.connect_string, token=TOKEN, tls=cluster.client_tls) as client:
        await client.create_stream("kept")
        async with client.writer("kept") as writer:
            await writer.append(b"value")
    everything = ask.ok("logs", "--tail", "2000", "--level", "debug", "-o", "json")
    entries = _entries(everything)
    assert {each["process"] for each in entries} == NAMES
    times = [datetime.fromisoformat(each["timestamp"]) for each in entries]
    stalled = timedelta(seconds=1)  # between a line's time and its place among those of other processes
    assert all(later > earlier - stalled for earlier, later in itertools.pairwise(times)), times
    printed = "".join(path.read_text() for path in (cluster.directory / "logs").iterdir())
    keys = [line for key in (cluster.directory / "certs").glob("*.key") for line in key.read_text().splitlines()[1:-1]]
    assert len(keys) > 10
    for secret in (TOKEN, cluster.plan.raft_secret, *keys):
        assert secret not in everything and secret not in printed

    only = _entries(ask.ok("logs", "rs1", "broker1", "--grep", "TLS ON ALL", "-o", "json"))
    assert {each["process"] for each in only} == {"rs1", "broker1"}
    assert all("TLS on all" in each["event"] for each in only)
    assert ask.ok("logs", "--level", "critical") == ""
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    late = _entries(ask.ok("logs", "--since", "1ms", "-o", "json"))  # what is logged meanwhile, and nothing else
    assert all(datetime.fromisoformat(each["timestamp"]) >= before for each in late), late
    assert "rs1 " in ask.ok("logs", "rs1", "--since", "10m")
    assert "no process is called 'rs9': there are pd1, rs1" in ask.fails(3, "logs", "rs9")
    assert "is not a duration" in ask.fails(2, "logs", "--since", "soon")

    refused = pdctl(cluster, cluster.client_tls)("logs")
    assert (refused.returncode, refused.stdout) == (4, b"")
    assert b"client:local may not use Logs.ReadLog: take a certificate of role admin" in refused.stderr
    ask.environment["RANGELOG_TOKEN"] = "wrong"
    assert "a valid token is needed" in ask.fails(1, "logs")


@pytest.mark.long
def test_the_dead_are_named(cluster: Cluster) -> None:
    """Those that live are shown; following goes on over the death of a process and its restart."""
    assert cluster.tls is not None
    ask = pdctl(cluster, cluster.tls)
    output = cluster.directory / "followed.txt"
    with output.open("wb") as file:
        command = [*COMMAND, "logs", "--follow", "--grep", "serving"]
        following = subprocess.Popen(command, stdout=file, stderr=file, env=ask.environment | {"PYTHONUNBUFFERED": "1"})
        try:
            eventually(lambda: output.read_text().count(" rs2 serving") >= 1, "the first entries", 30)
            before = output.read_text().count(" rs2 serving ")
            cluster.kill("rs2")
            eventually(lambda: "range server rs2 does not answer" in output.read_text(), "word of its death", 30)
            one = ask("logs", "-o", "json")
            assert one.returncode == 1 and b"range server rs2 does not answer" in one.stderr
            assert {each["process"] for each in _entries(one.stdout.decode())} == NAMES - {"rs2"}
            assert "range server rs2 does not answer" in ask.fails(4, "logs", "rs2")
            cluster.start_member("rs2")
            eventually(lambda: output.read_text().count(" rs2 serving ") > before, "its new entries", 30)
            assert following.poll() is None
        finally:
            following.terminate()
            following.wait(10)
    cluster.kill("pd1")
    said = ask("logs")
    assert said.returncode == 4 and b"only the placement drivers that were given are asked" in said.stderr
