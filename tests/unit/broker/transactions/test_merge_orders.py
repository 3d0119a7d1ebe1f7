"""Orders to merge: ended shards before those that follow them, with rows that are kept and may be old."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rangelog.errors import InvalidArgument, NotOwner, ShardEnded, Unavailable
from rangelog_broker.shards.finished import PlacementRows
from rangelog_broker.transactions import merging
from rangelog_broker.transactions.joint_orders import ORDERS_MAX
from rangelog_broker.transactions.merging import MergeOrders
from rangelog_broker.transactions.service import ShardsService
from rangelog_broker.transactions.shard_rows import KnownRows
from rangelog_broker.transactions.transaction_owner import TransactionOwner
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from tests.support import transaction_cluster
from tests.support.transaction_cluster import TransactionCluster

pytestmark = pytest.mark.virtual


class OwnShards:
    """The shards of this broker: notes what is merged."""

    def __init__(self) -> None:
        self.finished: Any = None
        self.here: set[int] = set()
        self.ended: set[int] = set()
        self.merged: list[tuple[int, int]] = []

    def owned(self, topic_id: int, shard_id: int) -> Any:
        """See MergingShards."""
        if shard_id in self.ended:
            raise ShardEnded("it has ended")
        if shard_id not in self.here:
            raise NotOwner("another broker's")
        own = self

        class Shard:
            async def merge(self, key: Any, staging_id: int, finished: Any) -> None:
                own.merged.append((shard_id, staging_id))

        return Shard()


class Bench:
    """Orders on a cluster in memory."""

    def __init__(self, cluster: TransactionCluster) -> None:
        self.cluster = cluster
        self.own = OwnShards()
        self.noted: list[tuple[int, int, str]] = []
        """What `merge_all` has found merged."""
        self.rows = KnownRows(PlacementRows(cast(Any, cluster.topics)))
        self.orders = MergeOrders(cast(Any, cluster), self.rows, cast(Any, self.own))

    async def merge(self, staging_id: int) -> list[tuple[int, int]]:
        """Merge one staging shard; return what other brokers were asked for."""
        before = len(self.cluster.merged)
        await self.orders.merge(1, 1, topic_id=self.cluster.topic.topic_id, staging_id=staging_id)
        return self.cluster.merged[before:]

    async def merge_all(self, *staging_ids: int) -> list[tuple[int, int]]:
        """Merge as the owner of a journal does; return what other brokers were asked for."""
        owner = TransactionOwner.__new__(TransactionOwner)
        owner._orders = self.orders
        before = len(self.cluster.merged)
        keys = [(self.cluster.topic.topic_id, each, "") for each in staging_ids]
        self.noted.clear()
        await owner._merge_topic(transaction_pb2.TransactionName(producer_id=1, number=1), keys, self.noted)
        return self.cluster.merged[before:]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A topic of two shards, 0 and 1."""
    async with TransactionCluster() as cluster:
        yield Bench(cluster)


async def test_rows_are_asked_for_once(bench: Bench) -> None:
    """Merges into the same shards do not ask the placement driver again."""
    for _ in range(5):
        await bench.merge_all(0, 1)
    assert bench.cluster.topics.list_count == 2


async def test_own_shards_are_asked_without_a_call(bench: Bench) -> None:
    """Others are called; one that this broker gives away meanwhile is called as well."""
    bench.own.here = {0}
    assert await bench.merge_all(0, 1) == [(1, 1)]
    assert bench.own.merged == [(0, 0)]
    bench.own.here = set()
    assert await bench.merge(0) == [(0, 0)]


@pytest.mark.parametrize("is_own", [False, True])
async def test_a_shard_that_ended_meanwhile(bench: Bench, is_own: bool) -> None:
    """Its successors merge instead, although the row that is kept says that it is current."""
    await bench.merge(0)
    children = bench.cluster.topics.scale(bench.cluster.topic, {0: 10}, 2)
    if is_own:
        bench.own.ended = {0}
    else:
        bench.cluster.shard_error = lambda shard_id: ShardEnded("it has ended") if shard_id == 0 else None
    assert sorted(await bench.merge(0)) == [(child, 0) for child in children]


async def test_an_ended_shard_is_merged_before_those_that_follow_it(bench: Bench) -> None:
    """Even if the row that is kept says that it is current: a row of a later shard shows that it may be old."""
    await bench.merge_all(0, 1)
    (child,) = bench.cluster.topics.scale(bench.cluster.topic, {0: 10}, 1)
    assert (await bench.merge_all(child, 0, 1))[0] == (child, 0)
    (grandchild,) = bench.cluster.topics.scale(bench.cluster.topic, {child: 10}, 1)
    bench.cluster.shard_error = lambda shard_id: ShardEnded("it has ended") if shard_id == child else None
    found = await bench.merge_all(grandchild, 0)
    assert found == [(grandchild, 0), (grandchild, grandchild)]


async def test_a_failure_makes_the_row_doubtful(bench: Bench) -> None:
    """It is asked for again: perhaps the topic is gone."""
    await bench.merge(0)
    bench.cluster.shard_error = lambda shard_id: Unavailable("no owner")
    with pytest.raises(Unavailable):
        await bench.merge(0)
    del bench.cluster.topics.topics[bench.cluster.topic.topic_id]
    assert await bench.merge_all(0) == []
    assert bench.noted == [(bench.cluster.topic.topic_id, 0, "")]


async def test_what_is_merged_is_noted_though_another_fails(bench: Bench) -> None:
    """Only the others are merged again."""
    bench.cluster.shard_error = lambda shard_id: Unavailable("no owner") if shard_id == 1 else None
    with pytest.raises(Unavailable):
        await bench.merge_all(0, 1)
    assert [key[1] for key in bench.noted] == [0]


