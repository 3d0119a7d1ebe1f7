"""`pdctl restore`: an empty cluster from the bucket of one that is gone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_list, field, printable
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.units import show_age, show_bytes, show_count
from rangelog_core.errors import ConfigInvalid, PreconditionFailed, UnsupportedVersion

if TYPE_CHECKING:
    from rangelog_core.net.pd_client import PdClient
    from rangelog_tier.restore.plan import RestorePlan
    from rangelog_tier.restore.reading import BucketReading

SHOWN_MAX = 20
"""Lines of each list that people get; -o json has all."""
SHOW_INTERVAL_S = 2.0


@click.command()
@click.option("--from", "url", required=True, metavar="URL", help="The tier of the cluster that is gone.")
@click.option("--cluster-id", metavar="ID", help="Whose snapshots, where the bucket has those of several clusters.")
@click.option("--snapshot", "snapshot_id", metavar="ID", help="An earlier snapshot; none: the manifests have to do.")
@click.option("--dry-run", is_flag=True, help="Show what would be restored and what is lost; needs no cluster.")
@click.option("--verify", is_flag=True, help="Read every object and compare its digest; otherwise sizes are compared.")
@click.option("--trim-to-after-hole", is_flag=True, help="Of a stream with a hole keep what is behind the last one.")
@click.option("--skip-doubtful", is_flag=True, help="Leave out streams whose manifest is gone: they may be deleted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def restore(
    session: Session,
    url: str,
    cluster_id: str | None,
    snapshot_id: str | None,
    dry_run: bool,
    verify: bool,
    trim_to_after_hole: bool,
    skip_doubtful: bool,
    yes: bool,
    output: str,
) -> None:
    """Restore streams and topics into an empty cluster from the tier of one that is gone.

    The placement drivers of the new cluster have the same tier_url; of a tier of several stores it is enough to name the last
    one, which has the snapshots: they name the others. Records that were not in the tier are lost, and listed. A restore that
    was interrupted is run again.

    \b
    Examples:
      pdctl restore --from s3://my-bucket/logs --dry-run
      pdctl restore --from s3://my-bucket/logs --verify
      pdctl restore --from file:///var/lib/rangelog/tier --snapshot 81342 --yes -o json
    """  # \b is click's
    from rangelog_tier.restore.plan import RestoreOptions

    def check(tier: str) -> None:
        if not dry_run:
            session.with_pd(lambda pd: _check_cluster(pd, tier, session.timeout_s))

    options = RestoreOptions(trim_to_after_hole=trim_to_after_hole, skip_doubtful=skip_doubtful)
    tier, reading, plan = _plan(url, cluster_id, snapshot_id, options, verify=verify, check=check)
    report = {"tier_url": tier} | _report(reading, plan)
    if output == "table":
        _show(report)
    if not dry_run:
        what = f"{show_count(report['stream_count'], 'stream')} will be restored, and what is listed as lost stays lost"
        confirm(reading.cluster_id or "restore", what, yes=yes)
        session.with_pd(lambda pd: _apply(pd, reading, plan, session.timeout_s))
        report["restored"] = True
        if output == "table":
            counts = (show_count(report[f"{each}_count"], each) for each in ("stream", "topic", "record"))
            click.echo(f"restored: {', '.join(counts)}; the cluster serves")
    if output != "table":
        emit_data(report, output)


def _plan(
    url: str,
    cluster_id: str | None,
    snapshot_id: str | None,
    options: Any,
    *,
    verify: bool,
    check: Callable[[str], None],
) -> tuple[str, BucketReading, RestorePlan]:
    """Return the tier with all its stores, what they have, and the plan. `check` refuses what the cluster cannot be given."""
    from rangelog_tier import open_object_store
    from rangelog_tier.opening import store_location
    from rangelog_tier.restore.reading import read_bucket, read_plan, read_snapshot
    from rangelog_tier.restore.stores import tier_to_read

    place = store_location(url)
    if place.startswith("/") and not Path(place).is_dir():
        raise ConfigInvalid(f"there is no directory {place}: give the tier URL of the cluster that is gone")
    with closing(open_object_store(url)) as store:
        snapshot = read_snapshot(store, cluster_id=cluster_id, snapshot_id=snapshot_id)
    tier = tier_to_read(url, snapshot.header, snapshot.rows)
    check(tier)
    with closing(open_object_store(tier)) as store:
        reading = read_bucket(store, snapshot, _reads)
        return tier, reading, read_plan(store, reading, options, verify=verify, show=_reads)


def _reads(what: str) -> None:
    if sys.stderr.isatty():
        click.echo(f"reading {what} …", err=True)


async def _check_cluster(pd: PdClient, url: str, timeout_s: float) -> None:
    """Refuse early what the placement drivers would refuse late, or could not know."""

    from rangelog_proto.v1 import pd_pb2, restore_pb2
    from rangelog_tier.restore.stores import same_tier

    found = await pd.call(restore_pb2.DescribeRestoreRequest(), restore_pb2.RestoreResponse, timeout_s=timeout_s)
    if not found.tier_url or not same_tier(found.tier_url, url):
        raise PreconditionFailed(
            f"the tier of this cluster is {found.tier_url or 'none'}, and objects stay where they are: start the placement "
            f"drivers with the tier_url '{url}'"
        )
    if found.mark.phase == restore_pb2.RESTORE_PHASE_RUNNING:
        return
    cluster = await pd.call(pd_pb2.DescribeClusterRequest(), pd_pb2.DescribeClusterResponse, timeout_s=timeout_s)
    if found.mark.phase == restore_pb2.RESTORE_PHASE_DONE and cluster.stream_count:
        raise PreconditionFailed(
            f"this cluster was restored already, from cluster {found.mark.source_cluster_id or '(manifests only)'}: "
            "a restore goes into an empty one"
        )


async def _apply(pd: PdClient, reading: BucketReading, plan: RestorePlan, timeout_s: float) -> Any:

    from rangelog_proto.v1 import restore_pb2
    from rangelog_tier.restore.applying import apply_plan

    found = await pd.call(restore_pb2.DescribeRestoreRequest(), restore_pb2.RestoreResponse, timeout_s=timeout_s)
    if reading.header.cluster_version > found.cluster_version:
        raise UnsupportedVersion(
            f"the snapshot is of cluster version {reading.header.cluster_version}, and this cluster is at "
            f"{found.cluster_version}: upgrade the placement drivers"
        )
    return await apply_plan(
        pd,
        plan,
        source_cluster_id=reading.cluster_id,
        snapshot_id=reading.snapshot_id,
        timeout_s=timeout_s,
        show=_rows_shown(plan.row_count),
    )


def _rows_shown(count: int) -> Callable[[int], None]:
    """Return what shows, on a terminal, how many rows are there."""
    shown_s = time.monotonic()

    def show(put: int) -> None:
        nonlocal shown_s
        if sys.stderr.isatty() and time.monotonic() > shown_s + SHOW_INTERVAL_S:
            shown_s = time.monotonic()
            click.echo(f"{put:,} of {count:,} rows", err=True)

    return show


def _report(reading: BucketReading, plan: RestorePlan) -> dict[str, Any]:
    internal = [each for each in plan.streams if each.name.startswith("_")]
    header = reading.header
    return {
        "cluster_id": reading.cluster_id,
        "snapshot": reading.snapshot_id or None,
        "snapshot_ms": header.time_ms,
        "plan_id": plan.plan_id(),
        "stream_count": len(plan.streams) - len(internal),
        "topic_count": len(plan.topics),
        "shard_count": len(plan.shards),
        "object_count": len(plan.objects),
        "record_count": plan.record_count,
        "size_bytes": sum(each.size_bytes for each in plan.objects),
        "lost": [
            {
                "stream": each.stream,
                "stream_id": each.stream_id,
                "kind": each.kind,
                "start_offset": each.start_offset,
                "end_offset": each.end_offset,
                "records": each.records,
                "was_open": each.was_open,
            }
            for each in plan.lost
        ],
        "missing": plan.missing,
        "holes": plan.holes,
        "doubtful": plan.doubtful,
        "deleted": plan.deleted,
        "moved_cursors": plan.moved_cursors,
        "without_config": plan.without_config,
        "unattached": plan.unattached,
        "orphans": [{"key": key, "size_bytes": size} for key, size in sorted(plan.orphans.items())],
        "left_out": plan.left_out,
        "problems": reading.problems,
        "restored": False,
    }


_NAMED = (
    ("problems", "passed over", ""),
    ("missing", "missing or damaged objects", "streams are cut before them"),
    ("holes", "streams with a hole", "cut at the first one, or trimmed to behind the last one by --trim-to-after-hole"),
    ("doubtful", "streams without a manifest", "they may have been deleted: look, and delete them again if so"),
    ("deleted", "streams that were deleted", "not restored"),
    ("moved_cursors", "cursors behind the end of their stream", "moved to the end"),
    ("without_config", "streams that are later than the snapshot", "they get the default configuration"),
    ("unattached", "shards that are later than the snapshot", "not restored; their objects stay, see orphans"),
)


def _show(report: dict[str, Any]) -> None:
    age_ms = time.time_ns() // 1_000_000 - report["snapshot_ms"]
    of = f"{report['snapshot']}, {show_age(age_ms)} old" if report["snapshot"] is not None else "none: manifests only"
    click.echo(f"cluster   {report['cluster_id'] or '-'}")
    click.echo(f"tier      {printable(report['tier_url'])}")
    click.echo(f"snapshot  {of}")
    counts = [show_count(report[f"{each}_count"], each) for each in ("stream", "topic", "shard", "object", "record")]
    click.echo(f"restores  {', '.join(counts)}, {show_bytes(report['size_bytes'])}")
    for key, what, then in _NAMED:
        if report[key]:
            click.echo(f"\n{what}: {len(report[key])}{f' ({then})' if then else ''}")
            for each in report[key][:SHOWN_MAX]:
                click.echo(f"  {printable(each)}")
            _more(len(report[key]))
    for kind, size in report["left_out"].items():
        click.echo(f"\nnot restored from the snapshot: {printable(kind)}, {show_bytes(size)}")
    if report["orphans"]:
        size = sum(each["size_bytes"] for each in report["orphans"])
        click.echo(
            f"\norphans: {show_count(len(report['orphans']), 'object')}, {show_bytes(size)}, that the cluster will not know"
        )
        for each in report["orphans"][:SHOWN_MAX]:
            click.echo(f"  {printable(each['key'])}")
        _more(len(report["orphans"]))
    _show_lost(report["lost"])


def _show_lost(lost: list[dict[str, Any]]) -> None:
    if not lost:
        click.echo("\nlost: nothing that is known of")
        return
    click.echo(f"\nlost: {sum(each['records'] for each in lost):,} records and what open ranges held beyond them")
    columns = [
        field("KIND", "kind"),
        field("STREAM", "stream"),
        field("FROM", "start_offset"),
        ("TO", lambda row: f"{row['end_offset']} or more" if row["was_open"] else row["end_offset"]),
        field("RECORDS", "records"),
    ]
    emit_list(lost[:SHOWN_MAX], "table", columns, empty="")
    _more(len(lost))


def _more(count: int) -> None:
    if count > SHOWN_MAX:
        click.echo(f"  … and {count - SHOWN_MAX:,} more: -o json has all")
