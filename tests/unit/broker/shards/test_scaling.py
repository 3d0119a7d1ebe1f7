"""Scales and sealings carried out by brokers: by one, by several, through deaths, lost calls and cancelled plans (T2, T4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog.errors import NotOwner, RequestTimeout, ShardEnded, Unavailable
from rangelog_broker.hosting import assignments
from rangelog_core.batch_extension import Producer
from rangelog_core.ids import shard_stream_name
from rangelog_proto.v1 import topic_pb2
from tests.support.memory_broker import MemoryBroker
from tests.support.owner_cluster import OwnerCluster, Replies, owner_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

ACTIVE, SEALED, SCALING = (
    topic_pb2.TOPIC_STATE_ACTIVE,
    topic_pb2.TOPIC_STATE_SEALED,
    topic_pb2.TOPIC_STATE_SCALING,
)


@pytest.fixture
async def cluster() -> AsyncIterator[OwnerCluster]:
    """A cluster without brokers."""
    async with owner_cluster() as made:
        yield made


async def make_brokers(cluster: OwnerCluster, *names: str) -> list[MemoryBroker]:
    """Start them, one after the other."""
    return [await MemoryBroker(cluster, name).start() for name in names]


async def end(*brokers: MemoryBroker) -> None:
    """End them all."""
    for broker in brokers:
        await broker.end()


async def test_one_broker_splits_and_merges(cluster: OwnerCluster) -> None:
    """Parents end with all that was acked; children take batches; of the parents retries are answered as before."""
    (broker,) = await make_brokers(cluster, "a")
    replies = Replies()
    topic_id = await cluster.create_topic()
    parent = await broker.opened(topic_id, 0)
    for number in range(3):
        await replies.produce(parent, Producer(7, 0, number))
    await cluster.start_scale(topic_id, [0], [0, 2, 4])
    await cluster.until_state(topic_id, ACTIVE)
    low, high = [await broker.opened(topic_id, shard_id) for shard_id in (1, 2)]
    assert await replies.produce(low, Producer(7, 0, 0), b"low") == 0
    assert await replies.produce(high, Producer(7, 0, 0), b"high") == 0
    assert (await cluster.shard(topic_id, 0)).end_offset == 3
    assert await broker.owned.find_batch(topic_id, 0, Producer(7, 0, 2)) == 2
    assert await broker.owned.find_batch(topic_id, 0, Producer(7, 0, 3)) is None
    with pytest.raises(ShardEnded):
        broker.owned.owned(topic_id, 0)
    await cluster.start_scale(topic_id, [1, 2], [0, 4])
    await cluster.until_state(topic_id, ACTIVE)
    merged = await broker.opened(topic_id, 3)
    assert await replies.produce(merged, Producer(7, 0, 0), b"merged") == 0
    assert [await cluster.read(topic_id, each) for each in range(4)] == [
        [b"0", b"1", b"2"], [b"low"], [b"high"], [b"merged"],
    ]  # fmt: skip
    await end(broker)


@pytest.mark.parametrize("filled", [True, False])
async def test_two_brokers_with_a_parent_each_merge(cluster: OwnerCluster, filled: bool) -> None:
    """Each ends its own, the first parent's owner commits with both ends, also of parents that were never written to."""
    first, second = await make_brokers(cluster, "a", "b")
    replies = Replies()
    topic_id = await cluster.create_topic(shards=2)
    await cluster.assign(topic_id, 0, "a")
    await cluster.assign(topic_id, 1, "b")
    owners = [await first.opened(topic_id, 0), await second.opened(topic_id, 1)]
    if filled:
        for owner in owners:
            await replies.produce(owner, Producer(7, 0, 0))
    await cluster.start_scale(topic_id, [0, 1], [0, 4])
    await cluster.until_state(topic_id, ACTIVE)
    assert [(await cluster.shard(topic_id, each)).end_offset for each in (0, 1)] == [filled, filled]
    for broker in (first, second):
        for shard_id in (0, 1):
            found = await broker.owned.find_batch(topic_id, shard_id, Producer(7, 0, 0))
            assert found == (0 if filled else None), "any broker answers for shards that have ended"
    await end(first, second)