class SlowOrders:
    """Merges records when `go` is set, with an error if there is one; notes what is merged."""

    def __init__(self, bench: Bench) -> None:
        self.rows = bench.rows
        self.merged: list[str] = []
        self.go = asyncio.Event()
        self.error: Unavailable | None = None

    async def merge(self, producer_id: int, number: int, *, topic_id: int, staging_id: int) -> None:
        """See MergeOrders."""
        await self.go.wait()
        if self.error is not None:
            raise self.error
        self.merged.append("records")

    async def merge_positions(self, producer_id: int, number: int, group: str) -> None:
        """See MergeOrders."""
        self.merged.append("positions")


def merge_commit(bench: Bench, orders: SlowOrders) -> asyncio.Task[None]:
    """Merge the records and the positions of one commit."""
    owner = cast(Any, TransactionOwner.__new__(TransactionOwner))
    owner._orders = orders

    async def note(*_: object) -> None:
        """Nobody keeps it."""

    owner._note = note
    name = transaction_pb2.TransactionName(producer_id=1, number=1)
    return asyncio.ensure_future(owner._merge_all(name, [(bench.cluster.topic.topic_id, 0, ""), (0, 0, "group")]))


async def test_positions_are_merged_behind_the_records(bench: Bench) -> None:
    """Positions are merged when all records are: who is handed what follows then writes behind these records."""
    orders = SlowOrders(bench)
    merging = merge_commit(bench, orders)
    for _ in range(20):
        await asyncio.sleep(0)
    assert orders.merged == []
    orders.go.set()
    await merging
    assert orders.merged == ["records", "positions"]


async def test_positions_wait_for_records_that_are_not_merged(bench: Bench) -> None:
    """Where records are not merged yet, the positions are not either."""
    orders = SlowOrders(bench)
    orders.error = Unavailable("no owner")
    orders.go.set()
    with pytest.raises(Unavailable):
        await merge_commit(bench, orders)
    assert orders.merged == []


async def test_orders_to_one_broker_go_together(bench: Bench) -> None:
    """Those of one turn of the loop are one call; one that fails is sent again by itself, and fails no other."""
    await bench.rows.together(bench.cluster.topic.topic_id, (0, 1))
    assert await bench.merge_all(0, 1) == [(0, 0), (1, 1)]
    assert bench.cluster.orders == [2]
    bench.cluster.merged.clear()
    bench.cluster.shard_error = lambda shard_id: Unavailable("no owner") if shard_id == 1 else None
    with pytest.raises(Unavailable):
        await bench.merge_all(0, 1)
    assert [key[1] for key in bench.noted] == [0]
    assert bench.cluster.orders == [2, 2, 1]
    bench.cluster.shard_error = lambda shard_id: Unavailable("no owner") if shard_id == 0 else None
    with pytest.raises(Unavailable):
        await bench.merge_all(0, 1)
    assert [key[1] for key in bench.noted] == [1]
    assert bench.cluster.orders == [2, 2, 1, 2, 1, 1]


async def test_an_order_without_an_answer_for_the_further_ones(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker of an earlier version carries out the first one only: the others follow by themselves."""

    async def carry_out_first(self: Any, request: Any) -> Any:
        bench.cluster.orders.append(1 + len(request.more))
        await self._merge(request)
        return pb.MergeTransactionResponse()

    monkeypatch.setattr(transaction_cluster._MergingShards, "MergeTransaction", carry_out_first)
    assert sorted(await bench.merge_all(0, 1)) == [(0, 0), (1, 1)]
    assert bench.cluster.orders == [2, 1]


class SomeShards:
    """Shards of a broker: shard 1 is another one's, and shard 2 never merges."""

    finished = cast(Any, None)

    def owned(self, topic_id: int, shard_id: int) -> Any:
        """See MergingShards."""
        if shard_id == 1:
            raise NotOwner("another one's")
        return self if shard_id == 0 else _Stuck()

    async def merge(self, *_: Any) -> None:
        """See OwnedShard."""


class _Stuck:
    async def merge(self, *_: Any) -> None:
        """See OwnedShard."""
        await asyncio.Event().wait()


async def test_a_joint_order_is_carried_out_as_far_as_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer says of each further one whether it is merged; it fails as the first one does, or with too many."""
    monkeypatch.setattr(merging, "MORE_S", 0.01)
    service = ShardsService(cast(Any, SomeShards()))
    first, other, stuck = (pb.MergeTransactionRequest(shard_id=each) for each in (0, 1, 2))
    joint = pb.MergeTransactionRequest(shard_id=0, more=[other, first, stuck])
    assert list((await service.MergeTransaction(joint, None)).more_merged) == [False, True, False]
    assert list((await service.MergeTransaction(first, None)).more_merged) == []
    with pytest.raises(NotOwner):
        await service.MergeTransaction(pb.MergeTransactionRequest(shard_id=1, more=[first]), None)
    with pytest.raises(InvalidArgument):
        await service.MergeTransaction(pb.MergeTransactionRequest(more=[first] * (ORDERS_MAX + 1)), None)


async def test_a_new_owner_looks_at_its_transactions_in_the_order_of_the_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So timers and merges of two runs of one history are the same; a set of ids has another order in each process."""
    looked: list[str] = []
    monkeypatch.setattr(TransactionOwner, "look", lambda _, transactional_id: looked.append(transactional_id))
    ids = [f"job{number}" for number in range(20)]
    journal = cast(Any, SimpleNamespace(machine=SimpleNamespace(unfinished=lambda: [(each, None) for each in ids * 2])))
    TransactionOwner(journal, cast(Any, None))
    assert looked == ids
