"""What a broker has open: shards that come and go, journals, loads, and what it says of shards that have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog.errors import (
    NotOwner,
    OutcomeUnknown,
    ProducerFenced,
    ShardNotFound,
    StreamSealed,
    TopicNotFound,
    Unavailable,
)
from rangelog_broker.groups.kind import GROUPS
from rangelog_broker.hosting import host as hosts
from rangelog_broker.hosting.owned import OwnedShards
from rangelog_broker.transactions.kind import TRANSACTIONS
from rangelog_broker.watermarks.kind import WATERMARKS
from rangelog_core.batch_extension import Producer
from rangelog_proto.v1 import broker_pb2, topic_pb2
from tests.support.memory_broker import MemoryBroker
from tests.support.owner_cluster import OwnerCluster, Replies, owner_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

ACTIVE = topic_pb2.TOPIC_STATE_ACTIVE


@pytest.fixture
async def cluster() -> AsyncIterator[OwnerCluster]:
    """A cluster without brokers."""
    async with owner_cluster() as made:
        yield made


async def test_a_dead_brokers_shards_are_open_elsewhere(cluster: OwnerCluster) -> None:
    """The next owner answers retries; the former one's name says nothing any more."""
    first, second = [await MemoryBroker(cluster, name).start() for name in "ab"]
    replies = Replies()
    topic_id = await cluster.create_topic(shards=4)
    for shard_id in range(4):
        await cluster.assign(topic_id, shard_id, "a")
        owner = await first.opened(topic_id, shard_id)
        await replies.produce(owner, Producer(7, 0, 0))
    await first.die()
    for shard_id in range(4):
        owner = await second.opened(topic_id, shard_id)
        assert await replies.produce(owner, Producer(7, 0, 0)) == 0
    await second.end()


async def test_a_shard_moves_to_the_broker_that_is_named(cluster: OwnerCluster) -> None:
    """Its owner hands it over; what was acked there is answered here; repeated, the call changes nothing."""
    first, second = [await MemoryBroker(cluster, name).start() for name in "ab"]
    replies = Replies()
    topic_id = await cluster.create_topic(shards=1)
    await cluster.assign(topic_id, 0, "a")
    assert await replies.produce(await first.opened(topic_id, 0), Producer(7, 0, 0)) == 0
    request = broker_pb2.MoveShardRequest(request_id="m1", topic_id=topic_id, broker="b")
    moved = (await cluster.call("MoveShard", request)).assignment
    assert moved.broker == "b"
    owner = await second.opened(topic_id, 0)
    assert await replies.produce(owner, Producer(7, 0, 0)) == 0
    assert await replies.produce(owner, Producer(7, 0, 1)) == 1
    assert (await cluster.call("MoveShard", request)).assignment == moved
    await first.end()
    await second.end()


async def test_a_broker_that_stops_hands_over(cluster: OwnerCluster) -> None:
    """When its stop returns everything is assigned elsewhere; what it has not acked is unknown, and the rest is acked once."""
    first, second = [await MemoryBroker(cluster, name).start() for name in "ab"]
    replies = Replies()
    topic_id = await cluster.create_topic()
    await cluster.assign(topic_id, 0, "a")
    owner = await first.opened(topic_id, 0)
    requests = [replies.send(owner, Producer(7, 0, number)) for number in range(3)]
    await first.stop()
    assert not first.watch.assigned and not first.owned.open_shards(topic_id)
    following = await second.opened(topic_id, 0)
    for number, request in enumerate(requests):
        offset = await replies.produce(following, Producer(7, 0, number))
        assert replies.acks.get(request, offset) == offset == number
    assert await cluster.read(topic_id, 0) == [b"0", b"1", b"2"]
    await second.end()


