"""A shard under its owner, over the placement driver's production code and range servers in memory (T1, T2, T3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from unittest import mock

import pytest

from rangelog.errors import (
    Corruption,
    InvalidArgument,
    NotOwner,
    OutcomeUnknown,
    OutOfOrder,
    Overloaded,
    ProducerFenced,
    RequestTimeout,
    StreamSealed,
    Unavailable,
    WriterFenced,
)
from rangelog_broker.shards import shard as shards
from rangelog_broker.shards import shard_snapshots
from rangelog_broker.shards.finished import FinishedShards, PlacementRows
from rangelog_broker.shards.restore import fold_log
from rangelog_broker.shards.shard import OwnedShard
from rangelog_core.batch_extension import OWN_IDS, Producer
from rangelog_core.ids import shard_stream_name, side_log_name
from rangelog_core.versions import LEVEL_BROKERS
from rangelog_proto.v1 import topic_pb2
from tests.support.owner_cluster import OwnerCluster, Replies, owner_cluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


@dataclass
class Bench:
    """A topic, and owners of its shards in turn."""

    cluster: OwnerCluster
    topic_id: int
    replies: Replies = field(default_factory=Replies)
    owners: list[OwnedShard] = field(default_factory=list)

    async def open(self, shard_id: int = 0, **options: float) -> OwnedShard:
        """Open a shard as another broker, with a client of its own."""
        client = self.cluster.client()
        topics = client.metadata.pd
        finished = FinishedShards(client, topics, PlacementRows(topics))
        row = await self.cluster.shard(self.topic_id, shard_id)
        made = await OwnedShard.open(client, topics, finished, row, **options)
        self.owners.append(made)
        return made

    async def side_log(self) -> tuple[int, int]:
        """The trim offset and the end of the side log."""
        client = self.cluster.client()
        stream = await client.metadata.describe_stream(side_log_name(self.topic_id, 0))
        return stream.trim_offset, await client.internal.end(stream.name, stream.stream_id)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """One topic of one shard."""
    async with owner_cluster() as cluster:
        made = Bench(cluster, await cluster.create_topic())
        yield made
        for owner in made.owners:
            await owner.close()


async def test_a_retry_after_takeover_gets_its_first_offset(bench: Bench) -> None:
    """The next owner has the table: what was acked is answered as before, what follows is taken, a gap is not."""
    first = await bench.open()
    offsets = [await bench.replies.produce(first, Producer(7, 0, number), b"a", b"b") for number in range(3)]
    assert offsets == [0, 2, 4]
    second = await bench.open()
    assert [await bench.replies.produce(second, Producer(7, 0, number), b"a", b"b") for number in range(3)] == offsets
    with pytest.raises(OutOfOrder):
        await bench.replies.produce(second, Producer(7, 0, 4))
    assert await bench.replies.produce(second, Producer(7, 0, 3)) == 6
    assert await bench.cluster.read(bench.topic_id, 0) == [b"a", b"b"] * 3 + [b"3"]


async def test_a_deposed_owner_acks_nothing(bench: Bench) -> None:
    """It finds out with its next batch: the producer gets an unknown outcome, and the batch is not in the shard."""
    first = await bench.open()
    await bench.replies.produce(first, Producer(7, 0, 0))
    second = await bench.open()
    with pytest.raises(NotOwner) as refused:
        await bench.replies.produce(first, Producer(7, 0, 1))
    assert refused.value.outcome_unknown
    assert first.closed is not None
    with pytest.raises(NotOwner):
        await bench.replies.produce(first, Producer(7, 0, 2))
    assert await bench.replies.produce(second, Producer(7, 0, 1), b"again") == 1
    assert await bench.cluster.read(bench.topic_id, 0) == [b"0", b"again"]


async def test_a_deposed_owner_that_misses_batches_ends(bench: Bench) -> None:
    """Its successor has them: it takes nothing that follows, so no append would tell it that it is deposed."""
    first = await bench.open()
    await bench.replies.produce(first, Producer(7, 0, 0))
    second = await bench.open()
    await bench.replies.produce(second, Producer(7, 0, 1))
    with pytest.raises(OutOfOrder):
        await bench.replies.produce(first, Producer(7, 0, 2))
    await until(lambda: first.closed is not None)
    assert await bench.replies.produce(second, Producer(7, 0, 2)) == 2


async def test_an_owner_that_misses_batches_asks_whether_it_is_deposed_once_a_second_at_most(bench: Bench) -> None:
    """A producer that sends many batches behind a refused one costs the placement driver one question."""
    owner = await bench.open()
    with mock.patch.object(OwnedShard, "_prove", autospec=True, side_effect=OwnedShard._prove) as proofs:
        for sequence in range(1, 50):
            with pytest.raises(OutOfOrder):
                await bench.replies.produce(owner, Producer(7, 0, sequence))
            await asyncio.sleep(0)
        assert proofs.call_count == 1
        assert owner.closed is None


async def test_what_a_dead_owner_had_in_flight_is_there_once(bench: Bench) -> None:
    """Whatever of it reached the log counts for the next owner: its retry is answered or appended, never both."""
    first = await bench.open()
    await bench.replies.produce(first, Producer(7, 0, 0))
    bench.cluster.hold_acks("rs1")  # two of three still take it
    sent = [bench.replies.send(first, Producer(7, 0, number)) for number in (1, 2)]
    second = await bench.open()
    bench.cluster.release_acks()
    for number in (1, 2):
        assert await bench.replies.produce(second, Producer(7, 0, number)) == number
    assert await bench.cluster.read(bench.topic_id, 0) == [b"0", b"1", b"2"]
    for request in sent:
        try:
            assert await bench.replies.answer(request) == request - 1
        except NotOwner as error:
            assert error.outcome_unknown


async def test_a_retry_in_flight_waits_for_the_ack(bench: Bench) -> None:
    """All requests for one batch get the same offset, when it is acked and not before."""
    owner = await bench.open()
    bench.cluster.hold_acks()
    requests = [bench.replies.send(owner, Producer(7, 0, 0)) for _ in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not bench.replies.acks
    bench.cluster.release_acks()
    assert [await bench.replies.answer(request) for request in requests] == [0, 0, 0]
    assert await bench.cluster.read(bench.topic_id, 0) == [b"0"]


async def test_later_instances_fence_earlier_ones_also_after_takeover(bench: Bench) -> None:
    """A higher epoch begins at 0; a lower one is refused from then on, with the epoch that is there."""
    owner = await bench.open()
    await bench.replies.produce(owner, Producer(7, 3, 0))
    await bench.replies.produce(owner, Producer(7, 5, 0))
    for each in (owner, await bench.open()):
        with pytest.raises(ProducerFenced) as refused:
            await bench.replies.produce(each, Producer(7, 3, 1))
        assert refused.value.epoch == 5


async def test_what_is_remembered_no_more_is_no_ack(bench: Bench) -> None:
    """A batch before the last five is there, but nobody knows where: the outcome is unknown, not an offset."""
    owner = await bench.open()
    for number in range(7):
        await bench.replies.produce(owner, Producer(7, 0, number))
    with pytest.raises(OutcomeUnknown):
        await bench.replies.produce(owner, Producer(7, 0, 1))
    assert await bench.replies.produce(owner, Producer(7, 0, 2)) == 2


async def test_too_much_in_flight_is_refused_and_taken_later(bench: Bench) -> None:
    """The bound counts bytes without an ack; a refusal changes nothing, so the same number is taken once there is room."""
    owner = await bench.open()
    bench.cluster.hold_acks()
    big = bytes(3 << 20)
    sent = [bench.replies.send(owner, Producer(7, 0, number), big) for number in range(5)]
    with pytest.raises(Overloaded):
        bench.replies.send(owner, Producer(8, 0, 0), big)
    bench.cluster.release_acks()
    assert [await bench.replies.answer(request) for request in sent] == [0, 1, 2, 3, 4]
    assert await bench.replies.produce(owner, Producer(8, 0, 0), big) == 5


async def test_close_leaves_the_outcome_of_what_is_in_flight_unknown(bench: Bench) -> None:
    """Whoever waits is answered once, with an error that excludes nothing."""
    owner = await bench.open()
    bench.cluster.hold_acks()
    request = bench.replies.send(owner, Producer(7, 0, 0))
    await owner.close()
    with pytest.raises(NotOwner) as refused:
        await bench.replies.answer(request)
    assert refused.value.outcome_unknown
    with pytest.raises(NotOwner):
        bench.replies.send(owner, Producer(7, 0, 1))
    await owner.close()


async def test_a_silent_cluster_is_a_timeout(bench: Bench) -> None:
    """An opening that does not end in time raises, and leaves nothing behind that stands in the way of the next."""
    bench.cluster.held["ListRanges"] = bench.cluster.held["OpenWriter"] = asyncio.Event()
    with pytest.raises((RequestTimeout, Unavailable)):
        await bench.open(timeout_s=0.05)
    for each in bench.cluster.held.values():
        each.set()
    owner = await bench.open()
    assert await bench.replies.produce(owner, Producer(7, 0, 0)) == 0


async def test_a_batch_of_a_shard_without_a_producer_is_corruption(bench: Bench) -> None:
    """A log that no owner wrote is not guessed about."""
    client = bench.cluster.client()
    async with client.internal.writer(shard_stream_name(bench.topic_id, 0)) as writer:
        await writer.append(b"by hand")
    with pytest.raises(Corruption):
        await bench.open()


# ---- snapshots


@pytest.fixture
def often() -> object:
    """A snapshot after each tenth batch."""
    with mock.patch.object(shard_snapshots, "SNAPSHOT_BATCHES", 10):
        yield


async def _settled(owner: OwnedShard) -> None:
    await until(lambda: owner._snapshots._task is None)


async def test_takeover_reads_what_is_behind_the_snapshot(bench: Bench, often: object) -> None:
    """The next owner reads a bounded part of the log, and answers retries of what lies before it as well."""
    owner = await bench.open()
    for number in range(34):
        await bench.replies.produce(owner, Producer(7, 0, number))
        await _settled(owner)
    await bench.replies.produce(owner, Producer(8, 0, 0))
    read: list[tuple[int, int]] = []

    async def noting(*arguments: object) -> None:
        read.append(arguments[4:6])  # type: ignore[arg-type]
        await fold_log(*arguments)  # type: ignore[arg-type]

    with mock.patch.object(shards, "fold_log", noting):
        following = await bench.open()
    assert read == [(30, 35)]
    assert await bench.replies.produce(following, Producer(7, 0, 29)) == 29
    assert await bench.replies.produce(following, Producer(7, 0, 34)) == 35


async def test_snapshots_are_trimmed_but_for_the_newest(bench: Bench, often: object) -> None:
    """The side log does not grow with the shard's age: at the next owner what lies before its snapshot goes."""
    for turn in range(4):
        owner = await bench.open()
        for number in range(turn * 20, turn * 20 + 20):
            await bench.replies.produce(owner, Producer(7, 0, number))
            await _settled(owner)
    trim, end = await bench.side_log()
    assert trim >= end - 3, (trim, end)
    last = await bench.open()
    assert await bench.replies.produce(last, Producer(7, 0, 79)) == 79


