"""The topics of a streaming query: where it begins with one, how far a micro-batch goes in it, and the spans of that batch.

What holds: a position in a topic is a cut at every moment, and all records before an end that is told were acked. Records that
were trimmed unread are counted where losses are accepted; those that go while a micro-batch is planned and read are not.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from rangelog._client import Client
from rangelog._topics.cut import Cut
from rangelog._topics.shard_errors import errors_of_shard
from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.topic_calls import by_id, by_name
from rangelog._topics.watches import TopicShards
from rangelog.spark.admission import advance
from rangelog.spark.dividing import divide
from rangelog.spark.options import Position
from rangelog.spark.planning import limits_of
from rangelog.spark.stream_options import StreamOptions
from rangelog.spark.topic_planning import check_given_cut, shard_map, view_of
from rangelog.spark.where import parse_where
from rangelog_core.errors import OffsetTrimmed
from rangelog_core.topic_names import parse_topic_name

WAY_OUT = "set failOnDataLoss=false to go on without them"


class BatchSpan(NamedTuple):
    """Offsets [start, end) of a stream or of a shard's stream, of one micro-batch."""

    name: str
    stream_id: int
    start: int
    end: int
    shard_id: int | None


class TopicEnd(NamedTuple):
    """Up to where the records of a topic were acked, and its shards."""

    known: TopicShards
    tail: Cut
    head: Cut | None = None
    """Before the first records that are not trimmed; None: it was not asked for."""

    @property
    def graph(self) -> ShardGraph:
        """The shards as a graph."""
        return ShardGraph(self.known.shards.values())

    def waiting(self, cut: Cut) -> int:
        """Return how many records lie between a cut and the end."""
        graph = self.graph
        before_cut, before_tail = graph.before(cut.offsets), graph.before(self.tail.offsets)
        return sum(max(0, offset - before_cut.get(shard_id, 0)) for shard_id, offset in before_tail.items())


async def find_topic_end(client: Client, name: str, *, needs_head: bool) -> TopicEnd:
    """Return the end of a topic. Raises TopicNotFound, TopicKindForbids, Unavailable."""
    known = await shard_map(client, name, by_name(parse_topic_name(name)))
    head = await client.topics.cut_in(known, "head") if needs_head else None
    return TopicEnd(known, await client.topics.cut_in(known, "tail"), head)


async def find_topic_start(client: Client, name: str, end: TopicEnd, position: Position) -> Cut:
    """Return where a new query begins with a topic. Raises as `check_given_cut`."""
    if isinstance(position, Cut):
        await check_given_cut(client, name, end.known, end.graph, position)
        return position
    if isinstance(position, datetime):
        return await client.topics.cut_in(end.known, position)
    return end.tail if position == "latest" else await client.topics.cut_in(end.known, "head")


def begin_in(options: StreamOptions, name: str, end: TopicEnd, at: Cut | None) -> tuple[Cut, int]:
    """Return where a micro-batch begins, and how many records before it were trimmed unread.

    `at`: where the query is; None: it has read nothing of this topic, and takes what is there. `end`: with its head. Raises
    OffsetTrimmed where losses are errors.
    """
    assert end.head is not None
    if at is None:
        return end.head, 0
    graph = end.graph
    begun = graph.later(at.offsets, end.head.offsets)
    lost = graph.between(at.offsets, begun)
    if lost and options.fails_on_loss:
        shard_id, (low, high) = next(iter(lost.items()))
        raise OffsetTrimmed(
            f"topic {name!r}, shard {shard_id}: records {low} to {high - 1} were trimmed before they were read; {WAY_OUT}",
            offset=high,
        )
    return Cut(at.topic_id, begun), sum(high - low for low, high in lost.values())


def advance_in(end: TopicEnd, cut: Cut, budget: int) -> Cut:
    """Return the cut that is at most so many records behind another one, and not behind the end."""
    return Cut(cut.topic_id, advance(end.graph, cut.offsets, end.tail.offsets, budget))


async def plan_topic(client: Client, options: StreamOptions, name: str, start: Cut | None, end: Cut) -> list[BatchSpan]:
    """Return the spans between two cuts; `start`: None where the query took what was there. Raises as `plan_batch`."""
    known = await shard_map(client, name, by_id(end.topic_id))
    graph = ShardGraph(known.shards.values())
    low_cut = dict.fromkeys(graph.first(), 0) if start is None else start.offsets
    fails_on_loss = options.fails_on_loss and start is not None
    selection = parse_where(options.read.where, of_topic=True)
    spans: list[BatchSpan] = []
    for shard_id, (low, high) in graph.between(low_cut, end.offsets).items():
        shard = known.shards[shard_id]
        if not selection.has_shard(shard_id):
            continue
        with errors_of_shard(name, shard_id):
            try:
                view = await view_of(client, name, shard, low)
            except OffsetTrimmed as error:
                if fails_on_loss:
                    raise _with_way_out(error) from None
                low = min(high, error.offset or high)
                if low >= high:
                    continue
                view = await view_of(client, name, shard, low)
        divided = await divide(client, view, low, high, selection, limits_of(options.read))
        spans += [BatchSpan(name, shard.stream_id, *each, shard_id) for each in divided]
    return spans


def _with_way_out(error: OffsetTrimmed) -> OffsetTrimmed:
    return OffsetTrimmed(f"{error}; {WAY_OUT}", offset=error.offset)
