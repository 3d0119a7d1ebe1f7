"""Faults of a topic that strike at the worst moment: inside a merge, behind it, inside a takeover, inside a transaction.

Each moment is taken in two of three seeds with a topic, and there now and then. The draws are of their own, so that those of
all others stay.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from rangelog.errors import RangelogError
from rangelog_proto.v1 import broker_pb2
from tests.simulation.virtual_time import WORLD, Process, here

if TYPE_CHECKING:
    from rangelog import Transactional
    from rangelog_broker.shards.shard import OwnedShard
    from rangelog_core.net.pd_client import PdClient
    from tests.simulation.virtual_topics import Topics

SHARES = {
    "run": 0.5,
    "merged": 0.15,
    "answer": 0.3,
    "between": 0.8,
    "order": 0.3,
    "hand-over": 0.5,
    "isolated": 0.8,
    "positions": 0.15,
    "last": 1.0,
    "moved": 0.5,
}
"""How often each moment is taken, where it is taken at all."""
STRIKES_EVERY_S = 2.0
LATE_S = 1.0
SPLIT_WAIT_S = 4.0
"""Below the limit of one try of a merge's order."""
BETWEEN_S = 2.0
TRANSACTION_S = 4.0
KNOWN_SHARDS_MAX = 3
DROPPED_S = 60.0
ORDER_S_MAX = 2.0
MOVE_S = 5.0
LATE_AT_SEAL = 0.5

ShardKey = tuple[int, int]


