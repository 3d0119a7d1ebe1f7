"""The end of a topic that keeps everything: it is sealed while programs are inside transactions with records in it.

What is checked is T5 once more: a commit that returned has all its records in the topic, any other transaction has none.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from rangelog.errors import RangelogError, TopicStateForbids
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import topic_pb2
from tests.simulation.virtual_transactions import KEYS, TIMEOUT_S, Noted, Transactions

if TYPE_CHECKING:
    from rangelog import Client
    from tests.simulation.virtual_topics import Topics

PROGRAMS = 4
RECORDS_MAX = 6
CORNER_CASES = (
    "a topic was sealed inside a transaction, which was committed",
    "a topic was sealed inside a transaction, which was aborted",
)


class Sealing:
    """See the module. The draws are of its own."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._name = topics.transactions.topic
        self._draw = random.Random(f"sealing of a topic {topics.clients.cluster.seed}")
        self._transactions = Transactions(topics.clients, self._name, keeps_all=True)

    async def judge(self, client: Client, calls: PdClient) -> None:
        """Seal the topic, and compare what is in it with what programs were told."""
        self._topics.ambushes.is_sealing = True
        programs = [asyncio.create_task(self._program(client, f"seal-{number}")) for number in range(PROGRAMS)]
        await asyncio.sleep(self._draw.uniform(0.0, 0.3))
        while True:
            with suppress(RangelogError):
                if (await client.topics.describe(self._name)).state == "sealed":
                    break
                with suppress(TopicStateForbids):  # it is being sealed
                    await client.topics.seal(self._name)
            await asyncio.sleep(0.2)
        await asyncio.gather(*programs)
        await self._transactions.settle()
        await self._transactions.merged()
        for noted in self._transactions.noted:
            if noted.outcome is not None:
                self._topics.clients.cluster.note(CORNER_CASES[not noted.outcome])
        _, shards = await self._topics._shards(calls, topic_pb2.SHARD_SELECTION_ALL)
        places: dict[bytes, tuple[int, int]] = {}
        depth: dict[int, int] = {}
        for shard in sorted(shards, key=lambda each: each.shard_id):  # ids rise with each scale
            depth[shard.shard_id] = 1 + max((depth[each] for each in shard.predecessors), default=0)
            for offset, value in await self._topics._read(client, shard):
                if places.setdefault(value, (shard.shard_id, offset)) != (shard.shard_id, offset):
                    self._topics.clients.cluster.fail(f"{value!r} is in the sealed topic twice")
        self._transactions.judge(places, depth)

    async def _program(self, client: Client, name: str) -> None:
        """One transaction; what its commit comes to is asked for afterwards, where that was not said."""
        noted = Noted(name)
        self._transactions.noted.append(noted)
        program = client.transactional(name, timeout_s=TIMEOUT_S)
        with suppress(RangelogError):
            await program.open()
            transaction = noted.transaction = program.transaction()
            await transaction.begin()
            for number in range(self._draw.randrange(1, RECORDS_MAX)):
                key = b"x-%d" % self._draw.randrange(KEYS)
                noted.records.append((key, b"%s %s %d" % (name.encode(), key, number)))
                await transaction.submit(self._name, noted.records[-1][1], key=key)
            await asyncio.sleep(self._draw.choice([0.0, 0.01, 0.1, 0.5]))
            await transaction.commit()
            noted.outcome = True
        with suppress(RangelogError):
            await program.leave()
