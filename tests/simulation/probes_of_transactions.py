"""Probes of transactions and takeovers: where an ambush of a topic may strike, and which shards are open."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rangelog._append.writer import Writer
from rangelog._transact.begun_ahead import BACK_TO_BACK, BegunAhead
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.side_log import SideLog
from rangelog_broker.shards.transactional import ShardTransactions
from rangelog_broker.transactions.joint_orders import JointOrders
from rangelog_broker.transactions.service import ShardsService
from rangelog_core.errors import Unavailable
from rangelog_core.ids import topic_of_stream_name
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_proto.v1 import pd_pb2
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_time import here

CORNER_CASES = (
    "a run of several batches was appended",
    "a run was finished by the next owner",
    "a broker died inside a run",
    "a broker died before the word that it has merged",
    "a shard ended before the word that it has merged",
    "a shard was claimed late, while its former owner went on",
    "a shard was split between two batches of a transaction",
    "a broker learned late that a shard is another one's",
    "an operator moved a shard",
    "a broker was cut off from all but other brokers",
    "an owner that may be deposed was asked to merge what it does not have",
    "a program died inside its last transaction",
    "a transaction was begun with the commit before",
    "orders to merge went in one call",
    "a program stood still between its positions and its commit",
)
RARE = (
    "a run was finished by the next owner",
    "a broker died inside a run",
    "a broker learned late that a shard is another one's",
    "a shard was claimed late, while its former owner went on",
    "an owner that may be deposed was asked to merge what it does not have",
    "orders to merge went in one call",
    "a program stood still between its positions and its commit",
)


def watch_transactions(watch: Any, cluster: VirtualCluster) -> None:
    """Count what matters, and let ambushes strike."""
    _watch_merges(watch, cluster)
    _watch_takeovers(watch, cluster)


def _watch_merges(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note

    def append_run(self: ShardTransactions, inner: Any, run: Sequence[Any]) -> Any:
        futures = inner(self, run)
        if len(futures) > 1:
            note("a run of several batches was appended")
            if cluster.topic_ambushes is not None:
                cluster.topic_ambushes.run_begun(here().name)
        return futures

    def finish_run(self: ShardTransactions, inner: Any, *args: Any) -> None:
        note("a run was finished by the next owner")
        inner(self, *args)

    async def merge(self: OwnedShard, inner: Any, *args: Any) -> None:
        await inner(self, *args)
        if cluster.topic_ambushes is not None and cluster.topic_ambushes.merged(here().name):
            await asyncio.sleep(0)  # nothing follows

    async def order(self: ShardsService, inner: Any, request: Any, context: Any) -> Any:
        ambushes = cluster.topic_ambushes
        if ambushes is not None:
            await ambushes.order()
        response = await inner(self, request, context)
        if ambushes is not None and await ambushes.is_answer_lost((request.topic_id, request.shard_id)):
            raise Unavailable("the answer was lost")
        return response

    async def together(self: JointOrders, inner: Any, orders: Any) -> None:
        note("orders to merge went in one call")
        await inner(self, orders)

    def begins(self: BegunAhead, inner: Any, now_s: float) -> bool:
        begun: bool = inner(self, now_s)
        if cluster.seed // 8 % 2:
            self._in_a_row = BACK_TO_BACK  # every commit begins the next one, as those of a busy program do
        if begun:
            note("a transaction was begun with the commit before")
        return begun

    watch(JointOrders, "_together", together)
    watch(BegunAhead, "begins", begins)
    watch(ShardTransactions, "_append_run", append_run)
    watch(ShardTransactions, "finish_run", finish_run)
    watch(OwnedShard, "merge", merge)
    watch(ShardsService, "MergeTransaction", order)


def _watch_takeovers(watch: Any, cluster: VirtualCluster) -> None:
    note = cluster.note

    async def open_side(self: SideLog, inner: Any) -> None:
        await inner(self)
        if cluster.topic_ambushes is not None:
            cluster.topic_ambushes.side_fenced(self._key)

    async def prove(self: OwnedShard, inner: Any) -> None:
        if any(name == here().name for name, _ in cluster.network.cuts):
            note("an owner that may be deposed was asked to merge what it does not have")
        await inner(self)

    async def owner(self: OwnerCalls, inner: Any, key: Any, left_s: float) -> Any:
        found = await inner(self, key, left_s)
        return found if cluster.topic_ambushes is None else cluster.topic_ambushes.owner_found(key, found)

    async def restore(self: OwnedShard, inner: Any, *args: Any) -> None:
        await inner(self, *args)
        cluster.open_shards[self] = here()

    async def pd_call(self: PdClient, inner: Any, request: Any, response: Any, **more: Any) -> Any:
        answer = await inner(self, request, response, **more)
        if not isinstance(answer, pd_pb2.WatchResponse):
            return answer
        name = here().name
        if cluster.topic_ambushes is not None and any(row.broker != name for row in answer.assignments):
            await cluster.topic_ambushes.withdrawn(name)
        return answer

    async def claim(self: Writer, inner: Any) -> None:
        is_shard = topic_of_stream_name(self.stream) is not None and not self.stream.endswith("-side")
        if cluster.topic_ambushes is not None and is_shard and self._opened is None:
            await cluster.topic_ambushes.fence(here().name)
        await inner(self)

    watch(OwnerCalls, "_owner", owner)
    watch(OwnedShard, "_restore", restore)
    watch(OwnedShard, "_prove_or_end", prove)
    watch(SideLog, "open", open_side)
    watch(PdClient, "call", pd_call)
    watch(Writer, "claim", claim)
