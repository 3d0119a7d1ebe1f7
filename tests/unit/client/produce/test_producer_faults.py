"""A producer while brokers die, answers are lost, shards split and merge: each record once, those of a key in order (T1)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

import rangelog
from rangelog import sync
from rangelog._loop_thread import LoopThread
from rangelog._produce.producer import TopicProducer
from rangelog.errors import InvalidArgument, NotOwner, OutOfOrder, ProtocolViolation, RangelogError, Unavailable
from rangelog_core.frame import Opcode
from rangelog_core.net.data_connection import DataConnection
from rangelog_proto.v1 import data_pb2
from tests.support.fake_brokers import TOPIC_ID, FakeBroker, FakeTopic
from tests.support.waiting import until
from tests.unit.client.produce.conftest import ProducerClient

pytestmark = pytest.mark.virtual

Connect = Callable[[FakeTopic], ProducerClient]


def values(topic: FakeTopic) -> list[bytes]:
    """All records of the topic, shard by shard."""
    return [record.value for shard in topic.shards.values() for record in shard.records]


async def landing(topic: FakeTopic, producer: TopicProducer, count: int) -> list[asyncio.Future[rangelog.ProducerAck]]:
    """So many batches of one record are in flight at the one owner."""
    topic.flushes = False
    futures = []
    for number in range(count):
        futures.append(producer.submit(b"%d" % number, key=b"%d" % number))
        await until(lambda: len(topic.current[0].landing) == len(futures))
    return futures


@pytest.mark.parametrize("landed", range(4))
async def test_another_owner_takes_over_with_batches_in_flight(connect: Connect, landed: int) -> None:
    """A prefix is in the log already: each batch is there once, in order, wherever its answer got lost."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        futures = await landing(topic, producer, 3)
        former = topic.shards[0].broker
        topic.assign(0, next(each for each in topic.brokers if each is not former), landed=landed)
        topic.flushes = True
        assert former is not None
        former.break_connections()
        assert [future.offset for future in await asyncio.gather(*futures)] == [0, 1, 2]
        assert values(topic) == [b"0", b"1", b"2"]
        assert topic.reports == [(former.name, former.incarnation)], "a broken connection is reported"


async def test_a_killed_broker_is_reported_and_its_shards_found_elsewhere(connect: Connect) -> None:
    """By all producers of a client in one report; shards are looked up together."""
    async with FakeTopic(6) as topic:
        client = connect(topic)
        victim = topic.brokers[0]
        for shard in topic.current:
            topic.assign(shard.shard_id, victim)
        async with client.producer() as first, client.producer() as second:
            await asyncio.gather(*[each.send(b"x", shard=n) for n in range(6) for each in (first, second)])
            assert victim.connected_count == 1, "one connection for all"
            victim.kill()
            topic.seen.clear()
            await asyncio.gather(*[each.send(b"y", shard=n) for n in range(6) for each in (first, second)])
            assert 1 <= len(topic.reports) <= 2 and topic.seen["FindOwners"] <= 12
            assert topic.brokers[1].connected_count == 1
        assert sorted(values(topic)) == [b"x"] * 12 + [b"y"] * 12


async def test_a_broker_that_was_never_reached_is_reported(connect: Connect) -> None:
    """By who is sent to it, before its shards are looked up again."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        topic.assign(0, topic.brokers[0])
        topic.brokers[0].kill()
        await producer.send(b"x")
        assert topic.reports == [("b0", topic.brokers[0].incarnation)]


async def test_a_producer_that_has_nothing_to_send_reports_a_broken_connection_too(connect: Connect) -> None:
    """Others wait for the broker's shards."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"x")
        owner = topic.shards[0].broker
        assert owner is not None
        owner.kill()
        await until(lambda: topic.reports)
        assert topic.reports == [(owner.name, owner.incarnation)]
        await producer.send(b"y")


async def test_a_connection_that_breaks_at_once_is_made_again(connect: Connect, monkeypatch: Any) -> None:
    """Between the moment that it is made and the moment that the core hears of it."""
    breaks = [True, True, False]
    attach = DataConnection.attach

    def attach_and_break(connection: DataConnection, listener: Any) -> None:
        attach(connection, listener)
        if breaks and breaks.pop(0):
            asyncio.get_running_loop().call_soon(connection.close)

    monkeypatch.setattr(DataConnection, "attach", attach_and_break)
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"x")
        assert not breaks and len(topic.shards[0].records) == 1


