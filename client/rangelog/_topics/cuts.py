"""Finds cuts of a topic: before its first record, behind its last one, and at a time.

What holds: what is found is a cut of the given shards, which are all shards of one map version. No record at or after the time
lies before the cut at a time. The records of a shard that was trimmed wholly are gone: no cut that is found names it, unless a
shard that shares its followers still has records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime

from rangelog._metadata import CALL_TIMEOUT_S, Metadata
from rangelog._read.reader import Reader
from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog._topics.shard_graph import ShardGraph
from rangelog._topics.values import ShardInfo
from rangelog_core.ids import shard_stream_name
from rangelog_core.net.data_connection import DataConnections
from rangelog_proto.v1 import pd_pb2

AT_ONCE = 64
"""Shards that are asked about at a time."""
ShardReaders = Callable[..., Reader]
"""`Client.shard_reader`."""
_Find = Callable[[ShardInfo], Awaitable[int]]


class CutFinder:
    """Finds cuts of one topic."""

    def __init__(
        self,
        metadata: Metadata,
        connections: DataConnections,
        shard_readers: ShardReaders,
        topic_id: int,
        shards: Iterable[ShardInfo],
    ) -> None:
        self._metadata = metadata
        self._connections = connections
        self._shard_readers = shard_readers
        self._topic_id = topic_id
        self._graph = ShardGraph(shards)

    async def tail(self) -> dict[int, int]:
        """Return the cut behind all records that were acked before the call. Raises Unavailable."""
        graph = self._graph
        last = [each for each, shard in graph.shards.items() if not shard.successors]
        ends = await self._find(last, self._end)
        return dict(zip(last, ends, strict=True))

    async def head(self) -> dict[int, int]:
        """Return the cut before the first records that are not trimmed. Raises Unavailable."""
        return await self._advance(self._trim)

    async def at_time(self, moment: datetime) -> dict[int, int]:
        """Return the cut at the first record of each shard at or after a time. Raises Unavailable, InvalidArgument."""

        async def first_at(shard: ShardInfo) -> int:
            reader = self._shard_readers(
                self._topic_id, shard.shard_id, stream_id=shard.stream_id, start=moment, follow=False
            )
            return await reader.find_start()

        return await self._advance(first_at)

    # ---- inside

    async def _advance(self, find: _Find) -> dict[int, int]:
        """Begin at the first shards, and go on from shards that have nothing from the found offset on to their followers."""
        position: dict[int, int] = {}
        new: Sequence[int] = self._graph.first()
        while new:
            found = await self._find(new, find)
            position.update(zip(new, found, strict=True))
            new = [follower for shard_id in new for follower in self._followed(position, shard_id)]
        return position

    def _followed(self, position: dict[int, int], shard_id: int) -> Sequence[int]:
        """Remove the shards of a succession that have nothing; return their followers."""
        if shard_id not in position:
            return ()
        succession = self._graph.succession(shard_id)
        if succession is None:
            return ()
        for each in succession.ended:
            end_offset = self._graph.shards[each].end_offset
            if end_offset is None or position.get(each, -1) < end_offset:
                return ()
        for each in succession.ended:
            del position[each]
        return succession.followers

    async def _find(self, shard_ids: Sequence[int], find: _Find) -> list[int]:
        """Ask about shards, not more than `AT_ONCE` at a time."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(shard: ShardInfo) -> int:
            if shard.end_offset is not None and (shard.truncated or shard.end_offset == 0):
                return shard.end_offset
            async with turns:
                return await find(shard)

        tasks = [asyncio.ensure_future(one(self._graph.shards[each])) for each in shard_ids]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _end(self, shard: ShardInfo) -> int:
        if shard.end_offset is not None:
            return shard.end_offset
        name = shard_stream_name(self._topic_id, shard.shard_id)
        view = StreamView(self._metadata, name, stream_id=shard.stream_id, connections=self._connections)
        return (await confirmed_end(view, self._connections)).offset

    async def _trim(self, shard: ShardInfo) -> int:
        request = pd_pb2.ListRangesRequest(stream_id=shard.stream_id, last_only=True)
        return (
            await self._metadata.pd.call(request, pd_pb2.ListRangesResponse, timeout_s=CALL_TIMEOUT_S)
        ).stream.trim_offset
