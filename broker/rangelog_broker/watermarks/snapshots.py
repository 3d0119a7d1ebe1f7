"""The event times of topics in pieces of a snapshot, and back."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

from rangelog_broker.watermarks.topic_times import KeptWatermark, NotedTime, TopicTimes
from rangelog_core.errors import Corruption
from rangelog_core.limits import KIB
from rangelog_proto.v1 import watermark_pb2 as pb

_PIECE_BYTES = 256 * KIB
_NUMBER_END = 1 << 63
"""Of watermarks: none reaches it by counting, and what counts on from there still fits its field."""


def topic_pieces(topics: Mapping[int, TopicTimes]) -> Iterator[bytes]:
    """Return the pieces of topics, captured at the call: later commands do not change what the iterator yields."""
    captured = [(topic_id, _frozen(topic)) for topic_id, topic in topics.items()]
    return (piece for topic_id, topic in captured for piece in _pieces(topic_id, topic))


def restore_piece(topic: TopicTimes, state: pb.WatermarkTopicState) -> None:
    """Add what a piece has of a topic. Raises Corruption."""
    if not 0 < state.next_number < _NUMBER_END:
        raise Corruption(f"a snapshot of watermarks has the next number {state.next_number}")
    topic.map_version, topic.noted, topic.next_number = state.map_version, state.noted, state.next_number
    topic.shards.update((each.shard_id, each) for each in state.shards)
    for one in state.producers:
        topic.producers[one.producer_id] = NotedTime(
            one.producer_epoch, one.number, one.time_ms, one.heard_ms, one.ended
        )
    topic.reached.update((each.shard_id, each.offset) for each in state.reached)
    for mark in state.watermarks:
        cut = {each.shard_id: each.offset for each in mark.cut}
        topic.watermarks.append(KeptWatermark(mark.number, mark.lower_ms, mark.upper_ms, cut))
        topic.cut_rows += 1 + len(cut)


def watermark_message(mark: KeptWatermark) -> pb.Watermark:
    """Return a watermark as a message."""
    return pb.Watermark(
        number=mark.number,
        lower_ms=mark.lower_ms,
        upper_ms=mark.upper_ms,
        cut=[pb.NotedPosition(shard_id=shard_id, offset=offset) for shard_id, offset in mark.cut.items()],
    )


def _frozen(topic: TopicTimes) -> TopicTimes:
    return TopicTimes(
        topic.map_version,
        topic.noted,
        topic.next_number,
        topic.shards,  # replaced as a whole, never changed
        {producer_id: copy.copy(one) for producer_id, one in topic.producers.items()},
        dict(topic.reached),
        topic.watermarks.copy(),
        topic.cut_rows,
    )


def _pieces(topic_id: int, topic: TopicTimes) -> Iterator[bytes]:
    head = pb.WatermarkTopicState(
        topic_id=topic_id, map_version=topic.map_version, noted=topic.noted, next_number=topic.next_number
    )
    state, size = pb.WatermarkTopicState(), 0
    state.CopyFrom(head)
    for row in _rows(topic):
        state.MergeFrom(row)
        size += row.ByteSize()
        if size > _PIECE_BYTES:
            yield state.SerializeToString()
            state.CopyFrom(head)
            size = 0
    yield state.SerializeToString()


def _rows(topic: TopicTimes) -> Iterator[pb.WatermarkTopicState]:
    """Yield the rows of a topic, each in a message of its own."""
    for facts in topic.shards.values():
        yield pb.WatermarkTopicState(shards=[facts])
    for producer_id, one in topic.producers.items():
        producer = pb.NotingProducer(
            producer_id=producer_id,
            producer_epoch=one.epoch,
            number=one.number,
            time_ms=one.time_ms,
            heard_ms=one.heard_ms,
            ended=one.ended,
        )
        yield pb.WatermarkTopicState(producers=[producer])
    for shard_id, offset in topic.reached.items():
        yield pb.WatermarkTopicState(reached=[pb.NotedPosition(shard_id=shard_id, offset=offset)])
    for mark in topic.watermarks:
        yield pb.WatermarkTopicState(watermarks=[watermark_message(mark)])
