"""`pdctl topic cut` and `pdctl topic truncate`: positions in a topic, one offset per shard of a consistent set."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import click

from pdctl.output import emit_data, emit_list, emit_one, field
from pdctl.session import Session, confirm, output_option, session_of
from pdctl.topics.options import COLUMNS, progress_line, table_instead, topic_argument, wait_options, yes_option
from pdctl.topics.places import CutFileType, PlaceType
from pdctl.topics.text import PositionType
from rangelog_core.errors import InvalidArgument, KeyRangeGap, KeyRangeOverlap, OffsetOutOfRange
from rangelog_core.key_ranges import KEY_SPACE, check_tiling
from rangelog_core.topic_names import TopicName

if TYPE_CHECKING:
    from pdctl.topics.calls import Listing
    from rangelog import Client, Cut
    from rangelog_core.net.pd_client import PdClient
    from rangelog_proto.v1 import common_pb2, topic_pb2

_COLUMNS = [field("SHARD", "shard_id"), field("OFFSET", "offset")]


@click.command()
@topic_argument
@click.option("--at", "place", type=PlaceType(("head", "tail"), files=False), default="tail", show_default=True,
              metavar="head|tail|TIME",
              help="head: the first records that are left. tail: behind the last acked record. A time: the first record of "
              "each shard at or after it.")  # fmt: skip
@output_option(default="json")
@session_of
@table_instead("see `pdctl table scan` and `pdctl table watch`")
def cut(session: Session, name: TopicName, place: Any, output: str) -> None:
    """Print the cut at the head, at the tail or at a time, as all commands with a cut read it.

    The JSON is one line, and the same for equal cuts.

    \b
    Examples:
      pdctl topic cut flights > now.json
      pdctl topic cut flights --at head -o table
      pdctl topic cut flights --at 2026-01-31T12:00Z
    """

    async def work(client: Client) -> Cut:
        return await _cut(client, name, place, session.timeout_s)

    found = session.with_client(work)
    if output == "table":
        rows = [{"shard_id": each, "offset": offset} for each, offset in found.offsets.items()]
        emit_list(rows, output, _COLUMNS, empty="")
    elif output == "json":
        click.echo(found.to_json())
    else:
        emit_data(json.loads(found.to_json()), output)


@click.command()
@topic_argument
@click.argument("positions", type=PositionType(), nargs=-1, metavar="[SHARD=OFFSET]...")
@click.option(
    "--cut", "given", type=CutFileType(), metavar="FILE", help="A cut as `pdctl topic cut` prints it; -: stdin."
)
@click.option("--to-head", "place", flag_value="head", default=None, help="Up to the first records that are left.")
@click.option("--to-tail", "place", flag_value="tail",
              help="All records of sealed ranges; those of an open range stay until it is sealed.")  # fmt: skip
@wait_options("the records are deleted")
@yes_option
@output_option
@session_of
@table_instead("rows are removed with `pdctl table delete`")
def truncate(
    session: Session,
    name: TopicName,
    positions: tuple[tuple[int, int], ...],
    given: Any,
    place: str | None,
    no_wait: bool,
    wait_ms: int,
    yes: bool,
    output: str,
) -> None:
    """Delete all records before a cut, for good, and wait until that is done.

    The shards of a cut cover all keys, and none precedes another. A shard is trimmed once its broker has a snapshot of its
    producers, which takes about a second; until then the topic is "truncating", and `pdctl task list` has what it waits for.

    \b
    Examples:
      pdctl topic truncate flights --cut now.json --yes
      pdctl topic truncate flights 0=1200 1=980 --yes
      pdctl topic truncate flights --to-tail --yes
    """
    from pdctl.topics.views import topic_view
    from pdctl.topics.waiting import wait_until_over

    if sum((bool(positions), given is not None, place is not None)) != 1:
        raise click.UsageError("give either SHARD=OFFSET of each shard, or --cut FILE, or --to-head, or --to-tail")
    if len(dict(positions)) != len(positions):
        raise click.UsageError("a shard comes twice")
    confirm(str(name), f"This deletes all records of topic {name} before the cut", yes=yes)
    if place == "head":
        given = session.with_client(lambda client: _cut(client, name, place, session.timeout_s))

    async def work(pd: PdClient) -> topic_pb2.Topic:
        chosen = given
        if place == "tail":
            chosen = await _sealed_tail(pd, name, session.timeout_s)
        elif positions:
            chosen = await _by_hand(pd, name, dict(positions), session.timeout_s)
        started = await _truncate(pd, name, chosen, session.timeout_s)
        if no_wait:
            return started
        return await wait_until_over(pd, name, started, session.timeout_s, wait_ms / 1000, progress_line(output))

    emit_one(topic_view(session.with_pd(work)), output, COLUMNS)


async def _cut(client: Client, name: TopicName, place: Any, timeout_s: float) -> Cut:
    await client.topics.describe(str(name), timeout_s=timeout_s)  # fails in time if no placement driver answers
    return await client.topics.cut(str(name), place)


async def _topic_id(pd: PdClient, name: TopicName, timeout_s: float) -> int:

    from pdctl.topics.calls import reference
    from rangelog_core.topic_kinds import check_kind
    from rangelog_proto.v1 import topic_pb2

    request = topic_pb2.DescribeTopicRequest(topic=reference(name))
    topic = (await pd.call(request, topic_pb2.DescribeTopicResponse, timeout_s=timeout_s)).topic
    return check_kind(topic, topic_pb2.TOPIC_KIND_RECORDS).topic_id


async def _by_hand(pd: PdClient, name: TopicName, offsets: dict[int, int], timeout_s: float) -> Cut:
    from rangelog import Cut

    return Cut(await _topic_id(pd, name, timeout_s), offsets)


async def _truncate(pd: PdClient, name: TopicName, chosen: Cut, timeout_s: float) -> topic_pb2.Topic:
    """Truncate the topic that the cut is of. Raises what the placement driver raises, with what to do about it."""
    from rangelog_proto.v1 import topic_pb2

    topic_id = await _topic_id(pd, name, timeout_s)
    if chosen.topic_id != topic_id:
        raise InvalidArgument(
            f"this is a cut of the topic with id {chosen.topic_id}, and topic {name} has id {topic_id}: "
            f"`pdctl topic cut {name}` prints one of this topic"
        )
    request = topic_pb2.TruncateTopicRequest(
        request_id=uuid.uuid4().hex,
        topic=topic_pb2.TopicReference(topic_id=topic_id),
        cut=[topic_pb2.ShardPosition(shard_id=each, offset=offset) for each, offset in chosen.offsets.items()],
    )
    try:
        return (await pd.call(request, topic_pb2.TruncateTopicResponse, timeout_s=timeout_s)).topic
    except (KeyRangeGap, KeyRangeOverlap) as error:
        raise type(error)(
            f"{error.message}: a cut has one offset for each shard of a set that covers all keys once; "
            f"`pdctl topic cut {name}` prints one to start from"
        ) from error
    except OffsetOutOfRange as error:
        raise OffsetOutOfRange(
            f"{error.message}: records of an open range cannot be deleted yet; `pdctl topic truncate {name} --to-tail` "
            "deletes those of sealed ranges",
            offset=error.offset,
        ) from error


async def _sealed_tail(pd: PdClient, name: TopicName, timeout_s: float) -> Cut:
    """Return the cut at the end of sealed ranges: from the placement driver's rows alone."""
    from pdctl.topics.calls import for_each
    from rangelog import Cut

    listed = await _last_shards(pd, name, timeout_s)

    async def end_of(shard: topic_pb2.Shard) -> tuple[int, int]:
        if shard.truncated or shard.ended_version:
            return shard.shard_id, shard.end_offset
        return shard.shard_id, (await _stream_of(pd, shard, timeout_s)).next_offset

    return Cut(listed.topic.topic_id, dict(await for_each(listed.shards.values(), end_of)))


async def _last_shards(pd: PdClient, name: TopicName, timeout_s: float) -> Listing:
    """Return the last shards of a topic: the current ones, and those that ended without successors."""
    from pdctl.topics.calls import list_shards, reference
    from pdctl.topics.views import key_range_of

    listed = await list_shards(pd, reference(name), timeout_s)
    try:
        check_tiling([key_range_of(each.key_range) for each in listed.shards.values()], [KEY_SPACE])
    except KeyRangeGap:  # the topic is being sealed, or is sealed
        listed = await list_shards(pd, reference(name), timeout_s, selection="ALL")
    return listed._replace(shards={each: row for each, row in listed.shards.items() if not row.successors})


async def _stream_of(pd: PdClient, shard: topic_pb2.Shard, timeout_s: float) -> common_pb2.Stream:
    from rangelog_core.ids import shard_stream_name
    from rangelog_proto.v1 import pd_pb2

    request = pd_pb2.DescribeStreamRequest(name=shard_stream_name(shard.topic_id, shard.shard_id))
    return (await pd.call(request, pd_pb2.DescribeStreamResponse, timeout_s=timeout_s)).stream
