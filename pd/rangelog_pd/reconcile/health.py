"""The health of a cluster and of a range, in words for people. The one place that decides what "healthy" means. Pure.

What holds: "healthy" means that every member and server is there and in service, every range that depends on copies has as many
as its stream wants, and no task fails. "unavailable": no placement driver leads, or it has no majority. Whatever is not as it
should be has a reason, the gravest first; each reason is one line that names the first few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rangelog_proto.v1 import common_pb2, inspection_pb2, pd_pb2, restore_pb2

HEALTHY, DEGRADED, UNAVAILABLE = "healthy", "degraded", "unavailable"
NAMES_MAX = 3
_ERROR_LENGTH_MAX = 120


@dataclass(frozen=True, slots=True)
class FirstNames:
    """The first names behind the counts of a description. `short`: the first ranges with too few copies, as stream/index."""

    short: Sequence[str] = ()
    lost: Sequence[str] = ()
    open_short_count: int = 0
    exact: bool = True
    failing: Sequence[pd_pb2.Task] = ()
    tier_errors: Sequence[tuple[str, str]] = ()  # who, and what


def cluster_health(described: pd_pb2.DescribeClusterResponse, names: FirstNames) -> tuple[str, list[str]]:
    """Return the word for a cluster, and the reasons why it is not healthy."""
    reasons: list[str] = []
    leads = any(each.leader for each in described.members)
    if not described.has_majority or not leads:
        reasons.append("no placement driver leads: fewer than a majority of them are running")
    if described.restore.phase == restore_pb2.RESTORE_PHASE_RUNNING:
        reasons.append("a restore is not done: run `pdctl restore` again until it is")
    if described.lost_range_count:
        listed = _listed(names.lost, described.lost_range_count)
        reasons.append(f"lost: {_ranges(described.lost_range_count)} of which no copy can come back{listed}")
    reasons += _short(described, names)
    for each in described.servers:
        if each.health != common_pb2.SERVER_HEALTH_ALIVE or each.health_reason:
            why = f": {each.health_reason}" if each.health_reason else ""
            reasons.append(f"range server {each.name} is {server_word(each.health)}{why}")
        if each.mode == common_pb2.SERVER_MODE_DRAINING:
            reasons.append(f"range server {each.name} is draining")
    if not described.servers:
        reasons.append("no range server is registered")
    for member in described.members:
        if not member.reachable:
            reasons.append(f"placement driver {member.name} is unreachable")
    if described.failing_task_count:
        reasons.append(_failing(described.failing_task_count, names.failing))
    reasons += _tier(names.tier_errors)
    if not described.has_majority or not leads:
        return UNAVAILABLE, reasons
    return (DEGRADED if reasons else HEALTHY), reasons


def _short(described: pd_pb2.DescribeClusterResponse, names: FirstNames) -> list[str]:
    reasons: list[str] = []
    count = described.under_replicated_range_count
    if count:
        about = "" if names.exact else "up to "
        since_ms = described.under_replicated_since_ms
        since = f", oldest since {_time(since_ms)}" if since_ms else ""
        still_open = f", {names.open_short_count} of them open" if names.open_short_count else ""
        listed = _listed(names.short, count)
        reasons.append(
            f"under-replicated: {about}{count} of {_ranges(described.range_count)}{still_open}{since}{listed}"
        )
    if described.blocked_repair_count:
        reasons.append(f"no server can take a further copy of {_ranges(described.blocked_repair_count)} at the moment")
    return reasons


def _tier(errors: Sequence[tuple[str, str]]) -> list[str]:
    by_error: dict[str, list[str]] = {}
    for name, error in errors:
        by_error.setdefault(error, []).append(name)
    return [
        f"the tier fails for {', '.join(found[:NAMES_MAX])}{', …' if len(found) > NAMES_MAX else ''}: {error}"
        for error, found in by_error.items()
    ][:NAMES_MAX]


def _failing(count: int, tasks: Sequence[pd_pb2.Task]) -> str:
    text = f"failing: {count} task{'' if count == 1 else 's'}"
    if not tasks:
        return text
    first = tasks[0]
    where = f" of {first.stream_name}/{first.range_index}" if first.stream_name else ""
    return f"{text}, the oldest: {first.kind}{where} on {first.server}: {first.last_error[:_ERROR_LENGTH_MAX]}"


def range_problem(of: common_pb2.Range, copies: Sequence[inspection_pb2.Copy], wanted: int, *, blocked: bool) -> str:
    """Return why a range is not healthy, or "". One that the tier holds wholly does not depend on copies."""
    if of.lost:
        return f"lost: an operator accepted that its records from {of.tiered_end_offset} on are gone"
    whole = sum(each.whole for each in copies)
    in_tier = of.state == common_pb2.RANGE_STATE_SEALED and of.tiered_end_offset >= of.end_offset
    is_empty = of.state == common_pb2.RANGE_STATE_SEALED and of.start_offset == of.end_offset
    if whole >= wanted or in_tier or is_empty:
        return ""
    missing = [f"{each.replica.server} {_copy_word(each)}" for each in copies if not each.whole]
    if len(copies) < wanted:
        missing.append(f"{wanted - len(copies)} more wanted")
    if blocked:
        missing.append("no server can take a further copy at the moment")
    return f"{whole} of {wanted} copies: {', '.join(missing)}"


def _copy_word(copy: inspection_pb2.Copy) -> str:
    if copy.replica.health != common_pb2.SERVER_HEALTH_ALIVE:
        return f"is {server_word(copy.replica.health)}"
    if copy.state == pd_pb2.REPLICA_STATE_UNSPECIFIED:
        return "has not reported a copy"
    word = pd_pb2.ReplicaState.Name(copy.state).removeprefix("REPLICA_STATE_").lower()
    return f"is {word} at {copy.durable_offset}" + (f" ({copy.problem})" if copy.problem else "")


def server_word(health: common_pb2.ServerHealth) -> str:
    """SERVER_HEALTH_SUSPECT → suspect."""
    return common_pb2.ServerHealth.Name(health).removeprefix("SERVER_HEALTH_").lower()


def _ranges(count: int) -> str:
    return f"{count} range" if count == 1 else f"{count} ranges"


def _listed(names: Sequence[str], count: int) -> str:
    if not names:
        return ""
    more = ", …" if count > len(names[:NAMES_MAX]) else ""
    return f": {', '.join(names[:NAMES_MAX])}{more}"


def _time(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
