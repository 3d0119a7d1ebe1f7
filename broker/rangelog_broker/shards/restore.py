"""Restores the state of a shard: from a snapshot, and the headers of the batches behind it.

What holds: no batch is missing in the state, since nothing is trimmed that no snapshot covers.
"""

from __future__ import annotations

from typing import Protocol

from rangelog import Client
from rangelog_broker.shards.state import ShardState
from rangelog_proto.v1 import topic_pb2


class ShardRows(Protocol):
    """Where the rows of shards come from."""

    async def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """Return a shard's row. Raises TopicNotFound, ShardNotFound, Unavailable."""


async def fold_log(client: Client, state: ShardState, name: str, stream_id: int, start: int, end: int) -> None:
    """Add the batches of [start, end) of a shard's stream to the state of all before `start`.

    Raises OffsetTrimmed (there is a later snapshot by now), Corruption, Unavailable, StreamNotFound.
    """
    if start >= end:
        return
    async for chunk in client.internal.batch_headers(name, stream_id, start, end):
        for header, fields in chunk:
            state.fold(header, fields)
