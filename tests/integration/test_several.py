"""`--processes 2`: two range servers and two brokers of one host each, beside another host; kills, and a clean end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import rangelog
from rangelog_cli.local.health import describe
from rangelog_cli.local.processes import Cluster, Process
from rangelog_proto.v1 import broker_pb2, common_pb2
from tests.integration.conftest import TEST_SETTINGS
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

Start = Callable[..., Process]


@pytest.fixture
def pds(tmp_path: Path) -> Iterator[Cluster]:
    """One placement driver that runs alone."""
    cluster = Cluster.open(tmp_path / "cluster", pds=1, range_servers=2)
    try:
        cluster.start_member("pd1")
        yield cluster
    finally:
        cluster.kill_all()
        cluster.stop()


@pytest.fixture
def start(tmp_path: Path, pds: Cluster) -> Iterator[Start]:
    """Starts `rangelog COMMAND --name NAME …` on free ports; its log is NAME.log."""
    with ExitStack() as stack:

        def begin(command: str, name: str, *arguments: str) -> Process:
            ports = ["data", "control"] if command == "range-server" else ["", "control", "rest"]
            listen = [part for each in ports for part in (f"--{each}-listen".replace("---", "--"), "127.0.0.1:0")]
            given = ["-m", "rangelog_cli", command, "--name", name, "--pd", pds.connect_string, *listen, *arguments]
            process = Process(name, given, log_path=tmp_path / f"{name}.log", env=TEST_SETTINGS)
            stack.callback(process.kill)
            process.start()
            return process

        yield begin


def alive(pds: Cluster) -> dict[str, str]:
    """The range servers that are alive, and their hosts."""
    servers = describe(pds.pd_addresses).servers
    return {each.name: each.host for each in servers if each.health == common_pb2.SERVER_HEALTH_ALIVE}


async def test_processes_of_one_host_are_one_place_for_copies(pds: Cluster, start: Start, tmp_path: Path) -> None:
    """Ranges have a copy on each host, not two on one; a killed process comes back; SIGTERM ends all."""
    pair = start("range-server", "rs1", "--data-dir", str(tmp_path / "rs1"), "--host", "h1", "--processes", "2")
    eventually(lambda: set(alive(pds)) == {"rs1-1", "rs1-2"}, "the pair is not registered", 60)
    other = start("range-server", "rs2", "--data-dir", str(tmp_path / "rs2"), "--host", "h2")
    eventually(lambda: alive(pds) == {"rs1-1": "h1", "rs1-2": "h1", "rs2": "h2"}, "the hosts are not known", 60)
    brokers = start("broker", "b", "--host", "h1", "--processes", "2")
    async with await rangelog.connect(pds.connect_string) as client:

        async def hosts() -> dict[str, str]:
            request = broker_pb2.ListBrokersRequest()
            listed = await client.metadata.pd.call(request, broker_pb2.ListBrokersResponse, timeout_s=10)
            return {each.name: each.host for each in listed.brokers if not each.lost}

        async def known() -> bool:
            return await hosts() == {"b-1": "h1", "b-2": "h1"}

        await until(known, "the brokers are not registered")
        for number in range(4):
            await client.create_stream(f"s{number}")
            async with client.writer(f"s{number}") as writer:
                await writer.append(b"x")
            _, (made,) = await client.metadata.ranges(f"s{number}", 0)
            assert sorted(each.server.partition("-")[0] for each in made.replicas) == ["rs1", "rs2"]

    endpoint = tmp_path / "rs1" / "1" / "endpoint.json"
    before = endpoint.read_text()
    pid = int(before.split('"pid": ')[1].split(",")[0])
    os.kill(pid, signal.SIGKILL)
    said = "rs1-1 was ended by SIGKILL; starting it again in 0.5 s"
    eventually(lambda: said in (tmp_path / "rs1.log").read_text(), "nothing was said", 30)
    eventually(lambda: endpoint.exists() and endpoint.read_text() != before, "rs1-1 is not back", 60)
    for process in (brokers, pair, other):
        process.request_stop()
        assert process.wait(60) == 0, process.last_words()
    assert not endpoint.exists()


def test_a_process_that_cannot_serve_ends_all(start: Start, tmp_path: Path) -> None:
    """At the first start, with one line and exit code 1: here one directory is damaged."""
    (tmp_path / "rs1" / "2").mkdir(parents=True)
    (tmp_path / "rs1" / "2" / "identity.json").write_text("damaged")
    process = start("range-server", "rs1", "--data-dir", str(tmp_path / "rs1"), "--processes", "2")
    assert process.wait(60) == 1
    assert "rs1-2 ended with exit code 1" in process.last_words()
    assert not (tmp_path / "rs1" / "1" / "endpoint.json").exists()
