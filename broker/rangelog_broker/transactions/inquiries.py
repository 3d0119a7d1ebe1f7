"""Asks coordinators what became of transactions that have staged something here and were not merged for a while.

What holds: what is staged is dropped by the coordinator's word alone: aborted, merged everywhere, or unknown in an answer that
was read linearizably after the question. Only shards that hold something staged are looked at. Where a topic is sealed, what
is open is aborted. Nothing is staged under an id or epoch that the coordinator did not give.
"""

from __future__ import annotations

import asyncio
import logging

from rangelog.errors import PreconditionFailed, ProducerFenced, RangelogError, TransactionNotFound
from rangelog_broker.shards.shard import OwnedShard
from rangelog_broker.shards.staging import TransactionKey
from rangelog_broker.transactions.coordinator import ABORTED, COMMITTED, OPEN, UNKNOWN
from rangelog_core.batch_extension import Producer
from rangelog_core.net.owner_calls import OwnerCalls, journal_of
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import TransactionsStub

AFTER_S = 2.0
"""How long something is staged before it is asked for, and how long until it is asked for again."""
TIMEOUT_S = 10.0
AT_A_TIME = 16

_DONE = (ABORTED, COMMITTED, UNKNOWN)
_log = logging.getLogger("rangelog.transactions")


class Inquiries:
    """For one event loop; `run` it as a task."""

    def __init__(self, calls: OwnerCalls) -> None:
        self._calls = calls
        self._shards: dict[OwnedShard, None] = {}
        self._news = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_A_TIME)

    def note(self, shard: OwnedShard) -> None:
        """A shard holds something staged."""
        self._shards[shard] = None
        self._news.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        known: dict[OwnedShard, set[TransactionKey]] = {}
        while True:
            if not self._shards:
                self._news.clear()
                await self._news.wait()
            await asyncio.sleep(AFTER_S)
            now = {
                shard: dict(shard.transactions.staged())
                for shard in list(self._shards)
                if shard.closed is None and shard.transactions.staged()
            }
            self._shards = dict.fromkeys(now)
            old = [
                self._ask(shard, key, name)
                for shard, staged in now.items()
                for key, name in staged.items()
                if key in known.get(shard, ())
            ]
            await asyncio.gather(*old)
            known = {shard: set(staged) for shard, staged in now.items()}

    async def end(self, key: TransactionKey, transactional_id: str) -> bool:
        """Abort a transaction if it is open; return whether nothing of it will be merged any more.

        False: its commit is decided, or about to be, and not merged everywhere. Raises Unavailable, RequestTimeout.
        """
        result = await self._described(key, transactional_id)
        if result.state != OPEN:
            return result.state in _DONE
        name = transaction_pb2.TransactionName(
            transactional_id=transactional_id, producer_id=key.producer_id, number=key.number, epoch=result.epoch
        )
        try:
            await self._calls.call(
                journal_of(transactional_id), TransactionsStub, lambda stub: stub.AbortTransaction,
                pb.AbortTransactionRequest(name=name), timeout_s=TIMEOUT_S, repeatable=True,
            )  # fmt: skip
        except (PreconditionFailed, ProducerFenced, TransactionNotFound):
            return False  # it was decided meanwhile: ask again
        return True

    async def verify(self, name: str, producer: Producer, number: int) -> None:
        """Return if the coordinator began transaction `number` of a transactional id under a producer's id and epoch.

        Raises TransactionNotFound, ProducerFenced (another epoch has it), Unavailable, RequestTimeout.
        """
        result = await self._described(TransactionKey(producer.producer_id, number), name)
        if result.state == UNKNOWN:
            raise TransactionNotFound(
                f"transaction {number} of {name!r} was never begun under producer id {producer.producer_id}, or is forgotten"
            )
        if result.epoch != producer.epoch:
            raise ProducerFenced(
                f"transaction {number} of {name!r} has epoch {result.epoch}, not {producer.epoch}", epoch=result.epoch
            )

    async def _described(self, key: TransactionKey, transactional_id: str) -> transaction_pb2.TransactionResult:
        name = transaction_pb2.TransactionName(
            transactional_id=transactional_id, producer_id=key.producer_id, number=key.number
        )
        request = pb.DescribeTransactionRequest(name=name)
        async with self._slots:
            answer: pb.DescribeTransactionResponse = await self._calls.call(
                journal_of(transactional_id), TransactionsStub, lambda stub: stub.DescribeTransaction, request,
                timeout_s=TIMEOUT_S, repeatable=True,
            )  # fmt: skip
        return answer.result

    async def _ask(self, shard: OwnedShard, key: TransactionKey, transactional_id: str) -> None:
        try:
            result = await self._described(key, transactional_id)
        except RangelogError as error:
            _log.info("what became of transaction %d of %s is not known yet: %s", key.number, transactional_id, error)
            return
        if result.state in _DONE and shard.closed is None:
            shard.transactions.drop(key)
