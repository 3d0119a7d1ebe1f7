"""One transaction: begun, filled with records, then committed or aborted once.

What holds:
- A transaction is committed with the list of all shards at which something of it is staged and acked. Records appear once the
  commit is decided, not before.
- A commit or abort without an answer leaves the transaction in doubt: nothing more is sent in it, and the same call may be
  repeated. The next transaction begins once the doubt is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from rangelog._append.batch_builder import RECORD_OVERHEAD_BYTES
from rangelog._produce.producer import TopicProducer
from rangelog._produce.record_rows import Row
from rangelog._produce.waiters import ProducerAck
from rangelog._produce.wire import StageWire
from rangelog._transact.begun_ahead import BegunAhead
from rangelog_core.errors import (
    AppendTimeout,
    InvalidArgument,
    MemberFenced,
    MemberNotFound,
    PreconditionFailed,
    ProducerFenced,
    RangelogError,
    ShardLost,
    StorageFull,
    TransactionNotFound,
    WriterClosed,
)
from rangelog_core.limits import MIB
from rangelog_core.record import BytesLike
from rangelog_core.tracing import traced
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb

if TYPE_CHECKING:
    from rangelog._consume.group import GroupMember
    from rangelog._consume.group_core import GroupPosition

TRANSACTION_BYTES_MAX = 48 * MIB
"""Keys and values of one transaction: an owner keeps what is staged at a shard in memory."""
PARTICIPANTS_MAX = 1_000
PINGS_PER_TIMEOUT = 3

_T = TypeVar("_T")
COMMITTED_STATES = (
    transaction_pb2.TRANSACTION_STATE_WAITING,
    transaction_pb2.TRANSACTION_STATE_COMMITTING,
    transaction_pb2.TRANSACTION_STATE_COMMITTED,
)
_FINAL = (PreconditionFailed, ProducerFenced, TransactionNotFound)
"""Answers after which this instance can neither commit nor abort the transaction any more."""


class Program(Protocol):
    """What a transaction uses of its transactional program."""

    name: transaction_pb2.TransactionName
    timeout_s: float
    wire: StageWire
    current: Transaction | None
    closed: bool
    ahead: BegunAhead

    async def call(self, method: Callable[[Any], Callable[..., Awaitable[_T]]], request: object) -> _T:
        """Call the coordinator."""

    async def producer(self, topic: str) -> TopicProducer:
        """Return the producer of a topic, which stages."""

    async def flush(self) -> None:
        """Return once all that was sent is staged."""

    async def renew(self) -> None:
        """Begin a new epoch, after an error that leaves batches in doubt."""

    async def end(self) -> None:
        """A later instance of the transactional id exists."""


class _Stage(Enum):
    NEW = "not begun"
    OPEN = "open"
    IN_DOUBT = "in doubt"
    LOST = "another instance's by now"
    COMMITTED = "committed already"
    ABORTED = "aborted"


class Transaction:
    """One transaction. Make it with `Transactional.transaction`, and use it with `async with`.

    The block's end commits it; an exception in the block aborts it.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._name = transaction_pb2.TransactionName()
        self._ping: asyncio.Task[None] | None = None
        self._stage = _Stage.NEW
        self._sent_s = 0.0  # when the coordinator was first asked to end it
        self._size_bytes = 0
        self._refused: BaseException | None = None
        self._commit = pb.CommitTransactionRequest()
        self._positions: dict[GroupMember, Sequence[GroupPosition]] = {}

    @property
    def number(self) -> int:
        """The number of the transaction, which rises with each one of its transactional id; 0 before `begin`."""
        return self._name.number

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._stage is not _Stage.OPEN:
            return
        if kind is not None:
            with suppress(RangelogError):
                await self.abort()
            return
        try:
            await self.commit()
        except BaseException:
            if self._stage is _Stage.OPEN:  # a record was refused: nothing was asked of the coordinator
                with suppress(RangelogError):
                    await self.abort()
            raise

    async def begin(self) -> None:
        """Begin, once.

        Raises:
            ProducerFenced: A later instance of the transactional id exists.
            PreconditionFailed: It was begun before, or another transaction of the program is open or in doubt.
            WriterClosed: The program is not open.
            Unavailable, RequestTimeout: No coordinator answers; or the merge of an earlier transaction goes on.
        """
        program = self._program
        if self._stage is not _Stage.NEW:
            raise PreconditionFailed("a transaction is begun once: make another one")
        if program.closed:
            raise WriterClosed("the transactional program is closed: open it again")
        if program.current is not None:
            raise PreconditionFailed(f"transaction {program.current.number} is {program.current.stage}: end it first")
        program.current = self
        try:
            self._name.CopyFrom(program.name)
            self._name.number += 1
            if not program.ahead.begins(asyncio.get_running_loop().time()):
                await self._ask_to_begin()
            program.ahead.maybe = False
        except BaseException as error:
            self._name.Clear()
            if program.current is self:
                program.current = None
            if isinstance(error, ProducerFenced):
                await program.end()
            raise
        program.name.number = program.wire.number = self._name.number
        program.wire.participants.clear()
        self._stage = _Stage.OPEN
        self._ping = asyncio.create_task(self._keep_open())

    async def send(
        self,
        topic: str,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """Send one record and return once it is staged. Arguments and errors as `submit`, and AppendTimeout, StorageFull."""
        producer = await self._running(topic, _size_bytes(value, key))
        await producer.send(value, key=key, headers=headers, timestamp=timestamp, shard=shard)

    async def submit(
        self,
        topic: str,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> asyncio.Future[ProducerAck]:
        """Send one record without waiting until it is staged; the commit waits for all.

        Args:
            topic: "namespace/name", or the name of a topic in the namespace "default".
            value: The value, as the further arguments, are those of `TopicProducer.send`.
            key: The key.
            headers: The headers.
            timestamp: The record's time.
            shard: The shard.

        Returns:
            A future that is done once the record is staged. Its ack has the shard, and no offset yet.

        Raises:
            PreconditionFailed: The transaction is not open.
            InvalidArgument: The transaction would have more than 48 MiB, or the record is not valid.
            RecordTooLarge: The record exceeds 1 MiB.
            TopicNotFound, TopicStateForbids, TopicKindForbids: Nothing can be sent to the topic.
            ProducerFenced: A later instance of the transactional id exists.
        """
        producer = await self._running(topic, _size_bytes(value, key))
        future = producer.submit(value, key=key, headers=headers, timestamp=timestamp, shard=shard)
        future.add_done_callback(self._note)
        return future

    async def submit_rows(self, topic: str, rows: Sequence[Row]) -> None:
        """Send valid records, about a batch of them, without futures. Errors as `submit`. For the package's own use."""
        producer = await self._running(topic, sum([row[4] for row in rows]) - RECORD_OVERHEAD_BYTES * len(rows))
        producer.send_rows(rows)

    async def commit_positions(self, member: GroupMember) -> None:
        """Make the positions of a group's member part of the transaction: behind all records that it has handed out.

        They are committed with the transaction's records, or not at all: what was consumed and what was produced from it are
        one step, which happens once. Call it before `commit`, after the last record of which something was produced. After an
        abort, `member.rewind()` makes the member read the same records again.

        Args:
            member: A member that is made with `auto_commit_s=None`.

        Raises:
            ShardLost: Others have some of the member's shards: abort, and read on. The transaction cannot be committed.
            MemberNotFound: The member's session has expired, with the same consequence.
            MemberFenced: Another instance joined under the member's id, with the same consequence.
            PreconditionFailed: The transaction is not open.
            InvalidArgument: The member commits positions by itself.
            RequestTimeout: The group's coordinator does not answer: call it again, or abort.

        Example:
            ```python
            async with client.group("billing", "shop/orders") as member:
                async for chunk in member.chunks():
                    async with program.transaction() as transaction:
                        for record in chunk.records:
                            await transaction.submit("shop/bills", bill(record.value), key=record.key)
                        await transaction.commit_positions(member)
            ```
        """
        self._check_open()
        name = self._name
        try:
            staged = await member.stage_positions(name.transactional_id, name.producer_id, name.number)
        except (ShardLost, MemberNotFound, MemberFenced) as error:
            self._refused = self._refused or error
            raise
        if staged:
            self._positions[member] = staged

    @traced("rangelog.transaction.commit", transaction=lambda transaction: transaction.number)
    async def commit(self) -> None:
        """Commit: return once it is decided that all records appear. They are in their shards a moment later.

        Raises:
            PreconditionFailed: The transaction is not open; or it was aborted, by a call or because it was open for too long.
            ShardEnded, TopicNotFound, TopicStateForbids: A record that was sent with `submit` was refused.
            ProducerFenced: A later instance of the transactional id exists. It has aborted the transaction, unless an earlier
                try of this call had no answer: `outcome` returns which.
            InvalidArgument: More than 1,000 shards take part.
            AppendTimeout, StorageFull: A record is not staged in time, or has no room. The transaction is still open.
            Unavailable, RequestTimeout: The outcome is not known: call `commit` or `abort` again, or ask for `outcome`.
        """
        if self._stage is not _Stage.IN_DOUBT:
            self._check_open()
            try:
                await self._program.flush()
            except (AppendTimeout, StorageFull):
                raise
            except RangelogError as error:  # of a record without a future, which is told once
                self._refused = self._refused or error
            await asyncio.sleep(0)  # the callbacks of futures have run
            self._check_open()
            if self._refused is not None:
                raise self._refused
            participants = [
                transaction_pb2.Participant(topic_id=topic_id, shard_id=shard_id)
                for topic_id, shard_id in self._program.wire.participants
            ]
            groups = dict.fromkeys(member.group for member in self._positions)
            participants += [transaction_pb2.Participant(group=group) for group in groups]
            if len(participants) > PARTICIPANTS_MAX:
                raise InvalidArgument(
                    f"{len(participants)} shards and groups take part; the limit is {PARTICIPANTS_MAX}"
                )
            self._commit = pb.CommitTransactionRequest(
                name=self._name, participants=participants, begin_next=self._program.ahead.wanted()
            )
        elif not self._commit_requested:
            raise PreconditionFailed(f"the abort of transaction {self.number} is in doubt: call `abort` again")
        await self._decide(lambda stub: stub.CommitTransaction, self._commit, _Stage.COMMITTED)

    async def abort(self) -> None:
        """Abort: none of the records ever appears.

        Raises:
            PreconditionFailed: The transaction is committed, or was never begun.
            ProducerFenced: A later instance of the transactional id exists; it has aborted the transaction.
            Unavailable, RequestTimeout: No coordinator answers: call it again. The transaction ends by its time-out at last.
        """
        program = self._program
        if self._stage is not _Stage.IN_DOUBT:
            self._check_open()
            self._set(_Stage.IN_DOUBT)
        failed = False
        if not self._commit_requested:
            try:
                await (
                    program.flush()
                )  # what is under way belongs to this transaction, and is never sent in the next one
            except RangelogError:
                failed = True
                await program.end()  # numbers of batches in doubt are never used again: a new epoch
        request = pb.AbortTransactionRequest(name=self._name)
        await self._decide(lambda stub: stub.AbortTransaction, request, _Stage.ABORTED)
        if failed:
            await program.renew()

    async def outcome(self) -> bool | None:
        """Return whether the transaction is committed; None while it is open. What it returned else never changes.

        Raises:
            TransactionNotFound: It is finished and forgotten, since a later transaction of the id was begun.
            PreconditionFailed: It was never begun.
            Unavailable, RequestTimeout: No coordinator answers.
        """
        if self._stage is _Stage.NEW:
            raise PreconditionFailed("the transaction was never begun")
        if self._stage in (_Stage.COMMITTED, _Stage.ABORTED):
            return self._stage is _Stage.COMMITTED
        request = pb.DescribeTransactionRequest(name=self._name)
        state = (await self._program.call(lambda stub: stub.DescribeTransaction, request)).result.state
        if state == transaction_pb2.TRANSACTION_STATE_OPEN:
            return None
        if state == transaction_pb2.TRANSACTION_STATE_UNKNOWN:
            raise TransactionNotFound(f"transaction {self.number} is finished and forgotten: a later one was begun")
        is_committed = state in COMMITTED_STATES
        if self._stage is not _Stage.OPEN:  # otherwise records may be under way: `commit` or `abort` waits for them
            self._set(_Stage.COMMITTED if is_committed else _Stage.ABORTED)
        return is_committed

    # ---- inside

    async def _ask_to_begin(self) -> None:
        request = pb.BeginTransactionRequest(name=self._name)
        try:
            await self._program.call(lambda stub: stub.BeginTransaction, request)
        except PreconditionFailed:
            if not self._program.ahead.maybe:
                raise
            request.name.number += 1  # the commit has begun this one, which is aborted by now: it was open for too long
            await self._program.call(lambda stub: stub.BeginTransaction, request)
            self._name.number += 1

    @property
    def _commit_requested(self) -> bool:
        return self._commit.HasField("name")

    @property
    def stage(self) -> str:
        """What the transaction is, in words. For the package's own use."""
        return self._stage.value

    def abandon(self) -> None:
        """Leave what is not decided to the coordinator. For the package's own use."""
        if self._stage is _Stage.OPEN:
            self._set(_Stage.ABORTED)
        elif self._program.current is self:
            self._program.current = None

    def _set(self, stage: _Stage) -> None:
        self._stage = stage
        if stage is _Stage.COMMITTED:
            for member, positions in self._positions.items():
                member.positions_committed(positions)
        if self._ping is not None:
            self._ping.cancel()  # what is in doubt and still open ends by its time-out
            self._ping = None
        if stage is not _Stage.IN_DOUBT and self._program.current is self:
            self._program.current = None

    async def _decide(self, method: Callable[[Any], Any], request: object, stage: _Stage) -> None:
        self._set(_Stage.IN_DOUBT)
        now_s = asyncio.get_running_loop().time
        self._sent_s = self._sent_s or now_s()
        try:
            answer = await self._program.call(method, request)
        except _FINAL as error:
            if isinstance(error, PreconditionFailed):
                self._set(_Stage.COMMITTED if stage is _Stage.ABORTED else _Stage.ABORTED)
            else:
                self._set(_Stage.LOST if self._commit_requested else _Stage.ABORTED)
            if isinstance(error, ProducerFenced):
                await self._program.end()
            raise
        self._set(stage)
        if stage is _Stage.COMMITTED:
            self._program.ahead.committed(self._sent_s, now_s(), begun=answer.begun)

    async def _running(self, topic: str, size_bytes: int) -> TopicProducer:
        """Return a topic's producer once it has room."""
        self._check_open()
        if self._size_bytes + size_bytes > TRANSACTION_BYTES_MAX:
            raise InvalidArgument(
                f"transaction {self.number} would have {self._size_bytes + size_bytes} bytes; the limit is "
                f"{TRANSACTION_BYTES_MAX}"
            )
        producer = await self._program.producer(topic)
        await producer.ready()
        self._check_open()
        self._size_bytes += size_bytes
        return producer

    def _note(self, future: asyncio.Future[ProducerAck]) -> None:
        if not future.cancelled() and self._refused is None:
            self._refused = future.exception()

    def _check_open(self) -> None:
        if self._stage is not _Stage.OPEN:
            raise PreconditionFailed(f"the transaction is {self._stage.value}")

    async def _keep_open(self) -> None:
        while True:
            await asyncio.sleep(self._program.timeout_s / PINGS_PER_TIMEOUT)
            with suppress(RangelogError):
                await self._program.call(lambda stub: stub.PingTransaction, pb.PingTransactionRequest(name=self._name))


def _size_bytes(*parts: BytesLike | None) -> int:
    """Return the size of a record, whose values are checked later."""
    return sum(memoryview(each).nbytes for each in parts if isinstance(each, BytesLike))
