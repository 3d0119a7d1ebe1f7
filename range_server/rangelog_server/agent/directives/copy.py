"""CopyReplica: fetch the missing batches of a sealed range from its other replicas, over the data plane.

What holds: all copies of this server together stay below its rate, on average; the first bytes wait for nothing.
"""

from __future__ import annotations

import asyncio

import structlog

from rangelog_core.batch import batch_crc
from rangelog_core.errors import ProtocolViolation, RangelogError, Unavailable
from rangelog_core.limits import MIB
from rangelog_core.net.data_connection import DataConnections, replica_id
from rangelog_core.net.replica_client import RangeKey, ReplicaClient
from rangelog_proto.v1 import common_pb2
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives.seal import commit_end
from rangelog_server.agent.flush_waiter import FlushWaiter
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.replica import DiskTrust, NewBatch
from rangelog_server.ranges.store import Store

FETCH_BYTES = 4 * MIB
FETCH_TIMEOUT_S = 20.0

_log = structlog.get_logger("agent")


class CopyPace:
    """A rate of bytes. Times in seconds, on one clock."""

    def __init__(self, bytes_per_s: int) -> None:
        """`bytes_per_s`: 0 for no bound."""
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def took(self, size_bytes: int, now_s: float) -> float:
        """Note bytes that were copied; return how long to wait before more of them are.

        Example:
            >>> pace = CopyPace(1_000)
            >>> pace.took(500, 10.0), pace.took(500, 10.0), pace.took(500, 60.0)
            (0.5, 1.0, 0.5)
        """
        if not self._bytes_per_s:
            return 0.0
        self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
        return self._free_s - now_s


class SourcesFailed(Unavailable):
    """A replica is not whole yet; `servers` are the sources that did not answer as they should."""

    servers: tuple[str, ...] = ()


class Copier:
    """Completes replicas of sealed ranges."""

    def __init__(
        self, store: Store, connections: DataConnections, identity: DirectoryIdentity, *, bytes_per_s: int = 0
    ) -> None:
        """`bytes_per_s`: of all copies together; 0: no bound."""
        self._pace = CopyPace(bytes_per_s)
        self._store = store
        self._connections = connections
        self._identity = identity

    async def copy_replica(self, directive: pb.Directive) -> None:
        """Complete the replica up to the committed end. Raises SourcesFailed when the sources lack some of it."""
        action, key = directive.copy_replica, (directive.stream_id, directive.range_index)
        held = self._store.replicas.get(key)
        if held is not None and held.core.trust is DiskTrust.QUARANTINED:
            dropped = FlushWaiter()
            self._store.drop(*key, dropped)
            await dropped.wait(self._store)
        await commit_end(self._store, directive, action.epoch, action.start_offset, action.end_offset)
        hosted = self._store.find(*key)
        problem = "the placement driver named no other replica"
        failed: list[str] = []
        for source in action.sources:
            if hosted.core.complete:
                return
            if (source.server, source.incarnation) == (self._identity.name, self._identity.incarnation):
                continue
            try:
                await self._copy_from(hosted, source, action.end_offset)
            except RangelogError as error:
                problem = f"{source.server}: {error.message}"
                if error.retriable:
                    failed.append(source.server)
        if not hosted.core.complete:
            unfinished = SourcesFailed(f"range {hosted} is not whole yet: {problem}")
            unfinished.servers = tuple(failed)
            raise unfinished

    async def _copy_from(self, hosted: HostedReplica, source: common_pb2.Replica, end_offset: int) -> None:
        core = hosted.core
        connection = await self._connections.get(replica_id(source.server, source.incarnation), source.data_address)
        client = ReplicaClient(connection, RangeKey(core.stream_id, core.range_index, core.start_offset))
        before = core.durable_offset
        while hosted.core.durable_offset < end_offset and not hosted.dropped:
            batches = await self._fetch(client, hosted, end_offset)
            if not batches:
                raise Unavailable(f"it holds no record at offset {hosted.core.durable_offset}")
            done = FlushWaiter()
            self._store.repair(hosted, batches, done)
            await done.wait(self._store)
            size_bytes = sum(len(batch.data) for batch in batches)
            await asyncio.sleep(self._pace.took(size_bytes, asyncio.get_running_loop().time()))
        _log.info("copied", range=str(hosted), source=source.server, records=hosted.core.durable_offset - before)

    async def _fetch(self, client: ReplicaClient, hosted: HostedReplica, end_offset: int) -> list[NewBatch]:
        answer = await client.fetch(
            hosted.core.end_offset, bytes_max=FETCH_BYTES, known_end_offset=end_offset, timeout_s=FETCH_TIMEOUT_S
        )
        if answer.start_offset != hosted.core.start_offset:
            raise ProtocolViolation(f"its range starts at {answer.start_offset}")
        return [NewBatch(header, batch_crc(data), data) for header, data, _ in answer.batches.before(end_offset)]
