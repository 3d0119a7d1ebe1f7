"""A producer's connection to a broker by hand: bytes in, frames out, over a broker that owns what a test says."""

from __future__ import annotations

import asyncio
from typing import Any

from rangelog.errors import NotOwner
from rangelog_broker.serving.connection import ProducerConnection, ProducerPort
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_proto.v1 import data_pb2
from tests.support.memory_server import Wire
from tests.support.owner_cluster import made_batch

NAME, INCARNATION, TOKEN = "b1", 9, "secret"


class ScriptedShards:
    """One shard, 3/0, whose batches wait until the test answers; what is asked about ended shards fails as it says."""

    def __init__(self) -> None:
        self.taken: list[tuple[Producer, Any, int]] = []
        self.refusal: Exception | None = None
        self.change: asyncio.Future[None] | None = None
        self.found: int | Exception | None = None
        self.asked: list[Producer] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def changing(self, topic_id: int, shard_id: int) -> asyncio.Future[None] | None:
        """See Shards."""
        return self.change

    def owned(self, topic_id: int, shard_id: int) -> Any:
        """See Shards."""
        if (topic_id, shard_id) != (3, 0):
            raise NotOwner("not here")
        return self

    def produce(self, header: Any, producer: Producer, data: bytes, reply: Any, request_id: int) -> None:
        """As OwnedShard."""
        if self.refusal is not None:
            raise self.refusal
        self.taken.append((producer, reply, request_id))

    async def find_batch(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """See Shards."""
        self.asked.append(producer)
        await self.gate.wait()
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def answer(self, count: int = 1) -> None:
        """Ack what came first."""
        for _ in range(count):
            producer, reply, request_id = self.taken.pop(0)
            reply.acked(request_id, 100 + producer.sequence)


class StrictWire(Wire):
    """A wire that loses what is written after its end, as sockets do."""

    def write(self, data: Any) -> None:
        """See asyncio.Transport."""
        if not self.ended:
            super().write(data)

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio.Transport."""
        if not self.ended:
            super().writelines(list_of_data)


class ProducerClient:
    """One connection and its wire."""

    def __init__(self, port: ProducerPort) -> None:
        self.wire = StrictWire()
        self.connection = ProducerConnection(port)
        self.connection.connection_made(self.wire)

    def feed(self, data: bytes) -> None:
        """Bytes come."""
        position = 0
        while position < len(data):
            buffer = self.connection.get_buffer(-1)
            count = min(len(buffer), len(data) - position)
            buffer[:count] = data[position : position + count]
            self.connection.buffer_updated(count)
            position += count

    def send(self, opcode: Opcode, request_id: int, message: Any, payload: bytes = b"") -> None:
        """Send a frame."""
        self.feed(frame(opcode, request_id, message, payload))

    def hello(self, **changes: Any) -> None:
        """Send a hello."""
        self.send(Opcode.HELLO, 1, hello_message(**changes))

    def produce(self, request_id: int, payload: bytes, topic_id: int = 3, shard_id: int = 0) -> None:
        """Send a batch."""
        self.send(Opcode.PRODUCE, request_id, data_pb2.Produce(topic_id=topic_id, shard_id=shard_id), payload)

    async def replies(self) -> list[Frame]:
        """What was sent since the last call."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.wire.frames()

    async def errors(self) -> list[tuple[int, str]]:
        """The same where it is errors only."""
        frames = await self.replies()
        assert {each.opcode for each in frames} <= {Opcode.ERROR}
        return [(each.request_id, data_pb2.Error.FromString(each.message).code) for each in frames]


def frame(opcode: Opcode, request_id: int, message: Any, payload: bytes = b"") -> bytes:
    """One frame."""
    return encode_frame(opcode, request_id, message.SerializeToString(), payload)


def hello_message(**changes: Any) -> data_pb2.Hello:
    """A good hello, but for some fields."""
    fields = {"protocol_version": 1, "server": NAME, "incarnation": INCARNATION, "token": TOKEN}
    return data_pb2.Hello(**(fields | changes))


BATCH = made_batch(Producer(7, 0, 0), b"a", b"b")


def sweep_at(port: ProducerPort, now: float) -> None:
    """Look at all deadlines at a time of the loop."""
    for connection in list(port.connections):
        connection.check_deadlines(now)
