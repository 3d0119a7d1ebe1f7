"""Calls on the members of the group of placement drivers, over the connections of a PdClient.

What holds: a call that was cut off may be repeated: what is as wanted already stays so.
"""

from __future__ import annotations

from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import members_pb2 as pb
from rangelog_proto.v1.members_pb2_grpc import MembersStub


class MembersClient:
    """The calls of the placement driver's service for its members. Close the PdClient, not this."""

    def __init__(self, pd: PdClient) -> None:
        self._pd = pd

    async def list_members(self, request: pb.ListMembersRequest, *, timeout_s: float) -> pb.ListMembersResponse:
        """List the members of the group."""
        return await self._pd.call_service(MembersStub, lambda stub: stub.ListMembers, request, timeout_s)

    async def add_member(self, request: pb.AddMemberRequest, *, timeout_s: float) -> pb.AddMemberResponse:
        """Add a member as a learner; it votes once it has caught up."""
        return await self._pd.call_service(MembersStub, lambda stub: stub.AddMember, request, timeout_s)

    async def remove_member(self, request: pb.RemoveMemberRequest, *, timeout_s: float) -> pb.RemoveMemberResponse:
        """Remove a member."""
        return await self._pd.call_service(MembersStub, lambda stub: stub.RemoveMember, request, timeout_s)

    async def transfer_leadership(
        self, request: pb.TransferLeadershipRequest, *, timeout_s: float
    ) -> pb.TransferLeadershipResponse:
        """Have the leader hand over."""
        return await self._pd.call_service(MembersStub, lambda stub: stub.TransferLeadership, request, timeout_s)

    async def save_state(self, request: pb.SaveStateRequest, *, timeout_s: float) -> pb.SaveStateResponse:
        """Get the next piece of the leader's state as a file."""
        return await self._pd.call_service(MembersStub, lambda stub: stub.SaveState, request, timeout_s)
