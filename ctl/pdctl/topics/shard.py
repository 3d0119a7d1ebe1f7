"""`pdctl shard …`: the shards of a topic, split and merged."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_done, emit_list, field
from pdctl.session import Session, output_option, session_of
from pdctl.topics.options import SHARD, progress_line, table_instead, topic_argument, wait_options
from pdctl.topics.text import KeyType, show_key, show_key_range
from rangelog_core.errors import InvalidArgument, ShardNotFound
from rangelog_core.key_ranges import KeyRange, equal_key_ranges
from rangelog_core.limits import COMMAND_SHARDS_MAX
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from pdctl.topics.calls import Listing
    from rangelog_core.net.pd_client import PdClient


def _keys(row: Any) -> str:
    from pdctl.topics.views import show_view_of_key_range

    return show_view_of_key_range(row["key_range"])


def _owner(row: Any) -> str:
    from pdctl.topics.views import show_owner

    return show_owner(row["owner"])


def _ids(ids: list[int]) -> str:
    return ", ".join(str(each) for each in ids) or "-"


_COLUMNS = [
    field("SHARD", "shard_id"),
    ("KEYS", _keys),
    field("STATE", "state"),
    ("END", lambda row: "-" if row["end_offset"] is None else row["end_offset"]),
    ("OWNER", _owner),
    field("FOLLOWS", "predecessors", _ids),
    field("FOLLOWED BY", "successors", _ids),
    ("MAP VERSIONS", lambda row: f"{row['created_version']} to {row['ended_version'] or 'now'}"),
    field("STREAM", "stream"),
]


@click.group()
def shard() -> None:
    """Shards: the parts of a topic's key space, each with a stream of its own."""


@shard.command("list")
@topic_argument
@click.option("--all", "ended_too", is_flag=True, help="Also those that have ended: the whole graph, by id.")
@output_option
@session_of
def list_shards(session: Session, name: TopicName, ended_too: bool, output: str) -> None:
    """List a topic's current shards by key, with their owners, what they follow and what follows them.

    \b
    Examples:
      pdctl shard list flights
      pdctl shard list flights --all -o json
    """
    found = session.with_pd(lambda pd: _rows(pd, name, session.timeout_s, ended_too=ended_too))
    emit_list(found, output, _COLUMNS, empty=f"topic {name} has no current shard: see `pdctl shard list {name} --all`")


async def _rows(pd: PdClient, name: TopicName, timeout_s: float, *, ended_too: bool) -> list[dict[str, Any]]:
    from pdctl.topics import calls
    from pdctl.topics.views import shard_views

    selection = "ALL" if ended_too else "CURRENT"
    listed = await calls.list_shards(pd, calls.reference(name), timeout_s, selection=selection)
    return shard_views(listed, await calls.all_brokers(pd, timeout_s))


_wait_options = wait_options("the scale is committed")


@shard.command()
@topic_argument
@click.argument("shard_id", type=SHARD, metavar="SHARD")
@click.option("--at", "keys", type=KeyType(), multiple=True, metavar="KEY",
              help="Split here; may be given several times. The leading hexadecimal digits of a key are enough.")  # fmt: skip
@click.option("--parts", type=click.IntRange(2, COMMAND_SHARDS_MAX), help="Equal parts.  [default: 2]")
@_wait_options
@output_option
@session_of
@table_instead("its partitions are fixed, see `pdctl table show`")
def split(
    session: Session,
    name: TopicName,
    shard_id: int,
    keys: tuple[int, ...],
    parts: int | None,
    no_wait: bool,
    wait_ms: int,
    output: str,
) -> None:
    """Split a shard, and wait until its owner has ended it and others have taken its place.

    `pdctl topic cancel-scale` drops the plan as long as it is not committed.

    \b
    Examples:
      pdctl shard split flights 0
      pdctl shard split flights 0 --parts 4 --no-wait
      pdctl shard split flights 1 --at c --at e8
    """
    if keys and parts is not None:
        raise click.UsageError("--at and --parts exclude each other")

    def plan(listed: Listing) -> tuple[list[int], list[KeyRange]]:
        whole = _key_range(name, listed, shard_id)
        if not keys:
            return [shard_id], equal_key_ranges(parts or 2, whole)
        inner = sorted(set(keys))
        if not all(whole.low < key < whole.high for key in inner):
            wrong = next(key for key in inner if not whole.low < key < whole.high)
            raise InvalidArgument(
                f"shard {shard_id} has the keys {show_key_range(whole)}, and cannot be split at {show_key(wrong)}: "
                "choose a key between the two"
            )
        ends = [whole.low, *inner, whole.high]
        return [shard_id], [KeyRange(low, high) for low, high in pairwise(ends)]

    _scale(session, name, plan, None if no_wait else wait_ms / 1000, output)


