"""How far a topic may be trimmed by its retention: pure functions of the rows, of sizes, and of cluster time.

What holds: by age and by size a topic is trimmed to a cut of its retention set, by consumption to the earliest position of the
subscribed groups: always to a consistent cut. Every record below a cut that is older than the limit is older than the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rangelog_pd.state.cut_tables import cut_of
from rangelog_pd.state.retention import consumed_by_all
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, topic_pb2

INTERVAL_MS_MAX = 3_600_000
CUTS_PER_AGE = 8
"""Cuts that are taken within the age of a topic: records stay up to an eighth longer."""
SIZE_INTERVALS = 5

SizeOf = Callable[[int, int], int]
"""The bytes of a sealed range, by stream id and index."""


class TrimCut(NamedTuple):
    """A cut that a topic may be truncated to, and whether for what groups have consumed."""

    cut: dict[int, int]
    by_consumption: bool = False


def interval_ms(retention: topic_pb2.Retention, shortest_ms: int) -> int:
    """Return how often a topic's retention is looked at.

    Example:
        >>> interval_ms(topic_pb2.Retention(age_ms=800_000), 60_000), interval_ms(topic_pb2.Retention(consumed=True), 60_000)
        (100000, 60000)
    """
    wanted = [INTERVAL_MS_MAX]
    if retention.age_ms:
        wanted.append(retention.age_ms // CUTS_PER_AGE)
    if retention.shard_size_bytes:
        wanted.append(SIZE_INTERVALS * shortest_ms)
    if retention.consumed:
        wanted.append(shortest_ms)
    return max(shortest_ms, min(wanted))


def cuts_to_trim_to(state: State, topic: topic_pb2.Topic, size_of: SizeOf, time_ms: int) -> Iterator[TrimCut]:
    """Yield the cuts that a topic may be truncated to, one after the other: by age or size, and by consumption."""
    limit = _by_limits(state, topic, size_of, time_ms)
    if limit is not None:
        yield TrimCut(limit)
    consumed = consumed_by_all(state, topic.topic_id) if topic.config.retention.consumed else None
    if consumed is not None:
        yield TrimCut(consumed, by_consumption=True)


def _by_limits(state: State, topic: topic_pb2.Topic, size_of: SizeOf, time_ms: int) -> dict[int, int] | None:
    """Return the newest cut behind which enough is kept, or whose records are all old enough."""
    retention = topic.config.retention
    for row in reversed(state.cuts.of(topic.topic_id)):
        cut = cut_of(row)
        if retention.age_ms and time_ms - row.taken_ms >= retention.age_ms:
            return cut
        bound = retention.shard_size_bytes * len(cut)
        if bound and bytes_behind(state, topic.topic_id, cut, size_of) >= bound:
            return cut
    return None


def bytes_behind(state: State, topic_id: int, cut: dict[int, int], size_of: SizeOf) -> int:
    """Return the bytes of the sealed ranges behind a cut, those of following shards included."""
    found = 0
    pending = list(cut)
    seen = dict.fromkeys(pending)
    while pending:
        shard = state.topics.shard(topic_id, pending.pop())
        ranges = state.ranges.of(shard.stream_id)
        for index in ranges.indexes_from(ranges.index_beyond(cut.get(shard.shard_id, 0))):
            if ranges[index].state == common_pb2.RANGE_STATE_SEALED:
                found += size_of(shard.stream_id, index)
        for successor in shard.successors:
            if successor not in seen:
                seen[successor] = None
                pending.append(successor)
    return found
