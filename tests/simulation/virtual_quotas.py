"""The role of an administrator of quotas: the main stream's prefix, and every client, get one, lose it, and get another one.

Nothing is judged here: whoever is held off must lose, move or repeat nothing, which everybody else judges. `keeps_to_quota` is
a story without faults, in which a writer that is over its quota all the time must keep to it, in one range.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

import rangelog
from rangelog.protocol.appender import Appender
from rangelog_core.errors import Overloaded, RangelogError
from rangelog_core.ids import ReplicaId
from rangelog_core.net.pd_client import PdClient
from rangelog_core.quotas import BYTES_PER_S_MIN
from rangelog_core.stream_config import StreamConfig
from rangelog_pd.state.versions import LEVEL_QUOTAS
from rangelog_proto.v1 import quotas_pb2 as pb
from tests.simulation.virtual_clients import STREAM, Clients
from tests.simulation.virtual_cluster import VirtualCluster, virtual_cluster

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY = 4
"""In so many seeds there are quotas. Not drawn: that would change all other seeds."""
RARE = ("a quota held a writer off", "a quota held a writer off in the middle of a range")
CALL_S = 4.0
RATE = BYTES_PER_S_MIN
VALUE_BYTES = 4_000
SETTLED_S, MEASURED_S = 3.0, 20.0
_PREFIXES = (STREAM, "")


def start(clients: Clients) -> None:
    """Start the role."""
    clients.start("quotas", _change(clients))


def watch(wrap: Any, cluster: VirtualCluster) -> None:
    """Note that writers are held off."""

    def throttled(self: Appender, inner: Callable[..., None], *args: Any) -> None:
        inner(self, *args)
        cluster.note(RARE[0])
        if self.confirm_offset > self.opened.start_offset:
            cluster.note(RARE[1])

    wrap(Appender, "throttled", throttled)


async def set_quota(pd: PdClient, prefix: str, request_id: str, **rates: int) -> bool:
    """Set one, or remove it where there is no rate; return whether that is certain. An empty prefix: every client's."""
    who = {"prefix": prefix} if prefix else {"principal": "*"}
    with contextlib.suppress(RangelogError):
        if rates:
            request: Any = pb.SetQuotaRequest(request_id=request_id, **who, **rates)  # type: ignore[arg-type]
            await pd.call(request, pb.SetQuotaResponse, timeout_s=CALL_S)
        else:
            request = pb.RemoveQuotaRequest(request_id=request_id, **who)
            await pd.call(request, pb.RemoveQuotaResponse, timeout_s=CALL_S)
        return True
    return False


async def _change(clients: Clients) -> None:
    chance = Random(f"quotas of seed {clients.cluster.seed}")  # its own: seeds stay what they were
    pd = PdClient(clients.cluster.pd_addresses)
    try:
        while not clients.stopping and clients.cluster.state.cluster_version < LEVEL_QUOTAS:
            await asyncio.sleep(0.3)
        while not clients.stopping:
            prefix = chance.choice(_PREFIXES)
            rates = {
                "append_bytes_per_s": BYTES_PER_S_MIN * chance.choice([1, 1, 4]),
                "read_bytes_per_s": BYTES_PER_S_MIN * chance.choice([1, 4, 64]),
            }
            await set_quota(pd, prefix, f"{chance.random()}", **rates)
            await asyncio.sleep(chance.uniform(0.5, 6.0))
            if chance.random() < 0.5:
                await set_quota(pd, prefix, f"{chance.random()}")
                await asyncio.sleep(chance.uniform(0.1, 2.0))
        for prefix in _PREFIXES:  # the calm is for healing
            while (("", prefix) if prefix else ("*", "")) in clients.cluster.state.quotas.quotas:
                await set_quota(pd, prefix, f"{chance.random()}")
                await asyncio.sleep(0.3)
    finally:
        await pd.close()


@dataclass
class Kept:
    """What came of a story: the part of the quota that was reached, and the ranges of the stream."""

    part: float
    ranges: int
    appended: int
    read: int
    held_s: float
    refused: int
    """Appends that a server had no room for, since its next segment was not ready: a range is left for these."""


def keeps_to_quota(seed: int) -> Kept:
    """A writer that always has more to append than its quota lets, on servers of which each flushes at its own speed."""
    with virtual_cluster(seed) as cluster:
        for number, server in enumerate(cluster.servers.values()):
            server.flush_s = (0.0003, 0.001, 0.005)[(seed + number) % 3]
        refused: list[ReplicaId] = []
        original = Appender.refused

        def note(self: Appender, now_ms: float, index: int, replica: ReplicaId, error: RangelogError) -> None:
            assert isinstance(error, Overloaded), error
            refused.append(replica)
            original(self, now_ms, index, replica, error)

        with mock.patch.object(Appender, "refused", note):
            kept = cluster.loop.run_until_complete(_keep(cluster))
        kept.refused = len(refused)
        assert not cluster.loop.problems, cluster.loop.problems[0]
        return kept


async def _keep(cluster: VirtualCluster) -> Kept:
    cluster.start()
    clients = Clients(cluster)
    found: list[Kept] = []

    async def work() -> None:
        client = await clients.client()
        pd = PdClient(cluster.pd_addresses)
        config = StreamConfig(hot_retention_seconds=float("inf"), tiered=False)
        stream_id = (await client.create_stream(STREAM, config)).stream_id
        while cluster.state.cluster_version < LEVEL_QUOTAS:
            await asyncio.sleep(0.3)
        while not await set_quota(pd, STREAM, f"{len(found)}", append_bytes_per_s=RATE):
            await asyncio.sleep(0.3)
        async with client.writer(STREAM, inflight_bytes_max=256 * 1024) as writer:
            await _append_for(writer, SETTLED_S)
            before, held_s = writer.confirm_offset, writer._runner.held_s() if writer._runner else 0.0
            await _append_for(writer, MEASURED_S)
            part = (writer.confirm_offset - before) * VALUE_BYTES / MEASURED_S / RATE
            held_s = (writer._runner.held_s() if writer._runner else 0.0) - held_s
            await writer.flush()
            appended = writer.next_offset
        read = 0
        async for record in client.reader(STREAM, start="earliest", follow=False):
            assert record.offset == read
            read += 1
        found.append(Kept(part, len(cluster.state.ranges.of(stream_id)), appended, read, held_s, 0))
        await pd.close()

    task = clients.start("over-quota", work())
    assert task is not None
    async with asyncio.timeout(300.0):
        await task
    return found[0]


async def _append_for(writer: rangelog.Writer, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    until_s = loop.time() + seconds
    while loop.time() < until_s:
        await writer.ready()
        writer.append_nowait(b"v" * VALUE_BYTES)
        await asyncio.sleep(0.001)