async def test_a_withdrawn_shard_is_not_owned_any_more(cluster: OwnerCluster) -> None:
    """It is closed here and open there."""
    first, second = [await MemoryBroker(cluster, name).start() for name in "ab"]
    topic_id = await cluster.create_topic()
    await cluster.assign(topic_id, 0, "a")
    await first.opened(topic_id, 0)
    await cluster.assign(topic_id, 0, "b")
    await second.opened(topic_id, 0)
    await until(lambda: first.owned.open_shard((topic_id, 0)) is None)
    with pytest.raises(NotOwner):
        first.owned.owned(topic_id, 0)
    for broker in (first, second):
        await broker.end()


async def test_a_deleted_topics_shards_are_closed(cluster: OwnerCluster) -> None:
    """Nothing is open or tried again afterwards."""
    broker = await MemoryBroker(cluster, "a").start()
    topic_id = await cluster.create_topic()
    owner = await broker.opened(topic_id, 0)
    reference = topic_pb2.TopicReference(topic_id=topic_id)
    request = topic_pb2.DeleteTopicRequest(request_id="d", topic=reference, force=True)
    await cluster.call("DeleteTopic", request)
    await until(lambda: (topic_id, 0) not in broker.watch.assigned)
    await until(lambda: broker.owned.open_shard((topic_id, 0)) is None)
    assert owner.closed is not None
    with pytest.raises((ShardNotFound, TopicNotFound)):
        await broker.owned.find_batch(topic_id, 0, Producer(7, 0, 0))
    await broker.end()


