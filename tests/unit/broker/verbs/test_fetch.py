"""Fetches at the owner and elsewhere, over the placement driver's production code and range servers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from unittest import mock

import pytest

from rangelog.errors import (
    InvalidArgument,
    NotOwner,
    OffsetOutOfRange,
    OffsetTrimmed,
    Overloaded,
    RightMissing,
    ShardEnded,
    ShardNotFound,
)
from rangelog.ranges import WholeBatch
from rangelog_broker.shards.finished import FinishedShards, PlacementRows
from rangelog_broker.shards.settling import settle
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.tail import ENTRY_BYTES
from rangelog_broker.verbs import fetch as fetching
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.fetch import BYTES_MAX, FetchedBatches, Fetches
from rangelog_core.batch_extension import Producer
from rangelog_core.limits import MIB
from rangelog_core.net.principals import Principal, Role
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from tests.support.owner_cluster import OwnerCluster, Replies, owner_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

CALLER = Caller(RightsGuard(), lambda *_: None)


@dataclass
class Broker:
    """One broker's fetches, with what it owns. See fetch.FetchableShards."""

    cluster: OwnerCluster
    topic_id: int
    bytes_max: int = 64 * MIB
    opened: dict[tuple[int, int], OwnedShard] = field(default_factory=dict)
    ended: set[tuple[int, int]] = field(default_factory=set)
    replies: Replies = field(default_factory=Replies)
    sequence: int = 0

    def __post_init__(self) -> None:
        self.client = self.cluster.client()
        self.rows = PlacementRows(self.client.metadata.pd)
        self.fetches = Fetches(self, self.rows, self.client, QuotaGuard(), self.bytes_max)

    def owned(self, topic_id: int, shard_id: int) -> OwnedShard:
        """See fetch.FetchableShards."""
        if (topic_id, shard_id) in self.ended:
            raise ShardEnded("it has ended")
        found = self.opened.get((topic_id, shard_id))
        if found is None:
            raise NotOwner("not here")
        return found

    async def open(self, shard_id: int = 0) -> OwnedShard:
        """Become the owner."""
        topics = self.client.metadata.pd
        finished = FinishedShards(self.client, topics, self.rows)
        row = await self.cluster.shard(self.topic_id, shard_id)
        made = self.opened[self.topic_id, shard_id] = await OwnedShard.open(self.client, topics, finished, row)
        return made

    async def produce(self, *values: bytes, shard_id: int = 0) -> int:
        """Append a batch; return its offset."""
        self.sequence += 1
        producer = Producer(7, 0, self.sequence - 1)
        return await self.replies.produce(self.opened[self.topic_id, shard_id], producer, *values)

    async def fetch(self, offset: int, shard_id: int = 0, **options: float) -> FetchedBatches:
        """Fetch, and give the memory back at once."""
        fetched = await self.fetches.fetch(CALLER, self.topic_id, shard_id, offset, **options)  # type: ignore[arg-type]
        fetched.release()
        return fetched


def values(batches: list[WholeBatch] | object) -> list[bytes]:
    """The records of batches, whose offsets follow each other."""
    records = [record for batch in batches for record in batch.records()]  # type: ignore[attr-defined]
    offsets = [record.offset for record in records]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets))) if offsets else True
    return [record.value for record in records]


@pytest.fixture
async def cluster() -> AsyncIterator[OwnerCluster]:
    """A cluster in memory."""
    async with owner_cluster() as made:
        yield made


@pytest.fixture
async def broker(cluster: OwnerCluster) -> AsyncIterator[Broker]:
    """A broker that owns the one shard of a topic."""
    made = Broker(cluster, await cluster.create_topic())
    await made.open()
    yield made
    await made.fetches.close()
    for shard in made.opened.values():
        await shard.close()


@pytest.fixture
async def other(cluster: OwnerCluster, broker: Broker) -> AsyncIterator[Broker]:
    """A broker that owns nothing yet."""
    made = Broker(cluster, broker.topic_id)
    yield made
    await made.fetches.close()
    for shard in made.opened.values():
        await shard.close()


async def test_a_fetch_at_the_end_gets_the_next_batch_as_it_is_acked(broker: Broker) -> None:
    """Without a read of range servers; what was there before the first fetch is read from them."""
    await broker.produce(b"a", b"b")
    waiting = asyncio.ensure_future(broker.fetch(2, wait_s=30.0))
    await until(lambda: broker.fetches.waiting_count == 1)
    assert await broker.produce(b"c", b"d") == 2
    fetched = await waiting
    assert values(fetched.batches) == [b"c", b"d"]
    assert (fetched.next_offset, fetched.end_offset, fetched.is_last) == (4, 4, False)
    assert (broker.fetches.counts.from_memory, broker.fetches.counts.from_log) == (1, 0)
    assert values((await broker.fetch(3)).batches) == [b"d"]
    earlier = await broker.fetch(1)
    assert values(earlier.batches) == [b"b", b"c", b"d"] and earlier.next_offset == earlier.end_offset == 4
    assert (broker.fetches.counts.from_memory, broker.fetches.counts.from_log) == (2, 1)


