"""Calls on placement, over the connections of a PdClient, with its retries and deadlines.

Example: `await PlacementClient(pd).explain_placement(ExplainPlacementRequest(name="flights"), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import placement_pb2 as pb
from rangelog_proto.v1.placement_pb2_grpc import PlacementStub


class PlacementClient:
    """The calls of the placement driver's service for placement. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def explain_placement(
        self, request: pb.ExplainPlacementRequest, *, timeout_s: float
    ) -> pb.ExplainPlacementResponse:
        """Ask where a new range of a stream would be put."""
        return await self._pd.call_service(PlacementStub, lambda stub: stub.ExplainPlacement, request, timeout_s)

    async def plan_rebalance(self, request: pb.PlanRebalanceRequest, *, timeout_s: float) -> pb.PlanRebalanceResponse:
        """Ask what a rebalance would move."""
        return await self._pd.call_service(PlacementStub, lambda stub: stub.PlanRebalance, request, timeout_s)

    async def apply_rebalance(
        self, request: pb.ApplyRebalanceRequest, *, timeout_s: float
    ) -> pb.ApplyRebalanceResponse:
        """Start a rebalance."""
        return await self._pd.call_service(PlacementStub, lambda stub: stub.ApplyRebalance, request, timeout_s)

    async def describe_rebalance(
        self, request: pb.DescribeRebalanceRequest, *, timeout_s: float
    ) -> pb.DescribeRebalanceResponse:
        """Ask how far the last rebalance is."""
        return await self._pd.call_service(PlacementStub, lambda stub: stub.DescribeRebalance, request, timeout_s)
