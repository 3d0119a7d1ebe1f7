"""Brokers on loopback sockets and the placement driver's part for them, around the cores of the real owners of shards.

A shard's log is a list. What an owner has in flight is durable at its `flush`; of what a deposed owner had in flight a prefix
is. A test deposes owners, kills brokers, loses answers, splits and merges.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rangelog_broker.shards.owner import InFlight, ShardOwner
from rangelog_broker.shards.producer_table import AckedBatch, ProducerTable, Standing
from rangelog_broker.shards.state import ShardState
from rangelog_core.batch import check_batch, decode_records, extension_of
from rangelog_core.batch_extension import Producer, Tag, decode_producer
from rangelog_core.errors import (
    NotOwner,
    OutOfOrder,
    ProducerFenced,
    RangelogError,
    ShardEnded,
    TopicNotFound,
    Unavailable,
)
from rangelog_core.frame import Frame, FrameDecoder, Opcode, encode_frame
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange, equal_key_ranges
from rangelog_core.limits import FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_core.record import Record
from rangelog_core.versions import DATA_PLANE_VERSIONS
from rangelog_proto.v1 import broker_pb2, common_pb2, data_pb2, topic_pb2

TOPIC_ID = 42
Landing = tuple[AckedBatch, list[Record]]


class FakeShard:
    """One shard: its row, its log, its owner."""

    def __init__(self, shard_id: int, keys: KeyRange, version: int, predecessors: Sequence[int] = ()) -> None:
        self.shard_id = shard_id
        self.keys = keys
        self.created_version = version
        self.ended_version = 0
        self.predecessors = tuple(predecessors)
        self.broker: FakeBroker | None = None
        self.owner: ShardOwner | None = None
        self.closed = False
        self.batches: list[Landing] = []
        self.landing: list[Landing] = []
        self.waiting: list[tuple[FakeConnection, int, InFlight]] = []
        self.tries = 0

    @property
    def end(self) -> int:
        """Of what is durable."""
        return self.batches[-1][0].end_offset if self.batches else 0

    @property
    def records(self) -> list[Record]:
        """All that are durable."""
        return [record for _, records in self.batches for record in records]

    def row(self) -> topic_pb2.Shard:
        """As the placement driver lists it."""
        low, high = self.keys.to_bytes()
        return topic_pb2.Shard(
            topic_id=TOPIC_ID,
            shard_id=self.shard_id,
            key_range=topic_pb2.KeyRange(low=low, high=high),
            created_version=self.created_version,
            ended_version=self.ended_version,
            predecessors=self.predecessors,
        )


class FakeConnection:
    """One producer's connection to a broker."""

    def __init__(self, broker: FakeBroker, writer: asyncio.StreamWriter) -> None:
        self.broker = broker
        self.writer = writer

    def reply(self, opcode: Opcode, request_id: int, message: Any) -> None:
        """Answer, unless answers are lost."""
        if not self.writer.is_closing():
            self.writer.write(encode_frame(opcode, request_id, message.SerializeToString()))

    def refuse(self, request_id: int, error: RangelogError) -> None:
        """Answer with an error."""
        told = data_pb2.Error(code=error.code, message=error.message, epoch=error.epoch or 0)
        self.reply(Opcode.ERROR, request_id, told)


