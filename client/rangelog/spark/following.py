"""A streaming query on a cluster: where it begins, how far its next micro-batch goes, and the spans of that batch.

What holds: every offset that is told was acked, so the rows between two of them are the same whenever they are read. Streams
and topics are what their ids say: one that was deleted is an error, also if its name is in use again, and never another's rows.
New shards and new streams of a pattern are followed from their beginnings. What was trimmed unread is an error, or is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from rangelog._client import Client
from rangelog._read.hot import HotRange
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._topics.cut import Cut
from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.topic_calls import by_id, by_name
from rangelog._topics.watches import TopicShards
from rangelog.spark.admission import advance, share_out
from rangelog.spark.dividing import SAMPLES_MAX, divide
from rangelog.spark.offsets import QueryOffsets, StreamOffset
from rangelog.spark.planning import limits_of, offset_of
from rangelog.spark.reading import errors_of_shard
from rangelog.spark.stream_options import StreamOptions
from rangelog.spark.topic_planning import shard_map, view_of
from rangelog.spark.where import parse_where
from rangelog_core.errors import InvalidArgument, OffsetTrimmed, StreamNotFound
from rangelog_core.limits import OFFSET_MAX
from rangelog_core.topic_names import parse_topic_name


class BatchSpan(NamedTuple):
    """Offsets [start, end) of a stream or of a shard's stream."""

    name: str
    stream_id: int
    start: int
    end: int
    shard_id: int | None


class Ends(NamedTuple):
    """Up to where records were acked, at one moment."""

    streams: Mapping[str, StreamOffset]
    """`first` is the trim offset."""
    topics: Mapping[str, tuple[TopicShards, Cut]]


async def find_ends(client: Client, options: StreamOptions) -> Ends:
    """Return the ends of all that a query reads. Raises StreamNotFound, TopicNotFound, Unavailable."""
    streams: dict[str, StreamOffset] = {}
    topics: dict[str, tuple[TopicShards, Cut]] = {}
    for name in await _names(client, options):
        view = StreamView(client.metadata, name, connections=client.connections)
        proved = await confirmed_end(view, client.connections)
        streams[name] = StreamOffset(view.stream.stream_id, view.stream.trim_offset, proved.offset)
    if options.read.topic:
        known = await shard_map(client, options.read.topic, by_name(parse_topic_name(options.read.topic)))
        topics[options.read.topic] = known, await client.topics.cut_in(known, "tail")
    return Ends(streams, topics)


async def find_start(client: Client, options: StreamOptions) -> QueryOffsets:
    """Return where a new query begins. Raises as `find_ends`; InvalidArgument, OffsetOutOfRange, OffsetTrimmed."""
    ends = await find_ends(client, options)
    streams: dict[str, StreamOffset] = {}
    for name, end in ends.streams.items():
        at = await offset_of(client, options.read, name, end.stream_id, options.starting, end.first, end.offset)
        streams[name] = StreamOffset(end.stream_id, at, at)
    topics: dict[str, Cut] = {}
    for name, (known, tail) in ends.topics.items():
        match options.starting:
            case Cut():
                ShardGraph(known.shards.values()).check_cut(options.starting.offsets)
                topics[name] = options.starting
            case datetime():
                topics[name] = await client.topics.cut_in(known, options.starting)
            case _:
                topics[name] = tail if options.starting == "latest" else await client.topics.cut_in(known, "head")
    return QueryOffsets(streams, topics)


def go_on(options: StreamOptions, start: QueryOffsets, ends: Ends, budget: int | None) -> QueryOffsets:
    """Return how far the next micro-batch goes: `budget` records at most, None: all.

    Raises StreamNotFound, InvalidArgument (the checkpoint is of other streams), OffsetTrimmed.
    """
    left = OFFSET_MAX if budget is None else budget
    skipped = start.skipped
    begun: dict[str, StreamOffset] = {}
    for name, end in ends.streams.items():
        known = start.streams.get(name)
        if known is None:
            known = StreamOffset(end.stream_id, end.first, end.first)
        elif known.stream_id != end.stream_id:
            raise StreamNotFound(
                f"stream {name!r} of the checkpoint was deleted, and its name is another stream's: start a new query"
            )
        if known.offset < end.first:
            if options.fails_on_loss:
                raise _lost(f"stream {name!r}", known.offset, end.first)
            skipped += end.first - known.offset
            known = StreamOffset(known.stream_id, known.first, end.first)
        begun[name] = known
    _check_all_there(options, start, ends)
    shared = share_out({name: max(0, ends.streams[name].offset - each.offset) for name, each in begun.items()}, left)
    streams = {
        name: StreamOffset(each.stream_id, each.first, each.offset + shared[name]) for name, each in begun.items()
    }
    topics: dict[str, Cut] = {}
    for name, (known_shards, tail) in ends.topics.items():
        at = start.topics[name]
        graph = ShardGraph(known_shards.shards.values())
        topics[name] = Cut(at.topic_id, advance(graph, at.offsets, tail.offsets, left))
    return QueryOffsets(streams, topics, skipped)


