"""Brokers as processes, by raw frames: killed, stopped, stalled; each batch once, retries get the first answer (T2, T3)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import rangelog
from rangelog.errors import NotOwner, OutOfOrder, RangelogError
from rangelog_cli.local.processes import Cluster
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Opcode
from rangelog_core.ids import Incarnation, ReplicaId, shard_stream_name
from rangelog_core.net.data_connection import DataConnection
from rangelog_proto.v1 import broker_pb2, data_pb2, topic_pb2
from tests.support.owner_cluster import made_batch
from tests.support.waiting import Seen, until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

SHARDS = 4
PRODUCER_ID = 7


class Bench:
    """A topic on a cluster with brokers, and what was acked."""

    def __init__(self, client: rangelog.Client) -> None:
        self.client = client
        self.topics = client.metadata.pd
        self.brokers = client.metadata.pd
        self.topic_id = 0
        self.acked: dict[int, list[int]] = {shard_id: [] for shard_id in range(SHARDS)}
        self.connections: dict[tuple[str, int], DataConnection] = {}

    async def create(self) -> None:
        """Create the topic."""
        namespace = topic_pb2.CreateNamespaceRequest(request_id=uuid.uuid4().hex, name="ns")
        topic = topic_pb2.CreateTopicRequest(request_id=uuid.uuid4().hex, namespace="ns", name="t", shard_count=SHARDS)
        await _patiently(lambda: self.topics.call(namespace, topic_pb2.CreateNamespaceResponse, timeout_s=10))
        self.topic_id = (
            await _patiently(lambda: self.topics.call(topic, topic_pb2.CreateTopicResponse, timeout_s=10))
        ).topic.topic_id

    async def owner(self, shard_id: int) -> broker_pb2.Broker | None:
        """Who owns a shard, as the placement driver has it."""
        wanted = broker_pb2.OwnedShard(topic_id=self.topic_id, shard_id=shard_id)
        found = await self.brokers.call(
            broker_pb2.FindOwnersRequest(shards=[wanted]), broker_pb2.FindOwnersResponse, timeout_s=10
        )
        return found.brokers[0] if found.brokers else None

    async def connect(self, row: broker_pb2.Broker) -> DataConnection:
        """A connection, kept while it lives."""
        key = row.name, row.incarnation
        known = self.connections.get(key)
        if known is None or known.closed is not None:
            replica = ReplicaId(row.name, Incarnation(row.incarnation))
            known = self.connections[key] = await DataConnection.connect(row.address, replica)
        return known

    async def produce(self, shard_id: int, sequence: int) -> int:
        """Send a batch to whoever owns the shard, until it is acked; return the offset."""
        while True:
            row = None
            try:
                row = await self.owner(shard_id)
                if row is not None:
                    return await send(await self.connect(row), self.topic_id, shard_id, sequence, timeout_s=3)
            except OutOfOrder:  # the owner was deposed and has its shard again: it asks, and opens it anew
                pass
            except RangelogError:
                if row is not None:
                    lost = broker_pb2.ReportBrokerLostRequest(name=row.name, incarnation=row.incarnation)
                    await _patiently(
                        lambda lost=lost: self.brokers.call(lost, broker_pb2.ReportBrokerLostResponse, timeout_s=10)
                    )
            await asyncio.sleep(0.02)

    async def produce_all(self, count: int) -> None:
        """So many more batches to each shard, one after the other; a repeat of the last one has the same answer."""

        async def one(shard_id: int) -> None:
            acked = self.acked[shard_id]
            for sequence in range(len(acked), len(acked) + count):
                acked.append(await self.produce(shard_id, sequence))

        await asyncio.gather(*(one(shard_id) for shard_id in range(SHARDS)))

    async def check(self) -> None:
        """Retries have the offsets of the first acks; the shards hold what was acked, once and in order."""
        for shard_id, acked in self.acked.items():
            for sequence in range(max(0, len(acked) - 5), len(acked)):
                assert await self.produce(shard_id, sequence) == acked[sequence]
            request = topic_pb2.ListShardsRequest(
                topic=topic_pb2.TopicReference(topic_id=self.topic_id), selection=topic_pb2.SHARD_SELECTION_ALL
            )
            rows = (await self.topics.call(request, topic_pb2.ListShardsResponse, timeout_s=10)).shards
            name = shard_stream_name(self.topic_id, shard_id)
            end = await self.client.internal.end(name, rows[shard_id].stream_id)
            values: list[bytes] = []
            async for chunk in self.client.internal.records(name, rows[shard_id].stream_id, 0, end):
                values += [record.value for record in chunk]
            assert values == [b"%d" % sequence for sequence in range(len(acked))]
            assert acked == list(range(len(acked)))


async def send(connection: DataConnection, topic_id: int, shard_id: int, sequence: int, *, timeout_s: float) -> int:
    """One try."""
    message = data_pb2.Produce(topic_id=topic_id, shard_id=shard_id).SerializeToString()
    batch = made_batch(Producer(PRODUCER_ID, 0, sequence), b"%d" % sequence)
    frame = await connection.request(Opcode.PRODUCE, message, [batch], timeout_s=timeout_s)
    return data_pb2.ProduceReply.FromString(frame.message).offset


async def _patiently(call: Callable[[], object]) -> object:
    async def answered() -> Seen:
        try:
            return Seen(True, await call())  # type: ignore[misc]
        except RangelogError as error:  # the calls have request ids, or may be done twice
            if not error.retriable:
                raise
            return Seen(False, error)

    return (await until(answered, "the call is not possible")).value


@asynccontextmanager
async def bench(cluster: Cluster) -> AsyncIterator[Bench]:
    """A topic with a few acked batches in each shard."""
    async with await rangelog.connect(cluster.connect_string) as client:
        made = Bench(client)
        await made.create()
        await made.produce_all(5)
        yield made
        for connection in made.connections.values():
            connection.close()


@pytest.mark.hasty
async def test_killed_brokers_lose_and_repeat_nothing(cluster_factory: Callable[..., Cluster]) -> None:
    """kill -9 of either broker while batches are sent: another owner takes over, retries get their first answers."""
    cluster = cluster_factory(pds=1, brokers=2)
    async with bench(cluster) as made:
        for name in ("broker1", "broker2", "broker1"):
            sending = asyncio.create_task(made.produce_all(60))
            await asyncio.sleep(0)
            cluster.kill(name)
            await sending
            await made.check()
            await asyncio.to_thread(cluster.start_member, name)
        await made.produce_all(5)
        await made.check()


@pytest.mark.hasty
async def test_brokers_that_stop_hand_over(cluster_factory: Callable[..., Cluster]) -> None:
    """SIGTERM while batches are sent: exit code 0, and everything goes on at the other one."""
    cluster = cluster_factory(pds=1, brokers=2)
    async with bench(cluster) as made:
        for name in ("broker1", "broker2"):
            sending = asyncio.create_task(made.produce_all(60))
            await asyncio.to_thread(cluster.restart, name)
            await sending
            assert cluster.members[name].running
            await made.check()


@pytest.mark.hasty
async def test_a_broker_that_stood_still_acks_nothing_afterwards(cluster_factory: Callable[..., Cluster]) -> None:
    """SIGSTOP until others own its shards, then SIGCONT: what was sent to it before and after is in no shard."""
    cluster = cluster_factory(pds=1, brokers=2, env={"RANGELOG_PD_SERVER_DEAD_MS": "2000"})
    async with bench(cluster) as made:
        rows = {shard_id: await made.owner(shard_id) for shard_id in range(SHARDS)}
        stalled, shard_id = next((row, each) for each, row in rows.items() if row is not None)
        connection = await made.connect(stalled)
        cluster.pause(stalled.name)
        sent = asyncio.create_task(send(connection, made.topic_id, shard_id, 5, timeout_s=60))

        async def another_owns_it() -> bool:
            row = await made.owner(shard_id)
            return row is not None and row.name != stalled.name

        await until(another_owns_it, "nobody else owns the shard")
        await made.produce_all(20)
        cluster.resume(stalled.name)
        try:
            assert await sent == made.acked[shard_id][5], "an answer is that of the batch that is there"
        except RangelogError as error:
            assert error.retriable or isinstance(error, NotOwner)
        await made.produce_all(5)
        await made.check()
