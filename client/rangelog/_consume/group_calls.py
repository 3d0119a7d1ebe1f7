"""Calls on the coordinators of groups, each command under a number of a session, so that it has its effect once.

What holds: a call ends by its deadline. One session per coordinator journal serves all groups of a client; when it has expired
another one is opened. A command that was given up is settled: its number is not used again. One that may have been applied
under an expired session is repeated under another one only where twice does the same as once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from rangelog._consume.group_core import GroupPosition
from rangelog_core.errors import SessionExpired
from rangelog_core.net.owner_calls import JOURNALS, OwnedKey, journal_of
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from rangelog_proto.v1.group_service_pb2_grpc import GroupsStub

CALL_TIMEOUT_S = 15.0

_Response = TypeVar("_Response")
_Method = Callable[[Any], Callable[..., Awaitable[_Response]]]


class OwnerCaller(Protocol):
    """The one method of OwnerCalls that is used here."""

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: _Method[_Response],
        request: object,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> _Response:
        """Call the owner of a shard or journal."""


class _Session:
    """The numbers of one session."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._next = 0
        self._unsettled: dict[int, None] = {}  # in order

    def take(self) -> pb.GroupProposal:
        """Return the next number."""
        sequence = self._next
        self._next += 1
        self._unsettled[sequence] = None
        return pb.GroupProposal(session=self.number, sequence=sequence, settled=next(iter(self._unsettled)))

    def settle(self, proposal: pb.GroupProposal) -> None:
        """Nobody asks for the result of a command any more."""
        self._unsettled.pop(proposal.sequence, None)


