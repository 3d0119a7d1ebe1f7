"""A streaming query on a cluster: where it begins, how far its next micro-batch goes, and the spans of that batch.

What holds: every offset that is told was acked, so the rows between two of them are the same whenever they are read, and no
micro-batch ends before it begins, however little the replicas say. Streams and topics are what their ids say: one that was
deleted is an error, also if its name is in use again, and never another's rows. New shards, new streams of a pattern and names
that are added to a query's list are followed from their beginnings; the streams that sinks keep for themselves match no
pattern. What was trimmed unread is an error, or is counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from rangelog._client import Client
from rangelog._read.hot import HotRange
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._topics.cut import Cut
from rangelog.spark.admission import share_out
from rangelog.spark.dividing import SAMPLES_MAX, divide
from rangelog.spark.following_topics import (
    WAY_OUT,
    BatchSpan,
    TopicEnd,
    advance_in,
    begin_in,
    find_topic_end,
    find_topic_start,
    plan_topic,
)
from rangelog.spark.offsets import QueryOffsets, StreamOffset
from rangelog.spark.planning import limits_of, offset_of
from rangelog.spark.sink_options import SINK_STREAMS
from rangelog.spark.starting import OPTION
from rangelog.spark.stream_options import StreamOptions, literal_prefix
from rangelog.spark.topic_planning import for_all
from rangelog.spark.where import parse_where
from rangelog_core.errors import InvalidArgument, OffsetTrimmed, StreamNotFound
from rangelog_core.limits import OFFSET_MAX


class Ends(NamedTuple):
    """Up to where records were acked, at one moment; by name."""

    streams: Mapping[str, StreamOffset]
    """`first` is the trim offset."""
    topics: Mapping[str, TopicEnd]

    def offsets(self) -> QueryOffsets:
        """Return the offsets of a query that has read all of it."""
        return QueryOffsets(self.streams, {name: each.tail for name, each in self.topics.items()})

    def backlog(self, at: QueryOffsets) -> dict[str, int]:
        """Return how many records lie between a query's offsets and these ends, by name."""
        found = {
            name: max(0, end.offset - (at.streams[name].offset if name in at.streams else end.first))
            for name, end in self.streams.items()
        }
        return found | {name: self.topics[name].waiting(cut) for name, cut in at.topics.items() if name in self.topics}


async def find_ends(client: Client, options: StreamOptions, *, needs_heads: bool = False) -> Ends:
    """Return the ends of all that a query reads; for `go_on` with the first records of topics.

    Raises StreamNotFound, TopicNotFound, Unavailable.
    """

    async def of_stream(name: str) -> StreamOffset:
        view = StreamView(client.metadata, name, connections=client.connections)
        proved = await confirmed_end(view, client.connections)
        return StreamOffset(view.stream.stream_id, view.stream.trim_offset, proved.offset)

    async def of_topic(name: str) -> TopicEnd:
        return await find_topic_end(client, name, needs_head=needs_heads)

    names = await _names(client, options)
    streams = await for_all(of_stream, [(name,) for name in names])
    topics = await for_all(of_topic, [(name,) for name in options.topics])
    return Ends(dict(zip(names, streams, strict=True)), dict(zip(options.topics, topics, strict=True)))


async def find_start(client: Client, options: StreamOptions) -> QueryOffsets:
    """Return where a new query begins. Raises as `find_ends`; InvalidArgument, OffsetOutOfRange, OffsetTrimmed."""
    ends = await find_ends(client, options)
    streams: dict[str, StreamOffset] = {}
    for name, end in ends.streams.items():
        start = options.start_of(name)
        at = await offset_of(client, options.read, name, end.stream_id, start, end.first, end.offset)
        if at > end.offset:
            await _check_acked(client, name, end.stream_id, at)
        streams[name] = StreamOffset(end.stream_id, at, at)
    topics = {
        name: await find_topic_start(client, name, end, options.start_of(name)) for name, end in ends.topics.items()
    }
    return QueryOffsets(streams, topics)


def go_on(options: StreamOptions, start: QueryOffsets, ends: Ends, budget: int | None) -> QueryOffsets:
    """Return how far the next micro-batch goes: `budget` records at most, None: all.

    `ends`: with the heads of topics. Raises StreamNotFound, OffsetTrimmed, InvalidArgument (a checkpoint of other streams).
    """
    _check_all_there(options, start, ends)
    skipped = start.skipped
    begun: dict[str, StreamOffset] = {}
    for name, end in ends.streams.items():
        begun[name], lost = _begin(options, name, start.streams.get(name), end)
        skipped += lost
    cuts: dict[str, Cut] = {}
    for name, topic_end in ends.topics.items():
        cuts[name], lost = begin_in(options, name, topic_end, start.topics.get(name))
        skipped += lost
    waiting = {name: max(0, ends.streams[name].offset - each.offset) for name, each in begun.items()}
    waiting |= {name: ends.topics[name].waiting(cut) for name, cut in cuts.items()}
    shared = share_out(waiting, OFFSET_MAX if budget is None else budget)
    streams = {
        name: StreamOffset(each.stream_id, each.first, each.offset + shared[name]) for name, each in begun.items()
    }
    topics = {name: advance_in(ends.topics[name], cut, shared[name]) for name, cut in cuts.items()}
    return QueryOffsets(streams, topics, skipped)


