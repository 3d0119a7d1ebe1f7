"""Restores the state of a shard: from a snapshot, and the headers of the batches behind it.

What holds: no batch is missing in the state, since nothing is trimmed that no snapshot covers. The one exception is a shard
that was cut when its cluster was restored from the tier: its snapshots are lost, so of what was trimmed before nothing is
known, and of transactions from before the cut neither.
"""

from __future__ import annotations

from typing import Protocol

from rangelog import Client, Writer
from rangelog_broker.shards.state import ShardState
from rangelog_core.ids import shard_stream_name
from rangelog_proto.v1 import topic_pb2


class ShardRows(Protocol):
    """Where the rows of shards come from."""

    async def shard(self, topic_id: int, shard_id: int) -> topic_pb2.Shard:
        """Return a shard's row. Raises TopicNotFound, ShardNotFound, Unavailable."""


async def fold_log(
    client: Client,
    state: ShardState,
    key: tuple[int, int],
    stream_id: int,
    start: int,
    end: int,
    restored_offset: int | None = None,
    taken_by: Writer | None = None,
) -> None:
    """Add the batches of [start, end) of a shard's stream to the state of all before `start`.

    `key`: topic id and shard id. `restored_offset`: where the shard was cut by a restore. `taken_by`: the writer that has taken
    the stream over.
    Raises OffsetTrimmed (there is a later snapshot by now), Corruption, Unavailable, StreamNotFound.
    """
    name = shard_stream_name(*key)
    before_cut = restored_offset is not None and start < restored_offset
    if before_cut and not start:
        start = (await client.metadata.describe_stream(name)).trim_offset
        state.table.begins_in_the_middle = start > 0
    if start < end:
        async for chunk in client.internal.batch_headers(name, stream_id, start, end, taken_by):
            for header, fields in chunk:
                if before_cut and restored_offset is not None and header.base_offset >= restored_offset:
                    before_cut = False
                    state.forget_transactions()
                state.fold(header, fields, key[1])
    if before_cut:
        state.forget_transactions()


def restored_offset_of(shard: topic_pb2.Shard) -> int | None:
    """Return where a shard was cut by a restore; None: it was not."""
    return shard.restored_offset if shard.HasField("restored_offset") else None