async def test_a_shard_that_moves_is_followed(connect: Connect) -> None:
    """The former owner refuses, and is not reported."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        for number in range(6):
            topic.assign(0, topic.brokers[number % 2])
            assert (await producer.send(b"%d" % number)).offset == number
        assert not topic.reports


async def test_an_owner_that_answers_nothing_any_more_is_looked_up_again(connect: Connect) -> None:
    """Its connection stays open; the shard's next owner gets the batches."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"0")
        frozen = topic.shards[0].broker
        assert frozen is not None
        frozen.frozen = True
        future = producer.submit(b"1")
        await until(lambda: producer._runner is not None and producer._core.unresolved_count)
        topic.assign(0, next(each for each in topic.brokers if each is not frozen))
        assert (await future).offset == 1


async def test_lost_answers_are_asked_for_again(connect: Connect) -> None:
    """Over the same connection: the owner has the batch, and says where."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"0")
        topic.lost_answers = 1.0
        future = producer.submit(b"1")
        await until(lambda: topic.seen["lost answer"])
        topic.lost_answers = 0.0
        assert (await future).offset == 1
        assert topic.seen["again held"] and values(topic) == [b"0", b"1"]


async def test_a_placement_driver_that_does_not_answer_is_waited_for(connect: Connect) -> None:
    """Records wait meanwhile, with those of a broker that is lost."""
    async with FakeTopic() as topic:
        client = connect(topic)
        async with client.producer() as producer:
            client.pd.down = True
            futures = [producer.submit(b"0")]
            await until(lambda: producer._runner is not None and producer._runner.problem)
            client.pd.down = False
            await futures[0]
            client.pd.down = True
            topic.brokers[0].kill()
            topic.take_away(topic.brokers[0])
            futures += [producer.submit(b"1")]
            await until(lambda: futures[1].done() or (producer._runner and producer._runner.problem))
            client.pd.down = False
            await asyncio.gather(*futures)
        assert values(topic) == [b"0", b"1"]


@pytest.mark.parametrize("landed", range(5))
async def test_a_split_and_a_merge_with_batches_in_doubt(connect: Connect, landed: int) -> None:
    """Ended shards are asked; what they lack goes to their successors, at its old place."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        futures = await landing(topic, producer, 4)
        topic.close([0], landed=landed)
        topic.shards[0].broker.break_connections()  # type: ignore[union-attr]
        futures.append(producer.submit(b"4", key=b"0"))
        children = topic.commit([0], 2)
        await until(lambda: any(topic.shards[each].landing for each in children))
        topic.scale(children, 1)
        for broker in topic.brokers:
            broker.break_connections()
        topic.flushes = True
        acks = await asyncio.gather(*futures)
        assert topic.seen["asked: yes"] + topic.seen["asked: no"] >= landed
        assert sorted(values(topic)) == [b"0", b"1", b"2", b"3", b"4"]
        for number, ack in enumerate(acks):
            assert topic.shards[ack.shard].records[ack.offset].value == b"%d" % number
        places = [(ack.shard, ack.offset) for ack in acks]
        assert places[0] < places[4], "of one key"


async def test_what_is_in_doubt_comes_before_its_successors_records_over_many_scales(connect: Connect) -> None:
    """However far down the shard is that a key belongs to by now, and however late the answer comes."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        (first,) = await landing(topic, producer, 1)
        for broker in topic.brokers:
            broker.finds = False
        topic.flushes = True
        newest = 0
        for _ in range(4):
            (newest,) = topic.scale([newest], 1, landed=0)
            for broker in topic.brokers:
                broker.break_connections()
            await producer._runner.refresh_map()  # type: ignore[union-attr]
            assert producer._core.map_version == topic.version
        second = producer.submit(b"next", key=b"0")
        await until(lambda: newest in producer._core._lanes and producer._core._lanes[newest].connected)
        assert not second.done() and not topic.shards[newest].tries
        for broker in topic.brokers:
            broker.finds = True
        assert await first == (newest, 0) and await second == (newest, 1)


async def test_a_broker_that_cannot_answer_is_not_asked_for_ever(connect: Connect) -> None:
    """Also when it is the only one with an open connection."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        topic.assign(0, topic.brokers[0])
        (future,) = await landing(topic, producer, 1)
        topic.brokers[0].finds = False
        topic.flushes = True
        topic.close([0], landed=1)
        for shard_id in topic.commit([0], 1):
            topic.assign(shard_id, topic.brokers[0])
        await producer._runner.refresh_map()  # type: ignore[union-attr]
        assert await future == (0, 0)
        assert topic.brokers[1].connected_count == 1


