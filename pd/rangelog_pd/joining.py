"""How a placement driver that is to be added to a group learns of it: from a member's API, once; then from its own disk.

What holds: it starts without being a member. It neither votes nor stands for election before the group has added it. A member
that the group began with keeps on disk what it was started with, so that it may be started with --join later: on an empty
directory that adds it again, where --member would make it begin another group.
"""

from __future__ import annotations

from pathlib import Path

from rangelog_core.errors import ConfigInvalid, ProtocolViolation
from rangelog_core.net.pd_client import PdClient
from rangelog_pd.consensus.files import group_file
from rangelog_pd.consensus.files.configuration import GROUP_BYTES, Configuration, RaftMember, check_member
from rangelog_pd.settings import PdSettings
from rangelog_proto.v1 import members_pb2 as pb

JOIN_TIMEOUT_S = 15.0


async def group_to_join(settings: PdSettings) -> Configuration:
    """Return the group that this member is to be added to. Raises ConfigInvalid, Corruption, Unavailable."""
    directory = settings.data_dir / "raft"
    known = group_file.read(directory / "group")
    if known is not None:
        return known
    if (directory / "vote").exists():
        raise ConfigInvalid(
            f"{settings.data_dir} is of a member that began its group, under a version that did not note which: start it once "
            "with --member as before, or on an empty directory"
        )
    found = await _ask(settings)
    directory.mkdir(parents=True, exist_ok=True)
    group_file.write(directory / "group", found)
    return found


def note_group(data_dir: Path, begun: Configuration) -> None:
    """Keep the group that this member began, for a later start with --join. Raises OSError, Corruption."""
    directory = data_dir / "raft"
    if group_file.read(directory / "group") is None:
        group_file.write(directory / "group", begun)


async def _ask(settings: PdSettings) -> Configuration:
    pd = PdClient([settings.join], token=settings.token, tls=settings.tls)
    try:
        told = await pd.call(pb.ListMembersRequest(), pb.ListMembersResponse, timeout_s=JOIN_TIMEOUT_S)
    finally:
        await pd.close()
    if len(told.group) != GROUP_BYTES or not told.members:
        raise ProtocolViolation(f"{settings.join} names no group: is it a placement driver of this version?")
    members = []
    for each in told.members:
        check_member(each.name, each.raft_address, each.api_address)
        # Under its own name there may be one whose disk was lost: it is not this one until the group says so.
        if each.name != settings.name:
            members.append(RaftMember(each.name, each.raft_address, each.api_address, each.voter))
    return Configuration(told.group, ()).with_members(members)
