"""The partitions of a table: which one has a key, and what this client has under way there.

What holds: a table's partitions never change, so they are asked for once. A client has one session in each partition, whatever
the number of Table objects.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rangelog._metadata import CALL_TIMEOUT_S
from rangelog._table.lookups import Lookups
from rangelog._table.partition_calls import CallsOfOwners, PartitionCalls
from rangelog._table.sender import CommandSender
from rangelog_core.errors import RangelogError, Unavailable
from rangelog_core.key_ranges import key_range_from_bytes
from rangelog_core.net.pages import pages_by_token
from rangelog_core.net.pd_client import PdClient
from rangelog_core.table_keys import table_position
from rangelog_proto.v1 import topic_pb2


class Partition:
    """One partition, and what this client has under way there."""

    def __init__(self, owners: CallsOfOwners, table_id: int, number: int) -> None:
        self.calls = PartitionCalls(owners, table_id, number)
        self.sender = CommandSender(self.calls)
        self.newest = Lookups(self.calls, stale=False)
        self.stale = Lookups(self.calls, stale=True)

    async def close(self) -> None:
        """End what is under way. Idempotent."""
        await self.sender.close()
        await self.newest.close()
        await self.stale.close()


class Partitions:
    """All partitions of one table, in order of the key space."""

    def __init__(self, owners: CallsOfOwners, table_id: int, shards: Sequence[topic_pb2.Shard]) -> None:
        ordered = sorted(shards, key=lambda shard: shard.key_range.low)
        self.table_id = table_id
        self._lows = [key_range_from_bytes(each.key_range.low, each.key_range.high).low for each in ordered]
        self._partitions = [Partition(owners, table_id, each.shard_id) for each in ordered]

    def of(self, key: bytes, family: bytes | None) -> Partition:
        """Return the partition that has a key."""
        return self._partitions[bisect_right(self._lows, table_position(key, family)) - 1]

    def all(self) -> Sequence[Partition]:
        """Return all of them."""
        return self._partitions

    async def close(self) -> None:
        """End what is under way. Idempotent."""
        for each in self._partitions:
            await each.close()


async def listed_shards(topics: PdClient, table_id: int) -> list[topic_pb2.Shard]:
    """Return the shards of a table, which never change. Raises TopicNotFound, Unavailable."""
    request = topic_pb2.ListShardsRequest(topic=topic_pb2.TopicReference(topic_id=table_id))
    pages = pages_by_token(topics, request, topic_pb2.ListShardsResponse, CALL_TIMEOUT_S)
    return [each async for page in pages for each in page.shards]


async def check_exists(topics: PdClient, table_id: int, error: RangelogError) -> None:
    """Raise TopicNotFound if nobody answers for a table because it is deleted: with the outcome that `error` has."""
    if not isinstance(error, Unavailable):
        return
    request = topic_pb2.DescribeTopicRequest(topic=topic_pb2.TopicReference(topic_id=table_id))
    try:
        await topics.call(request, topic_pb2.DescribeTopicResponse, timeout_s=2.0)
    except RangelogError as gone:
        if not isinstance(gone, Unavailable):
            raise gone.with_outcome(unknown=error.outcome_unknown) from error
