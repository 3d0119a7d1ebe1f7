"""The blocking forms of transactions and of `client.transactions`, for `rangelog.sync`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Self

from rangelog._append.serializing import Serializers
from rangelog._loop_thread import LoopThread
from rangelog._sync_groups import GroupMember
from rangelog._transact import transaction, transactional, transactions
from rangelog._transact.transactional import CALL_TIMEOUT_S
from rangelog_core.record import BytesLike


class Transaction:
    """The blocking transaction; make it with `Transactional.transaction` and use it with `with`.

    Arguments, results and errors are those of `rangelog.Transaction`.
    """

    def __init__(self, loop: LoopThread, one: transaction.Transaction) -> None:
        self._loop = loop
        self._transaction = one

    def __enter__(self) -> Self:
        self._loop.run(self._transaction.begin())
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._loop.forked and kind is not None:
            return  # a forked child that ends by an exception: the transaction belongs to its parent
        self._loop.run(self._transaction.__aexit__(kind, *rest))

    @property
    def number(self) -> int:
        """The number of the transaction; 0 before it is begun."""
        return self._transaction.number

    def begin(self) -> None:
        """Begin, once. Raises ProducerFenced, PreconditionFailed, WriterClosed, Unavailable."""
        self._loop.run(self._transaction.begin())

    def send(
        self,
        topic: str,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """Send one record and wait until it is staged."""
        sending = self._transaction.send(topic, value, key=key, headers=headers, timestamp=timestamp, shard=shard)
        self._loop.run(sending)

    def submit(
        self,
        topic: str,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """Send one record without waiting until it is staged: the commit waits, and raises what it was refused with."""

        async def submit() -> None:
            await self._transaction.submit(
                topic, value, key=key, headers=headers, timestamp=timestamp, shard=shard
            )  # the future is the commit's to wait for

        self._loop.run(submit())

    def commit_positions(self, member: GroupMember) -> None:
        """Make the positions of a group's member part of the transaction."""
        self._loop.run(self._transaction.commit_positions(member.asynchronous))

    def commit(self) -> None:
        """Commit: return once it is decided that all records appear."""
        self._loop.run(self._transaction.commit())

    def abort(self) -> None:
        """Abort: none of the records ever appears."""
        self._loop.run(self._transaction.abort())

    def outcome(self) -> bool | None:
        """Return whether the transaction is committed; None while it is open."""
        return self._loop.run(self._transaction.outcome(), reads=True)


class Transactional:
    """The blocking instance of a transactional id; make it with `client.transactional(...)` and use it with `with`."""

    def __init__(self, loop: LoopThread, program: transactional.Transactional) -> None:
        self._loop = loop
        self._program = program

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._loop.forked and kind is not None:
            return  # as Transaction
        self.close()

    @property
    def transactional_id(self) -> str:
        """The id."""
        return self._program.transactional_id

    def open(self) -> None:
        """Become the instance of the id: what an earlier one, or this one, left open is aborted. Raises Unavailable."""
        self._loop.run(self._program.open())

    def close(self) -> None:
        """Abort what is open, and close. Idempotent."""
        self._loop.run(self._program.close())

    def transaction(self) -> Transaction:
        """Return the next transaction. Raises WriterClosed (not open), PreconditionFailed (another one is open or in doubt)."""
        return Transaction(self._loop, self._program.transaction())


class SerializingTransaction(Transaction):
    """The blocking transaction of any keys and values. The functions run on the calling thread."""

    def __init__(self, loop: LoopThread, one: transaction.Transaction, serializers: Serializers) -> None:
        super().__init__(loop, one)
        self._make = serializers

    def send(self, topic: str, value: Any, *, key: Any = None, **options: Any) -> None:
        """See Transaction."""
        super().send(topic, self._make.value(value), key=self._make.key(key), **options)

    def submit(self, topic: str, value: Any, *, key: Any = None, **options: Any) -> None:
        """See Transaction."""
        super().submit(topic, self._make.value(value), key=self._make.key(key), **options)


class SerializingTransactional(Transactional):
    """The blocking instance of an id with serializers; make it with `client.transactional(id, value_serializer=…)`."""

    def __init__(self, loop: LoopThread, program: transactional.Transactional, serializers: Serializers) -> None:
        super().__init__(loop, program)
        self._make = serializers

    def transaction(self) -> SerializingTransaction:
        """See Transactional."""
        return SerializingTransaction(self._loop, self._program.transaction(), self._make)


class Transactions:
    """The administration of transactions: `client.transactions`. Arguments, results and errors: `rangelog.Transactions`."""

    def __init__(self, loop: LoopThread, asynchronous: transactions.Transactions) -> None:
        self._loop = loop
        self._transactions = asynchronous

    def list(
        self, prefix: str = "", *, state: str | None = None, timeout_s: float = CALL_TIMEOUT_S
    ) -> Iterator[transactions.TransactionInfo]:
        """Yield the transactional ids that start with `prefix`, in order. Raises InvalidArgument."""
        return self._loop.iterate(self._transactions.list(prefix, state=state, timeout_s=timeout_s))

    def describe(self, transactional_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> transactions.TransactionInfo:
        """Return the latest transaction of a transactional id. Raises TransactionNotFound, InvalidArgument."""
        return self._loop.run(self._transactions.describe(transactional_id, timeout_s=timeout_s), reads=True)

    def abort(self, transactional_id: str, *, timeout_s: float = CALL_TIMEOUT_S) -> transactions.TransactionInfo:
        """Abort the open transaction of an id; return its state. Raises TransactionNotFound, PreconditionFailed."""
        return self._loop.run(self._transactions.abort(transactional_id, timeout_s=timeout_s))