async def test_nothing_is_shown_before_its_ack(cluster: OwnerCluster, broker: Broker) -> None:
    """A batch that is in flight is in no answer, in memory or not."""
    await broker.fetch(0)
    cluster.hold_acks()
    request = broker.replies.send(broker.opened[broker.topic_id, 0], Producer(7, 0, 0), b"a")
    fetched = await broker.fetch(0, wait_s=5.0)
    assert not fetched.batches and fetched.next_offset == 0
    cluster.release_acks()
    await broker.replies.answer(request)
    assert values((await broker.fetch(0)).batches) == [b"a"]


async def test_a_fetch_waits_until_there_is_enough(broker: Broker) -> None:
    """Or until its time is over: then it has what is there."""
    await broker.fetch(0)
    started_s = asyncio.get_running_loop().time()
    waiting = asyncio.ensure_future(broker.fetch(0, bytes_min=300, wait_s=30.0))
    await broker.produce(b"a" * 100)
    await until(lambda: broker.fetches.waiting_count == 1)
    await broker.produce(b"b" * 100)
    fetched = await waiting
    assert len(fetched.batches) == 2 and fetched.size_bytes >= 300
    assert asyncio.get_running_loop().time() < started_s + 30
    rest = await broker.fetch(0, bytes_min=BYTES_MAX, wait_s=30.0)
    assert len(rest.batches) == 2 and asyncio.get_running_loop().time() >= started_s + 30


async def test_at_most_so_many_bytes_but_at_least_a_batch(broker: Broker) -> None:
    """In memory and out of it."""
    for number in range(4):
        if number == 2:
            await broker.fetch(2)
        await broker.produce(b"%d" % number * 1000)
    for offset in (0, 2):
        assert len((await broker.fetch(offset, bytes_max=1)).batches) == 1
        assert len((await broker.fetch(offset, bytes_max=2500)).batches) == 2


async def test_a_batch_whose_bytes_were_not_kept_is_read(cluster: OwnerCluster, broker: Broker) -> None:
    """The tail begins while batches are in flight: it has those that follow."""
    shard = broker.opened[broker.topic_id, 0]
    cluster.hold_acks()
    first = broker.replies.send(shard, Producer(7, 0, 0), b"a")
    await broker.fetch(0)
    second = broker.replies.send(shard, Producer(7, 0, 1), b"b")
    cluster.release_acks()
    await broker.replies.answer(first)
    await broker.replies.answer(second)
    assert values((await broker.fetch(0)).batches)[:1] == [b"a"]
    assert values((await broker.fetch(1)).batches) == [b"b"]
    assert broker.fetches.counts.from_memory == 1


async def test_an_offset_beyond_the_end_is_refused_by_an_owner_that_is_sure(broker: Broker, other: Broker) -> None:
    """One that a later owner has fenced may not know the end: it reads the log, and does not refuse."""
    await broker.produce(b"a")
    with pytest.raises(OffsetOutOfRange) as refused:
        await broker.fetch(5)
    assert refused.value.offset == 1
    await broker.fetch(1)
    await other.open()
    other.sequence = 1
    await other.produce(b"b")
    assert (await broker.fetch(2)).next_offset == 2
    assert values((await broker.fetch(1)).batches) == [b"b"]
    with pytest.raises(OffsetOutOfRange):
        await broker.fetch(3)


async def test_fetches_go_on_while_the_owner_changes(broker: Broker, other: Broker) -> None:
    """One that waits where the shard was owned gets what the next owner acks."""
    waiting = asyncio.ensure_future(broker.fetch(0, wait_s=30.0))
    await until(lambda: broker.fetches.waiting_count == 1)
    shard = broker.opened.pop((broker.topic_id, 0))
    await shard.close()
    await other.open()
    await other.produce(b"a")
    assert values((await waiting).batches) == [b"a"]


