"""A topic as a table: the snapshot that a data frame stands for, and the plan of one read of it.

What holds: a snapshot is two cuts of one topic, and every record before the later one was acked when it was taken. So all plans
of a snapshot are of the same records, those of shards that ended and of their successors alike, whatever is split, merged or
tiered in between; only how they are divided into spans may differ. If some of them were trimmed, the plan is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from rangelog._client import Client
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._topics.cut import Cut
from rangelog._topics.cuts import AT_ONCE
from rangelog._topics.shard_errors import errors_of_shard
from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.topic_calls import TopicCalls, by_id, by_name
from rangelog._topics.topics import CutPlace, check_topic_of
from rangelog._topics.values import ShardInfo
from rangelog._topics.watches import TopicShards, topic_shards
from rangelog.protocol.reading import trimmed
from rangelog.spark.dividing import divide
from rangelog.spark.filters import Selection
from rangelog.spark.options import Options, Position
from rangelog.spark.planning import limits_of
from rangelog.spark.reading import client_for
from rangelog_core.errors import InvalidArgument, OffsetTrimmed, TopicNotFound
from rangelog_core.name_errors import deleted_topic, no_topic
from rangelog_core.topic_kinds import check_kind
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1 import topic_pb2 as pb

_T = TypeVar("_T")
_PLACES: dict[str, CutPlace] = {"earliest": "head", "latest": "tail"}


class TopicSnapshot(NamedTuple):
    """The records of a topic between two cuts."""

    start: Cut
    end: Cut


class ShardSpan(NamedTuple):
    """Offsets [start, end) of one shard's stream."""

    shard_id: int
    stream_id: int
    start: int
    end: int


async def take_snapshot(client: Client, options: Options) -> TopicSnapshot:
    """Return the cuts that the options name. A start that is found, at a time or at the first records, is not behind the end.

    Raises TopicNotFound, TopicKindForbids (a table), InvalidArgument, ShardNotFound, KeyRangeGap, KeyRangeOverlap (not a cut of
    this topic, or a start behind the end), OffsetOutOfRange (a cut beyond the end of a shard), Unavailable.
    """
    if isinstance(options.start, datetime) and isinstance(options.end, datetime) and options.start > options.end:
        raise InvalidArgument(f"start {options.start.isoformat()} is later than end {options.end.isoformat()}")
    known = await shard_map(client, options.topic, by_name(parse_topic_name(options.topic)))
    graph = ShardGraph(known.shards.values())
    start = await _cut(client, options.topic, known, graph, options.start)
    end = await _cut(client, options.topic, known, graph, options.end)
    if isinstance(options.start, Cut) and isinstance(options.end, Cut):
        graph.between(start.offsets, end.offsets)
        return TopicSnapshot(start, end)
    return TopicSnapshot(Cut(known.topic_id, graph.earlier(start.offsets, end.offsets)), end)


async def plan_snapshot(
    client: Client, options: Options, snapshot: TopicSnapshot, selection: Selection
) -> list[ShardSpan]:
    """Return the spans of a snapshot by shard id and offset: of each shard one per range, or a part of one.

    Raises TopicNotFound (it was deleted), OffsetTrimmed (a part of the snapshot was), Unavailable.
    """
    known = await shard_map(client, options.topic, by_id(snapshot.end.topic_id))
    parts = ShardGraph(known.shards.values()).between(snapshot.start.offsets, snapshot.end.offsets)

    async def plan_shard(shard: ShardInfo, start: int, end: int) -> list[ShardSpan]:
        with errors_of_shard(options.topic, shard.shard_id):
            view = await view_of(client, options.topic, shard, start)
        spans = await divide(client, view, start, end, selection, limits_of(options))
        return [ShardSpan(shard.shard_id, shard.stream_id, *span) for span in spans]

    planned = await for_all(
        plan_shard, [(known.shards[each], *span) for each, span in parts.items() if selection.has_shard(each)]
    )
    return [span for spans in planned for span in spans]


def take(options: Options) -> TopicSnapshot:
    """Run `take_snapshot` on this process's client."""
    client = client_for(options)
    return client.run(take_snapshot(client.asynchronous, options))


def plan_shards(options: Options, snapshot: TopicSnapshot, selection: Selection) -> Sequence[ShardSpan]:
    """Run `plan_snapshot` on this process's client."""
    client = client_for(options)
    return client.run(plan_snapshot(client.asynchronous, options, snapshot, selection))


# ---- inside


async def shard_map(client: Client, topic: str, reference: pb.TopicReference) -> TopicShards:
    """Return all shards of a topic. Raises TopicNotFound, TopicKindForbids, Unavailable."""
    try:
        listed = await TopicCalls(client.metadata.pd).shards(reference, pb.SHARD_SELECTION_ALL)
    except TopicNotFound:
        raise (deleted_topic if reference.topic_id else no_topic)(topic) from None
    if listed.topic.state == pb.TOPIC_STATE_DELETING:
        raise deleted_topic(topic)
    check_kind(listed.topic, pb.TOPIC_KIND_RECORDS)
    return topic_shards(listed)


async def _cut(client: Client, topic: str, known: TopicShards, graph: ShardGraph, position: Position) -> Cut:
    """Return the cut of an option, checked: all records before it were acked."""
    if not isinstance(position, Cut):
        place = position if isinstance(position, datetime) else _PLACES[cast(str, position)]
        return await client.topics.cut_in(known, place)
    await check_given_cut(client, topic, known, graph, position)
    return position


async def check_given_cut(client: Client, topic: str, known: TopicShards, graph: ShardGraph, cut: Cut) -> None:
    """Check a cut that a user has given: all records before it were acked.

    Raises InvalidArgument and those of a bad cut, OffsetOutOfRange, Unavailable.
    """
    check_topic_of(cut, topic, known)
    graph.check_cut(cut.offsets)
    shards = [(known.shards[each], offset) for each, offset in cut.offsets.items()]
    await for_all(partial(_check_acked, client, topic), shards)


async def _check_acked(client: Client, topic: str, shard: ShardInfo, offset: int) -> None:
    """Raise OffsetOutOfRange, or Unavailable, for an offset beyond the end of a current shard."""
    if not offset or not shard.is_current:
        return
    with errors_of_shard(topic, shard.shard_id):
        (await confirmed_end(_unread(client, topic, shard), client.connections)).check_reached(offset)


async def view_of(client: Client, topic: str, shard: ShardInfo, start: int) -> StreamView:
    """Return the ranges of a shard from an offset on. Raises OffsetTrimmed, StreamNotFound."""
    if shard.truncated:
        first = shard.end_offset or 0
        raise OffsetTrimmed(f"all its records were trimmed, up to offset {first}", offset=first)
    view = _unread(client, topic, shard)
    await view.refresh(start)
    first = view.stream.trim_offset
    if start < first:
        raise trimmed(start, first)
    return view


def _unread(client: Client, topic: str, shard: ShardInfo) -> StreamView:
    name = f"{topic}, shard {shard.shard_id}"
    return StreamView(client.metadata, name, stream_id=shard.stream_id, connections=client.connections)


async def for_all(work: Callable[..., Coroutine[Any, Any, _T]], items: Iterable[Sequence[Any]]) -> list[_T]:
    """Do some work for each item, `AT_ONCE` at a time; return the results in order. Raises the first error."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(item: Sequence[Any]) -> _T:
        async with turns:
            return await work(*item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