async def test_the_next_owner_goes_on_from_a_snapshot_when_the_log_is_trimmed(bench: Bench, often: object) -> None:
    """What retention took is in the snapshot still: retries get their answers, and numbers go on."""
    owner = await bench.open()
    for number in range(20):
        await bench.replies.produce(owner, Producer(7, 0, number))
        await _settled(owner)
    owner = await bench.open()
    for number in range(20, 23):
        await bench.replies.produce(owner, Producer(7, 0, number))
    owner = await bench.open()
    assert owner.covered_offset >= 20
    owner.cover(23)
    await until(lambda: owner.covered_offset == 23)
    await bench.cluster.truncate(bench.topic_id, 0, 22)
    await bench.cluster.cover(bench.topic_id, 0, owner.covered_offset)
    assert (await bench.cluster.describe(bench.topic_id)).topic.state == topic_pb2.TOPIC_STATE_ACTIVE
    owner = await bench.open()
    assert await bench.replies.produce(owner, Producer(7, 0, 22)) == 22
    assert await bench.replies.produce(owner, Producer(7, 0, 23)) == 23


async def test_nothing_is_trimmed_before_a_snapshot_covers_it(bench: Bench) -> None:
    """Else who takes the shard over would not know what its producers have sent."""
    owner = await bench.open()
    for number in range(4):
        await bench.replies.produce(owner, Producer(7, 0, number))
    owner = await bench.open()
    assert owner.covered_offset == 0
    await bench.cluster.truncate(bench.topic_id, 0, 3)
    await bench.cluster.cover(bench.topic_id, 0, 2)
    assert (await bench.cluster.describe(bench.topic_id)).topic.state == topic_pb2.TOPIC_STATE_TRUNCATING
    owner = await bench.open()
    assert await bench.replies.produce(owner, Producer(7, 0, 3)) == 3
    assert await bench.replies.produce(owner, Producer(7, 0, 4)) == 4