class GroupCalls:
    """The calls of one client."""

    def __init__(self, calls: OwnerCaller) -> None:
        self._calls = calls
        self._sessions: dict[int, _Session] = {}
        self._opening: dict[int, asyncio.Lock] = {}

    async def join(self, group: str, join: group_pb2.GroupJoin, timeout_s: float) -> pb.JoinGroupResponse:
        """Join a group."""
        request = pb.JoinGroupRequest(group=group, join=join)
        return await self._command(group, lambda stub: stub.JoinGroup, request, timeout_s)

    async def heartbeat(self, request: pb.HeartbeatGroupRequest, timeout_s: float) -> pb.HeartbeatGroupResponse:
        """Stay a member; wait for a change."""
        return await self._call(journal_of(request.group), lambda stub: stub.HeartbeatGroup, request, timeout_s)

    async def leave(self, group: str, member: str, joined: int, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Leave a group."""
        request = pb.LeaveGroupRequest(group=group, member=member, joined=joined)
        await self._command(group, lambda stub: stub.LeaveGroup, request, timeout_s)

    async def commit(self, group: str, commit: group_pb2.GroupCommit, timeout_s: float) -> pb.CommitPositionsResponse:
        """Commit positions."""
        request = pb.CommitPositionsRequest(group=group, commit=commit)
        return await self._command(group, lambda stub: stub.CommitPositions, request, timeout_s)

    async def stage(self, group: str, stage: group_pb2.GroupStage, timeout_s: float) -> pb.StagePositionsResponse:
        """Stage positions for a transaction."""
        request = pb.StagePositionsRequest(group=group, stage=stage)
        return await self._command(group, lambda stub: stub.StagePositions, request, timeout_s)

    async def release(self, group: str, release: group_pb2.GroupRelease, timeout_s: float) -> None:
        """Give shards up."""
        request = pb.ReleaseShardsRequest(group=group, release=release)
        await self._command(group, lambda stub: stub.ReleaseShards, request, timeout_s)

    async def reach(self, group: str, reach: group_pb2.GroupReach, timeout_s: float) -> None:
        """Report where a member met a checkpoint."""
        request = pb.ReachCheckpointRequest(group=group, reach=reach)
        await self._command(group, lambda stub: stub.ReachCheckpoint, request, timeout_s)

    async def list_groups(
        self, journal: int, prefix: str, token: str, timeout_s: float, page_size: int
    ) -> pb.ListGroupsResponse:
        """List the groups of one journal by page."""
        request = pb.ListGroupsRequest(journal=journal, prefix=prefix, page_token=token, page_size=page_size)
        return await self._call((0, journal), lambda stub: stub.ListGroups, request, timeout_s)

    async def describe(self, group: str, timeout_s: float) -> pb.DescribeGroupResponse:
        """Describe a group."""
        request = pb.DescribeGroupRequest(group=group)
        return await self._call(journal_of(group), lambda stub: stub.DescribeGroup, request, timeout_s)

    async def reset(self, group: str, reset: group_pb2.GroupReset, timeout_s: float) -> None:
        """Move positions."""
        request = pb.ResetGroupRequest(group=group, reset=reset)
        await self._command(group, lambda stub: stub.ResetGroup, request, timeout_s, once=True)

    async def delete(self, group: str, timeout_s: float) -> None:
        """Delete a group."""
        request = pb.DeleteGroupRequest(group=group)
        await self._command(group, lambda stub: stub.DeleteGroup, request, timeout_s, once=True)

    async def unsubscribe(self, group: str, topic_ids: list[int], timeout_s: float) -> None:
        """Let a group read topics no more."""
        request = pb.UnsubscribeGroupRequest(group=group, topic_ids=topic_ids)
        await self._command(group, lambda stub: stub.UnsubscribeGroup, request, timeout_s)

    async def retain(self, group: str, retains: bool, timeout_s: float) -> None:
        """Turn retention by consumption for a group on or off."""
        request = pb.RetainGroupRequest(group=group, retains=retains)
        await self._command(group, lambda stub: stub.RetainGroup, request, timeout_s)

    async def request_checkpoint(self, group: str, name: str, every_ms: int, timeout_s: float) -> None:
        """Begin a checkpoint."""
        checkpoint = group_pb2.GroupCheckpoint(name=name, every_ms=every_ms)
        request = pb.RequestCheckpointRequest(group=group, checkpoint=checkpoint)
        await self._command(group, lambda stub: stub.RequestCheckpoint, request, timeout_s, once=True)

    async def checkpoint(self, group: str, name: str, timeout_s: float) -> group_pb2.GroupCheckpointState:
        """Return a checkpoint with its positions."""
        request = pb.DescribeCheckpointRequest(group=group, name=name)
        response: pb.DescribeCheckpointResponse = await self._call(
            journal_of(group), lambda stub: stub.DescribeCheckpoint, request, timeout_s
        )
        return response.checkpoint

    async def delete_checkpoint(self, group: str, name: str, timeout_s: float) -> None:
        """Delete a checkpoint."""
        request = pb.DeleteCheckpointRequest(group=group, name=name)
        await self._command(group, lambda stub: stub.DeleteCheckpoint, request, timeout_s, once=True)

    # ---- inside

    async def _call(self, key: OwnedKey, method: _Method[_Response], request: object, timeout_s: float) -> _Response:
        return await self._calls.call(key, GroupsStub, method, request, timeout_s=timeout_s, repeatable=True)

    async def _command(
        self, group: str, method: _Method[_Response], request: Any, timeout_s: float, *, once: bool = False
    ) -> _Response:
        """`once`: twice does another thing. Then SessionExpired, with `outcome_unknown`, is raised where it may be applied."""
        try:
            return await self._once(group, method, request, timeout_s)
        except SessionExpired as error:
            if once and error.outcome_unknown:
                raise
            return await self._once(group, method, request, timeout_s)

    async def _once(self, group: str, method: _Method[_Response], request: Any, timeout_s: float) -> _Response:
        key = journal_of(group)
        session = await self._session(key, group, timeout_s)
        request.proposal.CopyFrom(session.take())
        try:
            return await self._call(key, method, request, timeout_s)
        except SessionExpired:
            if self._sessions.get(key[1]) is session:
                del self._sessions[key[1]]
            raise
        finally:
            session.settle(request.proposal)

    async def _session(self, key: OwnedKey, group: str, timeout_s: float) -> _Session:
        number = key[1]
        assert 0 <= number < JOURNALS
        async with self._opening.setdefault(number, asyncio.Lock()):
            session = self._sessions.get(number)
            if session is None:
                request = pb.OpenGroupSessionRequest(journal=number, group=group)
                response = await self._call(key, lambda stub: stub.OpenGroupSession, request, timeout_s)
                session = self._sessions[number] = _Session(response.session)
            return session


def position_message(position: GroupPosition, metadata: bytes = b"") -> group_pb2.GroupPosition:
    """Return a position as the protocol's message."""
    shard = group_pb2.GroupShard(topic_id=position.shard.topic_id, shard_id=position.shard.shard_id)
    return group_pb2.GroupPosition(shard=shard, offset=position.offset, since=position.since, metadata=metadata)
