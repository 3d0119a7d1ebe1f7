"""Calls on ranges that lack copies, over the connections of a PdClient, with its retries and deadlines.

Example: `await RepairClient(pd).list_repairs(ListRepairsRequest(), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import repair_pb2 as pb
from rangelog_proto.v1.repair_pb2_grpc import RepairsStub


class RepairClient:
    """The calls of the placement driver's service for repairs. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def list_repairs(self, request: pb.ListRepairsRequest, *, timeout_s: float) -> pb.ListRepairsResponse:
        """Return how far the repairs are, and one page of the ranges that lack something."""
        return await self._pd.call_service(RepairsStub, lambda stub: stub.ListRepairs, request, timeout_s)

    async def accept_loss(self, request: pb.AcceptLossRequest, *, timeout_s: float) -> pb.AcceptLossResponse:
        """Accept the loss of a range of which no copy can come back."""
        return await self._pd.call_service(RepairsStub, lambda stub: stub.AcceptLoss, request, timeout_s)
