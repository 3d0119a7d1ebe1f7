"""Scale in without loss: of four range servers one is drained under load and removed; every acked record is still read."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess

import pytest

import rangelog
from rangelog import StreamConfig
from rangelog_cli.local.processes import Cluster
from tests.integration.conftest import ClusterFactory
from tests.integration.helpers.pdctl_command import COMMAND, Pdctl
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

STREAMS = ("one", "two", "three")
VALUE = b"x" * 2_000


async def load(client: rangelog.Client, stream: str, stop: asyncio.Event) -> int:
    """Append numbered records, a few at a time, until told to stop; return how many were acked."""
    count = 0
    async with client.writer(stream) as writer:
        while not stop.is_set():
            await asyncio.gather(*(writer.append(b"%d " % (count + n) + VALUE, timeout_s=60) for n in range(20)))
            count += 20
            await asyncio.sleep(0.01)
    return count


async def run_drain(pdctl: Pdctl, name: str) -> tuple[int, str, str]:
    """`pdctl server drain NAME --wait` in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "server", "drain", name, "--wait", "--timeout", "3m", env=pdctl.environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    said, complained = await process.communicate()
    return process.returncode or 0, said.decode(), complained.decode()


@pytest.mark.hasty
async def test_a_server_is_drained_under_load_and_removed(cluster_factory: ClusterFactory) -> None:
    """Every acked record is read afterwards, once and in order, from the three servers that stay."""
    cluster = await asyncio.to_thread(lambda: cluster_factory(pds=1, range_servers=4, tier_url=""))
    pdctl = Pdctl(cluster)
    async with await rangelog.connect(cluster.connect_string) as client:
        for name in STREAMS:
            await client.create_stream(name, StreamConfig(range_size_bytes_max=256 * 1024, replicas=3, acks=2))
        stop = asyncio.Event()
        writing = [asyncio.create_task(load(client, name, stop)) for name in STREAMS]
        await asyncio.to_thread(eventually, lambda: replicas(pdctl, "rs4") >= 8, "rs4 has not got 8 replicas")

        code, said, complained = await run_drain(pdctl, "rs4")
        assert code == 0, (said, complained)
        assert "rs4 is drained" in said and "ranges left" in complained
        assert await asyncio.to_thread(replicas, pdctl, "rs4") == 0
        await asyncio.to_thread(pdctl.ok, "server", "remove", "rs4", "--yes")
        await remove_for_good(cluster, pdctl)

        stop.set()
        counts = await asyncio.gather(*writing)
        for name, count in zip(STREAMS, counts, strict=True):
            found = [record.value async for record in client.reader(name)]
            assert found == [b"%d " % n + VALUE for n in range(count)]
            for each in await asyncio.to_thread(pdctl.json, "range", "list", name):
                servers = [replica["server"] for replica in each["replicas"]]
                assert "rs4" not in servers and len(servers) == 3


async def test_open_ranges_without_a_record_leave_a_drained_server(cluster_factory: ClusterFactory) -> None:
    """Idle writers that have not appended go on elsewhere, and a range whose writer died is sealed by a member."""
    cluster = await asyncio.to_thread(
        lambda: cluster_factory(pds=1, range_servers=4, tier_url="", env={"RANGELOG_PD_ORPHAN_QUIET_MS": "2000"})
    )
    pdctl = Pdctl(cluster)
    async with await rangelog.connect(cluster.connect_string) as client, contextlib.AsyncExitStack() as stack:
        writers = {}
        for name in ("a", "b", "c", "d"):
            await client.create_stream(name, StreamConfig(replicas=3, acks=2))
            writers[name] = await stack.enter_async_context(client.writer(name))
        async with await rangelog.connect(cluster.connect_string) as other:
            for name in ("e", "f", "g", "h"):
                await client.create_stream(name, StreamConfig(replicas=3, acks=2))
                await other.writer(name).open()  # its process ends: nobody closes the range
        assert await asyncio.to_thread(replicas, pdctl, "rs4") > 0

        code, said, complained = await run_drain(pdctl, "rs4")
        assert code == 0, (said, complained)
        for name, writer in writers.items():
            ack = await writer.append(b"after " + name.encode())
            assert ack.offset == 0
        assert await asyncio.to_thread(replicas, pdctl, "rs4") == 0
        tasks = await asyncio.to_thread(pdctl.json, "task", "list")
        assert not [each for each in tasks if each["kind"] == "recover-range" and each["last_error"]]


async def remove_for_good(cluster: Cluster, pdctl: Pdctl) -> None:
    """The server's process may live on for a while, but it is not a member again; then it is killed."""
    for _ in range(5):
        await asyncio.sleep(0.3)
        assert [each["name"] for each in await asyncio.to_thread(pdctl.json, "server", "list")] == ["rs1", "rs2", "rs3"]
    await asyncio.to_thread(cluster.kill, "rs4")


def replicas(pdctl: Pdctl, name: str) -> int:
    """How many ranges a server is a member of."""
    listed = json.loads(pdctl.ok("server", "list", "-o", "json"))
    return next(int(each["replica_count"]) for each in listed if each["name"] == name)