async def test_the_second_parents_owner_is_late(cluster: OwnerCluster) -> None:
    """The first parent is ended and waits; once the other one has an owner the scale goes on by itself."""
    (first,) = await make_brokers(cluster, "a")
    topic_id = await cluster.create_topic(shards=2)
    second = await MemoryBroker(cluster, "b").start()
    await cluster.assign(topic_id, 0, "a")
    await cluster.assign(topic_id, 1, "b")
    await first.opened(topic_id, 0)
    await second.opened(topic_id, 1)
    await second.die()
    await cluster.start_scale(topic_id, [0, 1], [0, 4])
    await cluster.until_state(topic_id, ACTIVE)
    await first.opened(topic_id, 2)
    await end(first)


async def test_the_owner_dies_between_the_end_and_the_commit(cluster: OwnerCluster) -> None:
    """The next owner of the first parent finds the plan and carries it out; nothing acked is missing."""
    first, second = await make_brokers(cluster, "a", "b")
    replies = Replies()
    topic_id = await cluster.create_topic()
    await cluster.assign(topic_id, 0, "a")
    owner = await first.opened(topic_id, 0)
    await replies.produce(owner, Producer(7, 0, 0))
    cluster.held["CommitScale"] = gate = asyncio.Event()
    await cluster.start_scale(topic_id, [0], [0, 2, 4])
    await until(lambda: cluster.calls["CommitScale"] == 1)
    await first.die()
    del cluster.held["CommitScale"]
    gate.set()
    await cluster.until_state(topic_id, ACTIVE)
    assert (await cluster.shard(topic_id, 0)).end_offset == 1
    child = await second.opened(topic_id, 2)
    assert await second.owned.find_batch(topic_id, 0, Producer(7, 0, 0)) == 0
    assert await replies.produce(child, Producer(7, 0, 0)) == 0
    await end(second)


async def test_a_lost_answer_of_the_commit_changes_nothing(cluster: OwnerCluster) -> None:
    """It is committed once, and this broker finds out."""
    (broker,) = await make_brokers(cluster, "a")
    topic_id = await cluster.create_topic()
    await broker.opened(topic_id, 0)
    cluster.lost_answers["CommitScale"] = 1
    await cluster.start_scale(topic_id, [0], [0, 2, 4])
    await broker.opened(topic_id, 2)
    assert (await cluster.describe(topic_id)).topic.map_version == 2
    await until(
        lambda: not broker.owned.scaling._tasks or all(task.done() for task in broker.owned.scaling._tasks.values())
    )
    await end(broker)


async def test_a_cancelled_plan_opens_its_parents_again(cluster: OwnerCluster) -> None:
    """A parent that was ended already goes on under a new epoch, with the table that it had."""
    first, second = await make_brokers(cluster, "a", "b")
    replies = Replies()
    topic_id = await cluster.create_topic(shards=2)
    await cluster.assign(topic_id, 0, "a")
    await cluster.assign(topic_id, 1, "b")
    parent = await first.opened(topic_id, 0)
    await second.opened(topic_id, 1)
    await replies.produce(parent, Producer(7, 0, 0))
    epoch = parent.epoch
    cluster.held["CommitScale"] = gate = asyncio.Event()
    scale_id = await cluster.start_scale(topic_id, [0, 1], [0, 4])
    await until(lambda: cluster.calls["CommitScale"] == 1)
    assert first.owned.open_shard((topic_id, 0)) is None
    with pytest.raises(NotOwner):
        first.owned.owned(topic_id, 0)
    await cluster.cancel_scale(topic_id, scale_id)
    del cluster.held["CommitScale"]
    gate.set()
    again = await first.opened(topic_id, 0)
    await second.opened(topic_id, 1)
    assert again.epoch > epoch
    assert await replies.produce(again, Producer(7, 0, 0)) == 0
    assert await replies.produce(again, Producer(7, 0, 1)) == 1
    assert (await cluster.describe(topic_id)).topic.map_version == 1
    await end(first, second)