async def test_any_broker_answers(broker: Broker, other: Broker) -> None:
    """What is there, what comes, and where the end is."""
    for number in range(3):
        await broker.produce(b"%d" % number)
    assert values((await other.fetch(0)).batches)[:1] == [b"0"]
    found: list[bytes] = []
    offset = 0
    while offset < 3:
        fetched = await other.fetch(offset, bytes_max=1)
        found += values(fetched.batches)
        offset = fetched.next_offset
    assert found == [b"0", b"1", b"2"]
    assert not (await other.fetch(3)).batches
    waiting = asyncio.ensure_future(other.fetch(3, wait_s=30.0))
    await until(lambda: bool(other.fetches._follows._kept) or other.fetches._follows._turns._value < 256)
    await broker.produce(b"3")
    assert values((await waiting).batches) == [b"3"]
    with pytest.raises(OffsetOutOfRange) as refused:
        await other.fetch(9)
    assert refused.value.offset == 4


async def test_who_goes_on_gets_the_same_reader(broker: Broker, other: Broker) -> None:
    """A fetch where an earlier one ended begins no new read."""
    for number in range(6):
        await broker.produce(b"%d" % number)
    opened: list[int] = []
    internal = other.client.internal
    batches = internal.batches

    def noted(stream: str, stream_id: int, start: int, end: int | None) -> object:
        opened.append(start)
        return batches(stream, stream_id, start, end)

    with mock.patch.object(internal, "batches", noted):
        offset = 0
        while offset < 6:
            offset = (await other.fetch(offset, bytes_max=1)).next_offset
    assert opened == [0]


async def test_a_shard_that_has_ended_is_read_to_its_end(cluster: OwnerCluster, broker: Broker, other: Broker) -> None:
    """By whoever asks; behind it nothing follows."""
    await broker.produce(b"a")
    await broker.fetch(1)
    scale_id = await cluster.start_scale(broker.topic_id, [0], [0, 2, 4])
    shard = broker.opened.pop((broker.topic_id, 0))
    waiting = asyncio.ensure_future(other.fetch(1, wait_s=1.0))
    end = await shard.finish()
    await commit_scale(cluster, broker.topic_id, scale_id, end)
    broker.ended.add((broker.topic_id, 0))
    assert not (await waiting).batches
    for each in (broker, other):
        assert values((await each.fetch(0)).batches) == [b"a"]
        last = await each.fetch(1, wait_s=30.0)
        assert last.is_last and not last.batches and last.next_offset == 1
        with pytest.raises(OffsetOutOfRange) as refused:
            await each.fetch(2)
        assert refused.value.offset == 1
        assert await each.fetches.find(CALLER, broker.topic_id, 0, "latest") == 1


async def commit_scale(cluster: OwnerCluster, topic_id: int, scale_id: int, end: object) -> None:
    """Make the children current."""
    from rangelog_proto.v1 import topic_pb2

    request = topic_pb2.CommitScaleRequest(request_id="commit", topic_id=topic_id, scale_id=scale_id, ends=[end])  # type: ignore[list-item]
    await cluster.call("CommitScale", request)


async def test_what_was_trimmed_says_so(cluster: OwnerCluster, broker: Broker, other: Broker) -> None:
    """With the first offset that is left, which `find` gives as well."""
    for number in range(3):
        await broker.produce(b"%d" % number)
    await broker.opened[broker.topic_id, 0].settle_snapshot()
    await broker.opened.pop((broker.topic_id, 0)).close()
    await broker.open()  # which seals the range
    await cluster.truncate(broker.topic_id, 0, 2)
    await cluster.cover(broker.topic_id, 0, 3)
    for each in (broker, other):
        with pytest.raises(OffsetTrimmed) as trimmed:
            await each.fetch(0)
        assert trimmed.value.offset == 2
        assert await each.fetches.find(CALLER, broker.topic_id, 0, "earliest") == 2
        assert await each.fetches.find(CALLER, broker.topic_id, 0, "latest") == 3
        moment = datetime.fromtimestamp(1, UTC)
        assert await each.fetches.find(CALLER, broker.topic_id, 0, moment) == 3


async def test_slow_clients_hold_what_they_were_answered_and_no_more(cluster: OwnerCluster, broker: Broker) -> None:
    """A thousand answers that are not sent: all of them within the limit, the others wait and are refused; none is lost."""
    made = Broker(cluster, broker.topic_id, bytes_max=16 * MIB)
    broker.opened.pop((broker.topic_id, 0))
    await made.open()
    made.sequence = broker.sequence
    await made.fetch(0)
    for number in range(32):
        await made.produce(b"%d" % (number % 10) * MIB, shard_id=0)
    assert made.fetches.memory.tail_bytes <= 16 * MIB
    tasks = [
        asyncio.ensure_future(made.fetches.fetch(CALLER, made.topic_id, 0, number % 32, bytes_max=1))
        for number in range(1_000)
    ]
    await asyncio.wait(tasks)
    held = [each.result() for each in tasks if each.exception() is None]
    refused = [each.exception() for each in tasks if each.exception() is not None]
    assert held and refused and all(isinstance(error, Overloaded) for error in refused)
    memory = made.fetches.memory
    assert memory.tail_bytes + memory.taken_bytes <= 16 * MIB + fetching.READS_AT_ONCE * (MIB + 2 * ENTRY_BYTES + 100)
    for each in held:
        each.release()
        each.release()
    assert values((await made.fetch(31)).batches) == [b"1" * MIB]
    await made.fetches.close()
    assert memory.taken_bytes == 0 and memory.tail_bytes == 0


