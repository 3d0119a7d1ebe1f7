"""Asks coordinators what became of transactions that have staged positions and were not settled for a while.

What holds: a staged position is dropped by the coordinator's word alone, as batches that are staged at shards are. Only groups
that have staged positions are looked at, and for as long as they have some.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from rangelog_broker.shards.staging import TransactionKey
from rangelog_core.errors import RangelogError
from rangelog_core.net.owner_calls import OwnedKey, journal_of
from rangelog_proto.v1 import group_pb2, transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import TransactionsStub

AFTER_S = 2.0
"""How long something is staged before it is asked for, and how long until it is asked for again."""
TIMEOUT_S = 10.0

_T = TypeVar("_T")
_DONE = (
    transaction_pb2.TRANSACTION_STATE_ABORTED,
    transaction_pb2.TRANSACTION_STATE_COMMITTED,
    transaction_pb2.TRANSACTION_STATE_UNKNOWN,
)
_log = logging.getLogger("rangelog.groups")

Staged = dict[tuple[str, TransactionKey], str]
"""Group and transaction → transactional id."""


class Coordinators(Protocol):
    """The one method of OwnerCalls that is used here."""

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[_T]]],
        request: object,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> _T:
        """Call the owner of a shard or journal."""


class StagedInquiries:
    """The inquiries of the groups of one journal. For one event loop."""

    def __init__(
        self,
        calls: Coordinators,
        staged: Callable[[], Staged],
        own: Callable[[group_pb2.GroupCommand], Awaitable[None]],
    ) -> None:
        """`staged`: what is staged now; `own` proposes a command."""
        self._calls = calls
        self._staged = staged
        self._own = own

    async def run(self) -> None:
        """Ask for all that is staged for long, until nothing is."""
        before: Staged = {}
        while now := self._staged():
            await asyncio.gather(*(self._ask(*key, name) for key, name in now.items() if key in before))
            before = now
            await asyncio.sleep(AFTER_S)

    async def _ask(self, group: str, key: TransactionKey, transactional_id: str) -> None:
        name = transaction_pb2.TransactionName(
            transactional_id=transactional_id, producer_id=key.producer_id, number=key.number
        )
        request = pb.DescribeTransactionRequest(name=name)
        try:
            answer = await self._calls.call(
                journal_of(transactional_id), TransactionsStub, lambda stub: stub.DescribeTransaction, request,
                timeout_s=TIMEOUT_S, repeatable=True,
            )  # fmt: skip
            if answer.result.state in _DONE:  # if it was committed with these positions, they were settled before
                settle = group_pb2.GroupSettle(producer_id=key.producer_id, number=key.number, committed=False)
                await self._own(group_pb2.GroupCommand(group=group, settle=settle))
        except RangelogError as error:
            _log.info("what became of transaction %d of %s is not known yet: %s", key.number, transactional_id, error)
