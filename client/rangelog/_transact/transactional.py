"""Transactions of a program: all their records appear in their topics, or none ever does.

What holds:
- A transactional id has one living instance: a later one ends the earlier one's transactions, and the earlier one learns of it
  (`ProducerFenced`) at its next call. It never becomes the living one again by itself: only `open` does that.
- Numbers of batches whose outcome is not known are never used again: after such an error a new epoch begins.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar

from rangelog._produce.producer import TopicProducer
from rangelog._produce.wire import StageWire
from rangelog._transact.begun_ahead import BegunAhead
from rangelog._transact.transaction import COMMITTED_STATES, Transaction
from rangelog_core.errors import InvalidArgument, PreconditionFailed, RangelogError, WriterClosed
from rangelog_core.ids import check_name
from rangelog_core.net.owner_calls import OwnerCalls, journal_of
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import TransactionsStub

CALL_TIMEOUT_S = 20.0
TIMEOUT_S_MIN, TIMEOUT_S_MAX = 0.001, 24 * 3600.0

_T = TypeVar("_T")


class MakeProducer(Protocol):
    """Makes a producer of a topic that stages."""

    def __call__(self, topic: str, *, producer_id: int, producer_epoch: int, wire: StageWire) -> TopicProducer:
        """Return it, not open yet."""


class Transactional:
    """One instance of a transactional id. Make it with `client.transactional(…)` and use it with `async with`.

    Example:
        ```python
        async with client.transactional("billing-1") as program:
            async with program.transaction() as transaction:
                await transaction.send("shop/orders", b"one", key=b"UA")
                await transaction.send("shop/counts", b"1", key=b"UA")
        ```
    """

    def __init__(
        self, calls: OwnerCalls, make_producer: MakeProducer, transactional_id: str, *, timeout_s: float
    ) -> None:
        self.transactional_id = check_name("transactional id", transactional_id)
        if not (math.isfinite(timeout_s) and TIMEOUT_S_MIN <= timeout_s <= TIMEOUT_S_MAX):
            raise InvalidArgument(f"a time-out of {timeout_s} s; {TIMEOUT_S_MIN:g} to {TIMEOUT_S_MAX:g} are allowed")
        self.timeout_s = timeout_s
        self.name = transaction_pb2.TransactionName(transactional_id=transactional_id)
        self.wire = StageWire(transactional_id)
        self.current: Transaction | None = None
        self.closed = True
        self.ahead = BegunAhead(timeout_s)
        self.on_closed: Callable[[Transactional], object] = lambda _: None
        self.on_opened: Callable[[Transactional], object] = lambda _: None
        self._calls = calls
        self._make_producer = make_producer
        self._key = journal_of(transactional_id)
        self._producers: dict[str, TopicProducer] = {}
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Become the instance of the id: what an earlier instance, or this one, left open is aborted.

        Also to go on after an error that ended this instance.

        Raises Unavailable, RequestTimeout (no coordinator answers), Overloaded (it has too many transactional ids).
        """
        if self.current is not None:
            self.current.abandon()
        await self.renew()
        self.on_opened(self)

    async def close(self) -> None:
        """Abort what is open, and close. Idempotent."""
        current = self.current
        if current is not None and current.stage == "open":
            with suppress(RangelogError):
                await current.abort()
        elif current is None and not self.closed and self.ahead.is_begun:
            name = transaction_pb2.TransactionName()
            name.CopyFrom(self.name)
            name.number += 1
            with suppress(RangelogError):
                await self.call(lambda stub: stub.AbortTransaction, pb.AbortTransactionRequest(name=name))
        await self.leave()

    async def leave(self) -> None:
        """Close at once: what is open ends by its time-out, or with the next instance. Idempotent.

        For the package's own use.
        """
        if self.current is not None:
            self.current.abandon()
        await self.end()
        self.on_closed(self)

    def transaction(self) -> Transaction:
        """Return the next transaction, to be used with `async with`: it is committed at the end, and aborted on an exception.

        Raises WriterClosed (not open), PreconditionFailed (another one is open or in doubt).
        """
        self.check_next()
        return Transaction(self)

    def check_next(self) -> None:
        """Raise the errors of `transaction`. For the package's own use."""
        if self.closed:
            raise WriterClosed("the transactional program is not open: use `async with client.transactional(...)`")
        if self.current is not None:
            raise PreconditionFailed(f"transaction {self.current.number} is {self.current.stage}: end it first")

    async def was_committed(self, number: int) -> bool:
        """Return whether a transaction of an earlier instance was committed. For the package's own use.

        After `open` that does not change any more. It is known until a later transaction is begun. Raises Unavailable,
        RequestTimeout.
        """
        return await self._state(number) in COMMITTED_STATES

    async def is_merged(self, number: int) -> bool:
        """Return whether all records of a committed transaction are in their shards. Raises Unavailable, RequestTimeout.

        For the package's own use.
        """
        return await self._state(number) == transaction_pb2.TRANSACTION_STATE_COMMITTED

    async def _state(self, number: int) -> transaction_pb2.TransactionState:
        name = transaction_pb2.TransactionName()
        name.CopyFrom(self.name)
        name.number = number
        request = pb.DescribeTransactionRequest(name=name)
        answer: pb.DescribeTransactionResponse = await self.call(lambda stub: stub.DescribeTransaction, request)
        return answer.result.state

    # ---- for the package's own use: see transaction.Program

    async def call(self, method: Callable[[Any], Callable[..., Awaitable[_T]]], request: object) -> _T:
        """Call the coordinator; every request does the same if it is repeated. For the package's own use."""
        return await self._calls.call(
            self._key, TransactionsStub, method, request, timeout_s=CALL_TIMEOUT_S, repeatable=True
        )

    async def producer(self, topic: str) -> TopicProducer:
        """Return the producer of a topic in this epoch. For the package's own use."""
        producer = self._producers.get(topic)
        if producer is not None and not producer.closed:
            return producer
        async with self._opening:
            producer = self._producers.get(topic)
            if producer is None:
                producer = self._make_producer(
                    topic, producer_id=self.name.producer_id, producer_epoch=self.name.epoch, wire=self.wire
                )
                await producer.open()
                self._producers[topic] = producer
            return producer

    async def flush(self) -> None:
        """Return once all that was sent is staged. Errors as `TopicProducer.flush`. For the package's own use."""
        for producer in list(self._producers.values()):
            await producer.flush()

    async def renew(self) -> None:
        """Begin a new epoch: what is open is aborted. Where that fails the program is closed. For the package's own use."""
        await self.end()
        self.wire = StageWire(self.transactional_id)  # no producer of an earlier epoch stages for a later transaction
        opening = pb.OpenTransactionSessionRequest(journal=self._key[1], transactional_id=self.transactional_id)
        opened = await self.call(lambda stub: stub.OpenTransactionSession, opening)
        request = pb.InitTransactionsRequest(
            session=opened.session,
            sequence=0,
            transactional_id=self.transactional_id,
            timeout_ms=max(1, round(self.timeout_s * 1000)),
        )
        answer = await self.call(lambda stub: stub.InitTransactions, request)
        self.name.producer_id, self.name.epoch, self.name.number = answer.producer_id, answer.epoch, answer.number
        self.ahead = BegunAhead(self.timeout_s)
        self.closed = False

    async def end(self) -> None:
        """Close without a word to the coordinator. For the package's own use."""
        self.closed = True
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            with suppress(RangelogError):
                await producer.close(flush=False)
