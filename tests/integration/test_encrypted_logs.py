"""Real processes with encrypted logs: kills, a wiped disk, a rotation, a missing key; the disks hold nothing in clear."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

import rangelog
from rangelog_cli.local.health import wait_healthy
from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import ClusterFactory
from tests.integration.helpers.pdctl_command import Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

STREAM = "payroll"
VALUE, KEY, HEADER = b"value-nobody-reads", b"key-nobody-reads", b"header-nobody-reads"
COUNT = 400
SERVERS = ("rs1", "rs2", "rs3")


async def write(cluster: Cluster, first: int) -> None:
    """Append records whose every part can be looked for."""
    async with await rangelog.connect(cluster.connect_string) as client, client.writer(STREAM) as writer:
        for number in range(first, first + COUNT):
            writer.append_nowait(VALUE + b" %d" % number, key=KEY, headers={"h": HEADER})
        await writer.flush()


async def read(cluster: Cluster) -> list[int]:
    """All records' numbers."""
    async with await rangelog.connect(cluster.connect_string) as client:
        return [int(each.value.removeprefix(VALUE)) async for each in client.reader(STREAM)]


def in_clear(cluster: Cluster) -> list[str]:
    """The files of range servers that hold a part of a record, or the begin of a batch."""
    found = []
    for server in SERVERS:
        for path in (cluster.directory / server).rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            if any(each in data for each in (VALUE, KEY, HEADER, b"RLB1")):
                found.append(str(path))
    return found


def keys_needed(pdctl: Pdctl) -> dict[str, set[str]]:
    """The keys by range server."""
    found: dict[str, set[str]] = {}
    for row in json.loads(pdctl("encryption", "log-usage", "-o", "json").stdout):  # the key of one that is silent is ""
        found.setdefault(row["server"], set()).add(row["key_id"])
    return found


@pytest.mark.hasty
def test_encrypted_logs_of_a_cluster(cluster_factory: ClusterFactory) -> None:
    """Appends, kill -9 of all servers, a disk that is lost: everything is read again, and no disk holds any of it in clear."""
    cluster = cluster_factory(encrypted=True)
    pdctl = Pdctl(cluster)
    pdctl("stream", "create", STREAM)
    asyncio.run(write(cluster, 0))
    for server in SERVERS:
        cluster.kill(server)
        cluster.start_member(server)
    wait_healthy(cluster)
    asyncio.run(write(cluster, COUNT))
    assert asyncio.run(read(cluster)) == list(range(2 * COUNT))
    cluster.kill("rs2")
    shutil.rmtree(cluster.directory / "rs2")
    cluster.start_member("rs2")
    wait_healthy(cluster)
    asyncio.run(write(cluster, 2 * COUNT))
    assert asyncio.run(read(cluster)) == list(range(3 * COUNT))
    assert in_clear(cluster) == []
    eventually(lambda: keys_needed(pdctl) == {server: {"local-1"} for server in SERVERS}, "another key is needed", 90)
    directory = cluster.directory / "keys"
    made = pdctl.json("encryption", "rotate", str(directory))["key_id"]
    eventually(lambda: all(made in each for each in keys_needed(pdctl).values()), "no log turned to the new key", 90)
    _without_its_key(cluster, directory)
    assert asyncio.run(read(cluster)) == list(range(3 * COUNT))


def _without_its_key(cluster: Cluster, directory: Path) -> None:
    """A server whose key is gone does not start, and says what to do; with the key it has all that it had."""
    cluster.kill("rs3")
    aside = directory.with_name("aside")
    shutil.copytree(directory, aside)
    for path in directory.glob("*.key"):
        path.unlink()
    before = {path.name: path.read_bytes() for path in (cluster.directory / "rs3" / "wal").iterdir()}
    process = cluster.members["rs3"]
    process.start()
    eventually(
        lambda: "ENCRYPTION_KEY_MISSING" in process.log_path.read_text(), "it did not say that a key is missing", 90
    )
    assert "cannot be read" in process.log_path.read_text()
    assert {path.name: path.read_bytes() for path in (cluster.directory / "rs3" / "wal").iterdir()} == before
    cluster.kill("rs3")
    for path in aside.glob("*.key"):
        shutil.copy(path, directory / path.name)
    cluster.start_member("rs3")
    wait_healthy(cluster)
