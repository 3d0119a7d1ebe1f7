"""`pdctl group …`: consumer groups, their positions, and moves of these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.record_text import printed_bytes, shown_bytes
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.topics.options import yes_option
from pdctl.topics.places import CHECKPOINT, PlaceType
from pdctl.topics.text import TopicNameType
from pdctl.units import show_count
from rangelog_core.errors import PreconditionFailed
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from rangelog import Client, GroupInfo, GroupShardInfo, GroupSummary, ShardLag

_COLUMNS = [field("NAME", "name"), field("MEMBERS", "members"), field("GENERATION", "generation")]


def _or_dash(value: Any) -> Any:
    return "-" if value is None or value == "" else value


def _names(names: list[str]) -> str:
    return ", ".join(names) or "-"


_SHOWN = [
    field("NAME", "name"),
    field("GENERATION", "generation"),
    field("TOPICS", "topics", _names),
    field("CHECKPOINTS", "checkpoints", _names),
    field("PENDING CHECKPOINT", "pending_checkpoint", _or_dash),
]
_MEMBERS = [
    field("MEMBER", "member_id"),
    field("JOINED", "joined"),
    ("SESSION", lambda row: f"{row['session_s']:g}s"),
    ("SILENT FOR", lambda row: f"{row['silent_s']:.1f}s"),
    ("SHARDS", lambda row: len(row["shards"])),
]
_SHARDS = [
    field("TOPIC", "topic"),
    field("SHARD", "shard_id"),
    field("POSITION", "offset", _or_dash),
    field("END", "end_offset", _or_dash),
    field("MEMBER", "member_id", _or_dash),
    field("STATE", "state"),
    field("METADATA", "metadata", lambda found: printed_bytes(str(found).encode()) if found else "-"),
]
_LAG = [
    field("TOPIC", "topic"),
    field("SHARD", "shard_id"),
    field("POSITION", "offset"),
    field("END", "end_offset"),
    field("LAG", "records"),
    ("AGE", lambda row: "topic deleted" if row["is_deleted"] else f"{row['seconds']:.1f}s"),
]


@click.group()
def group() -> None:
    """Groups: consumers that share the shards of topics, and the positions that they committed."""


@group.command("list")
@click.option("--prefix", default="", help="Only names with this prefix.")
@output_option
@session_of
def list_groups(session: Session, prefix: str, output: str) -> None:
    """List groups by name.

    \b
    Example:
      pdctl group list --prefix bill
    """

    async def listed(client: Client) -> list[dict[str, Any]]:
        return [summary_view(each) async for each in client.groups.list(prefix)]

    found = session.with_client(lambda client: session.answer(listed(client)))
    emit_list(found, output, _COLUMNS, empty="there are no groups")


@group.command()
@click.argument("name")
@output_option
@session_of
def show(session: Session, name: str, output: str) -> None:
    """Show a group: its members, the shards of its topics, and the committed positions.

    \b
    Example:
      pdctl group show billing -o yaml
    """
    found = group_view(session.with_client(lambda client: session.answer(client.groups.describe(name))))
    emit_one(found, output, _SHOWN)
    if output == "table":
        for rows, columns in ((found["members"], _MEMBERS), (found["shards"], _SHARDS)):
            if rows:
                click.echo()
                emit_list(rows, output, columns, empty="")


@group.command()
@click.argument("name")
@output_option
@session_of
def lag(session: Session, name: str, output: str) -> None:
    """Show how far a group is behind: records that are not committed, and the age of the oldest one, by shard.

    \b
    Example:
      pdctl group lag billing
    """

    async def work(client: Client) -> list[dict[str, Any]]:
        await session.answer(client.groups.describe(name))  # fails in time if nobody answers
        return [lag_view(each) for each in await client.groups.lag(name)]

    found = session.with_client(work)
    found.sort(key=lambda row: (row["topic"], row["shard_id"]))
    emit_list(found, output, _LAG, empty=f"group {name} has finished all shards of its topics")
    if output == "table" and found:
        total, oldest = sum(row["records"] for row in found), max(row["seconds"] for row in found)
        click.echo(
            f"{show_count(total, 'record')} in {show_count(len(found), 'shard')}, the oldest is {oldest:.1f} s old",
            err=True,
        )
        for topic in sorted({row["topic"] for row in found if row["is_deleted"]}):
            click.echo(f"topic {topic} was deleted: the group forgets it when a member joins", err=True)


@group.command()
@click.argument("name")
@click.option("--to", "place", type=PlaceType(("earliest", "latest"), checkpoints=True), required=True,
              metavar="earliest|latest|TIME|FILE|checkpoint:NAME",
              help="FILE: with a cut as `pdctl topic cut` prints it.")  # fmt: skip
@click.option("--topic", "topics", type=TopicNameType(), multiple=True, metavar="TOPIC",
              help="Only in this topic; may be given several times.  [default: all of the group]")  # fmt: skip
@yes_option
@output_option
@session_of
def reset(session: Session, name: str, place: Any, topics: tuple[TopicName, ...], yes: bool, output: str) -> None:
    """Move the positions of a group. Its members go on from there, whatever they have not committed.

    \b
    Examples:
      pdctl group reset billing --to earliest --yes
      pdctl group reset billing --to 2026-01-31T12:00 --topic flights --yes
      pdctl group reset billing --to now.json --yes
      pdctl group reset billing --to checkpoint:daily --yes
    """
    if topics and isinstance(place, str) and place.startswith(CHECKPOINT):
        raise click.UsageError("a checkpoint has the positions of all topics: leave --topic out")
    confirm(name, f"This moves the positions of group {name}", yes=yes)
    names = [str(each) for each in topics] or None

    async def work(client: Client) -> GroupInfo:
        await session.answer(client.groups.describe(name))  # fails in time if nobody answers
        await client.groups.reset(name, place, topics=names, timeout_s=session.timeout_s)
        return await client.groups.describe(name)

    emit_list(group_view(session.with_client(work))["shards"], output, _SHARDS, empty=f"group {name} reads no shard")


@group.command()
@click.argument("name")
@yes_option
@output_option
@session_of
def delete(session: Session, name: str, yes: bool, output: str) -> None:
    """Delete a group that has no members, with its positions and checkpoints.

    \b
    Example:
      pdctl group delete billing --yes
    """
    confirm(name, f"This deletes group {name} with its positions", yes=yes)

    async def work(client: Client) -> None:
        try:
            await client.groups.delete(name, timeout_s=session.timeout_s)
        except PreconditionFailed as error:
            raise PreconditionFailed(f"{error.message}: see `pdctl group show {name}`") from error

    session.with_client(work)
    emit_done(f"{name} is deleted", {"group": name, "deleted": True}, output)


@group.command()
@click.argument("name")
@click.argument("topics", type=TopicNameType(), nargs=-1, required=True, metavar="TOPIC...")
@yes_option
@output_option
@session_of
def unsubscribe(session: Session, name: str, topics: tuple[TopicName, ...], yes: bool, output: str) -> None:
    """Let a group read topics no more, and drop its positions in them.

    \b
    Example:
      pdctl group unsubscribe billing flights --yes
    """
    names = [str(each) for each in topics]
    confirm(name, f"This drops the positions of group {name} in {', '.join(names)}", yes=yes)

    async def work(client: Client) -> GroupInfo:
        await session.answer(client.groups.describe(name))  # fails in time if nobody answers
        await client.groups.unsubscribe(name, names, timeout_s=session.timeout_s)
        return await client.groups.describe(name)

    emit_one(group_view(session.with_client(work)), output, _SHOWN)


@group.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="The group counts no more.")
@output_option
@session_of
def retain(session: Session, name: str, off: bool, output: str) -> None:
    """Turn retention by consumption for a group on, at topics that are trimmed by consumption.

    \b
    Examples:
      pdctl group retain billing
      pdctl group retain billing --off
    """

    async def work(client: Client) -> GroupInfo:
        await session.answer(client.groups.describe(name))  # fails in time if nobody answers
        await client.groups.retain(name, retains=not off, timeout_s=session.timeout_s)
        return await client.groups.describe(name)

    emit_one(group_view(session.with_client(work)), output, _SHOWN)


def summary_view(found: GroupSummary) -> dict[str, Any]:
    """A group in a list."""
    return {"name": found.name, "members": found.member_count, "generation": found.generation}


def group_view(found: GroupInfo) -> dict[str, Any]:
    """A group."""
    return {
        "name": found.name,
        "generation": found.generation,
        "retains": found.retains,
        "topics": list(found.topics),
        "members": [
            {
                "member_id": each.member_id,
                "joined": each.joined,
                "session_s": each.session_s,
                "silent_s": each.silent_s,
                "shards": [{"topic": shard.topic, "shard_id": shard.shard_id} for shard in each.shards],
            }
            for each in found.members
        ],
        "shards": [_shard_view(each) for each in sorted(found.shards, key=lambda one: (one.topic, one.shard_id))],
        "checkpoints": list(found.checkpoints),
        "pending_checkpoint": found.pending_checkpoint,
    }


def _shard_view(found: GroupShardInfo) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "shard_id": found.shard_id,
        "offset": found.offset,
        "end_offset": found.end_offset,
        "member_id": found.member_id,
        "since": found.since,
        "state": "finished" if found.is_finished else "ended" if found.is_ended else "current",
        "metadata": shown_bytes(found.metadata),
    }


def lag_view(found: ShardLag) -> dict[str, Any]:
    """How far a group is behind in a shard."""
    return {
        "topic": found.topic,
        "shard_id": found.shard_id,
        "offset": found.offset,
        "end_offset": found.end_offset,
        "records": found.records,
        "seconds": round(found.seconds, 3),
        "is_deleted": found.is_deleted,
    }
