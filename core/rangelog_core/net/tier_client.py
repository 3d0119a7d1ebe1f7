"""Calls on the tier, over the connections of a PdClient, with its retries and deadlines.

Example: `await TierClient(pd).describe_tier(DescribeTierRequest(), timeout_s=5)`.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import tier_pb2 as pb
from rangelog_proto.v1.tier_pb2_grpc import TierStub


class TierClient:
    """The calls of the placement driver's service for the tier. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def describe_tier(self, request: pb.DescribeTierRequest, *, timeout_s: float) -> pb.DescribeTierResponse:
        """Describe the tier, with the checks of the leader and of the range servers."""
        return await self._pd.call_service(TierStub, lambda stub: stub.DescribeTier, request, timeout_s)

    async def find_objects(self, request: pb.FindObjectsRequest, *, timeout_s: float) -> pb.FindObjectsResponse:
        """Find objects by their ids, whatever their state."""
        return await self._pd.call_service(TierStub, lambda stub: stub.FindObjects, request, timeout_s)

    async def set_tier(self, request: pb.SetTierRequest, *, timeout_s: float) -> pb.SetTierResponse:
        """Have later objects stored elsewhere."""
        return await self._pd.call_service(TierStub, lambda stub: stub.SetTier, request, timeout_s)

    async def reupload_object(
        self, request: pb.ReuploadObjectRequest, *, timeout_s: float
    ) -> pb.ReuploadObjectResponse:
        """Give an object up, so that its records are uploaded again from the hot copies."""
        return await self._pd.call_service(TierStub, lambda stub: stub.ReuploadObject, request, timeout_s)