async def test_an_ended_shard_gets_its_last_snapshot(bench: Bench) -> None:
    """At its end, also where it never had a side log; any broker writes it, and it is written once."""
    owner = await bench.open()
    for number in range(4):
        await bench.replies.produce(owner, Producer(7, 0, number))
    scale_id = await bench.cluster.start_scale(bench.topic_id, [0], [0, 2, 4])
    end = await owner.finish()
    await bench.cluster.call(
        "CommitScale",
        topic_pb2.CommitScaleRequest(request_id="s", topic_id=bench.topic_id, scale_id=scale_id, ends=[end]),
    )
    client = bench.cluster.client()
    topics = client.metadata.pd
    for _ in range(2):
        finished = FinishedShards(client, topics, PlacementRows(topics))
        assert await finished.cover((bench.topic_id, 0)) == 4
        assert await bench.side_log() == (0, 1)
    found = (await finished.table((bench.topic_id, 0))).find(Producer(7, 0, 3))
    assert found.offset == 3
    with pytest.raises(StreamSealed):
        await bench.open()


async def test_a_failed_snapshot_costs_nothing_and_is_made_up_for(bench: Bench, often: object) -> None:
    """Batches are acked all the same; the next snapshot is taken as if nothing had been."""
    owner = await bench.open()
    bench.cluster.fail("EnsureLog", Unavailable("no placement driver leads"))
    for number in range(20):
        assert await bench.replies.produce(owner, Producer(7, 0, number)) == number
        await _settled(owner)
    following = await bench.open()
    assert following._side.snapshot is not None and following._side.snapshot.offset == 20


