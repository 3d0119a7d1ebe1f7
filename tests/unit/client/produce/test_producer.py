"""A producer of a topic against brokers on loopback: acks, routing, back-pressure, what fails and how."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import rangelog
from rangelog._produce.producer import TopicProducer
from rangelog._produce.record_rows import checked_row
from rangelog.errors import (
    AppendTimeout,
    InvalidArgument,
    NotOwner,
    Overloaded,
    ProducerFenced,
    RangelogError,
    RecordTooLarge,
    ShardEnded,
    ShardNotFound,
    TopicKindForbids,
    TopicNotFound,
    TopicStateForbids,
    Unauthorized,
    WriterClosed,
)
from rangelog_core.key_hash import key_position
from rangelog_core.limits import MIB
from rangelog_proto.v1 import topic_pb2
from tests.support.fake_brokers import ZSTD, FakeTopic
from tests.support.waiting import until
from tests.unit.client.produce.conftest import ProducerClient

pytestmark = pytest.mark.virtual

Connect = Callable[[FakeTopic], ProducerClient]


def words(futures: list[asyncio.Future[rangelog.ProducerAck]]) -> list[tuple[type[BaseException], bool]]:
    """The error of each record, and whether its outcome is unknown."""
    errors = [future.exception() for future in futures]
    return [(type(error), error.outcome_unknown) for error in errors if isinstance(error, RangelogError)]


async def sent_and_waiting(producer: TopicProducer, topic: FakeTopic) -> list[asyncio.Future[rangelog.ProducerAck]]:
    """Five batches are in flight, a sixth record waits behind them."""
    topic.flushes = False
    futures = []
    for number in range(6):
        futures.append(producer.submit(b"%d" % number))
        await until(lambda: len(topic.shards[0].landing) == min(5, len(futures)))
    assert producer._core.unresolved_count == 5 and producer._core.queued_count == 1
    return futures


# ---- records and their places


async def test_acks_name_the_place_of_each_record(connect: Connect) -> None:
    """Shard and offset are where the record is, with its key, headers and timestamp."""
    async with FakeTopic(4) as topic, connect(topic).producer() as producer:
        for number in range(50):
            key = b"key %d" % (number % 7)
            ack = await producer.send(b"v%d" % number, key=key, headers={"h": b"x"}, timestamp=number)
            record = topic.shards[ack.shard].records[ack.offset]
            assert record[1:] == (number, key, b"v%d" % number, {"h": b"x"})
            keys = topic.shards[ack.shard].keys
            assert keys.low <= key_position(key) < keys.high


async def test_many_records_without_a_future_are_acked_by_a_flush(connect: Connect) -> None:
    """Each of them once, in batches."""
    async with FakeTopic(2) as topic, connect(topic).producer() as producer:
        for number in range(20_000):
            producer.send_nowait(b"%d" % number, key=b"%d" % (number % 100))
            await producer.ready()
        await producer.flush()
        assert sorted(int(each.value) for shard in topic.current for each in shard.records) == list(range(20_000))
        assert sum(len(shard.batches) for shard in topic.current) < 2_000
        assert producer._pending.size_bytes == 0 and not producer._records.rows
        assert producer._pending.budget.bytes_in_flight == 0 and producer._pending.budget.batches_in_flight == 0


async def test_rows_are_records(connect: Connect) -> None:
    """Rows go where records go, with their keys, headers and timestamps, by several batches in flight."""
    async with FakeTopic(4) as topic, connect(topic).producer() as producer:
        keys = [b"key %d" % (number % 7) if number % 3 else None for number in range(30_000)]
        rows = [checked_row(b"%d" % number, key, {"h": b"x"}, number) for number, key in enumerate(keys)]
        for low in range(0, len(rows), 10_000):
            await producer.ready()
            producer.send_rows(rows[low : low + 10_000])
        await producer.flush()
        found = [each for shard in topic.current for each in shard.records]
        assert sorted((each.timestamp_ms, each.key, each.value, each.headers["h"]) for each in found if each.key) == [
            (number, key, b"%d" % number, b"x") for number, key in enumerate(keys) if key
        ]
        assert sorted(each.timestamp_ms for each in found) == list(range(len(rows)))
        for shard in topic.current:
            assert all(shard.keys.low <= key_position(each.key) < shard.keys.high for each in shard.records if each.key)
        with pytest.raises(Overloaded):
            for _ in range(1_000):
                producer.send_rows([checked_row(bytes(MIB), None, None, 0)])
    with pytest.raises(WriterClosed):
        producer.send_rows(rows)


async def test_a_flush_waits_for_what_was_sent_before_it(connect: Connect) -> None:
    """Acks of later records do not stand for earlier ones, and later records are not waited for."""
    async with FakeTopic(2) as topic, connect(topic).producer() as producer:
        topic.flushes = False
        producer.send_nowait(b"before", shard=0)
        flushing = asyncio.create_task(producer.flush())
        await until(lambda: topic.shards[0].landing)
        later = producer.submit(b"later", shard=1)
        await until(lambda: topic.shards[1].landing)
        topic.flush(topic.shards[1])
        await later
        await asyncio.sleep(0)
        assert not flushing.done()
        producer.send_nowait(b"even later", shard=1)
        topic.flush(topic.shards[0])
        await flushing
        topic.flushes = True
        topic.flush(topic.shards[1])


async def test_whole_batches_are_sent_before_the_turn_ends(connect: Connect) -> None:
    """A program that sends for long without a pause does not hold them back."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"connected")
        for _ in range(3):
            producer.send_nowait(bytes(MIB // 2 - 64))
        assert producer._core.unresolved_count == 1


async def test_records_without_a_key_go_to_shards_in_turn_a_batch_at_a_time(connect: Connect) -> None:
    """What is sent together stays together, and the next goes elsewhere."""
    async with FakeTopic(3) as topic, connect(topic).producer() as producer:
        used = []
        for _ in range(6):
            acks = await producer.send_batch([b"a", b"b", b"c"])
            assert len({ack.shard for ack in acks}) == 1
            assert [ack.offset - acks[0].offset for ack in acks] == [0, 1, 2]
            used.append(acks[0].shard)
        assert sorted(used) == [0, 0, 1, 1, 2, 2] and set(used[:3]) == {0, 1, 2}


async def test_records_without_a_key_pass_over_a_shard_without_an_owner(connect: Connect) -> None:
    """The other shards take what it cannot."""
    async with FakeTopic(3) as topic, connect(topic).producer() as producer:
        topic.shards[1].broker = None
        async with asyncio.timeout(30):
            acks = [producer.submit(b"%d" % number) for number in range(3)]
            for number in range(30):
                acks.append(producer.submit(b"later %d" % number))
                await asyncio.wait([acks[-1]], timeout=0.02)
            await asyncio.gather(*acks[-10:])
        topic.assign(1)
        await asyncio.gather(*acks)


async def test_an_explicit_shard_is_taken_whatever_the_key(connect: Connect) -> None:
    """One that has ended or never was is refused at once, and nothing is kept."""
    async with FakeTopic(2) as topic, connect(topic).producer() as producer:
        for shard in (0, 1):
            ack = await producer.send(b"x", key=b"one key", shard=shard)
            assert ack.shard == shard
        children = topic.scale([0], 2)
        ack = await producer.send(b"by key", key=b"k")
        while producer.shards != [*children, 1]:
            await producer.send(b"x", shard=1)
            await producer._runner.refresh_map()  # type: ignore[union-attr]
        with pytest.raises(ShardEnded):
            producer.send_nowait(b"x", shard=0)
        with pytest.raises(ShardNotFound):
            producer.send_nowait(b"x", shard=99)
        assert (await producer.send(b"x", shard=children[1])).shard == children[1]
        assert producer._pending.size_bytes == 0


async def test_the_topics_compression_is_used(connect: Connect) -> None:
    """Batches of such a topic are compressed."""
    topic = FakeTopic()
    topic.config.stream.compression = ZSTD
    async with topic, connect(topic).producer("default/t") as producer:
        assert producer._map.codec == 1
        ack = await producer.send(b"x" * 100_000)
        assert topic.shards[0].records[ack.offset].value == b"x" * 100_000


async def test_bad_records_and_names_are_refused_before_anything_is_kept(connect: Connect) -> None:
    """With a typed error each; a batch with one bad record sends none."""
    async with FakeTopic() as topic:
        client = connect(topic)
        for name in ("", "a/b/c", "/t", "a b"):
            with pytest.raises(InvalidArgument):
                client.producer(name)
        for options in ({"producer_id": -1}, {"producer_id": 1 << 64}, {"producer_epoch": 1 << 32}):
            with pytest.raises(InvalidArgument):
                client.producer(**options)
        async with client.producer() as producer:
            with pytest.raises(InvalidArgument):
                producer.send_nowait("text")  # type: ignore[arg-type]
            with pytest.raises(InvalidArgument):
                producer.send_nowait(b"x", key="text")  # type: ignore[arg-type]
            with pytest.raises(RecordTooLarge):
                producer.send_nowait(bytes(MIB), key=b"1")
            with pytest.raises(InvalidArgument):
                await producer.send_batch([b"good", None])  # type: ignore[list-item]
            await producer.send(bytes(MIB))
        assert len(topic.shards[0].records) == 1


# ---- life


async def test_a_producer_is_used_between_open_and_close(connect: Connect) -> None:
    """Before and after, each call raises a typed error; closing again does nothing."""
    async with FakeTopic() as topic:
        producer = connect(topic).producer()
        with pytest.raises(WriterClosed):
            producer.send_nowait(b"x")
        await producer.open()
        await producer.send(b"x")
        await producer.close()
        await producer.close()
        for call in (producer.send(b"x"), producer.flush(), producer.ready(), producer.open()):
            with pytest.raises(WriterClosed):
                await call


async def test_close_flushes_unless_it_is_not_to(connect: Connect) -> None:
    """With a flush all is acked; without one what was sent is unknown, and what waited is certainly not there."""
    async with FakeTopic() as topic:
        client = connect(topic)
        async with client.producer() as producer:
            future = producer.submit(b"x")
        assert future.result().offset == 0
        producer = client.producer()
        await producer.open()
        futures = await sent_and_waiting(producer, topic)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        await producer.close(flush=False)
        assert words(futures) == [(WriterClosed, True)] * 5 + [(WriterClosed, False)]
        with pytest.raises(WriterClosed) as told:
            await flushing
        assert told.value.outcome_unknown
        assert client.client.connections.appends.bytes_in_flight == 0


async def test_the_end_of_a_client_ends_its_producers(connect: Connect) -> None:
    """Their records get an error, and no task is left."""
    async with FakeTopic() as topic:
        topic.flushes = False
        client = connect(topic)
        producer = client.producer()
        await producer.open()
        future = producer.submit(b"x")
        await until(lambda: topic.shards[0].landing)
        await client.client.close()
        assert words([future]) == [(WriterClosed, True)]
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not [task for task in others if "ProducerRunner" in repr(task)]


async def test_a_topic_that_is_not_there_or_sealed_is_not_opened(connect: Connect) -> None:
    """With a typed error each."""
    async with FakeTopic() as topic:
        topic.scale([0], 0)
        with pytest.raises(TopicStateForbids):
            await connect(topic).producer().open()
        topic.deleted = True
        with pytest.raises(TopicNotFound):
            await connect(topic).producer().open()


async def test_a_table_is_not_produced_to(connect: Connect) -> None:
    """The producer does not open, so no record waits for a shard that never takes it."""
    async with FakeTopic() as topic:
        topic.config.kind = topic_pb2.TOPIC_KIND_TABLE
        with pytest.raises(TopicKindForbids):
            await connect(topic).producer().open()


# ---- back-pressure and time-outs


async def test_memory_is_bounded(connect: Connect) -> None:
    """`ready` waits while too much is not acked, and beyond twice that records are refused."""
    async with FakeTopic() as topic:
        topic.flushes = False
        async with connect(topic).producer(inflight_bytes_max=100_000) as producer:
            with pytest.raises(Overloaded):
                for _ in range(1_000):
                    producer.send_nowait(bytes(1_000))
            assert producer._pending.size_bytes < 203_000
            with pytest.raises(AppendTimeout) as told:
                await producer.ready(timeout_s=0.01)
            assert not told.value.outcome_unknown
            room = asyncio.create_task(producer.ready())
            await until(lambda: topic.shards[0].landing)
            topic.flushes = True
            topic.flush(topic.shards[0])
            await room
            await producer.flush()


async def test_producers_share_their_clients_budget(connect: Connect) -> None:
    """Who has nothing pending may send; who has waits while the budget is used up."""
    async with FakeTopic() as topic:
        topic.flushes = False
        client = connect(topic)
        client.client.connections.appends.bytes_max = 1_000
        async with client.producer() as first, client.producer() as second:
            first.send_nowait(bytes(2_000))
            await until(lambda: topic.shards[0].landing)
            await second.ready()
            second.send_nowait(b"x")
            with pytest.raises(AppendTimeout):
                await second.ready(timeout_s=0.01)
            topic.flushes = True
            topic.flush(topic.shards[0])
            await second.ready()


async def test_a_record_that_is_not_acked_in_time_is_still_tried(connect: Connect) -> None:
    """Its waiter gets AppendTimeout with an unknown outcome and the reason; the record is acked later, once."""
    async with FakeTopic() as topic, connect(topic).producer(append_timeout_s=0.5) as producer:
        topic.shards[0].broker = None
        with pytest.raises(AppendTimeout, match="no broker owns") as told:
            await producer.send(b"late")
        assert told.value.outcome_unknown
        with pytest.raises(AppendTimeout):
            await producer.flush()
        topic.assign(0)
        await producer.flush(timeout_s=30)
        assert [record.value for record in topic.shards[0].records] == [b"late"]


# ---- refusals


async def test_a_fenced_producer_ends(connect: Connect) -> None:
    """A later instance took its place: what was sent is unknown, what waited is certain, later calls raise it too."""
    async with FakeTopic() as topic:
        client = connect(topic)
        async with client.producer(producer_id=7, producer_epoch=1) as former:
            await former.send(b"former")
            futures = await sent_and_waiting(former, topic)
            flushing = asyncio.create_task(former.flush())
            topic.assign(0, landed=0)
            topic.flushes = True
            async with client.producer(producer_id=7, producer_epoch=2) as later:
                await later.send(b"later")
            for broker in topic.brokers:
                broker.break_connections()
            await until(lambda: all(future.done() for future in futures))
            assert words(futures) == [(ProducerFenced, True)] * 5 + [(ProducerFenced, False)]
            for call in (flushing, former.flush(), former.send(b"x"), former.ready()):
                with pytest.raises(ProducerFenced):
                    await call
            assert former._pending.budget.bytes_in_flight == 0
            former._pending.untold = None
        assert [record.value for record in topic.shards[0].records] == [b"former", b"later"]


@pytest.mark.parametrize("error", [InvalidArgument("no"), RecordTooLarge("no"), TopicNotFound("no")])
async def test_a_refusal_for_good_ends_the_producer_with_its_error(connect: Connect, error: RangelogError) -> None:
    """Only what is refused as not valid, at the first try, is certainly not there."""
    async with FakeTopic() as topic:
        for broker in topic.brokers:
            broker.refuses = lambda _: error
        producer = connect(topic).producer()
        await producer.open()
        future = producer.submit(b"x")
        producer.send_nowait(b"without a waiter")
        await until(future.done)
        assert words([future]) == [(type(error), not isinstance(error, InvalidArgument))]
        with pytest.raises(type(error)):
            await producer.close()


async def test_a_refusal_for_now_is_tried_again(connect: Connect) -> None:
    """Also one that no client of this version knows."""
    refusals = [NotOwner("no"), Overloaded("no"), RangelogError("new"), rangelog.errors.Corruption("bits"), None]
    async with FakeTopic() as topic:
        for broker in topic.brokers:
            broker.refuses = lambda _: refusals.pop(0) if len(refusals) > 1 else None
        async with connect(topic).producer() as producer:
            assert (await producer.send(b"x")).offset == 0
        assert topic.shards[0].tries >= 5 and len(topic.shards[0].records) == 1


async def test_the_error_of_a_refused_record_without_a_waiter_reaches_the_flush(connect: Connect) -> None:
    """Records for a shard that ends are refused: those with a future there, the others at the flush; the producer goes on."""
    async with FakeTopic() as topic:
        topic.flushes = False
        async with connect(topic).producer() as producer:
            producer.send_nowait(b"lost", shard=0)
            future = producer.submit(b"lost too", shard=0)
            await until(lambda: topic.shards[0].landing)
            topic.flushes = True
            topic.scale([0], 1, landed=0)
            for broker in topic.brokers:
                broker.break_connections()
            with pytest.raises(ShardEnded) as told:
                await producer.flush()
            assert not told.value.outcome_unknown and words([future]) == [(ShardEnded, False)]
            await producer.flush()
            assert (await producer.send(b"next")).shard == 1
            with pytest.raises(ShardEnded):
                await producer.send_batch([b"a", b"b"], shard=0)


async def test_records_of_a_topic_that_is_sealed_meanwhile_are_refused(connect: Connect) -> None:
    """What is in its last shards is acked, the rest certainly is not there."""
    async with FakeTopic() as topic:
        topic.flushes = False
        async with connect(topic).producer() as producer:
            first = producer.submit(b"in")
            await until(lambda: len(topic.shards[0].landing) == 1)
            second = producer.submit(b"out")
            await until(lambda: len(topic.shards[0].landing) == 2)
            topic.scale([0], 0, landed=1)
            topic.brokers[0].break_connections()
            topic.brokers[1].break_connections()
            assert (await first).offset == 0
            with pytest.raises(TopicStateForbids) as told:
                await second
            assert not told.value.outcome_unknown
            with pytest.raises(TopicStateForbids):
                await producer.send(b"x")


async def test_a_client_that_brokers_do_not_let_in_ends_its_producers(connect: Connect) -> None:
    """With the error of the connection; nothing was sent."""
    async with FakeTopic() as topic:
        client = connect(topic)

        async def refuse(*_: object) -> None:
            raise Unauthorized("no token")

        client.client._owners.connect = refuse  # type: ignore[assignment, method-assign]
        producer = client.producer()
        await producer.open()
        with pytest.raises(Unauthorized) as told:
            await producer.send(b"x")
        assert not told.value.outcome_unknown
        await producer.close()
