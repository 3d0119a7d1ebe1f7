"""`pdctl server cordon | uncordon | drain | remove | check-impact`: what operators do to range servers."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_done, emit_list, field
from pdctl.session import EXIT_FAILED, Session, confirm, output_option, session_of
from pdctl.units import Duration, show_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import operations_pb2

_name = click.argument("name", metavar="SERVER")


@click.command()
@_name
@output_option
@session_of
def cordon(session: Session, name: str, output: str) -> None:
    """Give a range server no new replica. It keeps what it has, and serves it; a drain of it stops.

    \b
    Example:
      pdctl server cordon rs3
    """
    _set_mode(session, name, "CORDONED", output, f"{name} is cordoned: it gets no new replica")


@click.command()
@_name
@output_option
@session_of
def uncordon(session: Session, name: str, output: str) -> None:
    """Give a range server new replicas again, after a cordon or in the middle of a drain.

    \b
    Example:
      pdctl server uncordon rs3
    """
    _set_mode(session, name, "ACTIVE", output, f"{name} is active: it gets new replicas")


@click.command()
@_name
@click.option("--wait", is_flag=True, help="Return once the server is drained, and show how far it is.")
@click.option("--timeout", "wait_ms", type=Duration(bare_seconds=True), default="1h", show_default=True, metavar="DURATION",
              help="With --wait: how long. The drain goes on afterwards.")  # fmt: skip
@output_option
@session_of
def drain(session: Session, name: str, wait: bool, wait_ms: int, output: str) -> None:
    """Move all replicas of a range server to others, so that it can be removed.

    It serves what it has until other servers hold all of it. A drain is refused where it could not end, because fewer servers
    would remain than a range has replicas. `pdctl server uncordon` stops it.

    \b
    Examples:
      pdctl server drain rs3 --wait
      pdctl server drain rs3 --wait --timeout 20m && pdctl server remove rs3
    """
    from pdctl.server_waiting import wait_until_drained

    def show(line: str) -> None:
        if output == "table":
            click.echo(line, err=True)

    async def work(pd: PdClient) -> operations_pb2.DescribeDrainResponse:
        await _change_mode(session, pd, name, "DRAINING")
        return await wait_until_drained(pd, name, session.timeout_s, wait_ms / 1000 if wait else 0.0, show)

    try:
        found = session.with_pd(work)
    except KeyboardInterrupt:
        if wait:
            click.echo(f"the drain of {name} goes on: `pdctl server drain {name} --wait` shows it, "
                       f"`pdctl server uncordon {name}` stops it", err=True)  # fmt: skip
        raise
    view = _drain_view(found)
    if output != "table":
        emit_data(view, output)
    elif view["drained"]:
        click.echo(f"{name} is drained: `pdctl server remove {name}` removes it for good")
    else:
        click.echo(f"{name} is being drained, {show_count(view['ranges_left'], 'range')} left: "
                   f"`pdctl server drain {name} --wait` waits until it is done")  # fmt: skip
        _show_blocked(view)


@click.command()
@_name
@click.option("--accept-loss", is_flag=True,
              help="Of a dead server whose disk is lost: remove it although it may have last copies.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def remove(session: Session, name: str, accept_loss: bool, yes: bool, output: str) -> None:
    """Remove a range server for good: one that is drained, or one that is dead and has no last copy of anything.

    Its data directory can never be used again. An empty one may take the name. With --accept-loss, what only this server had is
    lost: `pdctl repair list` shows it.

    \b
    Examples:
      pdctl server remove rs3 --yes
      pdctl server remove rs3 --accept-loss
    """
    from rangelog_proto.v1 import operations_pb2

    lost = ", and gives up what only this server has" if accept_loss else ""
    confirm(name, f"This removes range server {name}, whose data directory can never be used again{lost}", yes=yes)
    request = operations_pb2.RemoveServerRequest(request_id=uuid.uuid4().hex, server=name, accept_loss=accept_loss)
    removed = session.with_pd(
        lambda pd: pd.call(request, operations_pb2.RemoveServerResponse, timeout_s=session.timeout_s)
    )
    said = f"{name} is removed: it ends by itself where it runs; delete its data directory"
    emit_done(said, {"server": name, "incarnation": f"{removed.incarnation:016x}", "removed": True}, output)


@click.command("check-impact")
@click.argument("names", nargs=-1, metavar="SERVER...")
@click.option("--any", "any_one", is_flag=True, help="In place of names: whether any one range server may go down.")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=20, show_default=True, help="Ranges of each kind to list."
)
@click.option("--wait", "wait_ms", type=Duration(), default="0s", metavar="DURATION",
              help="Ask again and again for so long while the answer is no.  [default: ask once]")  # fmt: skip
@output_option
@session_of
def check_impact(
    session: Session, names: tuple[str, ...], any_one: bool, limit: int, wait_ms: int, output: str
) -> None:
    """Ask whether servers may go down now, all of them at once. The exit code is the answer: 0 yes, 1 no.

    SERVER is a range server or a placement driver. A range that is wholly in the tier has copies enough. Nothing is changed.
    A range server or a placement driver may ask as well, with its own certificate: --wait is what it does before it stops.

    With --any, which every role may ask: yes while all ranges have as many copies as their streams want, and no range server is
    suspect. On Kubernetes the disruption budget follows that.

    \b
    Examples:
      pdctl server check-impact rs1
      pdctl server check-impact rs1 pd1 && sudo reboot
      pdctl server check-impact rs1 --wait 4m
      pdctl server check-impact --any
    """
    if bool(names) == any_one:
        raise click.UsageError("give names of servers, or --any")
    if any_one:
        _check_any(session, wait_ms, output)
        return
    from pdctl.server_waiting import wait_until_safe
    from rangelog_proto.v1 import operations_pb2

    request = operations_pb2.CheckImpactRequest(names=names, listed_max=limit)
    found = session.with_pd(lambda pd: wait_until_safe(pd, request, session.timeout_s, wait_ms / 1000))
    view = _impact_view(names, found)
    if output == "table":
        _show_impact(view)
    else:
        emit_data(view, output)
    if not found.safe:
        sys.exit(EXIT_FAILED)


def _check_any(session: Session, wait_ms: int, output: str) -> None:
    from pdctl.spare import wait_until_spare

    found = session.with_pd(lambda pd: wait_until_spare(pd, session.timeout_s, wait_ms / 1000))
    said = f"no: {'; '.join(found)}" if found else "yes: any one range server may go down now"
    emit_done(said, {"safe": not found, "hindrances": found}, output)
    if found:
        sys.exit(EXIT_FAILED)


VERBS = (cordon, uncordon, drain, remove, check_impact)


def _set_mode(session: Session, name: str, mode: str, output: str, done: str) -> None:
    from pdctl.views import server_view

    server = session.with_pd(lambda pd: _change_mode(session, pd, name, mode))
    emit_done(done, server_view(server), output)


async def _change_mode(session: Session, pd: PdClient, name: str, mode: str) -> Any:
    from rangelog_proto.v1 import operations_pb2

    request = operations_pb2.SetServerModeRequest(request_id=uuid.uuid4().hex, server=name, mode=f"SERVER_MODE_{mode}")
    return (await pd.call(request, operations_pb2.SetServerModeResponse, timeout_s=session.timeout_s)).server


def _drain_view(found: operations_pb2.DescribeDrainResponse) -> dict[str, Any]:
    from pdctl.server_waiting import is_over, ranges_left

    return {
        "server": found.server.name,
        "drained": is_over(found),
        "ranges_left": ranges_left(found),
        "open_ranges": found.open_count,
        "sealed_ranges": found.sealed_count,
        "copying_ranges": found.copying_count,
        "blocked_ranges": found.blocked_count,
        "blocked": [_trouble_view(each) for each in found.blocked],
    }


def _show_blocked(view: dict[str, Any]) -> None:
    if view["blocked"]:
        click.echo(f"{show_count(view['blocked_ranges'], 'range')} cannot leave it:")
        emit_list(view["blocked"], "table", _columns(_RANGE, field("WHY", "reason")), empty="")


def _trouble_view(each: operations_pb2.RangeTrouble) -> dict[str, Any]:
    return {
        "stream": each.stream_name,
        "stream_id": each.stream_id,
        "range_index": each.range_index,
        "reason": each.reason,
        "copies_left": each.copies,
    }


def _impact_view(names: tuple[str, ...], found: operations_pb2.CheckImpactResponse) -> dict[str, Any]:
    return {
        "servers": list(dict.fromkeys(names)),
        "safe": found.safe,
        "ranges_examined": found.range_count,
        "lost_count": found.lost_count,
        "short_count": found.short_count,
        "stalled_count": found.stalled_count,
        "lost": [_trouble_view(each) for each in found.lost],
        "short": [_trouble_view(each) for each in found.short],
        "stalled": [_trouble_view(each) for each in found.stalled],
        "placement_drivers_left": found.members_reachable,
        "placement_drivers_needed": found.members_needed,
        "unreported_servers": list(found.unreported),
    }


_KINDS = (
    ("lost", "would have no copy within reach"),
    ("short", "would have fewer copies than acks"),
    ("stalled", "are open and could take no append"),
)
_RANGE = (("STREAM", lambda row: row["stream"] or row["stream_id"]), field("RANGE", "range_index"))


def _columns(*parts: Any) -> list[tuple[str, Callable[[Any], object]]]:
    found: list[tuple[str, Callable[[Any], object]]] = []
    for part in parts:
        found += [part] if isinstance(part[0], str) else part
    return found


def _show_impact(view: dict[str, Any]) -> None:
    shown = ", ".join(view["servers"])
    click.echo(f"{'yes' if view['safe'] else 'no'}: {shown} may{'' if view['safe'] else ' not'} go down now")
    click.echo(f"ranges examined    {view['ranges_examined']}")
    left, needed = view["placement_drivers_left"], view["placement_drivers_needed"]
    click.echo(
        f"placement drivers  {left} would be left, {needed} are needed{'' if left >= needed else ': no majority'}"
    )
    if view["unreported_servers"]:
        click.echo(
            f"not known yet      what {', '.join(view['unreported_servers'])} has: it counts as empty; ask again"
        )
    for kind, what in _KINDS:
        count = view[f"{kind}_count"]
        if count:
            click.echo(f"\n{show_count(count, 'range')} {what}:")
            emit_list(view[kind], "table", _columns(_RANGE, field("COPIES LEFT", "copies_left")), empty="")
            if count > len(view[kind]):
                click.echo(f"… and {count - len(view[kind])} more")
