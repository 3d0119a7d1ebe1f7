"""The gRPC services for transactions, of coordinators and of the owners of shards. The server's interceptor maps errors.

What holds: every command does the same if it is repeated: an init by its number in a session, the others by the transaction's
own number. An answer follows the ack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol, TypeVar

from rangelog.errors import InvalidArgument, NotOwner, WriterClosed, WriterFenced
from rangelog_broker.journal.owners import JournalOwners
from rangelog_broker.journal.part import JournalPart
from rangelog_broker.shards.finished import PlacementRows
from rangelog_broker.topic_rights import TopicRights
from rangelog_broker.transactions.coordinator import WAITING, TransactionCoordinator
from rangelog_broker.transactions.merging import MergeOrders, MergingShards, merge_all_here, merge_here
from rangelog_broker.transactions.shard_rows import KnownRows
from rangelog_broker.transactions.transaction_owner import TransactionOwner
from rangelog_core.ids import check_name
from rangelog_core.net.owner_calls import OwnerCalls, journal_of
from rangelog_core.net.pd_client import PdClient
from rangelog_core.rights import Verb
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_proto.v1.transaction_service_pb2_grpc import ShardsServicer, TransactionsServicer

PAGE_SIZE_MAX = 1_000

T = TypeVar("T")


class TransactionJournals(Protocol):
    """The coordinator journals that this broker owns."""

    def find(self, number: int) -> JournalPart[TransactionCoordinator]:
        """Return the transactions of a journal. Raises NotOwner."""


class TransactionsService(TransactionsServicer):
    """All calls on coordinators. `close` it before the journals."""

    def __init__(
        self,
        journals: TransactionJournals,
        calls: OwnerCalls,
        topics: PdClient,
        shards: MergingShards | None = None,
        rights: TopicRights | None = None,
    ) -> None:
        """`shards`: of this broker, which merge without a call. `rights`: what clients may do; None: everything."""
        self._rights = rights
        self.shards = shards
        orders = MergeOrders(calls, KnownRows(PlacementRows(topics)), shards)
        self._owners = JournalOwners(journals.find, lambda journal: TransactionOwner(journal, orders))

    def close(self) -> None:
        """End all timers and merges: the next owners go on. Idempotent."""
        self._owners.close()

    def owner_of(self, number: int) -> TransactionOwner:
        """Return the owner's side of a journal. Raises NotOwner, InvalidArgument."""
        return self._owners.of(number)

    def _owner(self, name: transaction_pb2.TransactionName) -> TransactionOwner:
        return self._owner_of_id(name.transactional_id)

    def _owner_of_id(self, transactional_id: str) -> TransactionOwner:
        return self.owner_of(journal_of(check_name("transactional id", transactional_id))[1])

    async def OpenTransactionSession(
        self, request: pb.OpenTransactionSessionRequest, context: Any
    ) -> pb.OpenTransactionSessionResponse:
        """Open a session of the journal of a transactional id, or of one by its number."""
        name = request.transactional_id
        owner = self._owner_of_id(name) if name else self.owner_of(request.journal)
        return pb.OpenTransactionSessionResponse(session=await _moved(owner.journal.open_session()))

    async def InitTransactions(self, request: pb.InitTransactionsRequest, context: Any) -> pb.InitTransactionsResponse:
        """Begin a new epoch of a transactional id."""
        owner = self._owner_of_id(request.transactional_id)
        init = transaction_pb2.TransactionInit(transactional_id=request.transactional_id, timeout_ms=request.timeout_ms)
        command = transaction_pb2.TransactionCommand(init=init).SerializeToString()
        data = await _moved(owner.journal.propose(request.session, request.sequence, command))
        result = transaction_pb2.TransactionResult.FromString(data)
        return pb.InitTransactionsResponse(producer_id=result.producer_id, epoch=result.epoch, number=result.number)

    async def BeginTransaction(self, request: pb.BeginTransactionRequest, context: Any) -> pb.BeginTransactionResponse:
        """Begin a transaction: acked before anything is staged."""
        owner = self._owner(request.name)
        await owner.until_decided(request.name.transactional_id)
        begin = transaction_pb2.TransactionBegin(name=request.name)
        await owner.own(transaction_pb2.TransactionCommand(begin=begin))
        name = request.name
        owner.heard(name.transactional_id, name.number)  # it may have been begun with a commit, long ago
        return pb.BeginTransactionResponse()

    async def PingTransaction(self, request: pb.PingTransactionRequest, context: Any) -> pb.PingTransactionResponse:
        """Keep a transaction open. The state is that of this owner, perhaps an earlier one."""
        owner = self._owner(request.name)
        owner.heard(request.name.transactional_id, request.name.number)
        return pb.PingTransactionResponse(state=owner.journal.machine.view(request.name).state)

    async def CommitTransaction(
        self, request: pb.CommitTransactionRequest, context: Any
    ) -> pb.CommitTransactionResponse:
        """Commit: the answer follows the decision, or the word that it waits for the one before.

        With `begin_next` the next one is begun behind it, where it can be: the two entries share a batch of the journal.
        """
        if self._rights is not None:  # the broker goes to all participants under its own certificate
            topics = (each.topic_id for each in request.participants if not each.group)
            await self._rights.require(context, Verb.APPEND, topics)
            groups = (each.group for each in request.participants if each.group)
            await self._rights.require_groups(context, Verb.READ, groups)
        owner = self._owner(request.name)
        await owner.check(request.participants)
        commit = transaction_pb2.TransactionCommit(name=request.name, participants=request.participants)
        command = transaction_pb2.TransactionCommand(commit=commit)
        if not (request.begin_next and request.participants):  # a commit of nothing is forgotten as the next one begins
            return pb.CommitTransactionResponse(state=(await owner.own(command)).state)
        result, begun = await asyncio.gather(owner.own(command), owner.begin_behind(request.name))
        if result.state == WAITING and not begun:
            begun = await owner.begin_when_decided(request.name)
        return pb.CommitTransactionResponse(state=result.state, begun=begun)

    async def AbortTransaction(self, request: pb.AbortTransactionRequest, context: Any) -> pb.AbortTransactionResponse:
        """Abort a transaction that is open."""
        owner = self._owner(request.name)
        abort = transaction_pb2.TransactionAbort(name=request.name)
        await owner.end(transaction_pb2.TransactionCommand(abort=abort), request.name.transactional_id)
        return pb.AbortTransactionResponse()

    async def DescribeTransaction(
        self, request: pb.DescribeTransactionRequest, context: Any
    ) -> pb.DescribeTransactionResponse:
        """Return what is known of a transaction, linearizably."""
        owner = self._owner(request.name)
        result = await _read(owner, lambda machine: machine.view(request.name))
        return pb.DescribeTransactionResponse(result=result)

    async def ListTransactions(self, request: pb.ListTransactionsRequest, context: Any) -> pb.ListTransactionsResponse:
        """List the latest transaction of each transactional id of a journal, by page, or of one transactional id."""
        only = request.transactional_id
        owner = self._owner_of_id(only) if only else self.owner_of(request.journal)
        size = request.page_size or PAGE_SIZE_MAX
        if size > PAGE_SIZE_MAX:
            raise InvalidArgument(f"a page of {size} transactions; the limit is {PAGE_SIZE_MAX}")

        def look(machine: TransactionCoordinator) -> pb.ListTransactionsResponse:
            ids = [only] if only else sorted(machine.ids())
            wanted = (name for name in ids if name > request.page_token and machine.of(name) is not None)
            names = list(islice(wanted, size + 1))
            response = pb.ListTransactionsResponse(next_page_token=names[size - 1] if len(names) > size else "")
            for each in names[:size]:
                of = machine.of(each)
                assert of is not None
                name = transaction_pb2.TransactionName(
                    transactional_id=each, epoch=of.epoch, number=of.number, producer_id=of.producer_id
                )
                response.transactions.add(transactional_id=each, result=machine.view(name), used_ms=of.used_ms)
            return response

        return await _read(owner, look)


class ShardsService(ShardsServicer):
    """Orders to owners of shards."""

    def __init__(self, shards: MergingShards) -> None:
        self._shards = shards

    async def MergeTransaction(self, request: pb.MergeTransactionRequest, context: Any) -> pb.MergeTransactionResponse:
        """Merge what committed transactions have staged; the answer follows the acks."""
        if request.more:
            return pb.MergeTransactionResponse(more_merged=await merge_all_here(self._shards, request))
        await merge_here(self._shards, request)
        return pb.MergeTransactionResponse()


async def _moved(work: Any) -> Any:
    try:
        return await work
    except (WriterFenced, WriterClosed) as error:
        raise NotOwner("the coordinator's journal is another broker's", outcome_unknown=True) from error


async def _read(owner: TransactionOwner, look: Callable[[TransactionCoordinator], T]) -> T:
    try:
        return await owner.journal.read(look)
    except (WriterFenced, WriterClosed) as error:
        raise NotOwner("the coordinator's journal is another broker's") from error
