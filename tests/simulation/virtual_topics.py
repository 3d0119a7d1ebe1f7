"""A topic under faults: producers, readers, splits and merges, while brokers die, stand still and hand over (T1 to T4).

What each producer was told is kept. At the end everything is read: each acked record is there once, where its ack says, unless
retention allows that it is gone; a record of unknown outcome is there at most once; records of one key and producer are in the
order they were sent in, over all shards. Some topics are scaled by their load, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rangelog import Client, ProducerAck
from rangelog.errors import OffsetTrimmed, ProducerFenced, RangelogError, TopicExists
from rangelog_core.ids import shard_stream_name
from rangelog_core.key_hash import key_position
from rangelog_core.key_ranges import KeyRange, key_range_from_bytes
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import common_pb2, topic_pb2
from tests.simulation.checking import check_copies, check_objects
from tests.simulation.virtual_broker import VirtualBroker
from tests.simulation.virtual_consuming import DoorConsuming, has_consuming
from tests.simulation.virtual_fetching import Fetching
from tests.simulation.virtual_following import TopicQuery
from tests.simulation.virtual_forger import Forger, has_forger
from tests.simulation.virtual_groups import VirtualGroup
from tests.simulation.virtual_pipeline import VirtualPipeline, has_pipeline
from tests.simulation.virtual_programs import PROGRAMS as SHORT_PROGRAMS
from tests.simulation.virtual_programs import run_programs
from tests.simulation.virtual_resets import VirtualResets, has_resets
from tests.simulation.virtual_retention import KIND_EVERY, Trims
from tests.simulation.virtual_sealing import Sealing
from tests.simulation.virtual_sending import DoorReading, Sent, send_through_doors
from tests.simulation.virtual_time import WORLD, Process
from tests.simulation.virtual_topic_ambushes import TopicAmbushes
from tests.simulation.virtual_topic_planning import TopicDriver
from tests.simulation.virtual_topic_reading import TopicReading
from tests.simulation.virtual_topic_sink import ToTopic, has_sink
from tests.simulation.virtual_transactions import Transactions
from tests.simulation.virtual_versions import Upgrade, has_earlier_brokers
from tests.simulation.virtual_watermarks import VirtualWatermarks

if TYPE_CHECKING:
    from rangelog._produce.producer import TopicProducer
    from rangelog_broker.shards.shard import OwnedShard
    from tests.simulation.virtual_clients import Clients

BROKERS = 3
PRODUCERS = 3
PROGRAMS = 5
READERS = 2
SENDERS = 2
KEYS = 12
SHARDS_MAX = 12
NAMESPACE = "sim"
SETTLED_S = 2.0
"""Longer than the last request for a scale can be on its way."""


@dataclass
class Topics:
    """One topic, its brokers and its clients."""

    clients: Clients
    name: str
    trims: Trims
    topic_id: int = 0
    sent: list[Sent] = field(default_factory=list)
    brokers: dict[str, VirtualBroker] = field(default_factory=dict)
    policy: topic_pb2.ScalingPolicy = field(default_factory=topic_pb2.ScalingPolicy)
    transactions: Transactions = field(init=False)

    def __post_init__(self) -> None:
        topic, chance = f"{NAMESPACE}/{self.name}", self.clients.chance
        self.transactions = Transactions(self.clients, topic, keeps_all=self.trims.keeps_all)
        self.watermarks = VirtualWatermarks(self.clients, topic)
        self.ambushes = self.clients.cluster.topic_ambushes = TopicAmbushes(self)
        self.transactions.between = self.ambushes.between
        self.group = VirtualGroup(self.clients, topic)
        keeps, seed = self.trims.keeps_all, self.clients.cluster.seed
        self.pipeline = VirtualPipeline(self.clients, topic) if keeps and has_pipeline(seed, KIND_EVERY) else None
        self.resets = VirtualResets(self.clients, topic) if keeps and has_resets(seed, KIND_EVERY) else None
        brokers = [f"b{number}" for number in range(1, BROKERS + 1)]
        self.consuming = DoorConsuming(self.clients, topic, brokers, runs=has_consuming(seed, KIND_EVERY))
        self.query = TopicQuery(self, topic)
        self.fetching = Fetching(self.clients, topic, brokers)
        self.readings = [TopicReading(self.clients, f"reader{number}", topic) for number in range(READERS)]
        self.readings.append(DoorReading(self.clients, f"reader{READERS}", topic))
        if chance.random() < 0.65:
            self.policy.kind = topic_pb2.SCALING_KIND_EVENTS
            self.policy.target_per_s = chance.choice([20, 80])
            self.policy.shards_max = chance.choice([4, SHARDS_MAX])

    # ---- brokers

    async def supervise(self) -> None:
        """Start brokers; kill, pause and stop some; at the end, judge."""
        clients, chance = self.clients, self.clients.chance
        cluster = clients.cluster
        for number in range(1, BROKERS + 1):
            broker = VirtualBroker(clients.loop, cluster.network, f"b{number}", cluster.pd_addresses, cluster.hosts)
            broker.notes, broker.started = cluster.note, self._started
            self.brokers[broker.name] = broker
        if has_earlier_brokers(cluster.seed):
            clients.start(f"k-{self.name}", Upgrade(clients, self.brokers).run())
        for broker in self.brokers.values():
            broker.start()
        cluster.batches_refused = chance.choice([0.0, 0.03, 0.2])
        while not clients.stopping:
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            self._trouble()
        cluster.batches_refused = 0.0
        for broker in self.brokers.values():
            if broker.life.paused:
                clients.loop.resume(broker.life)
        self._keep_up()

    def _keep_up(self) -> None:
        """A supervisor starts again what ends by itself, or is struck."""
        for broker in self.brokers.values():
            if not broker.up:
                broker.start()
        self.clients.loop.call_in(WORLD, 0.5, self._keep_up)

    def _started(self, process: Process) -> None:
        """From here on faults and ambushes reach it as they reach clients."""
        self.clients.processes[process.name] = process

    def _trouble(self) -> None:
        """Something happens to a broker."""
        chance, loop, cluster = self.clients.chance, self.clients.loop, self.clients.cluster
        broker = chance.choice(list(self.brokers.values()))
        if not broker.up:
            broker.start()
            return
        if broker.is_spared:
            return
        kind = chance.choice(["kill", "kill", "pause", "stop", "reset", "cut", "nothing"])
        if kind == "kill":
            broker.kill(silently=chance.random() < 0.2)
            cluster.note("a broker was killed")
        elif kind == "pause" and not broker.life.paused:
            self._pause(broker, chance.uniform(0.1, 4.0))
            cluster.note("a broker stood still")
        elif kind == "stop":
            broker.stop()
        elif kind == "reset":
            cluster.network.reset(broker.name)
        elif kind == "cut":
            other = chance.choice([*cluster.servers, *cluster.pds])
            cluster.network.cuts[broker.name, other] = None
            loop.call_later(chance.uniform(0.1, 3.0), self._heal, broker.name, other)

    def _pause(self, broker: VirtualBroker, seconds: float) -> None:
        self.clients.loop.pause(broker.life)
        self.clients.loop.call_later(seconds, self._resume, broker)

    def _resume(self, broker: VirtualBroker) -> None:
        if broker.life.paused:
            self.clients.loop.resume(broker.life)

    def _heal(self, source: str, target: str) -> None:
        self.clients.cluster.network.cuts.pop((source, target), None)
        for link in list(self.clients.cluster.network.links):
            link.pump()

    # ---- scaling

    def own_scale_began(self) -> None:
        """Now and then all brokers stand still then, for longer than the placement driver waits for a scale of its own."""
        clients, chance = self.clients, self.clients.chance
        if clients.stopping or chance.random() > 0.5:
            return
        for broker in self.brokers.values():
            if broker.up and not broker.life.paused:
                self._pause(broker, chance.uniform(1.5, 2.5))
        clients.cluster.note("all brokers stood still in a scale")

    async def scale(self) -> None:
        """Split and merge shards, all the while; cancel some of it."""
        clients, chance = self.clients, self.clients.chance
        calls = (await clients.client()).metadata.pd
        while not clients.stopping:
            await asyncio.sleep(chance.expovariate(1 / 0.7))
            with contextlib.suppress(RangelogError):
                await self.scale_once(calls)

    async def scale_once(self, calls: PdClient, shard_id: int | None = None) -> None:
        """Split or merge shards, or cancel that; a given one is split. Raises what is refused."""
        chance, note = self.clients.chance, self.clients.cluster.note
        topic, shards = await self._shards(calls, topic_pb2.SHARD_SELECTION_CURRENT)
        if topic.state == topic_pb2.TOPIC_STATE_SCALING:
            if shard_id is None and chance.random() < 0.2:
                await calls.call(
                    topic_pb2.CancelScaleRequest(
                        request_id=uuid.uuid4().hex, topic_id=self.topic_id, scale_id=topic.scale_id
                    ),
                    topic_pb2.CancelScaleResponse,
                    timeout_s=5.0,
                )
                note("a scale was cancelled")
            return
        first = chance.randrange(len(shards))
        chosen = shards[first : first + chance.choice([1, 1, 2, 3])]
        if shard_id is not None:
            chosen = [shard for shard in shards if shard.shard_id == shard_id]
            if not chosen:
                return
        low, high = _keys(chosen[0]).low, _keys(chosen[-1]).high
        count = chance.choice([1, 2, 2, 3]) if len(shards) < SHARDS_MAX else 1
        edges = sorted({low, high, *(chance.randrange(low + 1, high) for _ in range(count - 1))})
        ranges = [KeyRange(*pair).to_bytes() for pair in pairwise(edges)]
        await calls.call(
            topic_pb2.StartScaleRequest(
                request_id=uuid.uuid4().hex,
                topic=topic_pb2.TopicReference(topic_id=self.topic_id),
                map_version=topic.map_version,
                parents=[shard.shard_id for shard in chosen],
                key_ranges=[topic_pb2.KeyRange(low=each[0], high=each[1]) for each in ranges],
            ),
            topic_pb2.StartScaleResponse,
            timeout_s=5.0,
        )
        note("a scale was started")

    async def _shards(
        self, calls: PdClient, selection: topic_pb2.ShardSelection
    ) -> tuple[topic_pb2.Topic, list[topic_pb2.Shard]]:
        request = topic_pb2.ListShardsRequest(
            topic=topic_pb2.TopicReference(topic_id=self.topic_id), selection=selection
        )
        found = await calls.call(request, topic_pb2.ListShardsResponse, timeout_s=5.0)
        return found.topic, list(found.shards)

    # ---- producers

    async def produce(self, name: str) -> None:
        """Send records, many at a time; each is noted before it is sent."""
        clients, chance = self.clients, self.clients.chance
        client = await clients.client()
        numbers: dict[int, int] = {}
        try:
            async with client.producer(f"{NAMESPACE}/{self.name}") as producer:
                self.watermarks.watch(name, producer)
                while not clients.stopping:
                    for _ in range(chance.choice([1, 1, 1, 5])):
                        self.send(producer, name, numbers)
                    await producer.ready()
                    self.watermarks.note(name, producer)
                    await asyncio.sleep(chance.expovariate(1 / 0.01))
        except ProducerFenced:
            clients.cluster.note("a producer was cut off for long, and forgotten")

    def send(self, producer: TopicProducer, name: str, numbers: dict[int, int]) -> None:
        """Append a record, with the next number of its key."""
        key = self.clients.chance.randrange(KEYS)
        number = numbers.get(key, 0)
        numbers[key] = number + 1
        one = Sent(name, b"key-%d" % key, number, b"%s %d %d" % (name.encode(), key, number))
        one.sent_s, one.event_ms = self.clients.loop.now, self.watermarks.event_ms()
        self.sent.append(one)
        producer.submit(one.value, key=one.key, timestamp=one.event_ms).add_done_callback(
            lambda ack: self._acked(one, ack)
        )

    def _acked(self, one: Sent, future: asyncio.Future[ProducerAck]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            self.clients.cluster.note(f"send: {type(error).__name__}")
            return
        ack = future.result()
        one.acked = (ack.shard, ack.offset)
        self.clients.cluster.note("a record of a topic was acked")

    # ---- the end

    async def judge(self, driver: TopicDriver) -> None:
        """Read all shards, and compare with what producers and a Spark driver were told."""
        clients = self.clients
        await self.ambushes.last_program()
        client = await clients.client()
        calls = client.metadata.pd
        await self.trims.settle()
        await self.transactions.settle()
        await self.transactions.merged()
        await self.ambushes.staged_goes()
        while True:
            try:
                await self._fix(calls)
                topic, shards = await self._shards(calls, topic_pb2.SHARD_SELECTION_ALL)
                if topic.state == topic_pb2.TOPIC_STATE_ACTIVE:
                    break
            except RangelogError:
                pass
            await asyncio.sleep(0.5)
        found = {shard.shard_id: await self._read(client, shard) for shard in shards}
        self._compare(shards, found)
        for shard in shards:
            await self.trims.check_covered(client, shard)
        await self.watermarks.judge(shards, self.sent)
        consumers: tuple[Any, ...] = (driver, self.query, self.group, self.consuming, self.fetching, *self.readings)
        for consumer in consumers if self.trims.keeps_all else ():
            await consumer.judge(shards, found)
        for role in (self.pipeline, self.resets):
            if role is not None:
                await role.judge(found)
        if self.trims.group is not None:
            await self.trims.group.judge(shards)
        else:
            await Sealing(self).judge(client, calls)
        clients.cluster.trace(f"topic {self.name} {len(shards)} {sum(map(len, found.values()))}")

    def open_shards(self) -> list[OwnedShard]:
        """Those that a living broker has open."""
        known = self.clients.cluster.open_shards.items()
        return [shard for shard, process in known if process.alive and shard.closed is None]

    async def _fix(self, calls: PdClient) -> None:
        """End the scaling by load, so that the shards that are judged are the last ones."""
        if self.policy.kind == topic_pb2.SCALING_KIND_EVENTS:
            topic = topic_pb2.TopicReference(topic_id=self.topic_id)
            await calls.call(
                topic_pb2.UpdateTopicRequest(request_id=uuid.uuid4().hex, topic=topic, fields=["scaling"]),
                topic_pb2.UpdateTopicResponse,
                timeout_s=5.0,
            )

    async def _read(self, client: Client, shard: topic_pb2.Shard) -> list[tuple[int, bytes]]:
        name = shard_stream_name(self.topic_id, shard.shard_id)
        end = shard.end_offset if shard.ended_version else await client.internal.end(name, shard.stream_id)
        while True:
            records: list[tuple[int, bytes]] = []
            start = (await client.metadata.describe_stream(name)).trim_offset
            try:
                async for chunk in client.internal.records(name, shard.stream_id, start, end):
                    records += [(record.offset, record.value) for record in chunk]
                break
            except OffsetTrimmed:
                await asyncio.sleep(0.1)  # more was trimmed meanwhile
        if [offset for offset, _ in records] != list(range(start, end)):
            self.clients.cluster.fail(f"shard {shard.shard_id} of {self.name} is not dense from {start} to {end}")
        check_copies(self.clients.cluster, shard.stream_id, dict(records), fields=False)
        check_objects(self.clients.cluster, shard.stream_id, dict(records), fields=False)
        return records

    def _compare(self, shards: Iterable[topic_pb2.Shard], found: dict[int, list[tuple[int, bytes]]]) -> None:
        fail = self.clients.cluster.fail
        places: dict[bytes, tuple[int, int]] = {}
        for shard_id, records in found.items():
            for offset, value in records:
                if value in places:
                    fail(f"{value!r} is in the topic twice: at {places[value]} and {(shard_id, offset)}")
                places[value] = (shard_id, offset)
        rows = {shard.shard_id: shard for shard in shards}
        depth: dict[int, int] = {}
        for shard_id in sorted(rows):  # ids rise with each scale
            depth[shard_id] = 1 + max((depth[each] for each in rows[shard_id].predecessors), default=0)
        last: dict[tuple[str, bytes], tuple[int, tuple[int, int, int]]] = {}
        for one in self.sent:
            place = places.get(one.value)
            if one.acked is not None and place != one.acked:
                trimmed = place is None and self.trims.excuse(rows, *one.acked, one.sent_s)
                if not trimmed:
                    fail(f"{one.value!r} was acked at {one.acked} and is at {place}")
            if place is None:
                continue
            if not _holds(rows[place[0]], one.key):
                fail(f"{one.value!r} is in shard {place[0]}, which does not have its key")
            at = (depth[place[0]], *place)
            before = last.get((one.producer, one.key))
            if before is not None and before[1] >= at:
                fail(f"{one.value!r} is at {at}, before number {before[0]} of its key at {before[1]}")
            last[one.producer, one.key] = (one.number, at)
        self.transactions.judge(places, depth)
        if self.trims.retaining is not None:
            acked = (one.acked for one in self.sent if one.acked is not None)
            self.trims.retaining.judge(acked, partial(self.trims.gone_s, rows))
        strange = places.keys() - {one.value for one in self.sent} - self.transactions.values()
        if strange:
            fail(f"nobody sent {sorted(strange)[:3]}")


def _keys(shard: topic_pb2.Shard) -> KeyRange:
    return key_range_from_bytes(shard.key_range.low, shard.key_range.high)


def _holds(shard: topic_pb2.Shard, key: bytes) -> bool:
    keys = _keys(shard)
    return keys.low <= key_position(key) < keys.high


async def keep(clients: Clients, name: str) -> None:
    """Make a topic, its brokers and its clients; judge at the end."""
    topics = Topics(clients, name, Trims.draw(clients))
    calls = (await clients.client()).metadata.pd
    made = False
    while not made:
        if clients.stopping:
            return
        try:
            made = await _create(calls, topics)
        except RangelogError:
            await asyncio.sleep(0.3)
    clients.cluster.note("a topic was made")

    def own_scale_began() -> None:
        clients.loop.call_in(WORLD, 0.0, topics.own_scale_began)

    clients.cluster.on_own_scale = own_scale_began
    for number in range(PRODUCERS):
        clients.start(f"d-{name}-{number}", topics.produce(f"d{number}"))
    for number in range(PROGRAMS):
        clients.start(f"x-{name}-{number}", topics.transactions.run(f"x{number}"))
    short = [f"m-{name}-{number}" for number in range(SHORT_PROGRAMS)]
    for each in short:
        clients.start(each, run_programs(clients, f"{NAMESPACE}/{name}", each, topics.send))
    topics.trims.topic_id = topics.topic_id
    if has_sink(clients.cluster.seed):
        clients.start(f"s-{name}", ToTopic(clients, topics.transactions, topics.topic_id).run())
    if has_forger(clients.cluster.seed):
        clients.start(f"w-{name}", Forger(topics).run())
    through_doors = [f"b-{name}-{number}" for number in range(SENDERS)]
    for each in through_doors:
        clients.start(each, send_through_doors(topics, each))
    clients.start(f"e-{name}", topics.scale())
    topics.trims.start(f"{NAMESPACE}/{name}")
    clients.start(f"v-{name}", topics.watermarks.look())
    clients.start(f"i-{name}", topics.ambushes.depose())
    clients.start(f"j-{name}", topics.ambushes.hand_over())
    driver = TopicDriver(topics, f"{NAMESPACE}/{name}")
    if topics.trims.keeps_all:
        _start_consumers(topics, driver)
    await topics.supervise()
    numbered = [f"d-{name}-{each}" for each in range(PRODUCERS)] + [f"x-{name}-{each}" for each in range(PROGRAMS)]
    sinks = [f"s-{name}"] if has_sink(clients.cluster.seed) else []
    for role in (*numbered, *sinks, *short, *through_doors, f"e-{name}", f"i-{name}"):
        while clients.lives_on(role):
            await asyncio.sleep(0.2)
    await topics.ambushes.splits_end()
    await asyncio.sleep(SETTLED_S)
    await topics.judge(driver)


def _start_consumers(topics: Topics, driver: TopicDriver) -> None:
    """Start those that expect to get every record."""
    clients, name = topics.clients, topics.name
    clients.start(f"q-{name}", driver.run())
    clients.start(f"h-{name}", topics.query.run())
    clients.start(f"g-{name}", topics.group.supervise())
    clients.start(f"o-{name}", topics.group.watch())
    if topics.pipeline is not None:
        clients.start(f"y-{name}", topics.pipeline.supervise())
    clients.start(f"k-{name}-consuming", topics.consuming.supervise())
    if topics.resets is not None:
        clients.start(f"u-{name}", topics.resets.supervise())
        clients.start(f"z-{name}", topics.resets.operate())
    clients.start(topics.fetching.role, topics.fetching.run())
    for number, reading in enumerate(topics.readings):
        clients.start(f"n-{name}-{number}", reading.supervise())


async def _create(calls: PdClient, topics: Topics) -> bool:
    with contextlib.suppress(RangelogError):
        await calls.call(
            topic_pb2.CreateNamespaceRequest(request_id=uuid.uuid4().hex, name=NAMESPACE),
            topic_pb2.CreateNamespaceResponse,
            timeout_s=5.0,
        )
    config = topic_pb2.TopicConfig(
        stream=common_pb2.StreamConfig(range_size_bytes_max=64 * 1024, range_age_ms_max=topics.trims.range_age_ms),
        scaling=topics.policy,
        retention=topics.trims.retention,
    )
    try:
        response = await calls.call(
            topic_pb2.CreateTopicRequest(
                request_id=uuid.uuid4().hex, namespace=NAMESPACE, name=topics.name, shard_count=2, config=config
            ),
            topic_pb2.CreateTopicResponse,
            timeout_s=5.0,
        )
        topics.topic_id = response.topic.topic_id
    except TopicExists:
        reference = topic_pb2.TopicReference(namespace=NAMESPACE, name=topics.name)
        found = await calls.call(
            topic_pb2.DescribeTopicRequest(topic=reference), topic_pb2.DescribeTopicResponse, timeout_s=5.0
        )
        topics.topic_id = found.topic.topic_id
    return True
