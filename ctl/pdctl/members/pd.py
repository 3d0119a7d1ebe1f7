"""`pdctl pd list|add|remove|replace|transfer-leader`: the members of the group of placement drivers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import click

from pdctl.members.handing_over import lead_away, transfer
from pdctl.members.snapshot import snapshot
from pdctl.members.views import COLUMNS, members_view, remark
from pdctl.output import emit_data, emit_done, emit_list
from pdctl.session import Session, confirm, output_option, session_of
from rangelog_core.errors import InvalidArgument, MemberNotFound, RequestTimeout, Unavailable

POLL_S = 0.3
CALL_TIMEOUT_S = 10.0

_wait_options = [
    click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until the group has changed."),
    click.option(
        "--wait-s", type=click.FloatRange(1, 86_400), default=300.0, show_default=True, help="At most so many seconds."
    ),
]


def _waiting(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_wait_options):
        command = option(command)
    return command


@click.group("pd")
def pd_group() -> None:
    """The group of placement drivers: its members, its leader, its state."""


@pd_group.command("list")
@output_option
@session_of
def list_members(session: Session, output: str) -> None:
    """List the members, as the leader knows them; without a leader, as the member that answers does.

    BEHIND: the entries of the log that a member is not known to have yet.

    \b
    Examples:
      pdctl pd list
      pdctl pd list -o json | jq '.members[] | select(.leader) | .name'
    """
    _emit(session.with_pd(lambda pd: _listed(pd, session.timeout_s)), output)


@pd_group.command()
@click.argument("member", metavar="NAME=RAFT@API")
@_waiting
@output_option
@session_of
def add(session: Session, member: str, wait: bool, wait_s: float, output: str) -> None:
    """Add a placement driver, which must run: started with --join, on an empty directory.

    It gets the log first, and votes once it has caught up. A group is of 1, 3 or 5; 2 and 4 are passed through.

    \b
    Examples:
      pdctl pd add pd4=10.0.0.4:7140@10.0.0.4:7100
      pdctl pd add pd2=10.0.0.2:7140@10.0.0.2:7100 && pdctl pd add pd3=10.0.0.3:7140@10.0.0.3:7100
    """
    name, raft, api = _parse(member)
    _change(session, lambda pd: _added(pd, name, raft, api, ""), _votes(name), wait, wait_s, output)


@pd_group.command()
@click.argument("old", metavar="NAME")
@click.argument("member", metavar="NEW=RAFT@API")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_waiting
@output_option
@session_of
def replace(session: Session, old: str, member: str, yes: bool, wait: bool, wait_s: float, output: str) -> None:
    """Replace a placement driver, dead or alive, by one that runs with --join on an empty directory.

    The new one is added, catches up and votes; then the old one is removed. If this command is interrupted the group
    goes on by itself.

    \b
    Example:
      pdctl pd replace pd3 pd4=10.0.0.4:7140@10.0.0.4:7100
    """
    name, raft, api = _parse(member)
    confirm(old, f"{old} is removed from the group once {name} votes", yes=yes)

    def is_done(view: dict[str, Any]) -> bool:
        return _votes(name)(view) and old not in _names(view)

    _change(session, lambda pd: _added(pd, name, raft, api, old), is_done, wait, wait_s, output)


@pd_group.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
@session_of
def remove(session: Session, name: str, yes: bool, output: str) -> None:
    """Remove a placement driver. It stops by itself once it hears of it; its data directory is of no use any more.

    Refused when those that remain and can be reached would be no majority.

    \b
    Example:
      pdctl pd remove pd4 --yes
    """
    confirm(name, f"{name} is removed from the group of placement drivers", yes=yes)
    _change(
        session,
        lambda pd: _removed(pd, name),
        lambda view: name not in _names(view),
        wait=True,
        wait_s=30,
        output=output,
    )


@pd_group.command("transfer-leader")
@click.argument("name", required=False)
@click.option("--away-from", metavar="NAME", help="Only if this member leads: to another one, and try for --wait-s.")
@click.option("--wait-s", type=click.FloatRange(0, 600), default=10.0, show_default=True, help="With --away-from.")
@output_option
@session_of
def transfer_leader(session: Session, name: str | None, away_from: str | None, wait_s: float, output: str) -> None:
    """Move leadership to NAME, or to the member that has most of the log.

    It waits until that member has all of it, and has it take over at once. If that fails within 2 s it leads on. A placement
    driver may ask as well, with its own certificate: --away-from is what it does before it stops.

    \b
    Examples:
      pdctl pd transfer-leader pd2
      pdctl pd transfer-leader
      pdctl pd transfer-leader --away-from pd1
    """
    if name and away_from:
        raise click.UsageError("NAME and --away-from exclude each other")
    if away_from:
        leader = session.with_pd(lambda pd: lead_away(pd, away_from, wait_s))
    else:
        leader = session.with_pd(lambda pd: transfer(pd, name or "", session.timeout_s))
    emit_done(f"{leader} leads", {"leader": leader}, output)


# ---- inside


def _parse(text: str) -> tuple[str, str, str]:
    name, _, addresses = text.partition("=")
    raft, _, api = addresses.partition("@")
    if not (name and raft and api):
        raise InvalidArgument(f"{text!r} is not NAME=RAFT_HOST:PORT@API_HOST:PORT: see `pdctl pd add --help`")
    return name, raft, api


def _names(view: dict[str, Any]) -> set[str]:
    return {each["name"] for each in view["members"]}


def _votes(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda view: any(each["name"] == name and each["voter"] for each in view["members"])


async def _listed(pd: Any, timeout_s: float) -> dict[str, Any]:
    from rangelog_proto.v1 import members_pb2 as pb

    return members_view(await pd.call(pb.ListMembersRequest(), pb.ListMembersResponse, timeout_s=timeout_s))


async def _added(pd: Any, name: str, raft: str, api: str, replaces: str) -> None:
    from rangelog_proto.v1 import members_pb2 as pb

    request = pb.AddMemberRequest(name=name, raft_address=raft, api_address=api, replaces=replaces)
    await pd.call(request, pb.AddMemberResponse, timeout_s=CALL_TIMEOUT_S)


async def _removed(pd: Any, name: str) -> None:
    from rangelog_proto.v1 import members_pb2 as pb

    if name not in _names(await _listed(pd, CALL_TIMEOUT_S)):
        raise MemberNotFound(f"{name} is no member of the group: see `pdctl pd list`")
    await pd.call(pb.RemoveMemberRequest(name=name), pb.RemoveMemberResponse, timeout_s=CALL_TIMEOUT_S)


def _change(
    session: Session,
    call: Callable[[Any], Coroutine[Any, Any, None]],
    is_done: Callable[[dict[str, Any]], bool],
    wait: bool,
    wait_s: float,
    output: str,
) -> None:
    """Ask for a change, and wait until it is done."""

    async def work(pd: Any) -> dict[str, Any]:
        await call(pd)
        end_s = time.monotonic() + wait_s
        shown = ""
        while True:
            try:
                view = await _listed(pd, CALL_TIMEOUT_S)
            except Unavailable:
                view = None  # the leader changes just now
            if view is not None and (is_done(view) or not wait):
                return view
            if time.monotonic() > end_s:
                raise RequestTimeout(f"not done within {wait_s:g} s, and goes on by itself: see `pdctl pd list`")
            shown = _show_progress(view, shown)
            await asyncio.sleep(POLL_S)

    _emit(session.with_pd(work), output)


def _show_progress(view: dict[str, Any] | None, shown: str) -> str:
    """Say on stderr how far it is, when that has changed."""
    if view is None:
        return shown
    waited = [
        f"{each['name']} catches up: {each['behind_entries']:,} entries behind"
        if each["behind_entries"] is not None
        else f"{each['name']} does not answer yet at {each['raft_address']}"
        for each in view["members"]
        if not each["voter"]
    ]
    line = "; ".join(waited) or "the change is being committed"
    if line != shown:
        click.echo(line, err=True)
    return line


def _emit(view: dict[str, Any], output: str) -> None:
    if output != "table":
        emit_data(view, output)
        return
    emit_list(view["members"], "table", COLUMNS, empty="no members")
    said = remark(view)
    if said:
        click.echo(f"\n{said}")


pd_group.add_command(snapshot)
