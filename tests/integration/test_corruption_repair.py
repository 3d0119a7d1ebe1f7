"""Rot on the disks of a real cluster: found, never served, and made good from another replica or from the object."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import Corruption, RangelogError
from rangelog_core.stream_config import StreamConfig
from rangelog_proto.v1 import pd_pb2, range_server_pb2
from rangelog_proto.v1.range_server_pb2_grpc import RangeServerStub
from tests.support.figures import publish
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

ClusterFactory = Callable[..., Cluster]
RECORDS = 400
SERVERS = ("rs1", "rs2", "rs3")
FAST_SCRUB = {"RANGELOG_SERVER_SCRUB_INTERVAL_S": "0.5"}


def value(number: int) -> bytes:
    """A record that is found in a file."""
    return b"record number %06d; " % number * 5


class Watched:
    """A cluster, its disks, and what its servers say of their replicas."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def home(self, server: str) -> Path:
        """Its data directory."""
        return self.cluster.directory / server

    def flip(self, server: str, numbers: range) -> int:
        """Flip a bit of each copy of these records in the server's log; return how many."""
        flipped = 0
        for path in sorted((self.home(server) / "wal").glob("wal-*.seg")):
            content = path.read_bytes()
            for number in numbers:
                place = content.find(value(number))
                while place >= 0:
                    with path.open("r+b") as file:
                        file.seek(place + 7)
                        file.write(bytes([content[place + 7] ^ 0x20]))
                    flipped += 1
                    place = content.find(value(number), place + 1)
        return flipped

    async def replica(self, server: str) -> pd_pb2.ReplicaReport | None:
        """What a server says of the stream's first range; None: nothing, or it does not answer."""
        try:
            address = json.loads((self.home(server) / "endpoint.json").read_text())["control_address"]
            async with grpc.aio.insecure_channel(address) as channel:
                reply = await RangeServerStub(channel).ListReplicas(  # type: ignore[no-untyped-call]
                    range_server_pb2.ListReplicasRequest(), timeout=2
                )
        except (OSError, ValueError, grpc.RpcError):
            return None
        return next((each for each in reply.replicas if each.range_index == 0), None)

    async def whole(self, server: str) -> bool:
        """Whether it holds the sealed range."""
        found = await self.replica(server)
        return found is not None and found.state == pd_pb2.REPLICA_STATE_SEALED and found.durable_offset == RECORDS

    async def until_whole(self) -> None:
        """Until all three do."""
        for server in SERVERS:
            await until(lambda server=server: self.whole(server), f"{server} does not hold the range")

    def said(self, server: str, words: str) -> bool:
        """Whether a server's log has these words."""
        return words in self.cluster.members[server].log_path.read_text()


async def written(client: rangelog.Client, *, tiered: bool) -> None:
    """A stream with one sealed range."""
    await client.create_stream("s", StreamConfig(tiered=tiered, hot_retention_seconds=float("inf")))
    async with client.writer("s") as writer:
        for start in range(0, RECORDS, 20):
            await writer.append_batch([value(number) for number in range(start, start + 20)])
    assert await client.seal_stream("s") == RECORDS


class Reading:
    """A reader that goes on all the time and counts what it sees."""

    def __init__(self, client: rangelog.Client) -> None:
        self._client = client
        self.records = 0
        self.wrong = 0
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            async for number, found in _numbered(self._client):
                self.records += 1
                self.wrong += found != value(number)

    async def stop(self) -> None:
        """Raises what ended it before."""
        if self._task.done():
            self._task.result()
        self._task.cancel()
        await asyncio.wait([self._task])


async def _numbered(client: rangelog.Client, preference: str = "hot_first") -> AsyncIterator[tuple[int, bytes]]:
    async for record in client.reader("s", read_preference=preference, timeout_s=3):
        assert record.value is not None
        yield record.offset, record.value


async def tiered_object(watched: Watched, client: rangelog.Client) -> Path:
    """The file of the object that covers the sealed range, once it is committed."""
    request = pd_pb2.ListRangesRequest(name="s")

    async def committed() -> bool:
        return (await client._pd.call(request, pd_pb2.ListRangesResponse, timeout_s=5)).ranges[
            0
        ].tiered_end_offset >= RECORDS

    await until(committed, "the object is not committed")
    (found,) = watched.cluster.directory.glob("**/*.parquet")
    return found


@pytest.mark.hasty
async def test_rot_is_found_and_repaired(cluster_factory: ClusterFactory) -> None:
    """Bits flipped on a stopped server's disk, and on a running one's that nobody reads: copied anew, never served."""
    watched = Watched(cluster_factory(pds=1, range_servers=3, env=FAST_SCRUB))
    async with await rangelog.connect(watched.cluster.connect_string) as client:
        await written(client, tiered=False)
        await watched.until_whole()
        reading = Reading(client)
        await asyncio.to_thread(watched.cluster.kill, "rs2")
        flips = watched.flip("rs2", range(0, RECORDS, 37))
        await asyncio.to_thread(watched.cluster.start_member, "rs2")
        await until(lambda: watched.said("rs2", "damage found") and watched.said("rs2", "copied"))
        await watched.until_whole()
        more = watched.flip("rs3", range(5, RECORDS, 91))
        await until(lambda: watched.said("rs3", "damage found") and watched.said("rs3", "copied"))
        await watched.until_whole()
        await reading.stop()
        assert reading.records
        assert not reading.wrong
        for other in ("rs1", "rs3"):  # what was copied is read alone
            await asyncio.to_thread(watched.cluster.kill, other)
        found = [each async for _, each in _numbered(client, "hot_only")]
        assert found == [value(number) for number in range(RECORDS)]
        counted = {"flips": flips + more, "repaired": 2, "records_read": reading.records, "served_wrong": reading.wrong}
        publish("corruption_repair", counted)


@pytest.mark.hasty
async def test_a_damaged_object_is_served_from_replicas_or_not_at_all(cluster_factory: ClusterFactory) -> None:
    """Readers of a damaged object get the replicas' records; without replicas an error that names the object."""
    nothing_cached = {"RANGELOG_SERVER_CACHE_BYTES": "0"}
    watched = Watched(cluster_factory(pds=1, range_servers=3, env=FAST_SCRUB | nothing_cached))
    async with await rangelog.connect(watched.cluster.connect_string) as client:
        await written(client, tiered=True)
        tier = await tiered_object(watched, client)
        content = tier.read_bytes()
        tier.chmod(0o600)
        tier.write_bytes(content[:300] + bytes([content[300] ^ 1]) + content[301:])
        found = [each async for _, each in _numbered(client, "cold_first")]
        assert found == [value(number) for number in range(RECORDS)]
        with pytest.raises(Corruption, match=tier.name):
            [each async for _, each in _numbered(client, "cold_only")]
        for server in SERVERS:  # every replica rots at once, so that nothing is left to repair it from
            watched.cluster.pause(server)
        for server in SERVERS:
            watched.flip(server, range(3, RECORDS, 50))
        for server in SERVERS:
            watched.cluster.resume(server)
        await until(lambda: any(watched.said(server, "damage found") for server in SERVERS))
        with pytest.raises(RangelogError):
            [each async for _, each in _numbered(client, "hot_only")]
        tier.write_bytes(content)  # the object is whole again: the records come from there
        assert [each async for _, each in _numbered(client)] == [value(number) for number in range(RECORDS)]
