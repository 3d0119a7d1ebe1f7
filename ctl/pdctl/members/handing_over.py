"""Hands the lead of the placement drivers over: to a member, or away from one that is about to stop.

What holds: a member that is led away from is never the target, also where another one came to lead meanwhile; who does not
lead is left alone. A target that cannot take over just now is tried again, or another one, within the time that is given.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from rangelog_core.errors import MemberNotFound, PreconditionFailed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import members_pb2

POLL_S = 0.3
TRY_TIMEOUT_S = 5.0


async def transfer(pd: PdClient, name: str, timeout_s: float) -> str:
    """Move leadership to a member, "" to the one that has most of the log; return who leads then."""
    from rangelog_proto.v1 import members_pb2 as pb

    request = pb.TransferLeadershipRequest(name=name)
    return (await pd.call(request, pb.TransferLeadershipResponse, timeout_s=timeout_s)).leader


def successor(members: Iterable[members_pb2.GroupMember], leaving: str) -> str | None:
    """Return the voter within reach that has most of the log, but for the one that leaves; None: no other voter is within
    reach."""
    able = [each for each in members if each.voter and each.reachable and each.name != leaving]
    best = max(able, key=lambda each: each.acknowledged_index, default=None)
    return best.name if best is not None else None


async def lead_away(pd: PdClient, leaving: str, wait_s: float) -> str:
    """Return who leads once that is not `leaving`.

    Raises MemberNotFound, PreconditionFailed (no other member can lead), and after `wait_s` the error of the last try.
    """
    from rangelog_proto.v1 import members_pb2 as pb

    end_s = time.monotonic() + wait_s
    while True:
        try:
            listed = await pd.call(pb.ListMembersRequest(), pb.ListMembersResponse, timeout_s=TRY_TIMEOUT_S)
            if all(each.name != leaving for each in listed.members):
                raise MemberNotFound(f"{leaving} is no member of the group: see `pdctl pd list`")
            leader = next((each.name for each in listed.members if each.leader), None)
            if leader is None:
                raise Unavailable("no placement driver leads at the moment")
            if leader != leaving:
                return leader
            target = successor(listed.members, leaving)
            if target is None:
                raise PreconditionFailed(f"no other member within reach could lead in place of {leaving}")
            await transfer(pd, target, TRY_TIMEOUT_S)
        except (Unavailable, PreconditionFailed):
            if time.monotonic() >= end_s:
                raise
            await asyncio.sleep(min(POLL_S, max(0.0, end_s - time.monotonic())))
