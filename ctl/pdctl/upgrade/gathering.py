"""The questions of `pdctl upgrade check`: each process's program, what would hinder `finalize`, and who may be stopped now.

What holds: it also works while the leader is of the previous release, which knows no `finalize`; fields that it does not
report are shown as unknown.
"""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pdctl.upgrade.plan import ProcessKind, ProcessProgram, ProgramVersion, candidates, is_older, newest, other_broker
from rangelog_core.errors import RangelogError, UnsupportedVersion
from rangelog_core.versions import FEATURE_LEVEL, LEVEL_CHANGES

if TYPE_CHECKING:
    from pdctl.session import Session
    from rangelog_core.net.pd_client import PdClient

MEMBER_TIMEOUT_S = 5.0
ASKED_MAX = 32
"""Processes whose absence is examined, until one may go."""


async def gather(session: Session, pd: PdClient) -> dict[str, Any]:
    """Return what `pdctl upgrade check` shows, with stable keys."""
    from rangelog_proto.v1 import pd_pb2

    described = await pd.call(
        pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=session.timeout_s
    )
    members = await asyncio.gather(*(_member(session, each) for each in described.members))
    processes = [each for each, _ in members] + _servers(described) + await _brokers(session, pd)
    program = newest(processes, ProgramVersion(FEATURE_LEVEL, version("rangelog")))
    following, waits = await _next(session, pd, processes, program)
    return {
        "cluster_version": described.cluster_version,
        "newest": {"feature_level": program.feature_level, "version": program.version},
        "processes": [
            {
                "name": each.name,
                "kind": str(each.kind),
                "version": each.program.version,
                "feature_level": each.program.feature_level,
                "alive": each.alive,
                "leader": each.leader,
                "older": is_older(each, program),
            }
            for each in processes
        ],
        "members_that_finalize": [each.name for each, finalizes in members if finalizes],
        "next": following,
        "waits": waits,
        "finalize": await _finalizing(session, pd, described.cluster_version, program.feature_level),
    }


async def _member(session: Session, member: Any) -> tuple[ProcessProgram, bool]:
    """Return a placement driver's program, and whether it raises the cluster version by itself as a leader."""
    told, finalizes, level = "", False, member.feature_level
    try:
        async with session.peer(member.address, f"placement driver {member.name}") as peer:
            answer = await peer.inspect_member(timeout_s=MEMBER_TIMEOUT_S)
        told, level = answer.version, answer.feature_level
        finalizes = answer.auto_finalize if answer.HasField("auto_finalize") else True
        alive = True
    except RangelogError:
        alive = False
    return ProcessProgram(
        member.name, ProcessKind.PLACEMENT_DRIVER, ProgramVersion(level, told), alive, member.leader
    ), finalizes


def _servers(described: Any) -> list[ProcessProgram]:
    from rangelog_proto.v1 import common_pb2

    return [
        ProcessProgram(
            each.name,
            ProcessKind.RANGE_SERVER,
            ProgramVersion(each.feature_level, each.version),
            each.health != common_pb2.SERVER_HEALTH_DEAD,
        )
        for each in described.servers
    ]


async def _brokers(session: Session, pd: PdClient) -> list[ProcessProgram]:
    from pdctl.topics.calls import broker_counts

    found = (await broker_counts(pd, session.timeout_s)).brokers
    return [
        ProcessProgram(each.name, ProcessKind.BROKER, ProgramVersion(each.feature_level, each.version), not each.lost)
        for each in sorted(found, key=lambda each: each.name)
    ]


async def _next(
    session: Session, pd: PdClient, processes: list[ProcessProgram], program: ProgramVersion
) -> tuple[str, list[dict[str, str]]]:
    """Return the process that may be replaced next, or "", and why those before it may not be stopped now."""
    from rangelog_proto.v1 import operations_pb2

    waits: list[dict[str, str]] = []
    for each in candidates(processes, program)[:ASKED_MAX]:
        if each.kind == ProcessKind.BROKER:
            if not each.alive or other_broker(processes, each.name):
                return each.name, waits
            waits.append({"name": each.name, "reason": "no other broker can take over its shards"})
            continue
        request = operations_pb2.CheckImpactRequest(names=[each.name], listed_max=1)
        impact = await pd.call(request, operations_pb2.CheckImpactResponse, timeout_s=session.timeout_s)
        if impact.safe:
            return each.name, waits
        waits.append({"name": each.name, "reason": _why(impact)})
    return "", waits


def _why(impact: Any) -> str:
    if impact.members_reachable < impact.members_needed:
        return f"{impact.members_reachable} placement drivers would be left, {impact.members_needed} are needed"
    if impact.unreported:
        return f"it is not known yet what {', '.join(impact.unreported[:3])} holds"
    count = impact.lost_count + impact.short_count + impact.stalled_count
    return f"{count} of its ranges would have too few copies"


async def _finalizing(session: Session, pd: PdClient, cluster_version: int, level: int) -> dict[str, Any]:
    """Return what hinders `pdctl upgrade finalize`, and what it would change."""
    from rangelog_proto.v1 import operations_pb2

    changes = {str(each): text for each, text in LEVEL_CHANGES.items() if cluster_version < each <= level}
    request = operations_pb2.FinalizeUpgradeRequest(dry_run=True)
    try:
        found = await pd.call(request, operations_pb2.FinalizeUpgradeResponse, timeout_s=session.timeout_s)
    except UnsupportedVersion:
        hindrances = ["the leader is of an earlier release, which raises the cluster version by itself: upgrade it"]
        return {"to": level, "automatic": True, "hindrances": hindrances, "changes": changes}
    hindrances = list(found.hindrances)
    if found.cluster_version < level:
        hindrances.insert(0, f"the leader has level {found.cluster_version}, and {level} is wanted: upgrade it")
    return {"to": level, "automatic": found.auto_finalize, "hindrances": hindrances, "changes": changes}
