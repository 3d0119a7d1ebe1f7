"""Producers with dated epochs and a shard that has forgotten them: they go on by themselves, but for what is in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rangelog.errors import ProducerFenced
from rangelog_broker.shards.producer_table import AckedBatch
from rangelog_core.batch_extension import OWN_IDS, Producer
from tests.support.fake_brokers import FakeTopic
from tests.unit.client.produce.conftest import ProducerClient
from tests.unit.client.produce.test_producer_faults import landing, values

pytestmark = pytest.mark.virtual

Connect = Callable[[FakeTopic], ProducerClient]


def expired_at(topic: FakeTopic, date: int) -> None:
    """The shard's owner has forgotten a producer of that date."""
    owner = topic.shards[0].owner
    assert owner is not None
    end = owner.confirm_offset
    owner.table.note(AckedBatch(Producer(OWN_IDS, date, 0), end, end))
    owner.table.expire(end)


async def test_a_machine_whose_clock_is_late_begins_with_a_later_date(connect: Connect) -> None:
    """The shard has forgotten producers that began later: what is refused as one of them is sent under another date, once."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        expired_at(topic, producer.producer_epoch + 5_000)
        producer._core._batch_records_max = 1
        futures = [producer.submit(b"%d" % number, key=b"k") for number in range(3)]
        await producer.flush()
        assert topic.shards[0].tries == 6, "all three were refused"
        futures += [producer.submit(b"%d" % number, key=b"k") for number in range(3, 6)]
        assert [future.offset for future in await asyncio.gather(*futures)] == list(range(6))
        assert values(topic) == [b"%d" % number for number in range(6)]


async def test_what_a_shard_may_have_forgotten_stays_unknown(connect: Connect) -> None:
    """It was in flight when the connection broke, and was forgotten before it came again: neither lost nor twice is certain."""
    async with FakeTopic() as topic, connect(topic).producer() as producer:
        (future,) = await landing(topic, producer, 1)
        broker = topic.shards[0].broker
        assert broker is not None
        topic.assign(0, broker, landed=1)
        expired_at(topic, producer.producer_epoch)
        broker.break_connections()
        topic.flushes = True
        with pytest.raises(ProducerFenced) as told:
            await future
        assert told.value.outcome_unknown
        assert values(topic) == [b"0"]
