"""Real placement drivers, and range servers that are played, for tests of the group."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc

from rangelog_cli.local.processes import Cluster
from rangelog_core.errors import RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverStub
from tests.support.waiting import Seen, until

SETTINGS = {"RANGELOG_PD_SNAPSHOT_ENTRIES": "100"}
"""Snapshots are taken all the time, so that restarts and rejoins go through them."""

CALL_S = 15.0


class Group:
    """Placement drivers without range servers; those are played by `FakeServers`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = list(cluster.placement_drivers)

    def start(self) -> None:
        for name in self.names:
            self.cluster.start_member(name, wait=False)
        for process in self.cluster.placement_drivers.values():
            process.wait_ready()

    def address(self, name: str) -> str:
        return self.cluster.pd_addresses[self.names.index(name)]

    async def leader(self, *but: str) -> str:
        """The name of who leads by the word of a living member; waits for an election."""

        async def leading() -> str:
            for name in self.names:
                if name in but or not self.cluster.members[name].running:
                    continue
                with contextlib.suppress(grpc.RpcError):
                    async with channel(self.address(name)) as stub:
                        told = await stub.DescribeCluster(pb.DescribeClusterRequest(), timeout=2)
                        found = [each.name for each in told.members if each.leader]
                        if found and found[0] not in but and told.has_majority:
                            return str(found[0])
            return ""

        return str(await until(leading, "nobody leads"))


async def described(cluster: Any) -> pb.DescribeClusterResponse:
    """As the leader describes the cluster; waits for one."""

    async def by_leader() -> pb.DescribeClusterResponse | None:
        for address in cluster.pd_addresses:
            with contextlib.suppress(Exception):
                async with channel(address) as stub:
                    found = await stub.DescribeCluster(pb.DescribeClusterRequest(), timeout=2)
                    if found.has_majority and any(each.leader for each in found.members):
                        return found
        return None

    found: pb.DescribeClusterResponse = await until(by_leader, "nobody leads")
    return found


async def wait_for_version(cluster: Any, version: int) -> pb.DescribeClusterResponse:
    """Until the cluster is at a version."""

    async def is_there() -> Seen:
        found = await described(cluster)
        return Seen(found.cluster_version == version, found)

    found: pb.DescribeClusterResponse = (await until(is_there, f"the cluster is not at version {version}")).value
    return found


@contextlib.asynccontextmanager
async def channel(address: str) -> AsyncIterator[Any]:
    """A stub for one member, without finding or following the leader."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as opened:
        yield PlacementDriverStub(opened)  # type: ignore[no-untyped-call]


class FakeServers:
    """Range servers that register and heartbeat for real, and hold what they are told to hold."""

    def __init__(self, pd: PdClient, *names: str) -> None:
        self.pd = pd
        self.incarnations = {name: 1_000 + number for number, name in enumerate(names)}
        self.replicas: dict[str, dict[tuple[int, int], pb.ReplicaReport]] = {name: {} for name in names}
        self.directives: dict[str, list[pb.Directive]] = {name: [] for name in names}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for name in self.incarnations:
            await self.register(name)
        self._tasks = [asyncio.create_task(self._beat(name)) for name in self.incarnations]

    async def register(self, name: str) -> None:
        request = pb.RegisterServerRequest(
            request_id=uuid.uuid4().hex,
            server=name,
            incarnation=self.incarnations[name],
            boot=1,
            data_address="127.0.0.1:1",
            zone=name,
        )
        await self.pd.call(request, pb.RegisterServerResponse, timeout_s=CALL_S)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self, name: str) -> None:
        sequence = 1 << 32
        while True:
            sequence += 1
            request = pb.HeartbeatRequest(
                server=name,
                incarnation=self.incarnations[name],
                sequence=sequence,
                replicas=self.replicas[name].values(),
                complete=True,
                wall_ms=time.time_ns() // 1_000_000,
            )
            with contextlib.suppress(RangelogError):
                answer = await self.pd.call(request, pb.HeartbeatResponse, timeout_s=2)
                self.directives[name] = list(answer.directives)
            await asyncio.sleep(0.1)

    def wanted(self, kind: str) -> dict[str, pb.Directive]:
        """Who is told to do this now."""
        return {
            name: each
            for name, directives in self.directives.items()
            for each in directives
            if each.WhichOneof("action") == kind
        }

    def hold(self, name: str, stream_id: int, index: int, state: pb.ReplicaState, end: int) -> None:
        self.replicas[name][stream_id, index] = pb.ReplicaReport(
            stream_id=stream_id, range_index=index, state=state, durable_offset=end, size_bytes=100
        )


async def new_stream(pd: PdClient, name: str = "s") -> tuple[int, int]:
    """A stream with a writer; returns its id and epoch."""
    request = pb.CreateStreamRequest(request_id=uuid.uuid4().hex, name=name)
    await pd.call(request, pb.CreateStreamResponse, timeout_s=CALL_S)
    opened = await pd.call(
        pb.OpenWriterRequest(request_id=uuid.uuid4().hex, name=name), pb.OpenWriterResponse, timeout_s=CALL_S
    )
    return opened.stream.stream_id, opened.stream.epoch


@contextlib.contextmanager
def running_group(directory: Path) -> Iterator[Group]:
    """Three placement drivers, listening; gone at the end, whatever the test did to them."""
    cluster = Cluster.open(directory, env=SETTINGS)
    made = Group(cluster)
    try:
        made.start()
        yield made
    finally:
        cluster.kill_all()
        cluster.stop()
