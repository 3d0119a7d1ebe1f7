"""A client of a door that fetches from any broker (D1): of each shard the records come without gap or repeat, acked ones only.

It asks the shard's owner most of the time and any broker else, keeps a position per shard, and goes on where the last answer
ended. A position that an answer gave is never refused by another broker as beyond the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

import grpc

from rangelog.errors import OffsetOutOfRange, RangelogError, ShardNotFound, TopicNotFound
from rangelog_broker.verbs import fetch
from rangelog_broker.verbs.fetch import Fetches
from rangelog_proto.v1 import topic_pb2
from tests.simulation.virtual_doors import call_door

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_cluster import VirtualCluster

ARRIVES_S = 120.0
CORNER_CASES = (
    "a fetch was answered from a tail",
    "a fetch was answered from the log",
    "a fetch waited for an ack",
    "a fetch was answered where the shard is not owned",
    "a fetch came to the end of a shard",
    "a shard was lost under a fetch",
    "an owner had not acked what a fetch had seen",
)
RARE = ("an owner had not acked what a fetch had seen",)


def watch_fetches(watch: Any, cluster: VirtualCluster) -> None:
    """Count the corner cases."""
    note = cluster.note

    async def owned(self: Fetches, inner: Any, each: Any, wanted: Any) -> Any:
        from_memory, from_log = self.counts.from_memory, self.counts.from_log
        fetched = await inner(self, each, wanted)
        if fetched is None:
            note("a shard was lost under a fetch")
        elif self.counts.from_memory > from_memory:
            note("a fetch was answered from a tail")
        elif self.counts.from_log > from_log:
            note("a fetch was answered from the log")
        return fetched

    async def elsewhere(self: Fetches, inner: Any, key: Any, wanted: Any) -> Any:
        fetched = await inner(self, key, wanted)
        if fetched.batches:
            note("a fetch was answered where the shard is not owned")
        if fetched.is_last:
            note("a fetch came to the end of a shard")
        return fetched

    async def wait(self: Fetches, inner: Any, *args: Any) -> None:
        await inner(self, *args)
        note("a fetch waited for an ack")

    watch(Fetches, "_owned", owned)
    watch(Fetches, "_elsewhere", elsewhere)
    watch(Fetches, "_wait", wait)


def watch_proofs(stack: contextlib.ExitStack, cluster: VirtualCluster) -> None:
    """Count the questions whether there is a later owner."""
    proves = fetch._proves

    async def noted(shard: Any) -> bool:
        proved = await proves(shard)
        cluster.note("an owner had not acked what a fetch had seen")
        return proved

    stack.enter_context(mock.patch.object(fetch, "_proves", noted))


@dataclass
class Fetching:
    """The client of the door."""

    clients: Clients
    topic: str
    brokers: list[str]
    position: dict[int, int] = field(default_factory=dict)
    """Of each shard: where the next fetch begins."""
    values: dict[tuple[int, int], bytes] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    """Where an answer said that a shard ends."""
    topic_id: int = 0

    @property
    def role(self) -> str:
        """The name of its role."""
        return f"fetch-{self.topic}"

    async def run(self) -> None:
        """Fetch from one shard after the other, for as long as there are clients."""
        chance = self.clients.chance
        while True:
            await self._look_for_shards()
            for shard_id in list(self.position):
                if shard_id not in self.ended:
                    await self._fetch(shard_id)
            await asyncio.sleep(chance.expovariate(1 / 0.1))

    async def _look_for_shards(self) -> None:
        client = await self.clients.client()
        with contextlib.suppress(RangelogError):
            if not self.topic_id:
                self.topic_id = (await client.topics.describe(self.topic)).topic_id
            request = topic_pb2.ListShardsRequest(
                topic=topic_pb2.TopicReference(topic_id=self.topic_id), selection=topic_pb2.SHARD_SELECTION_ALL
            )
            found = await client.metadata.pd.call(request, topic_pb2.ListShardsResponse, timeout_s=2.0)
            for each in found.shards:
                self.position.setdefault(each.shard_id, 0)

    async def _fetch(self, shard_id: int) -> None:
        clients, chance = self.clients, self.clients.chance
        offset = self.position[shard_id]
        broker = self._broker(shard_id)
        bytes_max, wait_s = chance.choice([1, 2_000, 1 << 20]), chance.choice([0.0, 0.0, 0.2, 1.0])
        bytes_min = min(bytes_max, chance.choice([0, 1, 1, 3_000]))
        try:
            self._saw(shard_id, *await call_door(
                clients.cluster.network, broker, "fetch", self.topic_id, shard_id, offset,
                bytes_min=bytes_min, bytes_max=bytes_max, wait_s=wait_s, timeout_s=wait_s + 3.0,
            ))  # fmt: skip
        except RangelogError as error:
            self._refused(shard_id, offset, error)
        except grpc.RpcError:
            pass

    def _broker(self, shard_id: int) -> str:
        """The owner most of the time, else any."""
        chance = self.clients.chance
        if chance.random() < 0.7:
            for shard, process in self.clients.cluster.open_shards.items():
                if shard.key == (self.topic_id, shard_id) and shard.closed is None and process.alive:
                    return process.name
        return chance.choice(self.brokers)

    def _refused(self, shard_id: int, offset: int, error: RangelogError) -> None:
        self.clients.cluster.note(f"fetch: {type(error).__name__}")
        if isinstance(error, OffsetOutOfRange | ShardNotFound | TopicNotFound):
            self.clients.cluster.fail(f"a fetch at {offset} of shard {shard_id}, which is there, was refused: {error}")

    def _saw(self, shard_id: int, next_offset: int, is_last: bool, records: list[tuple[int, bytes]]) -> None:
        fail, offset = self.clients.cluster.fail, self.position[shard_id]
        if [each for each, _ in records] != list(range(offset, offset + len(records))):
            fail(f"a fetch at {offset} of shard {shard_id} answered {[each for each, _ in records]}")
        if next_offset != offset + len(records):
            fail(f"a fetch at {offset} of shard {shard_id} with {len(records)} records goes on at {next_offset}")
        for each, value in records:
            self.values[shard_id, each] = value
        self.position[shard_id] = next_offset
        if is_last:
            self.ended[shard_id] = next_offset

    async def judge(self, shards: list[topic_pb2.Shard], found: dict[int, list[tuple[int, bytes]]]) -> None:
        """Wait until everything is fetched, and compare it with the log."""
        clients = self.clients
        ends = {shard_id: len(records) for shard_id, records in found.items()}
        closed = {each.shard_id for each in shards if each.ended_version}
        deadline = clients.loop.now + ARRIVES_S
        while self.position != ends or self.ended.keys() != closed:
            if clients.loop.now > deadline:
                clients.cluster.fail(
                    f"fetches of {self.topic} do not come to the ends {ends}: {self.position} {self.ended}"
                )
            await asyncio.sleep(0.5)
        clients.dismiss(self.role)
        kept = {(shard_id, offset): value for shard_id, records in found.items() for offset, value in records}
        if self.values != kept:
            wrong = next(place for place in kept if self.values.get(place) != kept[place])
            clients.cluster.fail(f"a fetch gave {self.values.get(wrong)!r} at {wrong}, where {kept[wrong]!r} is")
