"""`pdctl transaction …`: transactional programs, and the outcomes of their latest transactions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_list, emit_one, field
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.topics.options import yes_option
from pdctl.units import show_time

if TYPE_CHECKING:
    from rangelog import Client, TransactionInfo

_STATES = ("none", "open", "waiting", "committing", "committed", "aborted")
_COLUMNS = [
    field("ID", "transactional_id"),
    field("EPOCH", "epoch"),
    field("NUMBER", "number"),
    field("STATE", "state"),
    field("USED", "used_ms", show_time),
]


def _shards(found: list[dict[str, int]]) -> str:
    return ", ".join(f"shard {each['shard_id']} of topic {each['topic_id']}" for each in found) or "-"


_SHOWN = [*_COLUMNS, field("PRODUCER", "producer_id"), field("TO MERGE", "to_merge", _shards)]


@click.group()
def transaction() -> None:
    """Transactions: all records of one appear in their topics, or none ever does."""


@transaction.command("list")
@click.option("--prefix", default="", help="Only ids with this prefix.")
@click.option("--state", type=click.Choice(_STATES), help="Only those whose latest transaction is in this state.")
@output_option
@session_of
def list_transactions(session: Session, prefix: str, state: str | None, output: str) -> None:
    """List transactional ids, each with its latest transaction.

    \b
    Examples:
      pdctl transaction list
      pdctl transaction list --state open
    """

    async def listed(client: Client) -> list[dict[str, Any]]:
        found = client.transactions.list(prefix, state=state, timeout_s=session.timeout_s)
        return [_view(each) async for each in found]

    rows = session.with_client(lambda client: session.answer(listed(client)))
    emit_list(rows, output, _COLUMNS, empty="there are no such transactions")


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@output_option
@session_of
def show(session: Session, transactional_id: str, output: str) -> None:
    """Show the latest transaction of a transactional id, and where its records are still to be merged.

    \b
    Example:
      pdctl transaction show billing-1
    """
    found = session.with_client(
        lambda client: client.transactions.describe(transactional_id, timeout_s=session.timeout_s)
    )
    emit_one(_view(found), output, _SHOWN)


@transaction.command()
@click.argument("transactional_id", metavar="ID")
@yes_option
@output_option
@session_of
def abort(session: Session, transactional_id: str, yes: bool, output: str) -> None:
    """Abort the open transaction of a transactional id: none of its records ever appears. Its program learns of it.

    \b
    Example:
      pdctl transaction abort billing-1 --yes
    """
    confirm(transactional_id, f"This aborts the open transaction of {transactional_id}", yes=yes)
    found = session.with_client(lambda client: client.transactions.abort(transactional_id, timeout_s=session.timeout_s))
    emit_one(_view(found), output, _SHOWN)


def _view(found: TransactionInfo) -> dict[str, Any]:
    return {
        "transactional_id": found.transactional_id,
        "producer_id": found.producer_id,
        "epoch": found.epoch,
        "number": found.number,
        "state": found.state,
        "used_ms": round(found.used.timestamp() * 1000),
        "to_merge": [{"topic_id": topic_id, "shard_id": shard_id} for topic_id, shard_id in found.to_merge],
    }
