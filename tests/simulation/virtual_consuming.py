"""Clients that consume a topic as a group through the doors of whichever brokers: at least once, in order, nothing passed over.

A client has one request at a time, joins again where its consumer is gone, and commits what it was answered. What a client was
answered counts as handed out; an answer that was lost on its way does not. Clients are killed, and brokers die, stop and stand
still, as they do for all others.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from rangelog.errors import MemberNotFound, PreconditionFailed, RangelogError
from rangelog_broker.verbs.consume import Consumes
from rangelog_proto.v1 import topic_pb2
from tests.simulation.virtual_doors import call_door

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_cluster import VirtualCluster

CONSUMERS = 3
GROUP = "through-doors"
SESSION_S = 2.0
ARRIVES_S = 180.0
EVERY, OF = 6, 8
"""Which topics that keep everything have these consumers."""
CORNER_CASES = (
    "a batch of a consumer was committed",
    "a consumer was not there, and another one joined",
    "a batch was answered again",
    "a batch was lost on its way to the client",
    "a shard was lost with records that were handed out",
    "a consumer's client fell silent",
)
RARE = CORNER_CASES


@dataclass
class DoorConsuming:
    """The clients of one group."""

    clients: Clients
    topic: str
    """"namespace/name"."""
    brokers: list[str]
    runs: bool
    roles: dict[int, str] = field(default_factory=dict)
    handed: dict[tuple[int, int], None] = field(default_factory=dict)
    """(shard, offset) of what clients were answered, by the first time."""
    _lives: int = 0
    _is_over: bool = False

    async def supervise(self) -> None:
        """Keep clients running and kill them; look at the positions, until the faults are over."""
        clients, chance = self.clients, self.clients.chance
        while self.runs and not clients.stopping:
            self._start_missing()
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            if chance.random() < 0.2:
                clients.kill(self.roles[chance.randrange(CONSUMERS)])
            await self._look()

    def _start_missing(self) -> None:
        for number in range(CONSUMERS):
            if number not in self.roles or not self.clients.lives_on(self.roles[number]):
                self._lives += 1
                self.roles[number] = f"c-{self.topic}-{self._lives}"
                self.clients.start(self.roles[number], self._consume())

    async def _consume(self) -> None:
        """The life of a client."""
        note, chance = self.clients.cluster.note, self.clients.chance
        broker, one, batch = "", "", 0
        while not self._is_over:
            try:
                if not one:
                    broker, batch = chance.choice(self.brokers), 0
                    one = await self._ask(broker, "join", GROUP, [self.topic], session_s=SESSION_S)
                commit = batch if chance.random() < 0.8 else 0
                number, records, lost = await self._ask(
                    broker, "dequeue", GROUP, one, records_max=chance.choice([1, 7, 100]),
                    wait_s=chance.choice([0.0, 0.3]), commit=commit,
                )  # fmt: skip
                if number and chance.random() < 0.05:
                    note("a batch was lost on its way to the client")
                    continue
                if number and number == batch:
                    note("a batch was answered again")
                if lost:
                    note("a shard was lost with records that were handed out")
                for shard, offset, _ in records:
                    self.handed.setdefault((shard, offset))
                batch = number
                if batch and chance.random() < 0.3:
                    await self._ask(broker, "commit", GROUP, one, batch)
                    note("a batch of a consumer was committed")
            except MemberNotFound:
                note("a consumer was not there, and another one joined")
                one = ""
            except PreconditionFailed:
                batch = 0
            except (RangelogError, grpc.RpcError):
                if chance.random() < 0.2:
                    one = ""
            pause_s = 2 * SESSION_S if chance.random() < 0.01 else chance.expovariate(1 / 0.05)
            await asyncio.sleep(pause_s)

    async def _ask(self, broker: str, method: str, *arguments: Any, **options: Any) -> Any:
        return await call_door(self.clients.cluster.network, broker, method, *arguments, timeout_s=20.0, **options)

    async def _look(self) -> dict[int, int]:
        """Return the committed positions; fail where one is behind a record that no client was answered."""
        client = await self.clients.client()
        with suppress(RangelogError):
            known = {each.shard_id: each.offset for each in (await client.groups.describe(GROUP)).shards if each.offset}
            for shard, end in known.items():
                for offset in range(end):
                    if (shard, offset) not in self.handed:
                        self.clients.cluster.fail(f"{shard}/{offset} was committed at {end}, and handed to no client")
            return known
        return {}

    # ---- the end

    async def judge(self, shards: list[topic_pb2.Shard], found: dict[int, list[tuple[int, bytes]]]) -> None:
        """Wait until all is committed; each key's records were handed out in their order, the first time."""
        clients = self.clients
        if not self.runs:
            return
        ends = {shard_id: len(records) for shard_id, records in found.items() if records}
        deadline = clients.loop.now + ARRIVES_S
        while (known := await self._look()) != ends:
            if clients.loop.now > deadline:
                clients.cluster.fail(f"consumers through doors do not come to the end {ends}: they are at {known}")
            self._start_missing()
            await asyncio.sleep(0.5)
        self._is_over = True
        for role in self.roles.values():
            clients.dismiss(role)
        last: dict[bytes, int] = {}
        for shard, offset in self.handed:
            value = found[shard][offset][1]
            key, number = value.rsplit(b" ", 1)
            if int(number) <= last.get(key, -1):
                clients.cluster.fail(f"{value!r} was handed out after number {last[key]} of its key")
            last[key] = int(number)
        clients.cluster.trace(f"consumers through doors {self.topic} {len(self.handed)}")


def has_consuming(seed: int, kind_every: int) -> bool:
    """Whether the topic of a seed has these consumers: they cost time, so not each has."""
    return seed // kind_every % OF == EVERY


def watch_consumers(watch: Any, cluster: VirtualCluster) -> None:
    """Count the corner cases that the verb alone knows."""

    def expire(self: Consumes, inner: Any, name: str) -> None:
        if name in self._consumers and not self._consumers[name].users:
            cluster.note("a consumer's client fell silent")
        inner(self, name)

    watch(Consumes, "_expire", expire)