async def test_a_closed_shard_is_waited_for_without_a_storm(connect: Connect) -> None:
    """Its batches are not sent again and again while the scale takes its time; a scale that is cancelled is noticed."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"0")
        topic.close([0])
        tries = topic.shards[0].tries
        future = producer.submit(b"1")
        await until(lambda: topic.shards[0].tries > tries)
        looks = topic.seen["ListShards"]
        await until(lambda: topic.seen["ListShards"] > looks + 3)
        assert topic.shards[0].tries <= tries + 3
        topic.shards[0].closed = False
        topic.assign(0)
        assert await future == (0, 1)


async def test_missing_batches_are_sent_again_once_for_all(connect: Connect) -> None:
    """Batches that follow one another are missed one by one: the answer is not one round for each."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        refused: list[int] = []

        def refuse_first(producer: Any) -> RangelogError | None:
            if producer.sequence == 1 and not refused:
                refused.append(1)
                return OutOfOrder("lost")
            return None

        await producer.send(b"0")
        for broker in topic.brokers:
            broker.refuses = refuse_first
        futures = [producer.submit(b"%d" % number) for number in range(1, 3)]
        await asyncio.sleep(0)
        futures += [producer.submit(b"%d" % number) for number in range(3, 5)]
        await asyncio.sleep(0)
        link = producer._runner._links[0]  # type: ignore[union-attr]
        attachment = link.attachment
        await asyncio.gather(*futures)
        assert topic.shards[0].tries <= 9 and topic.seen["gap"]
        assert link.attachment is attachment, "one answer for all that were sent together"
        assert values(topic) == [b"%d" % number for number in range(5)]


async def test_an_owner_that_misses_what_it_acked_is_tried_slowly(connect: Connect) -> None:
    """However often it says so: no storm of batches."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"0")
        for broker in topic.brokers:
            broker.refuses = lambda _: OutOfOrder("an owner with a broken table")
        tries = topic.shards[0].tries
        future = producer.submit(b"1")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asyncio.shield(future)
        assert topic.shards[0].tries < tries + 60
        for broker in topic.brokers:
            broker.refuses = lambda _: None
        await future


async def test_an_ack_that_comes_late_over_a_former_connection_counts(connect: Connect) -> None:
    """It is true whoever sends it; a late refusal is not taken for the present owner's."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        futures = await landing(topic, producer, 2)
        link = producer._runner._links[0]  # type: ignore[union-attr]
        former = link.attachment
        assert former is not None
        link._drop(NotOwner("somebody said so"))
        first, second = former.requests
        former.connection._put_requests.refused(second, InvalidArgument("late"))
        reply = data_pb2.ProduceReply(offset=0).SerializeToString()
        former.replied(first, rangelog_frame(first, reply))
        assert futures[0].result() == (0, 0) and not futures[1].done()
        topic.flushes = True
        topic.flush(topic.shards[0])
        assert await futures[1] == (0, 1)


def rangelog_frame(request_id: int, message: bytes) -> Any:
    """A reply as the connection delivers it."""
    from rangelog_core.frame import Frame

    return Frame(Opcode.PRODUCE_REPLY, request_id, message, b"")


async def test_what_brokers_answer_to_questions_is_not_trusted_blindly(connect: Connect) -> None:
    """A question without an answer is asked of another broker; a malformed one too."""
    async with FakeTopic(broker_count=3) as topic, connect(topic).producer() as producer:
        futures = await landing(topic, producer, 2)
        real, answers = topic.find, [Unavailable("starting"), ProtocolViolation("what?"), None]

        def find(message: bytes) -> Any:
            error = answers.pop(0) if answers else None
            if error is not None:
                raise error
            assert data_pb2.FindBatch.FromString(message).topic_id == TOPIC_ID
            return real(message)

        topic.find = find  # type: ignore[method-assign]
        topic.scale([0], 2, landed=1)
        topic.flushes = True
        for broker in topic.brokers:
            broker.break_connections()
        assert (await futures[0]) == (0, 0) and (await futures[1]).shard in (1, 2)


# ---- all of it at random


