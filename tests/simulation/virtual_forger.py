"""A client that may append and is dishonest: it sends batches whose headers say what only owners of shards may write there.

What must hold: such a batch is refused and in no shard, whatever it names: a merge of an honest transaction, a run that goes
on, a control mark, a slice of keys, what nobody knows. A staged one needs an epoch that the coordinator gave. So each shard
opens at its next owner, and honest transactions are whole.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING

from rangelog.errors import RangelogError
from rangelog_core.batch import encode_batch
from rangelog_core.batch_extension import (
    MergedFrom,
    Producer,
    Tag,
    encode_extension,
    encode_merged,
    encode_producer,
)
from rangelog_core.frame import Opcode
from rangelog_core.ids import ReplicaId
from rangelog_core.net.owner_calls import JOURNALS
from rangelog_proto.v1 import data_pb2

if TYPE_CHECKING:
    from rangelog_core.net.data_connection import DataConnection
    from tests.simulation.virtual_topics import Topics

PAUSE_S = 0.15
TIMEOUT_S = 2.0
NOBODY_KNOWS = 0x9001
LATEST = (1 << 32) - 1
KINDS = ("merge", "merge", "run", "control", "keys", "unknown", "no producer", "stage")
CORNER_CASES = ("a forged batch was refused",)


def has_forger(seed: int) -> bool:
    """Whether there is one beside the topic of a seed: every other topic has one."""
    return seed // 8 % 2 == 0


class Forger:
    """See the module. Its draws are of its own, so that those of all others stay."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._clients = topics.clients
        self._draw = random.Random(f"forger {topics.clients.cluster.seed}")
        self._count = 0

    async def run(self) -> None:
        """Send to whoever owns a shard, all the while."""
        client = await self._clients.client()
        while not self._clients.stopping:
            await asyncio.sleep(self._draw.expovariate(1 / PAUSE_S))
            shards = [each for each in self._topics.open_shards() if each.key[0] == self._topics.topic_id]
            if not shards:
                continue
            shard = self._draw.choice(shards)
            name = self._clients.cluster.open_shards[shard].name
            row = self._clients.cluster.state.owners.brokers.find(name)
            if row is None or row.lost:
                continue
            with suppress(RangelogError, TimeoutError):
                broker = ReplicaId(name, row.incarnation)
                connection = await client._connections.get(broker, row.address, kind="broker")
                await self._send(connection, shard.key)

    async def _send(self, connection: DataConnection, key: tuple[int, int]) -> None:
        kind = self._draw.choice(KINDS)
        self._count += 1
        value = b"forged %s %d" % (kind.encode(), self._count)
        program = self._draw.randrange(1, 3 * JOURNALS)  # so are the ids of transactional programs given
        producer = Producer(program, self._draw.choice([0, LATEST]), 0)
        if kind == "stage":
            message = data_pb2.Stage(
                topic_id=key[0], shard_id=key[1], transactional_id="x0", number=self._draw.choice([1, 1 << 62])
            )
            opcode, fields = Opcode.STAGE, {}
        else:
            message = data_pb2.Produce(topic_id=key[0], shard_id=key[1])  # type: ignore[assignment]
            opcode, fields = Opcode.PRODUCE, self._fields(kind, key[1], program)
        if kind != "no producer":
            fields[Tag.PRODUCER] = encode_producer(producer)
        batch = encode_batch(
            stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[0], values=[value],
            extension=encode_extension(fields),
        )  # fmt: skip
        try:
            await connection.request(opcode, message.SerializeToString(), (batch,), timeout_s=TIMEOUT_S)
        except RangelogError as error:
            if error.code == "INVALID_ARGUMENT":
                self._clients.cluster.note("a forged batch was refused")
            raise
        self._clients.cluster.fail(f"a forged batch was taken: {kind}, by shard {key[1]}")

    def _fields(self, kind: str, shard_id: int, program: int) -> dict[int, bytes]:
        if kind in ("merge", "no producer"):  # all that the program ever stages is merged, it says
            number = self._draw.randrange(1, 4)
            return {Tag.TRANSACTION: encode_merged(MergedFrom(program, number, shard_id, 1 << 62, 0))}
        if kind == "run":
            return {Tag.TRANSACTION: encode_merged(MergedFrom(1 << 60, 1, shard_id, 0, 3))}
        if kind == "control":
            return {Tag.CONTROL: b""}
        if kind == "keys":
            return {Tag.KEY_RANGE: bytes(8)}
        return {NOBODY_KNOWS: b"?"} if kind == "unknown" else {}