async def test_a_deposed_owners_late_snapshot_does_not_end_those_of_the_next(bench: Bench, often: object) -> None:
    """It opens the side log and so fences the owner's writer there: the owner opens it again for its next snapshot."""
    deposed = await bench.open()
    for number in range(5):
        await bench.replies.produce(deposed, Producer(7, 0, number))
    owner = await bench.open()
    for number in range(5, 15):
        await bench.replies.produce(owner, Producer(7, 0, number))
        await _settled(owner)
    await deposed.settle_snapshot()
    for number in range(15, 45):
        await bench.replies.produce(owner, Producer(7, 0, number))
        await _settled(owner)
    last = await bench.open()
    assert last._side.snapshot is not None
    assert last._side.snapshot.offset >= 35
    assert await bench.replies.produce(last, Producer(7, 0, 44)) == 44


# ---- the end


async def test_finish_gives_an_end_that_the_placement_driver_takes(bench: Bench) -> None:
    """All that was acked is below the end; the commit of the scale holds with it."""
    owner = await bench.open()
    for number in range(3):
        await bench.replies.produce(owner, Producer(7, 0, number))
    scale_id = await bench.cluster.start_scale(bench.topic_id, [0], [0, 2, 4])
    end = await owner.finish()
    assert end.end_offset == 3
    with pytest.raises(NotOwner):
        bench.replies.send(owner, Producer(7, 0, 3))
    request = topic_pb2.CommitScaleRequest(request_id="x", topic_id=bench.topic_id, scale_id=scale_id, ends=[end])
    committed = await bench.cluster.call("CommitScale", request)
    assert committed.topic.current_shard_count == 2
    with pytest.raises(StreamSealed):
        await bench.open(0)


async def test_finish_of_a_shard_without_a_batch(bench: Bench) -> None:
    """An empty parent ends at 0, and the placement driver takes that, too."""
    owner = await bench.open()
    scale_id = await bench.cluster.start_scale(bench.topic_id, [0], [0, 2, 4])
    end = await owner.finish()
    request = topic_pb2.CommitScaleRequest(request_id="x", topic_id=bench.topic_id, scale_id=scale_id, ends=[end])
    assert (await bench.cluster.call("CommitScale", request)).topic.current_shard_count == 2