async def test_parents_of_a_cancelled_plan_are_open_while_another_plan_is_not_done(
    cluster: OwnerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard that the present plan does not name takes batches, however soon that plan followed the cancelled one."""
    monkeypatch.setattr(assignments, "WAIT_MS", 20)
    first, second = await make_brokers(cluster, "a", "b")
    replies = Replies()
    topic_id = await cluster.create_topic(shards=2)
    await cluster.assign(topic_id, 0, "a")
    await cluster.assign(topic_id, 1, "b")
    await first.opened(topic_id, 0)
    await second.opened(topic_id, 1)
    cluster.held["CommitScale"] = asyncio.Event()
    scale_id = await cluster.start_scale(topic_id, [0], [0, 1, 2])
    await until(lambda: cluster.calls["CommitScale"] == 1)
    cluster.held["Watch"] = asyncio.Event()
    watched = cluster.calls["Watch"]
    await until(lambda: cluster.calls["Watch"] == watched + 2)  # the brokers learn of both changes in one
    await cluster.cancel_scale(topic_id, scale_id)
    await cluster.start_scale(topic_id, [1], [2, 3, 4])
    cluster.held.pop("CommitScale").set()
    cluster.held["CommitScale"] = asyncio.Event()  # and the new plan is not committed
    cluster.held.pop("Watch").set()
    again = await first.opened(topic_id, 0)
    assert await replies.produce(again, Producer(7, 0, 0)) == 0
    assert (await cluster.describe(topic_id)).topic.state == SCALING
    cluster.held.pop("CommitScale").set()
    await cluster.until_state(topic_id, ACTIVE)
    await end(first, second)


@pytest.mark.parametrize("rpc", ["DescribeTopic", "OpenWriter", "SealRange", "CommitScale", "ListRanges", "ListShards"])
async def test_a_failed_call_delays_a_scale_and_does_not_end_it(cluster: OwnerCluster, rpc: str) -> None:
    """Whatever call fails on the way, the plan is carried out in the end, and the children are open."""
    first, second = await make_brokers(cluster, "a", "b")
    replies = Replies()
    topic_id = await cluster.create_topic(shards=2)
    await cluster.assign(topic_id, 0, "a")
    await cluster.assign(topic_id, 1, "b")
    for owner in [await first.opened(topic_id, 0), await second.opened(topic_id, 1)]:
        await replies.produce(owner, Producer(7, 0, 0))
    cluster.fail(rpc, *[Unavailable("no placement driver leads")] * 3)
    await cluster.start_scale(topic_id, [0, 1], [0, 4])
    await cluster.until_state(topic_id, ACTIVE)
    await until(lambda: any(each.owned.open_shard((topic_id, 2)) for each in (first, second)))
    assert [await cluster.read(topic_id, each) for each in (0, 1)] == [[b"0"], [b"0"]]
    await end(first, second)


async def test_an_end_without_its_answer_does_not_stop_a_scale(cluster: OwnerCluster) -> None:
    """The range was sealed, and the broker does not know: it asks again."""
    (broker,) = await make_brokers(cluster, "a")
    topic_id = await cluster.create_topic()
    await broker.opened(topic_id, 0)
    cluster.lost_answers |= {"SealRange": 1, "OpenWriter": 1}
    await cluster.start_scale(topic_id, [0], [0, 2, 4])
    await cluster.until_state(topic_id, ACTIVE)
    await broker.opened(topic_id, 1)
    await end(broker)


# ---- sealing


async def test_a_topic_is_sealed_by_all_its_brokers(cluster: OwnerCluster) -> None:
    """Each ends what it owns; the records stay; nobody takes batches any more."""
    first, second = await make_brokers(cluster, "a", "b")
    replies = Replies()
    topic_id = await cluster.create_topic(shards=4)
    for shard_id in range(4):
        await cluster.assign(topic_id, shard_id, "ab"[shard_id % 2])
    for shard_id in range(4):
        owner = await (first, second)[shard_id % 2].opened(topic_id, shard_id)
        await replies.produce(owner, Producer(7, 0, 0))
    await cluster.seal_topic(topic_id)
    await cluster.until_state(topic_id, SEALED)
    assert [await cluster.read(topic_id, each) for each in range(4)] == [[b"0"]] * 4
    for shard_id in range(4):
        with pytest.raises((ShardEnded, NotOwner)):
            (first, second)[shard_id % 2].owned.owned(topic_id, shard_id)
        assert await first.owned.find_batch(topic_id, shard_id, Producer(7, 0, 0)) == 0
    await end(first, second)


@pytest.mark.parametrize("rpc", ["DescribeTopic", "OpenWriter", "SealRange", "EndShard"])
async def test_a_failed_call_delays_a_sealing_and_does_not_end_it(cluster: OwnerCluster, rpc: str) -> None:
    """Whatever call fails on the way, the topic is sealed in the end."""
    (broker,) = await make_brokers(cluster, "a")
    topic_id = await cluster.create_topic(shards=2)
    for shard_id in range(2):
        await broker.opened(topic_id, shard_id)
    cluster.fail(rpc, Unavailable("no placement driver leads"), RequestTimeout("late"))
    await cluster.seal_topic(topic_id)
    await cluster.until_state(topic_id, SEALED)
    await end(broker)


async def test_a_lost_answer_of_an_end_does_not_stop_a_sealing(cluster: OwnerCluster) -> None:
    """The shard has ended, and the others follow."""
    (broker,) = await make_brokers(cluster, "a")
    topic_id = await cluster.create_topic(shards=2)
    for shard_id in range(2):
        await broker.opened(topic_id, shard_id)
    cluster.lost_answers["EndShard"] = 1
    await cluster.seal_topic(topic_id)
    await cluster.until_state(topic_id, SEALED)
    await end(broker)


async def test_the_owner_dies_while_a_topic_is_sealed(cluster: OwnerCluster) -> None:
    """What it owned is ended by its next owner."""
    first, second = await make_brokers(cluster, "a", "b")
    topic_id = await cluster.create_topic(shards=2)
    for shard_id in range(2):
        await cluster.assign(topic_id, shard_id, "a")
        await first.opened(topic_id, shard_id)
    cluster.held["EndShard"] = gate = asyncio.Event()
    await cluster.seal_topic(topic_id)
    await until(lambda: cluster.calls["EndShard"] == 1)
    await first.die()
    gate.set()
    await cluster.until_state(topic_id, SEALED)
    await end(second)


@pytest.mark.parametrize("undone", [0, 1])
async def test_an_end_that_a_stray_opening_undid_is_made_again(cluster: OwnerCluster, undone: int) -> None:
    """A former owner wakes up, opens the parent once more and goes: whoever owns it ends it again, and the scale is done."""
    first, second = await make_brokers(cluster, "a", "b")
    topic_id = await cluster.create_topic(shards=2)
    await cluster.assign(topic_id, 0, "a")
    await cluster.assign(topic_id, 1, "b")
    await first.opened(topic_id, 0)
    await second.opened(topic_id, 1)
    cluster.held["CommitScale"] = gate = asyncio.Event()
    await cluster.start_scale(topic_id, [0, 1], [0, 4])
    await until(lambda: cluster.calls["CommitScale"] == 1)
    stray = cluster.client().internal.writer(shard_stream_name(topic_id, undone))
    await stray.open()
    await stray.close(flush=False)
    del cluster.held["CommitScale"]
    gate.set()
    await cluster.until_state(topic_id, ACTIVE)
    await end(first, second)