@shard.command()
@topic_argument
@click.argument("shard_ids", type=SHARD, nargs=-1, required=True, metavar="SHARD SHARD...")
@_wait_options
@output_option
@session_of
@table_instead("its partitions are fixed, see `pdctl table show`")
def merge(
    session: Session, name: TopicName, shard_ids: tuple[int, ...], no_wait: bool, wait_ms: int, output: str
) -> None:
    """Merge shards whose keys are neighbours, and wait until one shard has taken their place.

    \b
    Example:
      pdctl shard merge flights 1 2
    """
    if len(set(shard_ids)) != len(shard_ids) or len(shard_ids) < 2:
        raise click.UsageError("a merge needs at least two shards, each named once")

    def plan(listed: Listing) -> tuple[list[int], list[KeyRange]]:
        covered = sorted((_key_range(name, listed, each), each) for each in shard_ids)
        for (left, left_id), (right, right_id) in pairwise(covered):
            if left.high != right.low:
                raise InvalidArgument(
                    f"shards {left_id} and {right_id} are not neighbours: between {show_key(left.high)} and "
                    f"{show_key(right.low)} lie keys of others; see `pdctl shard list {name}`"
                )
        return sorted(shard_ids), [KeyRange(covered[0][0].low, covered[-1][0].high)]

    _scale(session, name, plan, None if no_wait else wait_ms / 1000, output)


@shard.command()
@topic_argument
@click.argument("shard_id", type=SHARD, metavar="SHARD")
@click.argument("broker", metavar="BROKER")
@output_option
@session_of
def move(session: Session, name: TopicName, shard_id: int, broker: str, output: str) -> None:
    """Give a shard, or a table's partition, to another broker: its owner hands it over, and producers follow.

    Where brokers bear unequal loads the placement driver moves shards by itself, perhaps this one as well.

    \b
    Examples:
      pdctl shard move flights 0 broker2
    """
    found = session.with_pd(lambda pd: _move(pd, name, shard_id, broker, session.timeout_s))
    emit_done(f"shard {shard_id} of {name} is assigned to {broker}: see `pdctl shard list {name}`", found, output)


async def _move(pd: PdClient, name: TopicName, shard_id: int, broker: str, timeout_s: float) -> dict[str, Any]:
    from pdctl.topics.calls import all_brokers, list_shards, reference
    from pdctl.topics.views import owner_view
    from rangelog_proto.v1 import broker_pb2

    topic = (await list_shards(pd, reference(name), timeout_s)).topic
    request = broker_pb2.MoveShardRequest(
        request_id=uuid.uuid4().hex, topic_id=topic.topic_id, shard_id=shard_id, broker=broker
    )
    moved = await pd.call(request, broker_pb2.MoveShardResponse, timeout_s=timeout_s)
    return {
        "topic": str(name),
        "shard_id": shard_id,
        "owner": owner_view(moved.assignment, await all_brokers(pd, timeout_s)),
    }


def _key_range(name: TopicName, listed: Listing, shard_id: int) -> KeyRange:
    """Return the keys of a current shard. Raises ShardNotFound."""
    from pdctl.topics.views import key_range_of

    found = listed.shards.get(shard_id)
    if found is None:
        raise ShardNotFound(f"topic {name} has no current shard {shard_id}: see `pdctl shard list {name}`")
    return key_range_of(found.key_range)


def _scale(session: Session, name: TopicName, plan: Any, wait_s: float | None, output: str) -> None:
    from pdctl.topics.scaling import run_scale

    done = session.with_pd(lambda pd: run_scale(pd, name, plan, session.timeout_s, wait_s, progress_line(output)))
    if output != "table":
        emit_data(done, output)
    elif wait_s is not None:
        emit_list(done["children"], output, _COLUMNS, empty="")
    else:
        click.echo(f"scale {done['scale_id']} of {name} is started: see `pdctl topic show {name}`")