def until(ends: Ends, offsets: QueryOffsets, target: QueryOffsets) -> QueryOffsets:
    """Return offsets that are not beyond a target."""
    streams = {
        name: StreamOffset(each.stream_id, each.first, min(each.offset, target.streams[name].offset))
        for name, each in offsets.streams.items()
        if name in target.streams
    }
    topics = {
        name: Cut(
            each.topic_id,
            ShardGraph(ends.topics[name][0].shards.values()).earlier(each.offsets, target.topics[name].offsets),
        )
        for name, each in offsets.topics.items()
    }
    return QueryOffsets(streams, topics, offsets.skipped)


async def record_bytes(client: Client, options: StreamOptions, ends: Ends) -> float | None:
    """Return the bytes of a record as stored, by the latest ranges of a few streams or shards; None: nobody says."""
    streams = [(name, each.stream_id, each.offset) for name, each in ends.streams.items()]
    for name, (known, tail) in ends.topics.items():
        streams += [(name, known.shards[shard_id].stream_id, offset) for shard_id, offset in tail.offsets.items()]
    found: list[float] = []
    for name, stream_id, end in streams[:: max(1, len(streams) // SAMPLES_MAX)][:SAMPLES_MAX]:
        view = StreamView(client.metadata, name, stream_id=stream_id, connections=client.connections)
        if not end:
            continue
        await view.refresh(end - 1)
        located = view.locate(end - 1)
        if located is not None:
            measured = await HotRange(client.connections, view.ranges[located.number]).record_bytes(end - 1, end)
            found += [measured] if measured else []
    return sum(found) / len(found) if found else None


async def plan_batch(client: Client, options: StreamOptions, start: QueryOffsets, end: QueryOffsets) -> list[BatchSpan]:
    """Return the spans of a micro-batch. Raises StreamNotFound, TopicNotFound, OffsetTrimmed, Unavailable."""
    spans: list[BatchSpan] = []
    for name, to in end.streams.items():
        at = start.streams.get(name)
        low = to.first if at is None else at.offset
        if low >= to.offset:
            continue
        view = StreamView(client.metadata, name, stream_id=to.stream_id, connections=client.connections)
        await view.refresh(low)
        first = view.stream.trim_offset
        if low < first and options.fails_on_loss:
            raise _lost(f"stream {name!r}", low, first)
        selection = parse_where(options.read.where, of_topic=False)
        divided = await divide(client, view, max(low, first), to.offset, selection, limits_of(options.read))
        spans += [BatchSpan(name, to.stream_id, *each, None) for each in divided]
    for name, cut in end.topics.items():
        spans += await _of_topic(client, options, name, start.topics[name], cut)
    return spans


# ---- inside


async def _of_topic(client: Client, options: StreamOptions, name: str, start: Cut, end: Cut) -> list[BatchSpan]:
    known = await shard_map(client, name, by_id(end.topic_id))
    selection = parse_where(options.read.where, of_topic=True)
    spans: list[BatchSpan] = []
    for shard_id, (low, high) in ShardGraph(known.shards.values()).between(start.offsets, end.offsets).items():
        shard = known.shards[shard_id]
        if not selection.has_shard(shard_id):
            continue
        with errors_of_shard(name, shard_id):
            try:
                view = await view_of(client, name, shard, low)
            except OffsetTrimmed as error:
                if options.fails_on_loss:
                    raise
                low = min(high, error.offset or high)
                if low >= high:
                    continue
                view = await view_of(client, name, shard, low)
        divided = await divide(client, view, low, high, selection, limits_of(options.read))
        spans += [BatchSpan(name, shard.stream_id, *each, shard_id) for each in divided]
    return spans


async def _names(client: Client, options: StreamOptions) -> list[str]:
    if options.pattern:
        pattern = re.compile(options.pattern)
        return sorted([each.name async for each in client.list_streams() if pattern.fullmatch(each.name)])
    return list(options.streams)


def _check_all_there(options: StreamOptions, start: QueryOffsets, ends: Ends) -> None:
    gone = [name for name in start.streams if name not in ends.streams]
    if gone and options.pattern and options.fails_on_loss:
        raise StreamNotFound(
            f"stream {gone[0]!r}, which the query reads, was deleted: set failOnDataLoss=false to go on"
        )
    if gone and not options.pattern:
        raise InvalidArgument(f"the checkpoint is one of stream {gone[0]!r}: give this query a checkpoint of its own")
    for name, (known, _) in ends.topics.items():
        at = start.topics.get(name)
        if at is None or at.topic_id != known.topic_id:
            raise InvalidArgument(
                f"the checkpoint is not one of topic {name!r}: give this query a checkpoint of its own"
            )


def _lost(what: str, offset: int, first: int) -> OffsetTrimmed:
    return OffsetTrimmed(
        f"{what}: records {offset} to {first - 1} were trimmed before they were read; "
        "set failOnDataLoss=false to go on without them",
        offset=first,
    )
