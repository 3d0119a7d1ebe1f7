"""A local cluster with brokers, for one measurement: topics of its own, and which broker owns which shard."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rangelog import StreamConfig, TopicConfig, TopicInfo
from rangelog_bench.ours import RANGE_SERVERS, Rangelog
from rangelog_bench.topics.client_process import ClientProcesses
from rangelog_core.errors import RequestTimeout
from rangelog_proto.v1 import broker_pb2

_OWNED_S_MAX = 60.0
_POLL_S = 0.05
_CALL_S = 5.0
_SHARDS_PER_CALL = 1_000
_CREATE_S = 60.0


class TopicCluster(Rangelog):
    """Three placement drivers, three range servers, and brokers."""

    def __init__(self, directory: Path, brokers: int) -> None:
        super().__init__(directory)
        self.brokers = brokers

    async def start(self) -> None:
        """Start the servers and connect."""
        await self.start_cluster(RANGE_SERVERS, brokers=self.brokers)

    async def new_topic(self, shards: int) -> TopicInfo:
        """Create a topic that is never tiered, and return once every shard has an owner."""
        name = f"bench-{uuid.uuid4().hex[:12]}"
        config = TopicConfig(stream=StreamConfig(tiered=False))
        topic = await self.client.topics.create(name, config, shards=shards, timeout_s=_CREATE_S)
        for _ in range(int(_OWNED_S_MAX / _POLL_S)):
            if len(await self.owners(topic.topic_id, range(shards))) == shards:
                return topic
            await asyncio.sleep(_POLL_S)
        raise RequestTimeout(f"not every shard has an owner within {_OWNED_S_MAX:g} s")

    async def owners(self, topic_id: int, shards: range) -> dict[int, str]:
        """Return the brokers that shards are assigned to, by shard; those without one are left out."""
        found: dict[int, str] = {}
        calls = self.client.metadata.pd
        for at in range(0, len(shards), _SHARDS_PER_CALL):
            part = shards[at : at + _SHARDS_PER_CALL]
            request = broker_pb2.FindOwnersRequest(
                shards=[broker_pb2.OwnedShard(topic_id=topic_id, shard_id=each) for each in part]
            )
            response = await calls.call(request, broker_pb2.FindOwnersResponse, timeout_s=_CALL_S)
            found.update({each.shard_id: each.broker for each in response.assignments if each.broker})
        return found

    def client_processes(self) -> ClientProcesses:
        """Client processes, to be used with `async with`."""
        return ClientProcesses(self.directory / "clients")


@asynccontextmanager
async def topic_cluster(directory: Path, *, brokers: int) -> AsyncIterator[TopicCluster]:
    """Start a cluster, and remove it in the end. Raises RequestTimeout when no broker registers."""
    cluster = TopicCluster(directory, brokers)
    try:
        await cluster.start()
        calls = cluster.client.metadata.pd
        for _ in range(int(_OWNED_S_MAX / _POLL_S)):
            listed = await calls.call(
                broker_pb2.ListBrokersRequest(), broker_pb2.ListBrokersResponse, timeout_s=_CALL_S
            )
            if len(listed.brokers) >= brokers:
                break
            await asyncio.sleep(_POLL_S)
        else:
            raise RequestTimeout(f"the brokers do not register within {_OWNED_S_MAX:g} s")
        yield cluster
    finally:
        await cluster.stop()
