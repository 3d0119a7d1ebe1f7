"""Ends the streams of a shard, under whichever owner."""

from __future__ import annotations

from contextlib import suppress

from rangelog import Client
from rangelog.errors import StreamNotFound
from rangelog_core.ids import shard_stream_name, side_log_name
from rangelog_proto.v1 import topic_pb2


async def settle(client: Client, row: topic_pb2.Shard, *, timeout_s: float) -> topic_pb2.ShardEnd:
    """Seal a shard's side log and stream, whoever has them open; return how the stream ended.

    Raises the errors of a takeover; StreamSealed once the end is committed.
    """
    with suppress(StreamNotFound):
        await client.internal.settle_end(
            side_log_name(row.topic_id, row.shard_id), timeout_s=timeout_s, tell_later=True
        )
    stream = shard_stream_name(row.topic_id, row.shard_id)
    taken = await client.internal.settle_end(stream, timeout_s=timeout_s, tell_later=True)
    return topic_pb2.ShardEnd(
        shard_id=row.shard_id,
        stream_id=row.stream_id,
        epoch=taken.stream.epoch,
        last_range_index=taken.last_range_index,
        end_offset=taken.end_offset,
    )
