"""Calls of a restore, over the connections of a PdClient, with its retries and deadlines."""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import restore_pb2 as pb
from rangelog_proto.v1.restore_pb2_grpc import RestoreStub


class RestoreClient:
    """The calls of the placement driver's service for restores. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def begin_restore(self, request: pb.BeginRestoreRequest, *, timeout_s: float) -> pb.RestoreResponse:
        """Begin a restore, or learn how far it is."""
        return await self._pd.call_service(RestoreStub, lambda stub: stub.BeginRestore, request, timeout_s)

    async def restore_rows(self, request: pb.RestoreRowsRequest, *, timeout_s: float) -> pb.RestoreResponse:
        """Put the next rows, or take some back."""
        return await self._pd.call_service(RestoreStub, lambda stub: stub.RestoreRows, request, timeout_s)

    async def end_restore(self, request: pb.EndRestoreRequest, *, timeout_s: float) -> pb.RestoreResponse:
        """End a restore."""
        return await self._pd.call_service(RestoreStub, lambda stub: stub.EndRestore, request, timeout_s)

    async def describe_restore(self, request: pb.DescribeRestoreRequest, *, timeout_s: float) -> pb.RestoreResponse:
        """Learn how far a restore is."""
        return await self._pd.call_service(RestoreStub, lambda stub: stub.DescribeRestore, request, timeout_s)
