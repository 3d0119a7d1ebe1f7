"""Calls on one process by its address, as operators make them: a range server, one placement driver, a broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from rangelog_core.errors import RangelogError
from rangelog_core.net.addresses import split_address
from rangelog_core.net.channels import open_channel
from rangelog_core.net.fork_guard import note_call
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token, metadata_for
from rangelog_core.tracing import with_context
from rangelog_proto.v1 import inspection_pb2 as pb
from rangelog_proto.v1 import logs_pb2, pd_pb2, range_server_pb2
from rangelog_proto.v1.inspection_pb2_grpc import InspectionStub
from rangelog_proto.v1.logs_pb2_grpc import LogsStub
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverStub
from rangelog_proto.v1.range_server_pb2_grpc import RangeServerStub

_T = TypeVar("_T")


class PeerClient:
    """Calls to one process by its address: a range server's control plane, one placement driver, a broker. Use `async with`.

    Each call is tried once. Raises the error that the peer answered, Unavailable, RequestTimeout.
    """

    def __init__(
        self,
        address: str,
        peer: str,
        *,
        token: Token | None = None,
        tls: TlsConfig | None = None,
        role: Role = Role.RANGE_SERVER,
    ) -> None:
        """`peer`: what messages call it. `role`: of its certificate. Raises InvalidArgument for a malformed address."""
        split_address(address)
        self._peer = peer
        self._token, self._address = token, address
        self._tls = tls
        self._channel = open_channel(address, tls, role)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    async def get_status(self, *, timeout_s: float) -> range_server_pb2.GetStatusResponse:
        """Describe a range server."""
        return await self._call(self._server().GetStatus, range_server_pb2.GetStatusRequest(), timeout_s)

    async def list_replicas(
        self, request: range_server_pb2.ListReplicasRequest, *, timeout_s: float
    ) -> range_server_pb2.ListReplicasResponse:
        """List replicas of a range server by page."""
        return await self._call(self._server().ListReplicas, request, timeout_s)

    async def locate_batch(
        self, request: range_server_pb2.LocateBatchRequest, *, timeout_s: float
    ) -> range_server_pb2.LocateBatchResponse:
        """Find the batch of an offset in a range server's replica."""
        return await self._call(self._server().LocateBatch, request, timeout_s)

    async def list_batches(
        self, request: range_server_pb2.ListBatchesRequest, *, timeout_s: float
    ) -> range_server_pb2.ListBatchesResponse:
        """List the checksums of a replica's batches by page."""
        return await self._call(self._server().ListBatches, request, timeout_s)

    async def inspect_member(self, *, timeout_s: float) -> pb.InspectMemberResponse:
        """Describe a placement driver."""
        stub = InspectionStub(self._channel)  # type: ignore[no-untyped-call]
        return await self._call(stub.InspectMember, pb.InspectMemberRequest(), timeout_s)

    async def describe_cluster(self, *, timeout_s: float) -> pd_pb2.DescribeClusterResponse:
        """Describe the cluster, as this placement driver sees it."""
        stub = PlacementDriverStub(self._channel)  # type: ignore[no-untyped-call]
        return await self._call(stub.DescribeCluster, pd_pb2.DescribeClusterRequest(), timeout_s)

    async def read_log(self, request: logs_pb2.ReadLogRequest, *, timeout_s: float) -> logs_pb2.ReadLogResponse:
        """Return what the process has logged lately."""
        stub = LogsStub(self._channel)  # type: ignore[no-untyped-call]
        return await self._call(stub.ReadLog, request, timeout_s)

    def _server(self) -> Any:
        return RangeServerStub(self._channel)  # type: ignore[no-untyped-call]

    async def _call(self, method: Callable[..., Awaitable[_T]], request: object, timeout_s: float) -> _T:
        note_call()
        try:
            shown = metadata_for(self._token, self._tls, self._address)
            return await method(request, timeout=timeout_s, metadata=with_context(shown))
        except grpc.RpcError as error:
            raise self._error(error) from error

    def _error(self, error: grpc.RpcError) -> RangelogError:
        return from_rpc_error(error, self._peer, self._tls)
