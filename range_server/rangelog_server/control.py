"""The control plane of a range server: status and a list of its replicas over gRPC, with health and reflection."""

from __future__ import annotations

import re
import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from rangelog_core.net.principals import Port
from rangelog_proto.v1 import range_server_pb2 as pb
from rangelog_proto.v1.range_server_pb2_grpc import RangeServerServicer, add_RangeServerServicer_to_server
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.inspecting import BatchLists, disk_room, locate_batch
from rangelog_server.ranges.hosted_replica import HostedReplica
from rangelog_server.ranges.report import report_of
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import DataPlane
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.metrics.call_tally import CallTally

if TYPE_CHECKING:
    from rangelog_server.agent.agent import Agent

SERVICE = "rangelog.v1.RangeServer"
PAGE_SIZE_MAX = 1_000
_TOKEN = re.compile(r"([0-9]{1,20})/([0-9]{1,10})")


class ControlPlane(RangeServerServicer):
    """The control plane of one range server. `agent` is set once it exists."""

    def __init__(
        self,
        settings: RangeServerSettings,
        identity: DirectoryIdentity,
        store: Store,
        plane: DataPlane,
        data_address: str,
    ) -> None:
        self._settings = settings
        self._batches = BatchLists(store)
        self._identity = identity
        self._store = store
        self._plane = plane
        self._data_address = data_address
        self._server = GrpcServer(token=settings.token, tls=settings.tls, port=Port.RANGE_CONTROL)
        self.agent: Agent | None = None
        add_RangeServerServicer_to_server(self, self._server.server)  # type: ignore[no-untyped-call]

    @property
    def calls(self) -> CallTally:
        """The calls so far."""
        return self._server.calls

    async def start(self) -> int:
        """Listen; return the port. Raises Unavailable."""
        return await self._server.start(self._settings.control_listen, (SERVICE,))

    async def set_serving(self, serving: bool) -> None:
        """Set the status of the health service to that of the data plane."""
        await self._server.set_serving(serving)

    async def stop(self) -> None:
        """Stop; idempotent."""
        await self._server.stop()
        self._batches.close()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        """Return this server's status: identity, log, replicas and directives."""
        wal, counts = self._store.wal, self._store.counts
        free_bytes, total_bytes = disk_room(self._settings.data_dir)
        return pb.GetStatusResponse(
            server=self._identity.name,
            incarnation=self._identity.incarnation,
            boot=self._identity.boot,
            data_address=self._data_address,
            log_end=wal.reported_end,
            used_bytes=wal.used_bytes,
            replica_count=len(self._store.replicas),
            connection_count=len(self._plane.connections),
            flush_count=wal.flush_count,
            appended_bytes=wal.appended_bytes,
            registered=self.agent is not None and self.agent.registered,
            version=version("rangelog"),
            wall_ms=time.time_ns() // 1_000_000,
            disk_free_bytes=free_bytes,
            disk_total_bytes=total_bytes,
            capacity_bytes=self._settings.capacity_bytes,
            log_problem=wal.problem,
            append_count=counts.appends,
            append_record_count=counts.append_records,
            fetched_bytes=counts.fetch_bytes_memory + counts.fetch_bytes_disk,
            pending_bytes=wal.pending_bytes,
            log_keys=[
                pb.LogKeyUse(key_id=key_id, file_count=count, size_bytes=count * wal.segment_bytes)
                for key_id, count in sorted(wal.keys_in_use().items())
            ],
            log_key_problem=wal.keys.problem,
        )

    async def ListReplicas(self, request: pb.ListReplicasRequest, context: Any) -> pb.ListReplicasResponse:
        """Return one page of the replicas, ordered by stream and range."""
        after = _parse_token(request.page_token)
        size = min(request.page_size or PAGE_SIZE_MAX, PAGE_SIZE_MAX)
        keys = sorted(
            key
            for key, hosted in self._store.replicas.items()
            if key > after
            and (not request.stream_id or key[0] == request.stream_id)
            and (not request.without_writer or _lacks_writer(hosted))
        )
        page = keys[:size]
        token = f"{page[-1][0]}/{page[-1][1]}" if len(keys) > size else ""
        replicas = [report_of(self._store.replicas[key]) for key in page]
        return pb.ListReplicasResponse(replicas=replicas, next_page_token=token)

    async def LocateBatch(self, request: pb.LocateBatchRequest, context: Any) -> pb.LocateBatchResponse:
        """Return where the batch of an offset lies. Raises RangeNotFound, RangeDropped, Corruption."""
        key = (request.stream_id, request.range_index)
        idle = self._store.idle.of(key)
        connected = idle.connected() if idle is not None and key not in self._store.replicas else None
        if connected is not None:  # there is nothing of the range yet but its writer
            return pb.LocateBatchResponse(writer_connected=True, writer=connected.client)
        return locate_batch(self._store.find(*key), request.offset, last=request.last)

    async def ListBatches(self, request: pb.ListBatchesRequest, context: Any) -> pb.ListBatchesResponse:
        """Return one page of a replica's batches. Raises RangeNotFound, RangeDropped, Corruption."""
        return await self._batches.page(request)


def _lacks_writer(hosted: HostedReplica) -> bool:
    return hosted.core.sealed_end_offset is None and hosted.connected_writer() is None


def _parse_token(token: str) -> tuple[int, int]:
    found = _TOKEN.fullmatch(token)
    return (int(found[1]), int(found[2])) if found is not None else (-1, -1)
