"""`pdctl cluster …` and `pdctl task …`: the state of the cluster, and its tasks."""

from __future__ import annotations

import sys
from typing import Any

import click

from pdctl.output import emit_data, emit_list, field, printable
from pdctl.rebalance import rebalance
from pdctl.session import EXIT_FAILED, EXIT_UNAVAILABLE, Session, output_option, session_of
from pdctl.units import show_age, show_bytes, show_count, show_time
from rangelog_core.errors import UnsupportedVersion


@click.group()
def cluster() -> None:
    """The cluster as a whole."""


@cluster.command()
@output_option
@session_of
def status(session: Session, output: str) -> None:
    """Show members, servers and counts; the exit code is the health.

    0: healthy. 1: degraded (a member or server is missing, ranges have too few copies, tasks fail, or the tier does). 4: there
    is no leader.

    \b
    Examples:
      pdctl cluster status
      pdctl cluster status -o json | jq .health
    """
    described = session.with_pd(lambda pd: describe_cluster(pd, session.timeout_s))
    if output == "table":
        _show(described)
    else:
        emit_data(described, output)
    if described["health"] == "unavailable":
        sys.exit(EXIT_UNAVAILABLE)
    if described["health"] != "healthy":
        sys.exit(EXIT_FAILED)


async def describe_cluster(pd: Any, timeout_s: float) -> dict[str, Any]:
    """Return what `pdctl cluster status` shows, with stable keys."""
    from pdctl.views import server_view
    from rangelog_proto.v1 import pd_pb2

    found = await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=timeout_s)
    checks = await _tier_checks(pd, timeout_s) if found.tier_url and found.has_majority else []
    members = [
        {
            "name": each.name,
            "address": each.address,
            "leader": each.leader,
            "reachable": each.reachable,
            "feature_level": each.feature_level,
        }
        for each in found.members
    ]
    # A placement driver of an earlier version does not say its health: it may have what nobody here can see.
    health = found.health or "unknown"
    reasons = list(found.reasons) if found.health else ["the placement driver that answers is of an earlier version"]
    return {
        "health": health,
        "reasons": reasons,
        "cluster_id": found.cluster_id,
        "cluster_version": found.cluster_version,
        "members": members,
        "servers": [server_view(each) for each in found.servers],
        "stream_count": found.stream_count,
        "range_count": found.range_count,
        "open_range_count": found.open_range_count,
        "object_count": found.object_count,
        "under_replicated_range_count": found.under_replicated_range_count,
        "under_replicated_since_ms": found.under_replicated_since_ms,
        "blocked_repair_count": found.blocked_repair_count,
        "lost_range_count": found.lost_range_count,
        "failing_task_count": found.failing_task_count,
        "tier_url": found.tier_url,
        "tier_checks": checks,
        "tier_snapshot": _tier_snapshot(found),
        "restore": _restore(found),
    }


def _tier_snapshot(found: Any) -> dict[str, Any] | None:
    """Return the last snapshot in the tier by this leader; None: there is no tier, or no leader answers."""
    told = found.tier_snapshot
    if not found.HasField("tier_snapshot") or not told.enabled:
        return None
    fields = ("snapshot_id", "written_ms", "age_ms", "size_bytes", "current", "last_error")
    return {name: getattr(told, name) for name in fields}


def _restore(found: Any) -> dict[str, Any] | None:
    from rangelog_proto.v1 import restore_pb2

    if not found.HasField("restore"):
        return None
    mark = found.restore
    return {
        "running": mark.phase == restore_pb2.RESTORE_PHASE_RUNNING,
        "source_cluster_id": mark.source_cluster_id,
        "snapshot": mark.snapshot_id,
        "row_count": mark.row_count,
        "rows_put": mark.rows_put,
        "began_ms": mark.began_ms,
        "ended_ms": mark.ended_ms,
    }


async def _tier_checks(pd: Any, timeout_s: float) -> list[dict[str, Any]]:
    """Return what the leader and the living range servers found when they checked the tier."""
    from rangelog_proto.v1 import tier_pb2

    try:
        found = await pd.call(tier_pb2.DescribeTierRequest(), tier_pb2.DescribeTierResponse, timeout_s=timeout_s)
    except UnsupportedVersion:  # earlier placement drivers check nothing
        return []
    return [
        {
            "name": each.name,
            "kind": "placement-driver" if each.placement_driver else "range-server",
            "error": each.error,
        }
        for each in found.checks
    ]


