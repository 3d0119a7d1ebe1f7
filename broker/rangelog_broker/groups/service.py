"""The gRPC service for groups, on the port of a broker's services. Errors are mapped by the server's interceptor.

What holds: a command is proposed under the caller's session and number, so a repeat at this or the next owner changes nothing
more; a heartbeat needs none. An answer follows the ack. A broker that has lost the journal answers NOT_OWNER, or
OUTCOME_UNKNOWN where a command may have been acked. What tells of a topic is answered to who may describe that topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol, TypeVar

from rangelog_broker.groups.group import Group, key_of
from rangelog_broker.groups.group_owner import GroupOwner
from rangelog_broker.groups.machine import GroupCoordinator
from rangelog_broker.groups.snapshots import checkpoint_state, head_of, shard_state, staged_state
from rangelog_broker.groups.staged_inquiries import Coordinators
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.owners import JournalOwners, moved
from rangelog_broker.topic_rights import TopicRights
from rangelog_core.errors import InvalidArgument, PreconditionFailed, WriterClosed, WriterFenced
from rangelog_core.ids import check_name
from rangelog_core.net.owner_calls import journal_of
from rangelog_core.net.routes import PdCalls
from rangelog_core.rights import ANY
from rangelog_proto.v1 import group_pb2
from rangelog_proto.v1 import group_service_pb2 as pb
from rangelog_proto.v1.group_service_pb2_grpc import GroupsServicer

WAIT_MS_MAX = 4_000
"""Below the limit of one try of a caller."""
PAGE_SIZE_MAX = 1_000

_T = TypeVar("_T")


class JournalHost(Protocol):
    """The coordinator journals that this broker owns."""

    def find(self, number: int) -> Journal[GroupCoordinator]:
        """Return the journal of a number, open. Raises NotOwner."""


class GroupsService(GroupsServicer):
    """All calls on groups. `close` it before the journals."""

    def __init__(
        self, journals: JournalHost, topics: PdCalls, calls: Coordinators, rights: TopicRights | None = None
    ) -> None:
        """`rights`: what clients may do to topics; None: everything."""
        self._rights = rights
        self._owners = JournalOwners(journals.find, lambda journal: GroupOwner(journal, topics, calls))

    def close(self) -> None:
        """End all timers and tasks; answer who waits. Idempotent."""
        self._owners.close()

    def owner_of(self, number: int) -> GroupOwner:
        """Return the owner's side of a journal. Raises NotOwner, InvalidArgument."""
        return self._owners.of(number)

    def _owner(self, group: str) -> GroupOwner:
        return self.owner_of(journal_of(check_name("group", group))[1])

    # ---- members

    async def OpenGroupSession(self, request: pb.OpenGroupSessionRequest, context: Any) -> pb.OpenGroupSessionResponse:
        """Open a session of the journal of a group, or of one by its number."""
        owner = self._owner(request.group) if request.group else self.owner_of(request.journal)
        try:
            session = await owner.journal.open_session()
        except (WriterFenced, WriterClosed) as error:
            raise moved(error) from error
        return pb.OpenGroupSessionResponse(session=session)

    async def JoinGroup(self, request: pb.JoinGroupRequest, context: Any) -> pb.JoinGroupResponse:
        """Take a member in, with the newest facts of the group's topics."""
        owner, name = self._owner(request.group), request.group
        await owner.check_starts(name, request.join)
        joined = (await self._propose(request, group_pb2.GroupCommand(group=name, join=request.join))).joined
        await owner.read_topics(name)
        if owner.journal.machine.group(name).retains:  # and perhaps a topic that it did not read before
            await owner.until_heard(name)
        found = owner.view(name, request.join.member, joined)
        return pb.JoinGroupResponse(view=found.view, token=found.token, joined=joined)

    async def HeartbeatGroup(self, request: pb.HeartbeatGroupRequest, context: Any) -> pb.HeartbeatGroupResponse:
        """Keep a member in; answer a change of what it has."""
        owner, name = self._owner(request.group), request.group
        check_name("member", request.member)
        heartbeat = group_pb2.GroupHeartbeat(member=request.member, joined=request.joined)
        await owner.own(group_pb2.GroupCommand(group=name, heartbeat=heartbeat))
        if request.ended:
            await owner.note_ended(name, [key_of(each) for each in request.ended])
        wait_s = min(request.wait_ms, WAIT_MS_MAX) / 1000
        found = await owner.changed_view(name, request.member, request.joined, request.token, wait_s)
        if found.token == request.token:
            return pb.HeartbeatGroupResponse(token=found.token)
        return pb.HeartbeatGroupResponse(view=found.view, token=found.token)

    async def LeaveGroup(self, request: pb.LeaveGroupRequest, context: Any) -> pb.LeaveGroupResponse:
        """Take a member out."""
        leave = group_pb2.GroupLeave(member=request.member, joined=request.joined)
        await self._propose(request, group_pb2.GroupCommand(group=request.group, leave=leave))
        return pb.LeaveGroupResponse()

    async def CommitPositions(self, request: pb.CommitPositionsRequest, context: Any) -> pb.CommitPositionsResponse:
        """Commit positions; name those that are refused."""
        result = await self._propose(request, group_pb2.GroupCommand(group=request.group, commit=request.commit))
        return pb.CommitPositionsResponse(refused=result.refused)

    async def ReleaseShards(self, request: pb.ReleaseShardsRequest, context: Any) -> pb.ReleaseShardsResponse:
        """Take shards from a member that has stopped reading them."""
        await self._propose(request, group_pb2.GroupCommand(group=request.group, release=request.release))
        return pb.ReleaseShardsResponse()

    async def ReachCheckpoint(self, request: pb.ReachCheckpointRequest, context: Any) -> pb.ReachCheckpointResponse:
        """Note where a member met a checkpoint."""
        await self._propose(request, group_pb2.GroupCommand(group=request.group, reach=request.reach))
        return pb.ReachCheckpointResponse()

    # ---- transactions

    async def StagePositions(self, request: pb.StagePositionsRequest, context: Any) -> pb.StagePositionsResponse:
        """Stage positions for a transaction, or name those that are refused: then none is staged."""
        result = await self._propose(request, group_pb2.GroupCommand(group=request.group, stage=request.stage))
        return pb.StagePositionsResponse(refused=result.refused)

    async def MergePositions(self, request: pb.MergePositionsRequest, context: Any) -> pb.MergePositionsResponse:
        """Commit what a committed transaction has staged; the answer follows the ack."""
        settle = group_pb2.GroupSettle(producer_id=request.producer_id, number=request.number, committed=True)
        await self._owner(request.group).own(group_pb2.GroupCommand(group=request.group, settle=settle))
        return pb.MergePositionsResponse()

    # ---- administration

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Any) -> pb.ListGroupsResponse:
        """List the groups of a journal by name."""
        size = request.page_size or PAGE_SIZE_MAX
        if size > PAGE_SIZE_MAX:
            raise InvalidArgument(f"a page of {size} groups; the limit is {PAGE_SIZE_MAX}")

        def look(machine: GroupCoordinator) -> pb.ListGroupsResponse:
            wanted = (
                name for name in sorted(machine.groups) if name.startswith(request.prefix) and name > request.page_token
            )
            names = list(islice(wanted, size + 1))
            token = names[size - 1] if len(names) > size else ""
            return pb.ListGroupsResponse(
                groups=[_summary(name, machine.groups[name]) for name in names[:size]], next_page_token=token
            )

        return await self._read(self.owner_of(request.journal), look)

    async def DescribeGroup(self, request: pb.DescribeGroupRequest, context: Any) -> pb.DescribeGroupResponse:
        """Describe members, shards and positions."""
        owner = self._owner(request.group)

        def look(machine: GroupCoordinator) -> pb.DescribeGroupResponse:
            group = machine.group(request.group)
            state = head_of(request.group, group)
            state.shards.extend(shard_state(key, shard) for key, shard in sorted(group.shards.items()))
            for each in (*group.checkpoints.complete.values(), group.checkpoints.pending):
                if each is not None:
                    one = state.checkpoints.add(number=each.number, name=each.name, started_ms=each.started_ms)
                    one.waiting.extend(checkpoint_state(each).waiting)
            state.staged.extend(staged_state(*each) for each in group.staged)
            return pb.DescribeGroupResponse(state=state, now_ms=owner.journal.now_ms)

        found = await self._read(owner, look)
        topics = {each.topic_id for each in found.state.topics}
        await self._check_topics(topics | {each.shard.topic_id for each in found.state.shards}, context)
        return found

    async def ResetGroup(self, request: pb.ResetGroupRequest, context: Any) -> pb.ResetGroupResponse:
        """Move positions, of shards that the group may not know yet."""
        owner, name = self._owner(request.group), request.group
        await owner.note_unknown(name, [key_of(each.shard) for each in request.reset.positions])
        async with owner.moving_back(name, request.reset):
            result = await owner.propose(request.proposal, group_pb2.GroupCommand(group=name, reset=request.reset))
        return pb.ResetGroupResponse(generation=result.generation)

    async def DeleteGroup(self, request: pb.DeleteGroupRequest, context: Any) -> pb.DeleteGroupResponse:
        """Delete a group without members. What topics keep for it is given up first."""
        owner = self._owner(request.group)
        group = owner.journal.machine.groups.get(request.group)
        if group is not None and not group.members and (group.retains or group.leaving):
            end = group_pb2.GroupRetain(retains=False)
            await owner.own(group_pb2.GroupCommand(group=request.group, retain=end))
            await owner.until_heard(request.group)
        delete = group_pb2.GroupDelete()
        await self._propose(request, group_pb2.GroupCommand(group=request.group, delete=delete))
        return pb.DeleteGroupResponse()

    async def UnsubscribeGroup(self, request: pb.UnsubscribeGroupRequest, context: Any) -> pb.UnsubscribeGroupResponse:
        """Read topics no more."""
        forget = group_pb2.GroupForget(topic_ids=request.topic_ids)
        await self._propose(request, group_pb2.GroupCommand(group=request.group, forget=forget))
        return pb.UnsubscribeGroupResponse()

    async def RetainGroup(self, request: pb.RetainGroupRequest, context: Any) -> pb.RetainGroupResponse:
        """Turn retention by consumption for a group on or off, at topics that are trimmed by consumption."""
        retain = group_pb2.GroupRetain(retains=request.retains)
        await self._propose(request, group_pb2.GroupCommand(group=request.group, retain=retain))
        await self._owner(request.group).until_heard(request.group)
        return pb.RetainGroupResponse()

    async def RequestCheckpoint(
        self, request: pb.RequestCheckpointRequest, context: Any
    ) -> pb.RequestCheckpointResponse:
        """Begin a checkpoint."""
        command = group_pb2.GroupCommand(group=request.group, checkpoint=request.checkpoint)
        await self._propose(request, command)
        return pb.RequestCheckpointResponse()

    async def DescribeCheckpoint(
        self, request: pb.DescribeCheckpointRequest, context: Any
    ) -> pb.DescribeCheckpointResponse:
        """Return a checkpoint with its positions."""

        def look(machine: GroupCoordinator) -> pb.DescribeCheckpointResponse:
            checkpoints = machine.group(request.group).checkpoints
            found = checkpoints.complete.get(request.name)
            if found is None and checkpoints.pending is not None and checkpoints.pending.name == request.name:
                found = checkpoints.pending
            if found is None:
                raise PreconditionFailed(f"group {request.group!r} has no checkpoint {request.name!r}")
            return pb.DescribeCheckpointResponse(checkpoint=checkpoint_state(found))

        answer = await self._read(self._owner(request.group), look)
        places = (*(each.shard for each in answer.checkpoint.positions), *answer.checkpoint.waiting)
        await self._check_topics({each.topic_id for each in places}, context)
        return answer

    async def DeleteCheckpoint(self, request: pb.DeleteCheckpointRequest, context: Any) -> pb.DeleteCheckpointResponse:
        """Delete a checkpoint, complete or not."""
        drop = group_pb2.GroupDropCheckpoint(name=request.name)
        await self._propose(request, group_pb2.GroupCommand(group=request.group, drop_checkpoint=drop))
        return pb.DeleteCheckpointResponse()

    # ---- inside

    async def _check_topics(self, topic_ids: Iterable[int], context: Any) -> None:
        """Raise RightMissing where the caller may not describe one of these topics."""
        if self._rights is not None:
            await self._rights.require(context, ANY, topic_ids)

    async def _propose(self, request: Any, command: group_pb2.GroupCommand) -> group_pb2.GroupResult:
        _check_member(command)
        return await self._owner(command.group).propose(request.proposal, command)

    async def _read(self, owner: GroupOwner, look: Callable[[GroupCoordinator], _T]) -> _T:
        try:
            return await owner.journal.read(look)
        except (WriterFenced, WriterClosed) as error:
            raise moved(error) from error


def _check_member(command: group_pb2.GroupCommand) -> None:
    """Raise InvalidArgument before anything is proposed: a refusal in the journal would quote the name."""
    by = command.stage.commit if command.HasField("stage") else getattr(command, command.WhichOneof("action") or "join")
    if "member" in by.DESCRIPTOR.fields_by_name:
        check_name("member", by.member)


def _summary(name: str, group: Group) -> pb.GroupSummary:
    return pb.GroupSummary(
        group=name, generation=group.generation, member_count=len(group.members), topic_ids=sorted(group.topics)
    )
