"""Calls on the members of the group. Every member answers ListMembers with its own view, also without a majority."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument, RangelogError
from rangelog_core.net.principals import ADMINS, WITH_PD, Role
from rangelog_pd.consensus.rules.changes import GROUP_SIZES
from rangelog_pd.driver import Driver
from rangelog_pd.handlers import audited, needs
from rangelog_pd.handlers.call import Call
from rangelog_pd.state.versions import LEVEL_OPERATIONS, check_enabled
from rangelog_proto.v1 import members_pb2 as pb

CHANGE_TIMEOUT_S = 2.5
"""Below the limit of a client's try, so that the client gets the driver's error."""


async def list_members(driver: Driver, request: pb.ListMembersRequest) -> pb.ListMembersResponse:
    """Return the members as this member knows them. The leader's reply is up to date; a follower names the leader, if any."""
    status = driver.consensus.status()
    if not request.own_view and status.leader is not None and status.has_majority:
        try:
            await driver.barrier()
        except RangelogError as error:
            if getattr(error, "address", None):
                raise
        status = driver.consensus.status()
    members = [
        pb.GroupMember(
            name=member.name,
            raft_address=member.raft_address,
            api_address=driver.api_address_of(member.name),
            voter=member.voter,
            leader=member.leader,
            reachable=member.reachable,
            replaces=member.replaces,
            feature_level=member.feature_level,
            acknowledged_index=member.acknowledged_index,
        )
        for member in status.members
    ]
    voters = sum(member.voter for member in status.members)
    return pb.ListMembersResponse(
        group=status.group,
        members=members,
        configuration_index=status.configuration_index,
        last_index=status.last_index,
        term=status.term,
        has_majority=status.has_majority,
        passing=voters not in GROUP_SIZES or voters != len(members) or any(each.replaces for each in members),
        answered_by=status.name,
    )


async def add_member(driver: Driver, request: pb.AddMemberRequest) -> pb.AddMemberResponse:
    """Add a member as a learner. It votes once it has caught up; then the member that it replaces goes."""
    _check(driver, request.name)
    if not request.api_address:
        raise InvalidArgument(f"the API address of {request.name} is missing: clients need it to follow a leader")
    index = await driver.at_leader(
        driver.consensus.add_member(
            request.name,
            request.raft_address,
            request.api_address,
            replaces=request.replaces,
            timeout_s=CHANGE_TIMEOUT_S,
        )
    )
    return pb.AddMemberResponse(configuration_index=index)


async def remove_member(driver: Driver, request: pb.RemoveMemberRequest) -> pb.RemoveMemberResponse:
    """Remove a member."""
    _check(driver, request.name)
    index = await driver.at_leader(driver.consensus.remove_member(request.name, timeout_s=CHANGE_TIMEOUT_S))
    return pb.RemoveMemberResponse(configuration_index=index)


async def transfer_leadership(driver: Driver, request: pb.TransferLeadershipRequest) -> pb.TransferLeadershipResponse:
    """Hand leadership over to a member."""
    leader = await driver.at_leader(
        driver.consensus.transfer_leadership(request.name or None, timeout_s=CHANGE_TIMEOUT_S)
    )
    return pb.TransferLeadershipResponse(leader=leader)


async def save_state(driver: Driver, request: pb.SaveStateRequest) -> pb.SaveStateResponse:
    """Return the next piece of the state as a file; the first call begins a save, at the leader."""
    save_id = request.save_id
    if not save_id:
        await driver.barrier()
        status = driver.consensus.status()
        with driver.state() as state:
            header = pb.SavedState(
                cluster_id=state.cluster_id,
                cluster_version=state.cluster_version,
                applied_index=status.applied_index,
                term=status.term,
                saved_ms=driver.wall_ms(),
                saved_by=status.name,
                group=status.group,
                stream_count=len(state.streams),
                range_count=len(state.ranges),
                object_count=state.range_objects.committed_count,
                topic_count=len(state.topics.topics),
                time_ms=state.time_ms,
            )
            frozen = driver.freeze()
        save_id = driver.saves.begin(header.SerializeToString(deterministic=True), frozen, driver.now_ms())
    data, last = driver.saves.piece(save_id, request.piece, driver.now_ms())
    return pb.SaveStateResponse(save_id=save_id, data=data, last=last)


def _check(driver: Driver, name: str) -> None:
    if not name:
        raise InvalidArgument("the name of the member is missing")
    with driver.state() as state:
        check_enabled(LEVEL_OPERATIONS, state.cluster_version, "change_members")


CALLS = (
    Call("ListMembers", list_members, WITH_PD, needs=needs.nothing),
    Call("AddMember", add_member, ADMINS, audit=audited.named("placement driver")),
    Call("RemoveMember", remove_member, ADMINS, audit=audited.named("placement driver")),
    Call(
        "TransferLeadership",
        transfer_leadership,
        frozenset({Role.PD, Role.ADMIN}),
        audit=audited.named("placement driver"),
    ),
    Call("SaveState", save_state, ADMINS, audit=audited.cluster),
)