async def test_a_shard_that_waits_for_the_end_of_a_scale_holds_up_no_other(
    cluster: OwnerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no part of the openings meanwhile, and is opened as soon as the scale is over."""
    monkeypatch.setattr(hosts, "OPENINGS_MAX", 1)
    broker = await MemoryBroker(cluster, "a").start()
    topic_id = await cluster.create_topic(shards=2)
    owners = [await broker.opened(topic_id, shard_id) for shard_id in (0, 1)]
    scale = broker.owned.scaling._ending[(topic_id, 0)] = asyncio.get_running_loop().create_future()
    for owner in owners:
        await owner.close()
    await until(lambda: broker.owned.open_shard((topic_id, 1)) not in (None, owners[1]), "the other is open again")
    assert broker.owned.open_shard((topic_id, 0)) is None
    scale.set_result(None)
    await until(lambda: broker.owned.open_shard((topic_id, 0)) is not None)
    await broker.end()


async def test_journals_are_open_at_one_broker(cluster: OwnerCluster) -> None:
    """All coordinator journals are open, each with all machines; the next owner has them after a death."""
    first = await MemoryBroker(cluster, "a").start()
    await until(lambda: len(first.journals._coordinators) == 16)
    assert sorted(first.journals.coordinator(3).journal.machine.parts) == [
        GROUPS.number,
        TRANSACTIONS.number,
        WATERMARKS.number,
    ]
    second = await MemoryBroker(cluster, "b").start()
    with pytest.raises(NotOwner):
        second.journals.coordinator(3)
    await first.die()
    await until(lambda: len(second.journals._coordinators) == 16)
    await second.end()
    with pytest.raises(NotOwner):
        second.journals.coordinator(3)


async def test_loads_are_rates_of_what_was_taken(cluster: OwnerCluster) -> None:
    """Records and bytes by second since the last look; an idle shard has none."""
    broker = await MemoryBroker(cluster, "a").start()
    replies = Replies()
    topic_id = await cluster.create_topic(shards=2)
    owner = await broker.opened(topic_id, 0)
    await broker.opened(topic_id, 1)
    broker.owned._counted_s -= 10.0
    assert broker.owned.loads() == {}
    for number in range(30):
        await replies.produce(owner, Producer(7, 0, number), bytes(1_000), bytes(1_000))
    broker.owned._counted_s -= 10.0
    (load,) = broker.owned.loads().values()
    assert (load.topic_id, load.shard_id) == (topic_id, 0)
    assert 3 <= load.events_per_s <= 6 and load.bytes_per_s > 500 * load.events_per_s
    assert list(broker.owned.loads().values()) == [load], "sooner than the interval it is the same"
    broker.owned._counted_s -= 10.0
    assert broker.owned.loads() == {}
    await broker.end()


# ---- shards that have ended


async def _split(cluster: OwnerCluster, broker: MemoryBroker, topic_id: int) -> None:
    await cluster.start_scale(topic_id, [0], [0, 2, 4])
    await cluster.until_state(topic_id, ACTIVE)
    await broker.opened(topic_id, 1)


async def test_of_a_shard_that_has_not_ended_no_broker_answers(cluster: OwnerCluster) -> None:
    """Its owner may take the batch at any time: "no" would be a guess."""
    broker = await MemoryBroker(cluster, "a").start()
    topic_id = await cluster.create_topic()
    await broker.opened(topic_id, 0)
    with pytest.raises(Unavailable):
        await broker.owned.find_batch(topic_id, 0, Producer(7, 0, 0))
    with pytest.raises(ShardNotFound):
        await broker.owned.find_batch(topic_id, 5, Producer(7, 0, 0))
    with pytest.raises((ShardNotFound, TopicNotFound)):
        await broker.owned.find_batch(77, 0, Producer(7, 0, 0))
    await broker.end()


async def test_what_an_earlier_instance_sent_is_not_denied(cluster: OwnerCluster) -> None:
    """The table knows the newest instance only: of an older one's batch, which may be there, the outcome is unknown."""
    broker = await MemoryBroker(cluster, "a").start()
    replies = Replies()
    topic_id = await cluster.create_topic()
    owner = await broker.opened(topic_id, 0)
    assert await replies.produce(owner, Producer(7, 1, 0)) == 0
    assert await replies.produce(owner, Producer(7, 2, 0)) == 1
    await _split(cluster, broker, topic_id)
    with pytest.raises(ProducerFenced) as refused:
        await broker.owned.find_batch(topic_id, 0, Producer(7, 1, 0))
    assert refused.value.outcome_unknown and refused.value.epoch == 2
    assert await broker.owned.find_batch(topic_id, 0, Producer(7, 2, 0)) == 1
    assert await broker.owned.find_batch(topic_id, 0, Producer(7, 3, 0)) is None
    await broker.end()


async def test_what_is_remembered_no_more_is_not_denied(cluster: OwnerCluster) -> None:
    """A batch before the last five is there; where is unknown."""
    broker = await MemoryBroker(cluster, "a").start()
    replies = Replies()
    topic_id = await cluster.create_topic()
    owner = await broker.opened(topic_id, 0)
    for number in range(7):
        await replies.produce(owner, Producer(7, 0, number))
    await _split(cluster, broker, topic_id)
    with pytest.raises(OutcomeUnknown):
        await broker.owned.find_batch(topic_id, 0, Producer(7, 0, 1))
    await broker.end()


async def test_who_waits_for_a_change_learns_of_it(cluster: OwnerCluster) -> None:
    """Of a shard that is assigned and not open, or at its end: until it is open, or has ended; of no other one."""
    broker = await MemoryBroker(cluster, "a").start()
    topic_id = await cluster.create_topic()
    await broker.opened(topic_id, 0)
    owned = broker.owned
    assert owned.changing(topic_id, 0) is None  # it takes batches
    assert owned.changing(topic_id, 77) is None  # not assigned to this broker
    shard = owned.open_shard((topic_id, 0))
    assert shard is not None
    shard._closing = True
    changing = owned.changing(topic_id, 0)
    assert changing is not None and owned.changing(topic_id, 0) is changing and not changing.done()
    shard._closing = False
    await _split(cluster, broker, topic_id)
    assert changing.done() and owned.changing(topic_id, 0) is None  # it has ended
    other = OwnedShards(cluster.client(), broker.topics, lambda key: True, broker.journals.open_table)
    opening = other.changing(topic_id, 1)
    assert opening is not None and not opening.done()
    closed = await other.open_one((topic_id, 1))
    assert opening.done() and other.changing(topic_id, 1) is None
    later = other.changing(topic_id, 2)
    assert later is not None
    other.topic_gone(topic_id)
    assert later.done()
    child = other.open_shard((topic_id, 1))
    assert child is not None
    await child.close()
    assert closed is not None
    await closed
    await broker.end()


async def test_any_broker_makes_the_table_of_an_ended_shard_once(cluster: OwnerCluster) -> None:
    """Many questions at a time read the log once; after a failure the next question tries again."""
    first = await MemoryBroker(cluster, "a").start()
    replies = Replies()
    topic_id = await cluster.create_topic()
    owner = await first.opened(topic_id, 0)
    for number in range(3):
        await replies.produce(owner, Producer(7, 0, number))
    await _split(cluster, first, topic_id)
    client = cluster.client()
    other = OwnedShards(client, first.topics, lambda key: False, first.journals.open_table)
    cluster.fail("DescribeStream", Unavailable("no placement driver leads"))
    with pytest.raises(Unavailable):
        await other.find_batch(topic_id, 0, Producer(7, 0, 0))
    before = cluster.calls["ListShards"]
    asked = [other.find_batch(topic_id, 0, Producer(7, 0, number % 4)) for number in range(40)]
    assert await asyncio.gather(*asked) == [0, 1, 2, None] * 10
    assert cluster.calls["ListShards"] <= before + 1
    await first.end()


async def test_a_question_that_is_cancelled_does_not_end_the_others(cluster: OwnerCluster) -> None:
    """The table goes on being made for those who still wait."""
    broker = await MemoryBroker(cluster, "a").start()
    topic_id = await cluster.create_topic()
    await broker.opened(topic_id, 0)
    await _split(cluster, broker, topic_id)
    other = OwnedShards(cluster.client(), broker.topics, lambda key: False, broker.journals.open_table)
    gate = cluster.held["ListShards"] = asyncio.Event()
    first, second = [asyncio.create_task(other.find_batch(topic_id, 0, Producer(7, 0, 0))) for _ in range(2)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    del cluster.held["ListShards"]
    gate.set()
    assert await second is None
    await broker.end()


async def test_tables_of_ended_shards_are_made_from_their_ancestors(cluster: OwnerCluster) -> None:
    """A chain of scales without snapshots: floors come from the first one on, however long the chain."""
    broker = await MemoryBroker(cluster, "a").start()
    replies = Replies()
    topic_id = await cluster.create_topic()
    owner = await broker.opened(topic_id, 0)
    await replies.produce(owner, Producer(7, 9, 0))
    for shard_id in range(12):
        await cluster.start_scale(topic_id, [shard_id], [0, 4])
        await broker.opened(topic_id, shard_id + 1)
    other = OwnedShards(cluster.client(), broker.topics, lambda key: False, broker.journals.open_table)
    assert (await other.finished.table((topic_id, 11))).floor(7) == 9
    await broker.end()


async def test_sealed_between_the_look_and_the_opening(cluster: OwnerCluster) -> None:
    """An owner that comes too late finds the end, says so to producers, and tries no more."""
    first, second = [await MemoryBroker(cluster, name).start() for name in "ab"]
    topic_id = await cluster.create_topic()
    await cluster.assign(topic_id, 0, "a")
    await first.opened(topic_id, 0)
    row = await cluster.shard(topic_id, 0)
    await cluster.start_scale(topic_id, [0], [0, 2, 4])
    await cluster.until_state(topic_id, ACTIVE)
    late = OwnedShards(second.client, second.topics, lambda key: False, second.journals.open_table)
    late.rows.topic_and_shard = lambda *key: _row(row)  # type: ignore[method-assign]
    with pytest.raises(StreamSealed):
        await late.open_one((topic_id, 0))
    assert StreamSealed in hosts._GONE
    for broker in (first, second):
        await broker.end()


async def _row(row: topic_pb2.Shard) -> tuple[topic_pb2.Topic, topic_pb2.Shard]:
    return topic_pb2.Topic(topic_id=row.topic_id), row
