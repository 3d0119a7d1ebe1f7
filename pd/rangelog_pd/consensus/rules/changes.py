"""Changes of a group's members: what a change makes of a configuration, and what follows by itself. Pure.

What holds: a step adds or removes one voter, so that a majority before it and one after it have a member in common; a new
member is a learner first; a group is of 1, 3 or 5 voters, and of another number only until its next change.

Source: Ongaro, "Consensus: Bridging Theory and Practice", chapter 4.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from rangelog_core.errors import InvalidArgument, MemberNotFound, PreconditionFailed, ProtocolViolation
from rangelog_pd.consensus.files.configuration import Configuration, RaftMember, check_member
from rangelog_pd.consensus.files.packing import check_kinds, pack, unpack

GROUP_SIZES = (1, 3, 5)
VOTERS_MAX = max(GROUP_SIZES)
"""One more while a member is replaced."""

ADD, REMOVE = "add", "remove"


@dataclass(frozen=True)
class MemberChange:
    """A wanted change: add a member (in the place of another one, if `replaces` names it), or remove one."""

    action: str
    name: str
    raft_address: str = ""
    api_address: str = ""
    replaces: str = ""


def encode_change(change: MemberChange) -> bytes:
    """Return the bytes by which a change is proposed at the leader; no other member sees them."""
    return pack([change.action, change.name, change.raft_address, change.api_address, change.replaces])


def decode_change(data: bytes) -> MemberChange:
    """Decode a change."""
    fields = unpack(data)
    check_kinds(fields, [(str,)] * 5)
    return MemberChange(*(str(field) for field in fields))


def changed(configuration: Configuration, change: MemberChange) -> Configuration | None:
    """Return the configuration after the first step of a change; None: it is as wanted already.

    Raises InvalidArgument, MemberNotFound, PreconditionFailed.
    """
    if change.action == ADD:
        return _added(configuration, change)
    if change.action == REMOVE:
        return _removed(configuration, change.name)
    raise ProtocolViolation(f"a change of kind {change.action!r}")


def next_step(configuration: Configuration, caught_up: Collection[str]) -> Configuration | None:
    """Return the step that follows by itself: a learner that has caught up votes; then the member that it replaces goes."""
    for member in configuration.members:
        if not member.voter and member.name in caught_up:
            return _with(configuration, replace(member, voter=True))
    for member in configuration.members:
        if member.voter and member.replaces:
            settled = _with(configuration, replace(member, replaces=""))
            return _without(settled, member.replaces)
    return None


def is_passing(configuration: Configuration) -> bool:
    """Whether the group is not of a size to stay at, or a member has not become a voter yet."""
    return len(configuration.voters) not in GROUP_SIZES or len(configuration.voters) != len(configuration.members)


def _added(configuration: Configuration, change: MemberChange) -> Configuration | None:
    check_member(change.name, change.raft_address, change.api_address)
    wanted = RaftMember(change.name, change.raft_address, change.api_address, voter=False, replaces=change.replaces)
    known = configuration.by_name.get(change.name)
    if known is not None:
        if (known.raft_address, known.api_address) == (wanted.raft_address, wanted.api_address):
            return None
        raise PreconditionFailed(f"{change.name} is a member, at {known.raft_address}: remove it, or take another name")
    for member in configuration.members:
        if member.name != change.replaces and _share_an_address(member, wanted):
            raise PreconditionFailed(f"{member.name} has an address of {change.name}: each member has its own")
        if not member.voter:
            raise PreconditionFailed(f"{member.name} is being added: wait until it votes, or remove it")
    if change.replaces and change.replaces not in configuration.voters:
        raise MemberNotFound(f"{change.replaces} is no voting member, so it cannot be replaced")
    if len(configuration.voters) >= VOTERS_MAX and not change.replaces:
        raise PreconditionFailed(f"the group has {len(configuration.voters)} voting members, which is the most")
    return _with(configuration, wanted)


def _share_an_address(one: RaftMember, other: RaftMember) -> bool:
    same_api = bool(one.api_address) and one.api_address == other.api_address
    return same_api or one.raft_address == other.raft_address


def _removed(configuration: Configuration, name: str) -> Configuration | None:
    if name not in configuration.by_name:
        return None
    if configuration.voters == {name}:
        raise InvalidArgument(f"{name} is the last voting member, which cannot be removed")
    remaining = _without(configuration, name)
    members = [replace(each, replaces="") if each.replaces == name else each for each in remaining.members]
    return configuration.with_members(members)


def _with(configuration: Configuration, member: RaftMember) -> Configuration:
    return configuration.with_members([member, *(each for each in configuration.members if each.name != member.name)])


def _without(configuration: Configuration, name: str) -> Configuration:
    return configuration.with_members([each for each in configuration.members if each.name != name])