class Storm:
    """Faults, drawn at random, around producers that go on."""

    def __init__(self, topic: FakeTopic, seed: int) -> None:
        self.topic = topic
        self.draw = random.Random(seed)

    async def run(self, still: Callable[[], bool]) -> None:
        """Until the producers are done."""
        faults: dict[Callable[[], Any], float] = {
            self.move: 4, self.split: 1, self.merge: 1, self.kill: 0.7, self.cut: 2, self.lose: 2, self.hold: 2,
        }  # fmt: skip
        while still():
            fault = self.draw.choices(list(faults), list(faults.values()))[0]
            outcome = fault()
            if asyncio.iscoroutine(outcome):
                await outcome
            await asyncio.sleep(self.draw.uniform(0, 0.01))
        self.calm()

    def calm(self) -> None:
        """All works again."""
        self.topic.lost_answers, self.topic.flushes = 0.0, True
        for shard in self.topic.current:
            self.topic.flush(shard)

    def alive(self) -> list[FakeBroker]:
        return [broker for broker in self.topic.brokers if broker.alive]

    def move(self) -> None:
        self.topic.assign(self.draw.choice(self.topic.current).shard_id, self.draw.choice(self.alive()))

    def split(self) -> Any:
        if len(self.topic.current) < 6:
            return self.scale([self.draw.choice(self.topic.current).shard_id], 2)
        return None

    def merge(self) -> Any:
        current = self.topic.current
        if len(current) < 2:
            return None
        at = self.draw.randrange(len(current) - 1)
        return self.scale([current[at].shard_id, current[at + 1].shard_id], 1)

    async def scale(self, parents: list[int], parts: int) -> None:
        self.topic.close(parents)
        await asyncio.sleep(self.draw.uniform(0, 0.01))
        self.topic.commit(parents, parts)

    async def kill(self) -> None:
        victim = self.draw.choice(self.alive())
        if len(self.alive()) > 1:
            victim.kill()
            await asyncio.sleep(self.draw.uniform(0, 0.01))
            self.topic.take_away(victim)
            await victim.start()

    def cut(self) -> None:
        self.draw.choice(self.alive()).break_connections()

    def lose(self) -> None:
        self.topic.lost_answers = self.draw.choice([0.0, 0.3])

    def hold(self) -> None:
        self.topic.flushes = self.draw.random() < 0.6
        for shard in self.topic.current if self.topic.flushes else ():
            self.topic.flush(shard)


async def produce(producer: TopicProducer, name: bytes, count: int, seed: int) -> dict[bytes, rangelog.ProducerAck]:
    """Records of a few keys, and without one; return where each was acked."""
    draw = random.Random(seed)
    futures: dict[bytes, asyncio.Future[rangelog.ProducerAck]] = {}
    async with producer:
        for number in range(count):
            key = draw.choice([None, b"a", b"b", b"c", b"d", b"e"])
            value = b"%s:%d" % (name, number)
            futures[value] = producer.submit(value, key=key)
            if draw.random() < 0.2:
                await asyncio.sleep(draw.uniform(0, 0.005))
            await producer.ready()
    return {value: future.result() for value, future in futures.items()}


@pytest.mark.parametrize("seed", range(12))
async def test_each_record_once_and_keys_in_order_through_all_of_it(connect: Connect, seed: int) -> None:
    """Three producers of two clients, owners that move, die and lose answers, shards that split and merge."""
    async with FakeTopic(2, seed=seed, broker_count=3) as topic:
        clients = [connect(topic), connect(topic)]
        names = [b"p0", b"p1", b"p2"]
        tasks = [
            asyncio.create_task(produce(clients[at % 2].producer(), name, 400, seed * 10 + at))
            for at, name in enumerate(names)
        ]
        storm = Storm(topic, seed)
        rounds = 0

        def still() -> bool:
            nonlocal rounds
            rounds += 1
            return rounds < 150 and not all(task.done() for task in tasks)

        await storm.run(still)
        acked: dict[bytes, rangelog.ProducerAck] = {}
        for each in await asyncio.wait_for(asyncio.gather(*tasks), 60):
            acked |= each
        check(topic, acked)


def check(topic: FakeTopic, acked: dict[bytes, rangelog.ProducerAck]) -> None:
    """Every acked record is where it was said to be and nowhere else; those of a key and a producer are in order."""
    found: dict[bytes, tuple[int, int]] = {}
    order: dict[tuple[bytes, bytes], list[int]] = {}
    for shard_id, shard in topic.shards.items():  # predecessors have lower ids
        for offset, record in enumerate(shard.records):
            assert record.value not in found, f"{record.value!r} is there twice"
            found[record.value] = shard_id, offset
            name, number = record.value.split(b":")
            if record.key is not None:
                order.setdefault((name, record.key), []).append(int(number))
    assert found == acked
    for key, numbers in order.items():
        assert numbers == sorted(numbers), f"records of {key} are out of order"


# ---- the blocking client


def test_the_blocking_producer_does_the_same() -> None:
    """Send, submit, batches, flush and close, from the program's own thread."""
    loop = LoopThread()
    topic = FakeTopic(2)
    loop.run(topic.__aenter__())

    async def make() -> Any:
        return ProducerClient(topic).client

    client = sync.Client(loop, loop.run(make()))
    with client.producer("t", inflight_bytes_max=10_000) as producer:
        ack = producer.send(b"x", key=b"k")
        assert topic.shards[ack.shard].records[ack.offset].value == b"x"
        futures = [producer.submit(bytes(1_000), shard=1) for _ in range(50)]
        producer.flush()
        assert {future.result().shard for future in futures} == {1}
        assert len(producer.send_batch([b"a", b"b"], shard=0)) == 2
        with pytest.raises(InvalidArgument):
            producer.send("text")  # type: ignore[arg-type]
    with pytest.raises(rangelog.WriterClosed):
        producer.send(b"x")
    loop.run(topic.__aexit__())
    client.close()