def begin_later(options: StreamOptions, start: QueryOffsets, ends: Ends) -> QueryOffsets:
    """Return where a query begins of which no row was read: "earliest" is what is there by now. `ends`: with the heads."""
    streams, topics = dict(start.streams), dict(start.topics)
    for name, end in ends.streams.items():
        at = streams.get(name)
        if at is not None and at.stream_id == end.stream_id and options.start_of(name) == "earliest":
            streams[name] = StreamOffset(end.stream_id, max(at.first, end.first), max(at.offset, end.first))
    for name, topic_end in ends.topics.items():
        cut = topics.get(name)
        if cut is not None and cut.topic_id == topic_end.known.topic_id and options.start_of(name) == "earliest":
            assert topic_end.head is not None
            topics[name] = Cut(cut.topic_id, topic_end.graph.later(cut.offsets, topic_end.head.offsets))
    return QueryOffsets(streams, topics, start.skipped)


def until(ends: Ends, start: QueryOffsets, offsets: QueryOffsets, target: QueryOffsets) -> QueryOffsets:
    """Return offsets that are not beyond a target, but where the query began behind it.

    It may have: with a silent replica the end that a target was made of is lower than one that was told before.
    """
    streams = {}
    for name, each in offsets.streams.items():
        if name in target.streams:
            begun = start.streams[name].offset if name in start.streams else 0
            streams[name] = replace(each, offset=max(begun, min(each.offset, target.streams[name].offset)))
    topics = {}
    for name, cut in offsets.topics.items():
        graph = ends.topics[name].graph
        reached = graph.earlier(cut.offsets, target.topics[name].offsets)
        begun_cut = start.topics.get(name)
        topics[name] = Cut(cut.topic_id, reached if begun_cut is None else graph.later(reached, begun_cut.offsets))
    return QueryOffsets(streams, topics, offsets.skipped)


async def record_bytes(client: Client, options: StreamOptions, ends: Ends) -> float | None:
    """Return the bytes of a record as stored, by the latest ranges of a few streams or shards; None: nobody says."""
    streams = [(name, each.stream_id, each.offset) for name, each in ends.streams.items()]
    for name, topic_end in ends.topics.items():
        shards = topic_end.known.shards
        streams += [(name, shards[shard_id].stream_id, offset) for shard_id, offset in topic_end.tail.offsets.items()]
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
        at = None if at is not None and at.stream_id != to.stream_id else at
        low = to.first if at is None else at.offset
        if low >= to.offset:
            continue
        view = StreamView(client.metadata, name, stream_id=to.stream_id, connections=client.connections)
        try:
            await view.refresh(low)
        except StreamNotFound:
            if _may_go(options):
                continue
            raise
        first = view.stream.trim_offset
        if low < first and options.fails_on_loss:
            raise _lost(f"stream {name!r}", low, first)
        selection = parse_where(options.read.where, of_topic=False)
        divided = await divide(client, view, max(low, first), to.offset, selection, limits_of(options.read))
        spans += [BatchSpan(name, to.stream_id, *each, None) for each in divided]
    for name, cut in end.topics.items():
        spans += await plan_topic(client, options, name, start.topics.get(name), cut)
    return spans


# ---- inside


async def _check_acked(client: Client, name: str, stream_id: int, offset: int) -> None:
    """Raise OffsetOutOfRange, or Unavailable, for an offset that a user has given and that lies beyond the end."""
    view = StreamView(client.metadata, name, stream_id=stream_id, connections=client.connections)
    proved = await confirmed_end(view, client.connections)
    proved.check_reached(offset, f"{OPTION}: ", f"stream {name!r}")


async def _names(client: Client, options: StreamOptions) -> list[str]:
    if not options.pattern:
        return list(options.streams)
    pattern = re.compile(options.pattern)
    listed = [each.name async for each in client.list_streams(literal_prefix(options.pattern))]
    return sorted(name for name in listed if pattern.fullmatch(name) and not name.startswith(SINK_STREAMS))


def _may_go(options: StreamOptions) -> bool:
    """Whether a stream that the query has read may be deleted: it is then left out."""
    return bool(options.pattern) and not options.fails_on_loss


def _begin(
    options: StreamOptions, name: str, known: StreamOffset | None, end: StreamOffset
) -> tuple[StreamOffset, int]:
    """Return where a micro-batch begins with a stream, and how many records before it were trimmed unread."""
    if known is None or (_may_go(options) and known.stream_id != end.stream_id):
        return StreamOffset(end.stream_id, end.first, end.first), 0
    if known.stream_id != end.stream_id:
        way_out = ", or set failOnDataLoss=false to go on" if options.pattern else ""
        raise StreamNotFound(
            f"stream {name!r} of the checkpoint was deleted, and its name is another stream's: start a new query{way_out}"
        )
    if known.offset >= end.first:
        return known, 0
    if options.fails_on_loss:
        raise _lost(f"stream {name!r}", known.offset, end.first)
    return StreamOffset(known.stream_id, known.first, end.first), end.first - known.offset


def _check_all_there(options: StreamOptions, start: QueryOffsets, ends: Ends) -> None:
    gone = [name for name in start.streams if name not in ends.streams]
    if gone and options.pattern and not _may_go(options):
        raise StreamNotFound(
            f"stream {gone[0]!r}, which the query reads, was deleted: set failOnDataLoss=false to go on"
        )
    if gone and not options.pattern:
        raise InvalidArgument(f"the checkpoint is one of stream {gone[0]!r}: give this query a checkpoint of its own")
    for name, cut in start.topics.items():
        end = ends.topics.get(name)
        if end is None or end.known.topic_id != cut.topic_id:
            raise InvalidArgument(f"the checkpoint is one of topic {name!r}: give this query a checkpoint of its own")


def _lost(what: str, offset: int, first: int) -> OffsetTrimmed:
    return OffsetTrimmed(
        f"{what}: records {offset} to {first - 1} were trimmed before they were read; {WAY_OUT}",
        offset=first,
    )
