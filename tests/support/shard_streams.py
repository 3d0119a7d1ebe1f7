"""What the owner of a shard does, without a broker: writes the shard's stream, seals it, and commits a scale."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from rangelog import AppendRecord, Client, Writer
from rangelog._append.placement_calls import PlacementCalls
from rangelog._append.roll import leave_range
from rangelog._append.takeover import take_over
from rangelog._topics.topic_calls import TopicCalls, by_name
from rangelog._topics.values import ShardInfo
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_ranges import KeyRange
from rangelog_core.topic_names import parse_topic_name
from rangelog_proto.v1 import broker_pb2
from rangelog_proto.v1 import topic_pb2 as pb
from tests.support.waiting import until

TIMEOUT_S = 30.0


def shard_writer(client: Client, topic_id: int, shard_id: int) -> Writer:
    """A writer of the shard's stream, which `Client.writer` refuses by its name."""
    return client._internal.writer_class(
        client.internal, shard_stream_name(topic_id, shard_id), append_timeout_s=TIMEOUT_S, open_timeout_s=TIMEOUT_S
    )


async def cover(client: Client, name: str) -> None:
    """Report what snapshots are asked for, as a broker does that has written them, until the topic is truncated.

    There are no producers, so nothing is missing in such a snapshot.
    """
    brokers = client.metadata.pd
    row = broker_pb2.RegisterBrokerRequest(
        request_id=uuid.uuid4().hex, name="covers", incarnation=uuid.uuid4().int & 0xFFFF | 1, address="127.0.0.1:1"
    )
    await brokers.call(row, broker_pb2.RegisterBrokerResponse, timeout_s=TIMEOUT_S)
    beat = broker_pb2.BrokerHeartbeatRequest(name=row.name, incarnation=row.incarnation, complete=True)

    async def truncated() -> bool:
        if (await client.topics.describe(name)).state != "truncating":
            return True
        asked = (await brokers.call(beat, broker_pb2.BrokerHeartbeatResponse, timeout_s=TIMEOUT_S)).cover
        del beat.covered[:]
        beat.covered.extend(asked)
        return False

    await until(truncated, "the topic is being truncated", TIMEOUT_S)


async def write(client: Client, topic_id: int, shard_id: int, records: Sequence[bytes | AppendRecord]) -> int:
    """Append records as a writer of its own; return the end offset."""
    async with shard_writer(client, topic_id, shard_id) as writer:
        await writer.append_batch(records)
        return writer.next_offset


async def seal(client: Client, topic_id: int, shard: ShardInfo) -> pb.ShardEnd:
    """Fence the shard's writer and seal its stream; return how it ended."""
    name = shard_stream_name(topic_id, shard.shard_id)
    calls = PlacementCalls(client.metadata)
    taken = await take_over(client.metadata, calls, client.connections, name, timeout_s=TIMEOUT_S)
    stream = taken.stream
    if taken.left is not None:
        await leave_range(client.connections, stream.stream_id, stream.epoch, taken.left, taken.addresses)
    end = pb.ShardEnd(
        shard_id=shard.shard_id, stream_id=stream.stream_id, epoch=stream.epoch, end_offset=taken.end_offset
    )
    _, ranges = await client.metadata.ranges(name, 0)
    if ranges:
        end.last_range_index = ranges[-1].index
    return end


async def commit_scale(client: Client, name: str) -> None:
    """Carry out the plan of a topic's scale, as the owners of its parents do."""
    topic, plan = await TopicCalls(client.metadata.pd).describe(by_name(parse_topic_name(name)))
    assert plan is not None
    shards = (await client.topics.shard_map(name)).shards
    ends = [await seal(client, topic.topic_id, shards[each]) for each in plan.parents]
    request = pb.CommitScaleRequest(
        request_id=f"commit {topic.topic_id} {plan.scale_id}",
        topic_id=topic.topic_id,
        scale_id=plan.scale_id,
        ends=ends,
    )
    await client.metadata.pd.call(request, pb.CommitScaleResponse, timeout_s=TIMEOUT_S)


async def scale(
    client: Client, name: str, parents: Sequence[int], key_ranges: int | Sequence[KeyRange]
) -> Sequence[ShardInfo]:
    """Scale a topic, as its client and its owners together."""
    scaling = asyncio.create_task(client.topics.scale(name, parents, key_ranges, timeout_s=TIMEOUT_S))
    calls = TopicCalls(client.metadata.pd)
    while not scaling.done():
        _, plan = await calls.describe(by_name(parse_topic_name(name)))
        if plan is not None:
            await commit_scale(client, name)
            break
        await asyncio.sleep(0.01)
    return await scaling


async def end_topic(client: Client, name: str) -> None:
    """End all shards of a topic that is being sealed."""
    topic = await client.topics.describe(name)
    for shard in await client.topics.shards(name):
        end = await seal(client, topic.topic_id, shard)
        request = pb.EndShardRequest(
            request_id=f"end {topic.topic_id} {shard.shard_id}", topic_id=topic.topic_id, end=end
        )
        await client.metadata.pd.call(request, pb.EndShardResponse, timeout_s=TIMEOUT_S)
