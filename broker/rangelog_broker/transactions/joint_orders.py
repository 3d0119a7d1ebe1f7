"""Orders to merge that go to the same broker at the same time, in one call.

What holds: an order has returned once its own merge is acked. One that a joint call does not say to be merged is sent again by
itself, which is harmless, and has its own error: no order fails for the sake of another. A joint call waits for the slow
ones of its orders for a moment only.
"""

from __future__ import annotations

import asyncio

from rangelog.errors import RangelogError
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import ShardsStub

MERGE_TIMEOUT_S = 5.0
"""Of one shard; afterwards its row is asked for anew."""
ORDERS_MAX = 1_000
"""Beside the first one of a call."""

_Waiting = list[tuple[pb.MergeTransactionRequest, "asyncio.Future[bool]"]]


class JointOrders:
    """For one event loop: what is ordered in one turn of it goes together."""

    def __init__(self, calls: OwnerCalls) -> None:
        self._calls = calls
        self._waiting: dict[str, _Waiting] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def order(self, request: pb.MergeTransactionRequest) -> None:
        """Return once it is merged. Raises the owner's errors; NotOwner, Unavailable, RequestTimeout: ask again."""
        owner = self._calls.known_owner((request.topic_id, request.shard_id))
        if owner:
            loop = asyncio.get_running_loop()
            waiting = self._waiting.setdefault(owner, [])
            if not waiting:
                loop.call_soon(self._send, owner)
            merged: asyncio.Future[bool] = loop.create_future()
            waiting.append((request, merged))
            if await merged:
                return
        await self._call(request)

    def _send(self, owner: str) -> None:
        waiting = self._waiting.pop(owner)
        for at in range(0, len(waiting), ORDERS_MAX + 1):
            part = waiting[at : at + ORDERS_MAX + 1]
            if len(part) == 1:
                _answer(part, [])  # it goes by itself
            else:
                task = asyncio.create_task(self._together(part))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _together(self, orders: _Waiting) -> None:
        joint = pb.MergeTransactionRequest()
        joint.CopyFrom(orders[0][0])
        joint.more.extend(request for request, _ in orders[1:])
        merged: list[bool] = []
        try:
            answer = await self._call(joint)
            merged = [True, *answer.more_merged]
        except RangelogError:
            pass  # each has its own error
        finally:
            _answer(orders, merged)

    async def _call(self, request: pb.MergeTransactionRequest) -> pb.MergeTransactionResponse:
        answer: pb.MergeTransactionResponse = await self._calls.call(
            (request.topic_id, request.shard_id), ShardsStub, lambda stub: stub.MergeTransaction, request,
            timeout_s=MERGE_TIMEOUT_S, repeatable=True,
        )  # fmt: skip
        return answer


def _answer(orders: _Waiting, merged: list[bool]) -> None:
    """Answer all of them; those of which nothing is said are not merged."""
    for at, (_, future) in enumerate(orders):
        if not future.done():
            future.set_result(at < len(merged) and merged[at])
