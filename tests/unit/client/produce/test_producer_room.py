"""A producer whose shards' range servers have no room: told at once, by shard; each record is there once when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import Any, cast

import pytest

from rangelog._produce.producer import TopicProducer
from rangelog.errors import InvalidArgument, StorageFull
from rangelog_core.key_hash import key_position
from tests.support.fake_brokers import FakeBroker, FakeTopic
from tests.support.waiting import until
from tests.unit.client.produce.conftest import ProducerClient
from tests.unit.client.produce.test_producer_faults import values

pytestmark = pytest.mark.virtual

Connect = Callable[[FakeTopic], ProducerClient]
FULL = StorageFull("no room at rs1, rs2, and too few other range servers")
OF_SHARD_0 = r"^topic 'default/t', shard 0: no room at rs1, rs2, and too few other range servers$"


def fill(broker: FakeBroker, full: bool = True) -> None:
    """It owns shards whose range servers have no room, or have."""
    broker.refuses = lambda _: FULL if full else None


def key_of(shard: int, shards: int = 2) -> bytes:
    """A key whose records go to that one of equal shards."""
    return next(key for key in map(b"%d".__mod__, range(100)) if key_position(key) * shards >> 128 == shard)


async def there_is_room(topic: FakeTopic, producer: TopicProducer) -> None:
    """And the producer knows."""
    for broker in topic.brokers:
        fill(broker, False)
    await until(lambda: not producer._running().full)


async def refused(waits: Awaitable[object], *, unknown: bool) -> None:
    """It fails at once, and says of which shard."""
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(StorageFull, match=OF_SHARD_0) as told:
        await waits
    assert told.value.outcome_unknown == unknown and told.value.retriable
    assert asyncio.get_running_loop().time() < began_s + 1.0


async def test_all_who_wait_are_told_at_once(connect: Connect) -> None:
    """Each send, a flush; what is sent later is refused and not taken; all that was taken is there once, in order."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        await producer.send(b"0", key=b"k")
        fill(topic.brokers[0])
        fill(topic.brokers[1])
        sending = [asyncio.create_task(producer.send(b"%d" % number, key=b"k")) for number in (1, 2)]
        await until(lambda: producer._core.next_order == 3)
        flushing = asyncio.create_task(producer.flush())
        for each in (*sending, flushing):
            await refused(each, unknown=True)
        await refused(producer.send(b"not taken", key=b"k"), unknown=False)
        await refused(producer.send(b"not taken"), unknown=False)
        await refused(producer.send_batch([b"not taken"]), unknown=False)
        await refused(producer.send(b"not taken", shard=0), unknown=False)
        assert producer._core.next_order == 3
        await refused(producer.flush(), unknown=True)
        for bad in (cast(Any, "text"), cast(Any, [])):
            with pytest.raises(InvalidArgument):
                await producer.send(bad)
            with pytest.raises(InvalidArgument):
                await producer.send(b"x", shard=bad)
        submitted = producer.submit(b"3", key=b"k")  # no wait: it is tried on
        await there_is_room(topic, producer)
        assert (await submitted).offset == 3
        await producer.flush()
        assert (await producer.send(b"4", key=b"k")).offset == 4
        assert values(topic) == [b"0", b"1", b"2", b"3", b"4"]


async def test_other_shards_go_on(connect: Connect) -> None:
    """Records of their keys, those without a key, and waits for them: only who waits for the full one is told."""
    async with FakeTopic(2) as topic, connect(topic).producer() as producer:
        for shard_id in (0, 1):
            topic.assign(shard_id, topic.brokers[shard_id])
            await producer.send(b"x", shard=shard_id)
        fill(topic.brokers[0])
        topic.flushes = False
        other = asyncio.create_task(producer.send(b"other", key=key_of(1)))
        await until(lambda: bool(topic.shards[1].landing))
        await refused(producer.send(b"full", key=key_of(0)), unknown=True)
        assert not other.done()
        topic.flushes = True
        topic.flush(topic.shards[1])
        assert (await other).shard == 1
        await refused(producer.send(b"full", key=key_of(0)), unknown=False)
        await refused(producer.send_batch([b"not taken", b"not taken"], shard=0), unknown=False)
        assert (await producer.send(b"other", key=key_of(1))).shard == 1
        assert {(await producer.send(b"any")).shard for _ in range(8)} == {1}
        await refused(producer.flush(), unknown=True)
        await there_is_room(topic, producer)
        await producer.flush()
        assert [record.value for record in topic.shards[0].records] == [b"x", b"full"]


async def test_records_without_a_key_pass_over_a_full_shard_that_has_an_owner(connect: Connect) -> None:
    """What was sent to it again waits there for its ack."""
    async with FakeTopic(2) as topic, connect(topic).producer() as producer:
        for shard_id in (0, 1):
            topic.assign(shard_id, topic.brokers[shard_id])
            await producer.send(b"x", shard=shard_id)
        answers = chain([FULL], repeat(None))
        topic.brokers[0].refuses = lambda _: next(answers)
        topic.flushes = False
        await refused(producer.send(b"full", key=key_of(0)), unknown=True)
        await until(lambda: bool(topic.shards[0].landing))
        topic.flushes = True
        assert {(await producer.send(b"any")).shard for _ in range(8)} == {1}
        topic.flush(topic.shards[0])
        await there_is_room(topic, producer)


async def test_an_owner_that_ends_while_it_is_full_is_forgotten(connect: Connect) -> None:
    """Its shard was split: nothing is refused for it, and what was in doubt goes to where it belongs."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        for broker in topic.brokers:
            fill(broker)
        await refused(producer.send(b"0", key=b"k"), unknown=True)
        topic.close([0], landed=0)
        for broker in topic.brokers:
            fill(broker, False)
        topic.commit([0], 2)
        await until(lambda: not producer._running().full)
        assert (await producer.send(b"1", key=b"k")).shard in (1, 2)
        await producer.flush()
        assert values(topic) == [b"0", b"1"]


async def test_room_to_send_is_waited_for_where_there_is_room(connect: Connect) -> None:
    """Who waits for room behind records of a full shard is told, with nothing taken."""
    async with FakeTopic() as topic, connect(topic).producer(inflight_bytes_max=1_000) as producer:
        await producer.send(b"0", key=b"k")
        for broker in topic.brokers:
            broker.refuses = lambda producer: FULL if producer.sequence else None
        producer.send_nowait(b"x" * 2_000, key=b"k")
        await refused(producer.ready(), unknown=False)
        await there_is_room(topic, producer)
        await producer.flush()
