"""`pdctl upgrade check | finalize`: how far an upgrade is, who comes next, and the step after which there is no way back."""

from __future__ import annotations

import sys
from typing import Any

import click

from pdctl.output import emit_data, emit_list, field, printable
from pdctl.session import EXIT_FAILED, Session, confirm, output_option, session_of
from rangelog_core.errors import PreconditionFailed, UnsupportedVersion

_COLUMNS = [
    field("PROCESS", "name"),
    field("KIND", "kind"),
    field("VERSION", "version", lambda told: told or "-"),
    field("LEVEL", "feature_level", lambda level: level or "-"),
    ("STATE", lambda row: "leader" if row["leader"] else "alive" if row["alive"] else "not reached"),
    ("PROGRAM", lambda row: "earlier" if row["older"] else "newest"),
]


@click.group()
def upgrade() -> None:
    """An upgrade of the cluster: placement drivers, range servers, brokers, one process at a time."""


@upgrade.command()
@output_option
@session_of
def check(session: Session, output: str) -> None:
    """Show each process's program, which process may be replaced next, and what holds the cluster version back.

    A process that reports no level is of an earlier program. Nothing is changed. The exit code is 0 when nothing is left to
    do, 1 while something is.

    \b
    Examples:
      pdctl upgrade check
      pdctl upgrade check -o json | jq -r .next
    """
    from pdctl.upgrade.gathering import gather

    found = session.with_pd(lambda pd: gather(session, pd))
    if output == "table":
        _show(found)
    else:
        emit_data(found, output)
    if not _is_done(found):
        sys.exit(EXIT_FAILED)


@upgrade.command()
@click.option("--accept-older", is_flag=True,
              help="Although range servers or brokers are of an earlier program. Placement drivers never may be.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def finalize(session: Session, accept_older: bool, yes: bool, output: str) -> None:
    """Raise the cluster version to the feature level of the placement drivers: from then on no earlier one can take part.

    Needed where the placement drivers have `auto_finalize = false`; else the leader does it once all of them have the level.
    It is refused, with the reason, while a process is of an earlier program.

    \b
    Examples:
      pdctl upgrade finalize
      pdctl upgrade check; pdctl upgrade finalize --yes
    """
    planned = session.with_pd(lambda pd: _finalize(session, pd, dry_run=True, accept_older=accept_older))
    before, level = planned.cluster_version_before, planned.cluster_version
    if level > before and not planned.hindrances:
        what = (
            f"This raises the cluster version from {before} to {level}; no earlier placement driver can take part then"
        )
        confirm(str(level), what, yes=yes)
    done = session.with_pd(lambda pd: _finalize(session, pd, dry_run=False, accept_older=accept_older))
    if output != "table":
        emit_data(
            {"cluster_version_before": done.cluster_version_before, "cluster_version": done.cluster_version}, output
        )
    elif done.cluster_version == done.cluster_version_before:
        click.echo(f"the cluster version is {done.cluster_version} already: nothing was done")
    else:
        click.echo(f"the cluster version is {done.cluster_version}; it was {done.cluster_version_before}")


async def _finalize(session: Session, pd: Any, *, dry_run: bool, accept_older: bool) -> Any:
    from rangelog_proto.v1 import operations_pb2

    request = operations_pb2.FinalizeUpgradeRequest(dry_run=dry_run, accept_older=accept_older)
    try:
        return await pd.call(request, operations_pb2.FinalizeUpgradeResponse, timeout_s=session.timeout_s)
    except UnsupportedVersion as error:
        raise PreconditionFailed(
            "the placement driver that leads is of an earlier release, which knows no finalize: `pdctl upgrade check` says "
            "who is upgraded next"
        ) from error


def _is_done(found: dict[str, Any]) -> bool:
    older = any(each["older"] for each in found["processes"])
    return not older and found["cluster_version"] >= found["newest"]["feature_level"]


def _show(found: dict[str, Any]) -> None:
    told, plan = found["newest"], found["finalize"]
    click.echo(f"cluster version  {found['cluster_version']}")
    click.echo(printable(f"newest program   {told['version']}, feature level {told['feature_level']}"))
    for each in found["waits"]:
        click.echo(printable(f"may not go now   {each['name']}: {each['reason']}"))
    click.echo(f"next             {_next_line(found)}")
    for text in plan["hindrances"]:
        click.echo(printable(f"held back by     {text}"))
    for level, text in plan["changes"].items():
        click.echo(f"level {level:<10} {text}")
    click.echo()
    emit_list(found["processes"], "table", _COLUMNS, empty="no process is known")


def _next_line(found: dict[str, Any]) -> str:
    if found["next"]:
        return printable(f"replace {found['next']}: stop it, start the newest program on its data directory")
    if any(each["older"] for each in found["processes"]):
        return "wait until the cluster has copies enough, and ask again"
    if found["cluster_version"] >= found["newest"]["feature_level"]:
        return "nothing: the upgrade is done"
    if found["finalize"]["automatic"]:
        return "wait: the leader raises the cluster version by itself once nothing holds it back"
    return "pdctl upgrade finalize"