class TopicAmbushes:
    """See the module."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.clients = topics.clients
        self._draw = random.Random(f"ambushes of a topic {self.clients.cluster.seed}")
        self._shares = {moment: self._draw.choice([0.0, often, often]) for moment, often in SHARES.items()}
        self._splits: list[str] = []
        self._leaving: dict[str, float] = {}
        """Brokers that hear late that they have nothing left, and until when."""
        self._rows: dict[str, broker_pb2.Broker] = {}
        """Of each broker the row that another one was told last."""
        self._late: dict[str, tuple[ShardKey, broker_pb2.Broker]] = {}
        """By broker: an owner that it is told late of, once, as the answer was under way for long."""
        self.is_over = False
        """Nothing strikes any more."""
        self.is_sealing = False

    def takes(self, moment: str) -> bool:
        """Whether this moment is taken."""
        return not self.is_over and self._draw.random() < self._shares[moment]

    # ---- merges

    def run_begun(self, broker: str) -> None:
        """The first batch of a run has left its owner, and the others have not: the owner dies now and then."""
        if self.takes("run"):
            self._kill(broker, "a broker died inside a run")

    def merged(self, broker: str) -> bool:
        """A merge is acked and nobody knows: whether its owner has died."""
        if self.takes("merged"):
            return self._kill(broker, "a broker died before the word that it has merged")
        return False

    async def order(self) -> None:
        """An order to merge is late, now and then; also while the topic is sealed over it."""
        if self.takes("order") or (self.is_sealing and self._draw.random() < LATE_AT_SEAL):
            await asyncio.sleep(self._draw.uniform(0.0, ORDER_S_MAX))

    async def is_answer_lost(self, key: ShardKey) -> bool:
        """The answer to an order to merge is late: whether it is lost, and the shard has ended meanwhile."""
        if key[0] != self.topics.topic_id or not self.takes("answer"):
            return False
        self.split(key[1])
        deadline = self.clients.loop.now + SPLIT_WAIT_S
        while self.clients.loop.now < deadline:
            await asyncio.sleep(0.05)
            if self._has_ended(key):
                self.clients.cluster.note("a shard ended before the word that it has merged")
                return True
        return False

    def _has_ended(self, key: ShardKey) -> bool:
        rows = self.clients.cluster.state.topics.shards.values()
        return any((row.topic_id, row.shard_id) == key and row.ended_version for row in rows)

    def _kill(self, name: str, what: str) -> bool:
        broker = self.topics.brokers.get(name)
        if broker is None or not broker.up or broker.is_spared:
            return False
        broker.kill(silently=False)
        self.clients.cluster.note(what)
        self.clients.loop.call_in(WORLD, self._draw.uniform(0.1, 2.0), lambda: broker.up or broker.start())
        return True

    # ---- scales

    def split(self, shard_id: int) -> None:
        """Have a shard split soon, unless the topic is being scaled."""
        role = f"e-{self.topics.name}-{len(self._splits)}"
        self._splits.append(role)
        self.clients.start(role, self._split(shard_id))

    async def _split(self, shard_id: int) -> None:
        calls = (await self.clients.client()).metadata.pd
        with suppress(RangelogError):
            await self.topics.scale_once(calls, shard_id)

    async def splits_end(self) -> None:
        """Wait until no request for a split is on its way."""
        while any(map(self.clients.lives_on, self._splits)):
            await asyncio.sleep(0.2)

    async def between(self, shard_id: int) -> None:
        """A transaction has staged something at a shard, and something is to follow: it is split meanwhile, now and then."""
        if self.takes("between"):
            self.clients.cluster.note("a shard was split between two batches of a transaction")
            self.split(shard_id)
            deadline = self.clients.loop.now + BETWEEN_S
            while self.clients.loop.now < deadline and not self._has_ended((self.topics.topic_id, shard_id)):
                await asyncio.sleep(0.05)

    # ---- takeovers

    async def withdrawn(self, broker: str) -> None:
        """A broker is about to be told what is another one's by now: it learns that late, in a hand-over that is struck."""
        late_s = self._leaving.get(broker, 0.0) - self.clients.loop.now
        if late_s > 0:
            self.clients.cluster.note("a broker learned late that a shard is another one's")
            await asyncio.sleep(late_s)

    async def fence(self, broker: str) -> None:
        """A broker is about to claim a shard: in a hand-over that is struck it takes a while."""
        if any(until > self.clients.loop.now for name, until in self._leaving.items() if name != broker):
            self.clients.cluster.note("a shard was claimed late, while its former owner went on")
            await asyncio.sleep(self._draw.uniform(0.4, LATE_S))

    def side_fenced(self, key: ShardKey) -> None:
        """A side log was opened: if its shard's owner is leaving, a snapshot is due there, which fails."""
        loop = self.clients.loop
        for shard, process in self.clients.cluster.open_shards.items():
            is_leaving = process.alive and self._leaving.get(process.name, 0.0) > loop.now
            if shard.key == key and is_leaving and shard.closed is None:
                loop.call_in(process, 0.0, shard._start_snapshot)

    async def hand_over(self) -> None:
        """Have brokers leave that hear late that they have nothing left: they go on until they are fenced.

        Between them an operator moves shards to brokers that are named.
        """
        clients = self.clients
        calls = (await clients.client()).metadata.pd
        while not clients.stopping:
            await asyncio.sleep(self._draw.expovariate(1 / STRIKES_EVERY_S))
            brokers = self.topics.brokers.values()
            up = [each for each in brokers if each.up and not each.life.paused and not each.is_spared]
            if up and self.takes("moved"):
                await self._move(calls, self._draw.choice(up).name)
            if len(up) > 1 and self.takes("hand-over"):
                broker = self._draw.choice(up)
                self._leaving[broker.name] = clients.loop.now + LATE_S
                broker.stop()

    async def _move(self, calls: PdClient, broker: str) -> None:
        shards = [each.key for each in self.topics.open_shards() if each.key[0] == self.topics.topic_id]
        if not shards:
            return
        topic_id, shard_id = self._draw.choice(shards)
        request = broker_pb2.MoveShardRequest(
            request_id=f"move-{self._draw.getrandbits(64):x}", topic_id=topic_id, shard_id=shard_id, broker=broker
        )
        with suppress(RangelogError):
            moved = await calls.call(request, broker_pb2.MoveShardResponse, timeout_s=MOVE_S)
            if moved.assignment.broker == broker:
                self.clients.cluster.note("an operator moved a shard")

    async def depose(self) -> None:
        """Cut owners of shards off from all but other brokers, all the while: they do not learn that they are deposed.

        A program whose coordinator knows the owner stages something at its successor.
        """
        clients = self.clients
        program = (await clients.client()).transactional(f"deposer-{self.topics.name}", timeout_s=TRANSACTION_S)
        while not clients.stopping:
            await asyncio.sleep(self._draw.expovariate(1 / STRIKES_EVERY_S))
            shards = [each for each in self.topics.open_shards() if each.key[0] == self.topics.topic_id]
            if not shards or not self.takes("isolated"):
                continue
            broker = clients.cluster.open_shards[self._draw.choice(shards)].name
            shards = [each for each in shards if clients.cluster.open_shards[each].name == broker]
            for shard in shards[:KNOWN_SHARDS_MAX]:
                await self._stage_at(program, shard)
            shards = [each for each in shards if each.closed is None]
            if not shards:
                continue
            pairs = self._cut_off(broker)
            deadline = clients.loop.now + self._draw.uniform(3.0, 7.0)
            shard = shards[0]
            while clients.loop.now < deadline and not all(each.closed for each in shards):
                twice = [each for each in shards if each.closed is None and len(self._owners(each.key)) > 1]
                if twice:
                    shard = twice[0]
                    break
                await asyncio.sleep(0.1)
            await program.leave()  # its producers are bound to the owner that is cut off
            row = self._rows.get(broker)
            if row is not None:
                self._late = {name: (shard.key, row) for name in self.topics.brokers if name != broker}
            await self._stage_at(program, shard)
            self._late.clear()
            for pair in pairs:
                clients.cluster.network.cuts.pop(pair, None)
            for link in list(clients.cluster.network.links):
                link.pump()
        await program.leave()
        await self.topics.transactions.settle(program.transactional_id)  # no other process's client can

    async def _stage_at(self, program: Transactional, shard: OwnedShard) -> None:
        with suppress(RangelogError, TimeoutError):
            async with asyncio.timeout(TRANSACTION_S):
                await self.topics.transactions.at_shard(program, shard.key[1])
                await asyncio.sleep(0.1)

    def owner_found(self, key: ShardKey, row: broker_pb2.Broker) -> broker_pb2.Broker:
        """A process was told the owner of a shard: return what it hears of it."""
        self._rows[row.name] = row
        late_key, late_row = self._late.get(here().name, (None, row))
        if late_key != key:
            return row
        del self._late[here().name]
        return late_row

    def _owners(self, key: ShardKey) -> list[OwnedShard]:
        return [each for each in self.topics.open_shards() if each.key == key]

    def _cut_off(self, name: str) -> list[tuple[str, str]]:
        clients = self.clients
        clients.cluster.note("a broker was cut off from all but other brokers")
        hosts = [*clients.cluster.pds, *clients.cluster.servers, *clients.processes]
        others = [host for host in dict.fromkeys(hosts) if host not in self.topics.brokers]
        pairs = [pair for other in others for pair in ((name, other), (other, name))]
        clients.cluster.network.cuts.update(dict.fromkeys(pairs))
        return pairs

    # ---- programs

    def positions_staged(self, process: Process) -> bool:
        """A program has staged what it has read: whether it stands still, for longer than its session as a member."""
        if not self.takes("positions"):
            return False
        self.clients.cluster.note("a program stood still between its positions and its commit")
        self.clients.loop.pause(process)
        self.clients.loop.call_in(
            WORLD, self._draw.uniform(1.0, 3.5), lambda: process.paused and self.clients.loop.resume(process)
        )
        return True

    async def last_program(self) -> None:
        """In the calm a program dies inside its only transaction, and all brokers with what it staged start anew."""
        self.is_over = True
        if self._draw.random() >= self._shares["last"]:
            return
        clients = self.clients
        role = f"x-{self.topics.name}-last"
        staged = asyncio.Event()
        clients.start(role, self.topics.transactions.leave_open("last", staged))
        await staged.wait()
        clients.kill(role)
        clients.cluster.note("a program died inside its last transaction")
        for broker in self.topics.brokers.values():
            if broker.up:
                broker.kill(silently=False)
            broker.start()

    async def staged_goes(self) -> None:
        """Wait until nothing is staged any more: all transactions are decided, and owners ask what became of them."""
        deadline = self.clients.loop.now + DROPPED_S
        while True:
            shards = [each for each in self.topics.open_shards() if each.key[0] == self.topics.topic_id]
            staged = [(each.key, each.transactions.staged()) for each in shards if each.transactions.staged()]
            if not staged:
                return
            if self.clients.loop.now > deadline:
                self.clients.cluster.fail(f"nobody asks what became of what is staged: {staged[0]}")
            await asyncio.sleep(0.5)