async def test_finish_waits_for_what_is_in_flight(bench: Bench) -> None:
    """It is acked before the end, and counts."""
    owner = await bench.open()
    bench.cluster.hold_acks()
    request = bench.replies.send(owner, Producer(7, 0, 0))
    finishing = asyncio.create_task(owner.finish())
    for _ in range(20):
        await asyncio.sleep(0)
    with pytest.raises(NotOwner):
        bench.replies.send(owner, Producer(7, 0, 1))
    bench.cluster.release_acks()
    assert (await finishing).end_offset == 1
    assert await bench.replies.answer(request) == 0


async def test_children_inherit_floors_and_no_sequences(bench: Bench) -> None:
    """A producer begins at 0 in a child; an instance that its ancestors had fenced is refused there."""
    owner = await bench.open()
    await bench.replies.produce(owner, Producer(7, 4, 0))
    await bench.replies.produce(owner, Producer(9, 0, 0))
    for parents, edges in (([0], [0, 2, 4]), ([1], [0, 1, 2])):
        scale_id = await bench.cluster.start_scale(bench.topic_id, parents, edges)
        end = await owner.finish()
        request = topic_pb2.CommitScaleRequest(
            request_id=str(parents), topic_id=bench.topic_id, scale_id=scale_id, ends=[end]
        )
        await bench.cluster.call("CommitScale", request)
        owner = await bench.open(parents[0] * 2 + 1)
    grandchild = owner
    with pytest.raises(ProducerFenced) as refused:
        await bench.replies.produce(grandchild, Producer(7, 3, 0))
    assert refused.value.epoch == 4
    with pytest.raises(OutOfOrder):
        await bench.replies.produce(grandchild, Producer(9, 0, 1))
    assert await bench.replies.produce(grandchild, Producer(7, 4, 0)) == 0
    assert await bench.replies.produce(grandchild, Producer(9, 0, 0)) == 1


async def test_a_writer_that_stops_between_an_ack_and_its_callback_ends_the_shard(bench: Bench) -> None:
    """Another owner has fenced it meanwhile: whoever waits hears that, and nothing fails in the event loop."""
    failed: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    owner = await bench.open()
    stopped = mock.PropertyMock(side_effect=WriterFenced("epoch 9 fenced this range"))
    with (
        mock.patch.object(type(owner._writer), "confirm_offset", stopped),
        pytest.raises(NotOwner, match="lost its writer"),
    ):
        await bench.replies.produce(owner, Producer(7, 0, 0))
    assert owner.closed is not None
    assert failed == []


# ---- producers expire

DAY_NS = 86_400 * 10**9


async def test_a_snapshot_forgets_who_was_idle_for_a_day(bench: Bench, often: object) -> None:
    """By the owner's clock, and over owners; only once every broker can read such a table."""
    now_ns = 20_000 * DAY_NS
    with mock.patch.object(shards.time, "time_ns", side_effect=lambda: now_ns):
        owner = await bench.open()
        idle, busy = Producer(OWN_IDS + 1, now_ns // 60_000_000_000, 0), Producer(7, 0, 0)
        await bench.replies.produce(owner, idle)
        for day in range(5):
            for number in range(day * 10, day * 10 + 10):
                await bench.replies.produce(owner, busy._replace(sequence=number))
                await _settled(owner)
            now_ns += DAY_NS
            if day == 1:
                assert len(owner.state.table) == 2, "a broker of before may open it"
                owner.broker_version = lambda: LEVEL_BROKERS
            if day == 3:
                assert len(owner.state.table) == 1
                owner = await bench.open()
                with pytest.raises(ProducerFenced) as told:
                    await bench.replies.produce(owner, idle._replace(sequence=1))
                assert told.value.epoch == idle.epoch + 1
        await bench.replies.produce(owner, idle._replace(epoch=idle.epoch + 1))


async def test_a_date_far_ahead_is_refused(bench: Bench) -> None:
    """One that expired would have all others begin with a later one."""
    owner = await bench.open()
    now = shards.time.time_ns() // 60_000_000_000
    with pytest.raises(InvalidArgument, match="clock"):
        await bench.replies.produce(owner, Producer(OWN_IDS + 1, now + 367 * 24 * 60, 0))
    assert await bench.replies.produce(owner, Producer(OWN_IDS + 1, now + 365 * 24 * 60, 0)) == 0
    assert await bench.replies.produce(owner, Producer(1, (1 << 32) - 1, 0)) == 1, "a name's epochs are its user's"