async def test_who_waits_for_memory_has_it_in_turn(cluster: OwnerCluster, broker: Broker) -> None:
    """An answer that is sent lets the next one go on."""
    await broker.fetch(0)
    await broker.produce(b"a")
    broker.fetches.memory.take(64 * MIB)
    waiting = [asyncio.ensure_future(broker.fetch(0)) for _ in range(3)]
    await until(lambda: len(broker.fetches._for_room) == 3)
    assert not any(each.done() for each in waiting)
    broker.fetches.memory.give_back(64 * MIB)
    assert [values((await each).batches) for each in waiting] == [[b"a"]] * 3


async def test_what_nobody_uses_is_dropped(broker: Broker, other: Broker) -> None:
    """Tails and readers; a later fetch begins anew."""
    await broker.fetch(0)
    await broker.produce(b"a")
    await broker.produce(b"b")
    assert broker.fetches.memory.tail_bytes > 0
    await other.fetch(0, bytes_max=1)
    assert other.fetches._reads.kept_count == 1
    await asyncio.sleep(fetching.TAIL_S + 3 * fetching.SWEEP_S)
    assert broker.fetches.memory.tail_bytes == 0 and broker.opened[broker.topic_id, 0]._tail is None
    assert other.fetches._reads.kept_count == 0 and other.fetches.memory.taken_bytes == 0
    assert broker.fetches._sweeping is None and other.fetches._sweeping is None
    assert values((await broker.fetch(0)).batches)[:1] == [b"a"]


async def test_a_cancelled_fetch_leaves_nothing_behind(cluster: OwnerCluster, broker: Broker, other: Broker) -> None:
    """Wherever it is cancelled; the next one at the same place has everything."""
    await broker.produce(b"a")
    for steps in range(40):
        for each in (broker, other):
            task = asyncio.ensure_future(each.fetch(0))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert values((await each.fetch(0)).batches) == [b"a"]
            await until(lambda each=each: not each.fetches._reads._closing)  # type: ignore[misc]
            assert each.fetches.memory.taken_bytes == 0 and each.fetches.waiting_count == 0


@pytest.mark.parametrize(
    "options",
    [
        {"offset": -1},
        {"offset": 1 << 63},
        {"bytes_max": 0},
        {"bytes_max": BYTES_MAX + 1},
        {"bytes_min": -1},
        {"bytes_min": BYTES_MAX + 1},
        {"wait_s": -1.0},
        {"wait_s": 61.0},
        {"wait_s": float("nan")},
    ],
)
async def test_what_no_fetch_may_ask_is_refused(broker: Broker, options: dict[str, float]) -> None:
    """Before anything is done."""
    with pytest.raises(InvalidArgument):
        await broker.fetch(**{"offset": 0} | options)  # type: ignore[arg-type]
    assert broker.fetches.counts.fetches == 0


async def test_who_may_not_read_the_topic_gets_nothing(broker: Broker) -> None:
    """Neither records nor offsets, nor whether the shard is there."""
    rights = RightsGuard()
    caller = Caller(rights, lambda *_: None)
    caller.admitted(Principal(Role.CLIENT, "nobody"))
    refusal = RightMissing("no rule gives it")
    with mock.patch.object(rights, "require", side_effect=refusal):
        for shard_id in (0, 99):
            with pytest.raises(RightMissing):
                await broker.fetches.fetch(caller, broker.topic_id, shard_id, 0)
            with pytest.raises(RightMissing):
                await broker.fetches.find(caller, broker.topic_id, shard_id, "latest")


async def test_a_shard_that_never_was_says_so(broker: Broker) -> None:
    """At once."""
    with pytest.raises(ShardNotFound):
        await broker.fetch(0, shard_id=7)


async def test_a_fenced_owner_whose_shard_another_has_settled(broker: Broker, other: Broker) -> None:
    """It shows an end that is too early, and goes on with the log once it hears of it."""
    await broker.fetch(0)
    row = await broker.cluster.shard(broker.topic_id, 0)
    await settle(other.client, row, timeout_s=10.0)
    fetched = await broker.fetch(0, wait_s=1.0)
    assert not fetched.batches and fetched.next_offset == 0