def _show(described: dict[str, Any]) -> None:
    click.echo(f"health    {described['health']}")
    for reason in described["reasons"]:
        click.echo(f"          - {printable(reason)}")
    click.echo(f"cluster   {described['cluster_id']}, version {described['cluster_version']}")
    click.echo(f"tier      {described['tier_url'] or 'none'}")
    for problem, names in _tier_problems(described["tier_checks"]).items():
        click.echo(printable(f"          fails for {', '.join(names)}: {problem}"))
    if described["tier_snapshot"] is not None:
        click.echo(f"snapshot  {_snapshot_line(described['tier_snapshot'])}")
    if described["restore"] is not None:
        click.echo(f"restore   {_restore_line(described['restore'])}")
    streams, ranges, objects = (show_count(described[f"{each}_count"], each) for each in ("stream", "range", "object"))
    click.echo(f"holds     {streams}, {ranges} ({described['open_range_count']} open), {objects}")
    if described["failing_task_count"]:
        click.echo(f"failing   {show_count(described['failing_task_count'], 'task')}: see `pdctl task list --failing`")
    click.echo()
    columns = [
        field("PLACEMENT DRIVER", "name"),
        field("ADDRESS", "address"),
        field("LEVEL", "feature_level"),
        ("STATE", lambda row: "leader" if row["leader"] else "follower" if row["reachable"] else "unreachable"),
    ]
    emit_list(described["members"], "table", columns, empty="no members")
    click.echo()
    emit_list(
        described["servers"],
        "table",
        [
            field("RANGE SERVER", "name"),
            field("HEALTH", "health"),
            field("MODE", "mode"),
            field("ADDRESS", "data_address"),
            field("REPLICAS", "replica_count"),
            field("LOG ON DISK", "used_bytes", show_bytes),
        ],
        empty="no range server is registered",
    )


def _tier_problems(checks: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return who has which problem with the tier; most often all have the same."""
    found: dict[str, list[str]] = {}
    for each in checks:
        if each["error"]:
            found.setdefault(each["error"], []).append(each["name"])
    return found


def _snapshot_line(told: dict[str, Any]) -> str:
    if not told["snapshot_id"]:
        return told["last_error"] or "none in the tier yet"
    line = f"{told['snapshot_id']} in the tier, {show_age(told['age_ms'])} old"
    if told["last_error"]:
        return f"{line}; the next one fails: {told['last_error']}"
    return line if told["current"] else f"{line}, with changes since"


def _restore_line(told: dict[str, Any]) -> str:
    source = f"cluster {told['source_cluster_id'] or 'unknown'}, snapshot {told['snapshot'] or 'none'}"
    if told["running"]:
        return f"{told['rows_put']:,} of {told['row_count']:,} rows from {source}: run `pdctl restore` until it is done"
    return f"done {show_time(told['ended_ms'])} from {source}"


cluster.add_command(rebalance)


@click.group()
def task() -> None:
    """Tasks that are not done yet: of range servers, and of topics."""


@task.command("list")
@click.option("--failing", is_flag=True, help="Only those whose last attempt failed.")
@output_option
@session_of
def list_tasks(session: Session, failing: bool, output: str) -> None:
    """List the current tasks: of range servers (seals, uploads, copies, drops, deletions), and of topics that are being
    scaled, truncated, sealed, deleted or changed.

    \b
    Examples:
      pdctl task list
      pdctl task list --failing
    """
    from pdctl.views import task_view
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.ListTasksRequest(failing_only=failing)
    response = session.call(request, pd_pb2.ListTasksResponse)
    columns = [
        field("KIND", "kind"),
        ("STREAM OR TOPIC", lambda row: row["topic"] or row["stream"]),
        ("RANGE", lambda row: "-" if row["topic"] else row["range_index"]),
        ("SERVER", lambda row: row["server"] or "-"),
        ("STATE", lambda row: row["state"] or "-"),
        ("SHARDS LEFT", lambda row: row["shards_left"] if row["topic"] else "-"),
        field("SINCE", "since_ms", show_time),
        ("AGE", lambda row: show_age(row["age_ms"]) if row["since_ms"] else "-"),
        ("ASKED", lambda row: "-" if row["topic"] else row["attempts"]),
        ("DETAIL OR LAST ERROR", lambda row: row["detail"] or row["last_error"]),
        field("ID", "task_id"),
    ]
    emit_list([task_view(each) for each in response.tasks], output, columns, empty="there are no tasks")
