"""`pdctl table …`: tables. rows.py has the commands on their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_done, emit_list, emit_one, field
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.tables.rows import delete, get, put, scan, watch
from pdctl.topics.options import topic_argument, yes_option
from pdctl.topics.text import TagType
from pdctl.units import show_time
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_core.topic_names import DEFAULT_NAMESPACE, TopicName

if TYPE_CHECKING:
    from rangelog import Client, TableInfo

_COLUMNS = [
    field("NAME", "name"),
    field("PARTITIONS", "partition_count"),
    ("COPIES", lambda row: f"{row['acks']} of {row['replicas']}"),
    field("TAGS", "tags", lambda tags: ", ".join(f"{key}={tags[key]}" for key in tags) or "-"),
    field("CREATED", "created_ms", show_time),
]
_MORE = [field("ID", "table_id"), field("VERSION", "version")]


@click.group()
def table() -> None:
    """Tables: rows by key, with conditional changes. NAME is NAMESPACE/NAME, or a name in `default`."""


@table.command()
@topic_argument
@click.option("--partitions", type=click.IntRange(1, COMMAND_SHARDS_MAX), default=4, show_default=True,
              help="Never changes. Each holds up to 1 GiB, in its owner's memory.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1, 7), default=3, show_default=True, help="Replicas of each range.")
@click.option("--acks", type=click.IntRange(1, 7), help="Replicas that hold a change durably before its ack.")
@click.option("--tag", "tags", type=TagType(), multiple=True, metavar="KEY=VALUE", help="May be given several times.")
@output_option
@session_of
def create(
    session: Session,
    name: TopicName,
    partitions: int,
    replicas: int,
    acks: int | None,
    tags: tuple[tuple[str, str], ...],
    output: str,
) -> None:
    """Create a table, and the namespace `default` if it is the first one in it.

    \b
    Examples:
      pdctl table create counts
      pdctl table create air/accounts --partitions 16 --tag team=air
    """

    async def work(client: Client) -> TableInfo:
        return await client.tables.create(
            str(name),
            partitions=partitions,
            replicas=replicas,
            acks=acks,
            tags=dict(tags),
            timeout_s=session.timeout_s,
        )

    emit_one(_view(session.with_client(work)), output, [*_COLUMNS, *_MORE])


@table.command("list")
@click.option("--namespace", default="", help="Only tables in it.")
@click.option("--prefix", default="", help="Only names with this prefix; with --namespace.")
@output_option
@session_of
def list_tables(session: Session, namespace: str, prefix: str, output: str) -> None:
    """List tables by namespace and name.

    \b
    Example:
      pdctl table list --namespace air
    """
    if prefix and not namespace:
        raise click.UsageError(f"--prefix goes with --namespace, such as --namespace {DEFAULT_NAMESPACE}")

    async def listed(client: Client) -> list[dict[str, Any]]:
        return [_view(each) async for each in client.tables.list(namespace=namespace, prefix=prefix)]

    emit_list(
        session.with_client(lambda client: session.answer(listed(client))),
        output,
        _COLUMNS,
        empty="there are no tables",
    )


@table.command()
@topic_argument
@output_option
@session_of
def show(session: Session, name: TopicName, output: str) -> None:
    """Show a table. `pdctl shard list` has its partitions and who owns them.

    \b
    Example:
      pdctl table show counts -o yaml
    """
    found = session.with_client(lambda client: client.tables.describe(str(name), timeout_s=session.timeout_s))
    emit_one(_view(found), output, [*_COLUMNS, *_MORE])


@table.command()
@topic_argument
@yes_option
@output_option
@session_of
def drop(session: Session, name: TopicName, yes: bool, output: str) -> None:
    """Delete a table with all its rows.

    \b
    Example:
      pdctl table drop counts --yes
    """
    confirm(str(name), f"This deletes table {name} with all its rows", yes=yes)
    session.with_client(lambda client: client.tables.delete(str(name), timeout_s=session.timeout_s))
    emit_done(f"{name} is deleted", {"table": str(name), "deleted": True}, output)


def _view(found: TableInfo) -> dict[str, Any]:
    """A table."""
    return {
        "name": found.name,
        "table_id": found.table_id,
        "partition_count": found.partition_count,
        "replicas": found.replicas,
        "acks": found.acks,
        "tags": {key: found.tags[key] for key in sorted(found.tags)},
        "version": found.version,
        "created_ms": found.created_ms,
    }


for _command in (get, put, delete, scan, watch):
    table.add_command(_command)
