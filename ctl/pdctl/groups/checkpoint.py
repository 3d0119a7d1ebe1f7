"""`pdctl checkpoint …`: the checkpoints of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.session import NothingFound, Session, confirm, output_option, session_of
from pdctl.topics.options import yes_option
from pdctl.units import Duration
from rangelog_core.errors import RequestTimeout

if TYPE_CHECKING:
    from rangelog import Client, ShardOfTopic

_COLUMNS = [field("NAME", "name"), field("STATE", "state")]
_POSITIONS = [field("TOPIC", "topic"), field("SHARD", "shard_id"), field("OFFSET", "offset")]


@click.group()
def checkpoint() -> None:
    """Checkpoints: positions that all members of a group have reached, under a name."""


@checkpoint.command()
@click.argument("group")
@click.argument("name")
@click.option("--wait", "wait_ms", type=Duration(), default="30s", show_default=True, metavar="DURATION",
              help="How long to wait for the members. The checkpoint stays pending afterwards.")  # fmt: skip
@output_option
@session_of
def create(session: Session, group: str, name: str, wait_ms: int, output: str) -> None:
    """Note where the members of a group are, and wait until all of them have met the checkpoint. Its name is new in the group.

    \b
    Example:
      pdctl checkpoint create billing daily
    """

    async def work(client: Client) -> Mapping[ShardOfTopic, int]:
        await session.answer(client.groups.describe(group))  # fails in time if nobody answers
        try:
            return await client.groups.checkpoint(group, name, timeout_s=wait_ms / 1000)
        except RequestTimeout as error:
            raise RequestTimeout(
                f"{error.message} It stays pending: see `pdctl checkpoint list {group}`, or drop it with "
                f"`pdctl checkpoint delete {group} {name}`"
            ) from error

    _emit(group, name, session.with_client(work), output)


@checkpoint.command("list")
@click.argument("group")
@output_option
@session_of
def list_checkpoints(session: Session, group: str, output: str) -> None:
    """List the checkpoints of a group, the oldest first.

    \b
    Example:
      pdctl checkpoint list billing
    """
    found = session.with_client(lambda client: session.answer(client.groups.describe(group)))
    rows = [{"name": each, "state": "complete"} for each in found.checkpoints]
    if found.pending_checkpoint:
        rows.append({"name": found.pending_checkpoint, "state": "pending"})
    emit_list(rows, output, _COLUMNS, empty=f"group {group} has no checkpoints")


@checkpoint.command()
@click.argument("group")
@click.argument("name")
@output_option
@session_of
def show(session: Session, group: str, name: str, output: str) -> None:
    """Show the positions of a complete checkpoint.

    \b
    Example:
      pdctl checkpoint show billing daily
    """
    found = session.with_client(lambda client: session.answer(client.groups.checkpoint_positions(group, name)))
    _emit(group, name, found, output)


@checkpoint.command()
@click.argument("group")
@click.argument("name")
@yes_option
@output_option
@session_of
def delete(session: Session, group: str, name: str, yes: bool, output: str) -> None:
    """Delete a checkpoint, complete or pending.

    \b
    Example:
      pdctl checkpoint delete billing daily --yes
    """
    confirm(name, f"This deletes checkpoint {name} of group {group}", yes=yes)

    async def work(client: Client) -> None:
        found = await session.answer(client.groups.describe(group))
        if name not in (*found.checkpoints, found.pending_checkpoint):
            raise NothingFound(f"group {group} has no checkpoint {name}: see `pdctl checkpoint list {group}`")
        await client.groups.delete_checkpoint(group, name, timeout_s=session.timeout_s)

    session.with_client(work)
    emit_done(f"{name} is deleted", {"group": group, "checkpoint": name, "deleted": True}, output)


def _emit(group: str, name: str, positions: Mapping[ShardOfTopic, int], output: str) -> None:
    rows: list[dict[str, Any]] = [
        {"topic": each.topic, "shard_id": each.shard_id, "offset": positions[each]} for each in sorted(positions)
    ]
    if output == "table":
        emit_list(rows, output, _POSITIONS, empty="the checkpoint has no positions")
    else:
        emit_one({"group": group, "name": name, "positions": rows}, output, [])
