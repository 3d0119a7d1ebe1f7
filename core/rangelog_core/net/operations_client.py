"""Calls of operators on the servers of a cluster, over the connections of a PdClient, with its retries and deadlines.

Example: `await OperationsClient(pd).check_impact(CheckImpactRequest(names=["rs1"]), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import operations_pb2 as pb
from rangelog_proto.v1.operations_pb2_grpc import OperationsStub


class OperationsClient:
    """The calls of the placement driver's service for operators. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def set_server_mode(self, request: pb.SetServerModeRequest, *, timeout_s: float) -> pb.SetServerModeResponse:
        """Cordon, uncordon or drain a range server."""
        return await self._pd.call_service(OperationsStub, lambda stub: stub.SetServerMode, request, timeout_s)

    async def remove_server(self, request: pb.RemoveServerRequest, *, timeout_s: float) -> pb.RemoveServerResponse:
        """Remove a range server for good."""
        return await self._pd.call_service(OperationsStub, lambda stub: stub.RemoveServer, request, timeout_s)

    async def describe_drain(self, request: pb.DescribeDrainRequest, *, timeout_s: float) -> pb.DescribeDrainResponse:
        """Describe what a range server has left."""
        return await self._pd.call_service(OperationsStub, lambda stub: stub.DescribeDrain, request, timeout_s)

    async def check_impact(self, request: pb.CheckImpactRequest, *, timeout_s: float) -> pb.CheckImpactResponse:
        """Ask whether servers may go down now."""
        return await self._pd.call_service(OperationsStub, lambda stub: stub.CheckImpact, request, timeout_s)

    async def finalize_upgrade(
        self, request: pb.FinalizeUpgradeRequest, *, timeout_s: float
    ) -> pb.FinalizeUpgradeResponse:
        """Raise the cluster version, or ask what hinders it."""
        return await self._pd.call_service(OperationsStub, lambda stub: stub.FinalizeUpgrade, request, timeout_s)
