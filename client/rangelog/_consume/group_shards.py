"""Where a group begins: topics by name, their shards, and positions of all shards for a place in the topic.

What holds: positions name every shard of a topic that is listed, ended ones too: what lies before the place is finished, what
follows it begins anew. The position for "earliest" is where the shard begins by now: a lower one would be of trimmed records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from rangelog._consume.group_core import GroupShard
from rangelog._metadata import CALL_TIMEOUT_S, Metadata
from rangelog._read.proof import ProvedEnd
from rangelog._read.reader import Reader
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog_core.errors import InvalidArgument, ShardNotFound, TopicNotFound, Unavailable
from rangelog_core.ids import check_name, shard_stream_name
from rangelog_core.limits import SHARD_PAGE_SIZE_MAX
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.routes import PdCalls
from rangelog_core.topic_kinds import check_kind
from rangelog_proto.v1 import topic_pb2

LOOKUPS_AT_ONCE = 16
_READS_AGAIN = 5
DEFAULT_NAMESPACE = "default"


class CutLike(Protocol):
    """A cut: of each shard the offset behind what lies before it."""

    @property
    def topic_id(self) -> int:
        """The topic."""

    @property
    def offsets(self) -> Mapping[int, int]:
        """By shard."""


GroupStart = str | datetime | CutLike
""""earliest", "latest", a time, or a cut."""


def topic_reference(name: str) -> topic_pb2.TopicReference:
    """Return the reference of a topic by its name: "namespace/name", or a bare name. Raises InvalidArgument."""
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a topic is text, not {name!r}")
    namespace, separator, short = name.partition("/")
    if not separator:
        namespace, short = DEFAULT_NAMESPACE, name
    return topic_pb2.TopicReference(namespace=check_name("namespace", namespace), name=check_name("topic", short))


class GroupShards:
    """Topics and their shards, as groups need them."""

    def __init__(
        self, topics: PdCalls, metadata: Metadata, connections: DataConnections, make_reader: Callable[..., Reader]
    ) -> None:
        """`make_reader`: returns a reader of a stream by name, which may be an internal one."""
        self._topics = topics
        self._metadata = metadata
        self._connections = connections
        self._make_reader = make_reader
        self._names: dict[int, str] = {}
        """As they were told last: for topics that are deleted by now."""

    async def resolve(self, names: Iterable[str]) -> dict[int, str]:
        """Return the topics of these names, by id. Raises TopicNotFound, TopicKindForbids (one is a table)."""
        found = {}
        for name in names:
            request = topic_pb2.DescribeTopicRequest(topic=topic_reference(name))
            topic = (await self._topics.call(request, topic_pb2.DescribeTopicResponse, timeout_s=CALL_TIMEOUT_S)).topic
            check_kind(topic, topic_pb2.TOPIC_KIND_RECORDS)
            found[topic.topic_id] = self._names[topic.topic_id] = f"{topic.namespace}/{topic.name}"
        return found

    async def name_of(self, topic_id: int) -> str:
        """Return the name of a topic, of a deleted one the last known. It is asked for each time: the caller needs the right.

        Raises RightMissing, TopicNotFound.
        """
        request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=topic_id))
        try:
            topic = (await self._topics.call(request, topic_pb2.DescribeTopicResponse, timeout_s=CALL_TIMEOUT_S)).topic
        except TopicNotFound:
            if topic_id not in self._names:
                raise
            return self._names[topic_id]
        self._names[topic_id] = f"{topic.namespace}/{topic.name}"
        return self._names[topic_id]

    async def is_any_there(self, topic_ids: Iterable[int]) -> bool:
        """Return whether one of these topics still exists. Raises Unavailable, RequestTimeout."""
        for topic_id in topic_ids:
            request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=topic_id))
            with suppress(TopicNotFound):
                await self._topics.call(request, topic_pb2.DescribeTopicResponse, timeout_s=CALL_TIMEOUT_S)
                return True
        return False

    async def shards(self, topic_id: int) -> list[topic_pb2.Shard]:
        """Return all shards of a topic, of one version of its map. Raises TopicNotFound, Unavailable."""
        for _ in range(_READS_AGAIN):
            request = topic_pb2.ListShardsRequest(
                topic=topic_pb2.TopicReference(topic_id=topic_id),
                selection=topic_pb2.SHARD_SELECTION_ALL,
                page_size=SHARD_PAGE_SIZE_MAX,
            )
            found: list[topic_pb2.Shard] = []
            versions = set()
            while True:
                response = await self._topics.call(request, topic_pb2.ListShardsResponse, timeout_s=CALL_TIMEOUT_S)
                versions.add(response.topic.map_version)
                found += response.shards
                if not response.next_page_token:
                    break
                request.page_token = response.next_page_token
            if len(versions) == 1:
                return found
        raise Unavailable(f"the shards of topic {topic_id} change faster than they can be listed: try again")

    def reader(self, shard: GroupShard, **options: Any) -> Reader:
        """Return a reader of a shard."""
        return self._make_reader(shard_stream_name(shard.topic_id, shard.shard_id), **options)

    async def tail(self, shard: GroupShard) -> int:
        """Return the end of a shard's acked records."""
        return (await self._proved_tail(shard)).offset

    async def _proved_tail(self, shard: GroupShard) -> ProvedEnd:
        name = shard_stream_name(shard.topic_id, shard.shard_id)
        view = StreamView(self._metadata, name, connections=self._connections)
        return await confirmed_end(view, self._connections)

    async def positions(self, topic_id: int, place: GroupStart) -> dict[GroupShard, int]:
        """Return the position of each shard of a topic for a place in it.

        Raises InvalidArgument, ShardNotFound: the place is not one of this topic. OffsetOutOfRange: it lies beyond the end.
        """
        shards = await self.shards(topic_id)
        if place in ("earliest", "latest") or isinstance(place, datetime):
            limit = asyncio.Semaphore(LOOKUPS_AT_ONCE)

            async def find(shard: topic_pb2.Shard) -> int:
                async with limit:
                    if place == "earliest":
                        return await self._head(shard)
                    return await self._find(shard, place if isinstance(place, datetime) else None)

            offsets = await asyncio.gather(*map(find, shards))
            return {GroupShard(topic_id, each.shard_id): at for each, at in zip(shards, offsets, strict=True)}
        if isinstance(place, str | datetime) or not hasattr(place, "offsets"):
            raise InvalidArgument(f"bad start {place!r}: 'earliest', 'latest', a datetime or a Cut")
        if place.topic_id != topic_id:
            raise InvalidArgument(f"the cut is one of topic {place.topic_id}, not of topic {topic_id}")
        found = _positions_at(shards, place.offsets)
        await self._check_ends(shards, place.offsets)
        return found

    async def _check_ends(self, shards: Sequence[topic_pb2.Shard], offsets: Mapping[int, int]) -> None:
        """Raise OffsetOutOfRange where a cut lies beyond the end of a shard; Unavailable where that cannot be decided."""
        limit = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def check(shard: topic_pb2.Shard) -> None:
            if shard.ended_version:
                end = ProvedEnd(shard.end_offset, exact=True)
            else:
                async with limit:
                    end = await self._proved_tail(GroupShard(shard.topic_id, shard.shard_id))
            end.check_reached(offsets[shard.shard_id], "the cut: ", f"shard {shard.shard_id}")

        await asyncio.gather(*(check(each) for each in shards if offsets.get(each.shard_id)))

    async def _head(self, shard: topic_pb2.Shard) -> int:
        """Return the offset of the first record that is not trimmed."""
        if shard.truncated:
            return shard.end_offset
        view = StreamView(
            self._metadata,
            shard_stream_name(shard.topic_id, shard.shard_id),
            stream_id=shard.stream_id,
            connections=self._connections,
        )
        await view.last_range()
        return view.stream.trim_offset

    async def _find(self, shard: topic_pb2.Shard, time: datetime | None) -> int:
        """Return the offset of the first record at or after a time; without one, the end."""
        key = GroupShard(shard.topic_id, shard.shard_id)
        if time is not None and not shard.truncated:
            async for chunk in self.reader(key, start=time, follow=False).chunks():
                return chunk[0].offset
        return shard.end_offset if shard.ended_version else await self.tail(key)


def _positions_at(shards: Sequence[topic_pb2.Shard], offsets: Mapping[int, int]) -> dict[GroupShard, int]:
    by_id = {each.shard_id: each for each in shards}
    unknown = [each for each in offsets if each not in by_id]
    if unknown:
        raise ShardNotFound(f"the topic has no shard {unknown[0]}, which the cut names")
    before: dict[int, None] = {}
    pending = list(offsets)
    while pending:
        for each in by_id[pending.pop()].predecessors:
            if each not in before:
                before[each] = None
                pending.append(each)
    found = {}
    for shard in shards:
        if shard.shard_id in before and shard.shard_id in offsets:
            raise InvalidArgument(f"shard {shard.shard_id} precedes another shard of the cut")
        whole = shard.end_offset if shard.shard_id in before else 0
        found[GroupShard(shard.topic_id, shard.shard_id)] = offsets.get(shard.shard_id, whole)
    return found
