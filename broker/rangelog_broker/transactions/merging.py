"""Orders to the owners of shards to merge what a committed transaction has staged, wherever the shards are by now.

What holds: an order is repeated until the log of every shard that follows the staging one has what is for it. An ended shard is
never merged into: its successors are, each once it is current. A shard of this broker is asked without a call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from rangelog.errors import (
    GroupNotFound,
    InvalidArgument,
    NotOwner,
    RangelogError,
    RequestTimeout,
    ShardEnded,
    ShardNotFound,
    TopicNotFound,
    Unavailable,
)
from rangelog_broker.shards.finished import FinishedShards
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.staging import TransactionKey
from rangelog_broker.transactions.coordinator import PARTICIPANTS_MAX
from rangelog_broker.transactions.joint_orders import MERGE_TIMEOUT_S, ORDERS_MAX, JointOrders
from rangelog_broker.transactions.shard_rows import KnownRows
from rangelog_core.ids import check_name
from rangelog_core.net.owner_calls import OwnerCalls, journal_of
from rangelog_proto.v1 import group_service_pb2 as group_pb
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.group_service_pb2_grpc import GroupsStub

MORE_S = 1.0
"""How long the answer to a joint order waits for those behind the first one."""


class MergingShards(Protocol):
    """The shards that this broker owns, and the final states of those that have ended."""

    finished: FinishedShards

    def owned(self, topic_id: int, shard_id: int) -> OwnedShard:
        """Return an open shard. Raises NotOwner, ShardEnded."""


class MergeOrders:
    """For one event loop. `own`: the shards of this broker."""

    def __init__(self, calls: OwnerCalls, rows: KnownRows, own: MergingShards | None) -> None:
        self.rows = rows
        self._calls = calls
        self._joint = JointOrders(calls)
        self._own = own

    async def check(self, participants: Sequence[transaction_pb2.Participant]) -> None:
        """Raise if a commit names what nobody can ever merge: InvalidArgument, ShardNotFound.

        A topic that was deleted passes, and so does what the placement driver cannot say now.
        """
        if len(participants) > PARTICIPANTS_MAX:
            raise InvalidArgument(f"{len(participants)} shards and groups take part; the limit is {PARTICIPANTS_MAX}")
        shards: dict[int, set[int]] = {}
        for each in participants:
            if each.group:
                check_name("group", each.group)
            if bool(each.group) == bool(each.topic_id or each.shard_id) or (each.shard_id and not each.topic_id):
                raise InvalidArgument("a participant of a transaction is a shard of a topic, or a group")
            if each.topic_id:
                shards.setdefault(each.topic_id, set()).add(each.shard_id)
        for topic_id, shard_ids in shards.items():
            with suppress(TopicNotFound, Unavailable):
                for shard_id in shard_ids - await self.rows.known(topic_id, shard_ids):
                    raise ShardNotFound(f"topic {topic_id} has no shard {shard_id}: nothing is staged there")

    async def merge(self, producer_id: int, number: int, *, topic_id: int, staging_id: int) -> None:
        """Merge a transaction's batches of one staging shard; return once they are acked.

        Raises TopicNotFound; NotOwner, Unavailable: ask again.
        """
        pending, done = [staging_id], set[int]()
        while pending:
            shard_id = pending.pop()
            if shard_id in done:
                continue
            row = await self.rows.one(topic_id, shard_id)
            if row.ended_version:
                pending += [each for each in row.successors if each not in done]
                done.add(shard_id)
                continue
            request = pb.MergeTransactionRequest(
                topic_id=topic_id,
                shard_id=shard_id,
                staging_shard_id=staging_id,
                producer_id=producer_id,
                number=number,
            )
            try:
                await self._order(request)
            except ShardEnded:
                self.rows.forget(topic_id, shard_id)
                pending.append(shard_id)  # its row says so by now
                continue
            except RangelogError:
                self.rows.forget(topic_id, shard_id)
                raise
            done.add(shard_id)

    async def merge_positions(self, producer_id: int, number: int, group: str) -> None:
        """Commit the positions that a transaction has staged in a group. Raises NotOwner, Unavailable: ask again."""
        request = group_pb.MergePositionsRequest(group=group, producer_id=producer_id, number=number)
        with suppress(GroupNotFound, InvalidArgument):  # a group with staged positions has a name, and is not deleted
            check_name("group", group)
            await self._calls.call(
                journal_of(group), GroupsStub, lambda stub: stub.MergePositions, request,
                timeout_s=MERGE_TIMEOUT_S, repeatable=True,
            )  # fmt: skip

    async def _order(self, request: pb.MergeTransactionRequest) -> None:
        if self._own is not None:
            try:
                async with asyncio.timeout(MERGE_TIMEOUT_S):
                    await merge_here(self._own, request)
                return
            except TimeoutError:
                raise RequestTimeout(f"shard {request.shard_id} has not merged within {MERGE_TIMEOUT_S:g} s") from None
            except NotOwner:
                pass  # another broker's, or about to be
        await self._joint.order(request)


async def merge_here(shards: MergingShards, request: pb.MergeTransactionRequest) -> None:
    """Merge into a shard of this broker; return once that is acked. Raises NotOwner, ShardEnded, Unavailable."""
    shard = shards.owned(request.topic_id, request.shard_id)
    key = TransactionKey(request.producer_id, request.number)
    await shard.merge(key, request.staging_shard_id, shards.finished)


async def merge_all_here(shards: MergingShards, request: pb.MergeTransactionRequest) -> list[bool]:
    """Merge what an order and its further ones name; return of each further one whether it is merged.

    Raises the errors of `merge_here` for the first one; InvalidArgument: there are too many.
    """
    if len(request.more) > ORDERS_MAX:
        raise InvalidArgument(f"{len(request.more)} further orders; the limit is {ORDERS_MAX}")
    further = [asyncio.ensure_future(merge_here(shards, each)) for each in request.more]
    try:
        await merge_here(shards, request)
        await asyncio.wait(further, timeout=MORE_S)
        return [each.done() and not each.cancelled() and each.exception() is None for each in further]
    finally:
        for each in further:
            each.add_done_callback(_forget)
            each.cancel()  # the merge itself goes on


def _forget(task: asyncio.Future[None]) -> None:
    if not task.cancelled():
        task.exception()
