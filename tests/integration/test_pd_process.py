"""A placement driver as a process: refused starts, signals, damage found at start-up; each said in one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rangelog_cli.local.processes import Process
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2 as pb
from tests.integration.helpers.pd_group import CALL_S, Group, new_stream, running_group
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.alone, pytest.mark.timeout(120)]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Three placement drivers, listening."""
    with running_group(tmp_path / "group") as made:
        yield made


def last_words(process: Process) -> str:
    """Its exit code must be 1 and its last line say why."""
    assert process.wait(30) == 1
    words = process.last_words()
    assert "Traceback" not in process.log_path.read_text()[-4_000:]
    return words


def test_a_locked_directory_and_a_busy_port_are_refused_in_one_line(group: Group, tmp_path: Path) -> None:
    """A second process on the same directory, or on the same port, ends with exit code 1 and one line."""
    plan = group.cluster.plan
    arguments = ["-m", "rangelog_cli", "pd", "--name", "pd1"]
    for member in plan.pds:
        arguments += ["--member", f"{member.name}={member.raft_address}@{member.api_address}"]
    env = {"RANGELOG_PD_RAFT_SECRET": plan.raft_secret}
    home = group.cluster.directory / "pd1"
    for data_dir, listen, expected in (
        (home, "127.0.0.1:0", "another process uses"),
        (tmp_path / "other", plan.pds[0].api_address, "listen"),
    ):
        options = ["--data-dir", str(data_dir), "--listen", listen]
        process = Process("second", [*arguments, *options], log_path=tmp_path / "second.log", env=env)
        process.start()
        assert expected in last_words(process)
    assert json.loads((home / "endpoint.json").read_text())["pid"] == group.cluster.members["pd1"].pid


def test_sigterm_is_a_clean_end(group: Group) -> None:
    """Exit code 0, no endpoint file left, and it comes back with its data."""
    process = group.cluster.members["pd2"]
    process.request_stop()
    assert process.wait(20) == 0
    assert not (group.cluster.directory / "pd2" / "endpoint.json").exists()
    group.cluster.start_member("pd2")


def test_a_damaged_snapshot_stops_the_member_with_one_line(group: Group) -> None:
    """A member whose snapshot does not check out refuses to start, and says which file; the others go on."""
    home = group.cluster.directory / "pd3"

    async def fill() -> None:
        """More commands than a snapshot waits for: reads add none to the log."""
        client = PdClient(group.cluster.pd_addresses)
        try:
            await new_stream(client)
            for number in range(160):
                request = pb.OpenWriterRequest(request_id=f"open-{number}", name="s")
                await client.call(request, pb.OpenWriterResponse, timeout_s=CALL_S)
        finally:
            await client.close()

    asyncio.run(fill())
    snapshot = home / "raft" / "snapshot"
    eventually(snapshot.exists, "no snapshot was taken", CALL_S)
    group.cluster.kill("pd3")
    data = bytearray(snapshot.read_bytes())
    data[len(data) // 2] ^= 0x40
    snapshot.write_bytes(bytes(data))
    process = group.cluster.members["pd3"]
    process.start()
    assert "snapshot" in last_words(process)