class FakeBroker:
    """One broker in one incarnation after the other."""

    def __init__(self, topic: FakeTopic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.incarnation = 1
        self.alive = False
        self.frozen = False
        self.finds = True
        self.address = ""
        self.connections: list[FakeConnection] = []
        self.connected_count = 0
        self.refuses: Callable[[Producer], RangelogError | None] = lambda _: None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Listen, in a new incarnation."""
        self.incarnation += 1
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        self.alive, self.frozen = True, False

    def kill(self) -> None:
        """End at once: no answer is sent any more."""
        self.alive = False
        if self._server is not None:
            self._server.close()
        self.break_connections()

    def break_connections(self) -> None:
        """End all connections."""
        for connection in self.connections:
            connection.writer.transport.abort()
        self.connections.clear()

    async def stop(self) -> None:
        """End, and wait for it."""
        self.kill()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        connection = FakeConnection(self, writer)
        self.connections.append(connection)
        decoder = FrameDecoder(message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX)
        try:
            while data := await reader.read(1 << 18):
                for frame in decoder.feed(data):
                    self._take(connection, frame)
        except ConnectionError:
            pass
        finally:
            writer.close()

    def _take(self, connection: FakeConnection, frame: Frame) -> None:
        if frame.opcode is Opcode.HELLO:
            self.connected_count += 1
            hello = data_pb2.HelloReply(protocol_version=DATA_PLANE_VERSIONS.highest, server=self.name)
            connection.reply(Opcode.HELLO_REPLY, frame.request_id, hello)
            return
        if self.frozen:
            return
        try:
            if frame.opcode is Opcode.PRODUCE:
                self.topic.produce(connection, frame)
            elif frame.opcode is Opcode.FIND_BATCH:
                if not self.finds:
                    raise Unavailable("not now")
                connection.reply(Opcode.FIND_BATCH_REPLY, frame.request_id, self.topic.find(frame.message))
        except RangelogError as error:
            connection.refuse(frame.request_id, error)


class FakeTopic:
    """A topic, its brokers, and what the placement driver knows of them."""

    def __init__(self, shard_count: int = 1, *, seed: int = 0, broker_count: int = 2) -> None:
        self.draw = random.Random(seed)
        self.version = 1
        self.config = topic_pb2.TopicConfig()
        self.deleted = False
        self.shards = {n: FakeShard(n, keys, 1) for n, keys in enumerate(equal_key_ranges(shard_count))}
        self.brokers = [FakeBroker(self, f"b{number}") for number in range(broker_count)]
        self.flushes = True
        """Whether batches are durable, and acked, in the turn after their arrival."""
        self.lost_answers = 0.0
        self.seen: Counter[str] = Counter()
        self.reports: list[tuple[str, int]] = []

    async def __aenter__(self) -> FakeTopic:
        for broker in self.brokers:
            await broker.start()
        for shard in self.shards.values():
            self.assign(shard.shard_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers:
            await broker.stop()

    # ---- owners

    @property
    def current(self) -> list[FakeShard]:
        """By key."""
        return sorted((each for each in self.shards.values() if not each.ended_version), key=lambda each: each.keys)

    def table(self, shard: FakeShard) -> ProducerTable:
        """The fold of a shard's log, over the epochs that its ancestors saw."""
        floors: dict[int, int] = {}
        for before in shard.predecessors:
            for producer_id, epoch in self.table(self.shards[before]).epochs().items():
                floors[producer_id] = max(epoch, floors.get(producer_id, 0))
        table = ProducerTable(floors)
        for batch, _ in shard.batches:
            table.note(batch)
        return table

    def settle(self, shard: FakeShard, landed: int | None = None) -> None:
        """The owner is deposed: a prefix of what it had in flight is durable, and nobody hears of it."""
        if landed is None:
            landed = self.draw.randint(0, len(shard.landing))
        shard.batches += shard.landing[:landed]
        shard.landing.clear()
        shard.waiting.clear()
        shard.owner = None

    def assign(self, shard_id: int, broker: FakeBroker | None = None, *, landed: int | None = None) -> None:
        """Another owner takes a shard over."""
        shard = self.shards[shard_id]
        self.settle(shard, landed)
        shard.broker = broker or self.draw.choice([each for each in self.brokers if each.alive])
        shard.owner = ShardOwner(ShardState(self.table(shard)), shard.end)

    def take_away(self, broker: FakeBroker) -> None:
        """A broker is lost: others take its shards."""
        for shard in self.current:
            if shard.broker is broker and not shard.closed:
                self.assign(shard.shard_id)

    # ---- frames

    def produce(self, connection: FakeConnection, frame: Frame) -> None:
        """Take a batch, as an owner does."""
        shard = self.shards[data_pb2.Produce.FromString(frame.message).shard_id]
        header = check_batch(frame.payload)
        assert header[4:6] == (0, 0) and (header.epoch, header.base_offset) == (0, 0), "the broker gives it a place"
        producer = decode_producer(extension_of(frame.payload, header)[Tag.PRODUCER])
        shard.tries += 1
        error = connection.broker.refuses(producer)
        if error is not None:
            raise error
        if self.deleted:
            raise TopicNotFound("it was deleted")
        if shard.closed:
            raise ShardEnded("it is being scaled")
        if shard.broker is not connection.broker or shard.owner is None:
            raise NotOwner("somebody else's")
        found = shard.owner.offer(producer, header.count)
        if isinstance(found, InFlight):
            self.seen["again in flight"] += 1
            shard.waiting.append((connection, frame.request_id, found))
        elif found.standing is Standing.NEXT:
            batch = AckedBatch(producer, found.offset, found.end_offset)
            shard.landing.append((batch, decode_records(frame.payload)))
            shard.waiting.append((connection, frame.request_id, InFlight(found.offset, found.end_offset)))
            if self.flushes:
                asyncio.get_running_loop().call_soon(self.flush, shard)
        elif found.standing is Standing.HELD:
            self.seen["again held"] += 1
            self.answer(connection, frame.request_id, found.offset)
        elif found.standing is Standing.GAP:
            self.seen["gap"] += 1
            raise OutOfOrder("batches are missing")
        else:
            assert found.standing is Standing.FENCED, "what has no outcome is remembered"
            raise ProducerFenced("a later instance", epoch=found.epoch)

    def flush(self, shard: FakeShard) -> None:
        """What is in flight is durable."""
        if shard.owner is None:
            return
        shard.batches += shard.landing
        shard.landing.clear()
        shard.owner.confirmed(shard.end)
        waiting, shard.waiting = shard.waiting, []
        for connection, request_id, place in waiting:
            self.answer(connection, request_id, place.offset)

    def answer(self, connection: FakeConnection, request_id: int, offset: int) -> None:
        """Ack, or lose the ack."""
        if self.draw.random() >= self.lost_answers:
            connection.reply(Opcode.PRODUCE_REPLY, request_id, data_pb2.ProduceReply(offset=offset))
        else:
            self.seen["lost answer"] += 1

    def find(self, message: bytes) -> data_pb2.FindBatchReply:
        """Whether an ended shard holds a batch."""
        request = data_pb2.FindBatch.FromString(message)
        shard = self.shards[request.shard_id]
        if not shard.ended_version:
            raise Unavailable("the shard has not ended, as far as this broker knows")
        producer = Producer(request.producer_id, request.producer_epoch, request.sequence)
        found = self.table(shard).find(producer)
        assert found.standing is not Standing.FORGOTTEN, "what has no outcome is remembered"
        if found.standing is Standing.FENCED:
            raise ProducerFenced("a later instance", epoch=found.epoch)
        held = found.standing is Standing.HELD
        self.seen["asked: yes" if held else "asked: no"] += 1
        return data_pb2.FindBatchReply(found=held, offset=found.offset if held else 0)

    # ---- scales

    def close(self, shard_ids: Sequence[int], *, landed: int | None = None) -> None:
        """Owners take nothing more for these shards."""
        for shard_id in shard_ids:
            self.settle(self.shards[shard_id], landed)
            self.shards[shard_id].closed = True

    def commit(self, parents: Sequence[int], parts: int) -> list[int]:
        """End closed shards, which are neighbours; return the shards that follow."""
        self.version += 1
        keys = KeyRange(
            min(self.shards[each].keys.low for each in parents), max(self.shards[each].keys.high for each in parents)
        )
        for each in parents:
            self.shards[each].ended_version = self.version
        children = []
        for part in equal_key_ranges(parts, keys) if parts else ():
            child = FakeShard(len(self.shards), part, self.version, parents)
            self.shards[child.shard_id] = child
            self.assign(child.shard_id)
            children.append(child.shard_id)
        return children

    def scale(self, parents: Sequence[int], parts: int, *, landed: int | None = None) -> list[int]:
        """Close and commit."""
        self.close(parents, landed=landed)
        return self.commit(parents, parts)

    # ---- the placement driver's calls

    def ListShards(self, request: topic_pb2.ListShardsRequest) -> topic_pb2.ListShardsResponse:
        """As the service."""
        self.seen["ListShards"] += 1
        if self.deleted:
            raise TopicNotFound("it was deleted")
        assert request.topic.topic_id == TOPIC_ID or (request.topic.namespace, request.topic.name) == ("default", "t")
        if request.selection == topic_pb2.SHARD_SELECTION_CURRENT:
            chosen = self.current
        else:
            since = request.since_map_version
            chosen = [each for each in self.shards.values() if max(each.created_version, each.ended_version) > since]
        first = int(request.page_token or 0)
        page = chosen[first : first + 3]  # pages of three
        return topic_pb2.ListShardsResponse(
            topic=topic_pb2.Topic(
                namespace="default", name="t", topic_id=TOPIC_ID, map_version=self.version, config=self.config
            ),
            shards=[each.row() for each in page],
            next_page_token=str(first + 3) if len(chosen) > first + 3 else "",
        )

    def FindOwners(self, request: broker_pb2.FindOwnersRequest) -> broker_pb2.FindOwnersResponse:
        """As the service."""
        self.seen["FindOwners"] += 1
        response = broker_pb2.FindOwnersResponse()
        for asked in request.shards:
            shard = self.shards[asked.shard_id]
            if shard.broker is not None and not shard.ended_version:
                response.assignments.add(
                    topic_id=TOPIC_ID,
                    shard_id=shard.shard_id,
                    broker=shard.broker.name,
                    incarnation=shard.broker.incarnation,
                )
        response.brokers.extend(self.ListBrokers(None).brokers)
        return response

    def ListBrokers(self, _: object) -> broker_pb2.ListBrokersResponse:
        """As the service."""
        return broker_pb2.ListBrokersResponse(
            brokers=[
                broker_pb2.Broker(
                    name=each.name, incarnation=each.incarnation, address=each.address, lost=not each.alive
                )
                for each in self.brokers
            ]
        )

    def ReportBrokerLost(self, request: broker_pb2.ReportBrokerLostRequest) -> broker_pb2.ReportBrokerLostResponse:
        """As the service: looks, and takes the shards of a dead broker away."""
        self.reports.append((request.name, request.incarnation))
        broker = next(each for each in self.brokers if each.name == request.name)
        if broker.alive or broker.incarnation != request.incarnation:
            return broker_pb2.ReportBrokerLostResponse(lost=not broker.alive)
        self.take_away(broker)
        return broker_pb2.ReportBrokerLostResponse(lost=True)


class FakeTopicPd(PdClient):
    """A client's calls on the placement driver, answered by a FakeTopic."""

    def __init__(self, topic: FakeTopic) -> None:
        super().__init__(["fake:1"])
        self.topic = topic
        self.down = False

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        await asyncio.sleep(0)
        if self._closed or self.down:
            raise Unavailable("no placement driver answers")
        return getattr(self.topic, route_of(type(request)).name)(request)


WHOLE = KeyRange(0, KEY_SPACE_END)
ZSTD = common_pb2.COMPRESSION_ZSTD
