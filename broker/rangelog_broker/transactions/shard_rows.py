"""Rows of shards for merges, kept so that a merge does not ask the placement driver each time.

What holds: a row says of an ended shard what holds for good. That a shard is current is a hint: it may have ended since; who
merges into it learns of that, and forgets the row. But of the rows that are returned together no shard that counts as current
was followed by another one of them: what counts as current was seen at a map version at which all others existed already.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, Protocol

from rangelog.errors import ShardNotFound
from rangelog_proto.v1 import topic_pb2

ROWS_MAX = 10_000

ShardKey = tuple[int, int]


class Rows(Protocol):
    """Asks the placement driver."""

    async def topic_and_shard(self, topic_id: int, shard_id: int) -> tuple[topic_pb2.Topic, topic_pb2.Shard]:
        """Return both rows. Raises TopicNotFound, ShardNotFound, Unavailable."""


class _Seen(NamedTuple):
    row: topic_pb2.Shard
    map_version: int


class KnownRows:
    """The rows of shards, for one event loop."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._seen: OrderedDict[ShardKey, _Seen] = OrderedDict()

    async def together(self, topic_id: int, shard_ids: Iterable[int]) -> list[topic_pb2.Shard]:
        """Return the rows of shards of one topic, by id. Raises TopicNotFound, ShardNotFound, Unavailable."""
        found = [await self._find(topic_id, shard_id) for shard_id in sorted(shard_ids)]
        newest = max((each.row.created_version for each in found), default=0)
        for at, each in enumerate(found):
            if not each.row.ended_version and each.map_version < newest:
                found[at] = await self._ask(topic_id, each.row.shard_id)
        return [each.row for each in found]

    async def known(self, topic_id: int, shard_ids: Iterable[int]) -> set[int]:
        """Return those of some shards that the topic has or had. Raises TopicNotFound, Unavailable."""
        found: set[int] = set()
        for shard_id in sorted(shard_ids):
            with suppress(ShardNotFound):
                await self._find(topic_id, shard_id)
                found.add(shard_id)
        return found

    async def one(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """Return one row. Raises as `together`."""
        return (await self._find(topic_id, shard_id)).row

    def forget(self, topic_id: int, shard_id: int) -> None:
        """Ask for the row of a shard the next time."""
        self._seen.pop((topic_id, shard_id), None)

    async def _find(self, topic_id: int, shard_id: int) -> _Seen:
        known = self._seen.get((topic_id, shard_id))
        return known if known is not None else await self._ask(topic_id, shard_id)

    async def _ask(self, topic_id: int, shard_id: int) -> _Seen:
        topic, row = await self._rows.topic_and_shard(topic_id, shard_id)
        seen = self._seen[topic_id, shard_id] = _Seen(row, topic.map_version)
        while len(self._seen) > ROWS_MAX:
            self._seen.popitem(last=False)
        return seen
