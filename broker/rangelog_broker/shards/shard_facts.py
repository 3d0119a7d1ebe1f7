"""What the placement driver lists of topics, as facts for groups."""

from __future__ import annotations

from typing import NamedTuple

from rangelog_core.errors import Unavailable
from rangelog_core.limits import SHARD_PAGE_SIZE_MAX
from rangelog_core.net.routes import PdCalls
from rangelog_proto.v1 import group_pb2, topic_pb2

_READS_AGAIN = 5
"""A list whose map version changes between its pages is read again so often."""


class TopicFacts(NamedTuple):
    """All shards of a topic, of one version of its map."""

    map_version: int
    shards: list[group_pb2.GroupShardFacts]


async def read_facts(topics: PdCalls, topic_id: int, *, timeout_s: float) -> TopicFacts:
    """Return the facts of all shards of a topic. Raises TopicNotFound, Unavailable, RequestTimeout."""
    for _ in range(_READS_AGAIN):
        facts = await _read_once(topics, topic_id, timeout_s)
        if facts is not None:
            return facts
    raise Unavailable(f"the shards of topic {topic_id} change faster than they can be listed: try again")


async def _read_once(topics: PdCalls, topic_id: int, timeout_s: float) -> TopicFacts | None:
    request = topic_pb2.ListShardsRequest(
        topic=topic_pb2.TopicReference(topic_id=topic_id),
        selection=topic_pb2.SHARD_SELECTION_ALL,
        page_size=SHARD_PAGE_SIZE_MAX,
    )
    found: list[group_pb2.GroupShardFacts] = []
    version: int | None = None
    while True:
        response = await topics.call(request, topic_pb2.ListShardsResponse, timeout_s=timeout_s)
        if version not in (None, response.topic.map_version):
            return None
        version = response.topic.map_version
        found += map(facts_of, response.shards)
        if not response.next_page_token:
            return TopicFacts(version, found)
        request.page_token = response.next_page_token


def facts_of(shard: topic_pb2.Shard) -> group_pb2.GroupShardFacts:
    """Return what a group has to know of a shard."""
    return group_pb2.GroupShardFacts(
        shard_id=shard.shard_id,
        predecessors=shard.predecessors,
        ended=shard.ended_version > 0,
        end_offset=shard.end_offset,
        start_offset=shard.end_offset if shard.truncated else 0,
    )
