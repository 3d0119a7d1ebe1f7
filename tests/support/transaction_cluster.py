"""Coordinators of transactions in memory: production services on real journals over a FakeCluster, and programs that call them.

Shards are lists here: what a producer stages is kept by the number of its transaction, and a merge is noted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

from rangelog import StreamConfig
from rangelog._produce.producer import TopicProducer
from rangelog._produce.record_rows import Row
from rangelog._produce.waiters import ProducerAck
from rangelog._produce.wire import StageWire
from rangelog._transact.transactional import Transactional
from rangelog._transact.transactions import Transactions
from rangelog.testing import FakeCluster
from rangelog_broker.journal.joint_machine import JointMachine
from rangelog_broker.journal.journal import Journal
from rangelog_broker.journal.part import JournalPart
from rangelog_broker.kind import Need
from rangelog_broker.kinds import coordinator_machine, needs_of_call
from rangelog_broker.topic_rights import TopicRights
from rangelog_broker.transactions.coordinator import COMMITTING, TransactionCoordinator
from rangelog_broker.transactions.kind import TRANSACTIONS
from rangelog_broker.transactions.service import TransactionsService
from rangelog_core.errors import NotOwner, RangelogError, RecordTooLarge, RequestTimeout, WriterClosed
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.net.owner_calls import JOURNALS, OwnedKey
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_proto.v1 import topic_pb2, transaction_service_pb2
from rangelog_proto.v1.transaction_service_pb2_grpc import ShardsStub
from rangelog_server_common.rights.guard import RightsGuard
from tests.support.group_cluster import Topics

Staged = list[tuple[int, bytes]]


class FakeStager:
    """A producer that stages in a list; `holds` keeps what is sent unacked, `fails` ends it."""

    def __init__(self, staged: Staged, topic_id: int, shard_count: int, wire: StageWire, epoch: int) -> None:
        self.closed = False
        self.epoch = epoch
        self.fails: RangelogError | None = None
        self.refuses: RangelogError | None = None
        self._untold: RangelogError | None = None
        self._staged = staged
        self._topic_id = topic_id
        self._shard_count = shard_count
        self._wire = wire

    async def open(self) -> None:
        """As TopicProducer."""

    async def close(self, *, flush: bool) -> None:
        """As TopicProducer."""
        self.closed = True

    async def ready(self) -> None:
        """As TopicProducer."""
        if self.closed:
            raise WriterClosed("closed")

    async def flush(self) -> None:
        """As TopicProducer."""
        if self.fails is not None:
            raise self.fails
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold

    def send_rows(self, rows: Sequence[Row]) -> None:
        """As TopicProducer."""
        for row in rows:
            future = self.submit(row[0], key=row[1])
            self._untold = self._untold or future.exception()

    async def send(self, value: bytes, **options: Any) -> ProducerAck:
        """As TopicProducer."""
        return await self.submit(value, **options)

    def submit(self, value: bytes, *, key: bytes | None = None, shard: int | None = None, **_: Any) -> Any:
        """As TopicProducer."""
        if len(value) > RECORD_SIZE_BYTES_MAX:
            raise RecordTooLarge("too large")
        future: asyncio.Future[ProducerAck] = asyncio.get_running_loop().create_future()
        if self.refuses is not None:
            future.set_exception(self.refuses)
            return future
        shard_id = shard if shard is not None else len(self._staged) % self._shard_count
        self._staged.append((self._wire.number, value))
        self._wire.acked(self._topic_id, shard_id)
        future.set_result(ProducerAck(shard_id, 0))
        return future


class PagedTopics(Topics):
    """Pages of shards as the placement driver has them: a token is the last id of the page before."""

    async def list_shards(
        self, request: topic_pb2.ListShardsRequest, *, timeout_s: float
    ) -> topic_pb2.ListShardsResponse:
        """As the placement driver."""
        asked = topic_pb2.ListShardsRequest()
        asked.CopyFrom(request)
        asked.page_token = str(int(request.page_token) + 1) if request.page_token else ""
        return await super().list_shards(asked, timeout_s=timeout_s)


class TransactionCluster:
    """See the module. Use it with `async with`."""

    def __init__(self) -> None:
        self.topics = PagedTopics()
        self.topic = self.topics.create("default/t", 2)
        self.staged: Staged = []
        self.stagers: list[FakeStager] = []
        self.merged: list[tuple[int, int]] = []
        """(shard, staging shard) of each merge."""
        self.orders: list[int] = []
        """How many merges each call has ordered."""
        self.names: list[str] = []
        """The calls that were carried out."""
        self.needs: list[Need] = []
        """What rights these needed of a client."""
        self.shard_error: Callable[[int], RangelogError | None] = lambda shard_id: None
        """What the merge into a shard fails with."""
        self.lose_answers: set[str] = set()
        """The calls that are carried out and have no answer."""
        self._client = FakeCluster().client()
        self._journals: dict[int, Journal[JointMachine]] = {}
        self._parts: dict[int, JournalPart[TransactionCoordinator]] = {}
        self.rights = RightsGuard()
        told = TopicRights(self.rights, self.topics)
        self.service = TransactionsService(self, cast(Any, self), cast(Any, self.topics), rights=told)

    async def __aenter__(self) -> TransactionCluster:
        for number in range(JOURNALS):
            await self.take(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.service.close()
        for journal in self._journals.values():
            await journal.close()
        await self._client.close()

    async def take(self, number: int) -> None:
        """Become the owner of a journal, perhaps anew."""
        name = f"transactions-{number}"
        if number in self._journals:
            await self._journals[number].close()
        else:
            await self._client.create_stream(name, StreamConfig(range_size_bytes_max=1 << 20))
        journal = self._journals[number] = await Journal.open(self._client, name, partial(coordinator_machine, number))
        journal.raise_level(FEATURE_LEVEL)
        self._parts[number] = JournalPart(journal, TRANSACTIONS.number)

    @property
    def merges(self) -> bool:
        """Whether a coordinator has yet to note a merge: until then it decides no further commit of that id."""
        unfinished = (each for part in self._parts.values() for _, each in part.machine.unfinished())
        return any(each.state == COMMITTING for each in unfinished)

    def find(self, number: int) -> JournalPart[TransactionCoordinator]:
        """See TransactionJournals."""
        journal = self._journals[number]
        if journal.closed is not None:
            raise NotOwner("closed")
        return self._parts[number]

    # ---- in place of OwnerCalls

    def known_owner(self, key: OwnedKey) -> str:
        """As OwnerCalls."""
        return "broker"

    async def call(
        self,
        key: OwnedKey,
        stub_type: type[Any],
        method: Callable[[Any], Callable[..., Awaitable[Any]]],
        request: Any,
        *,
        timeout_s: float,
        repeatable: bool,
    ) -> Any:
        """As OwnerCalls, of one broker that is the owner of everything. Each message passes through its bytes."""
        assert repeatable
        if stub_type is ShardsStub:
            return await method(_MergingShards(self))(request)
        stub = _Named(self.service)
        answered = method(stub)
        try:
            response = await answered(type(request).FromString(request.SerializeToString()), None)
        except RangelogError as error:
            if error.retriable:
                raise RequestTimeout(error.message) from error
            raise
        self.names.append(stub.name)
        self.needs += needs_of_call(f"/rangelog.v1.Transactions/{stub.name}", request)
        if stub.name in self.lose_answers:
            raise RequestTimeout(f"{stub.name} has no answer")
        return type(response).FromString(response.SerializeToString())

    # ---- programs

    def program(self, transactional_id: str = "job", *, timeout_s: float = 60.0) -> Transactional:
        """A transactional program, not open yet."""
        return Transactional(cast(Any, self), self._stager, transactional_id, timeout_s=timeout_s)

    @property
    def administration(self) -> Transactions:
        """As `client.transactions`."""
        return Transactions(cast(Any, self))

    def _stager(self, topic: str, *, producer_id: int, producer_epoch: int, wire: StageWire) -> TopicProducer:
        assert topic == "t" and producer_id
        made = FakeStager(self.staged, self.topic.topic_id, len(self.topic.shards), wire, producer_epoch)
        self.stagers.append(made)
        return cast(TopicProducer, made)


class _Named:
    def __init__(self, service: TransactionsService) -> None:
        self._service = service
        self.name = ""

    def __getattr__(self, name: str) -> Any:
        self.name = name
        return getattr(self._service, name)


class _MergingShards:
    def __init__(self, cluster: TransactionCluster) -> None:
        self._cluster = cluster

    async def MergeTransaction(self, request: Any) -> Any:
        """As ShardsService."""
        self._cluster.orders.append(1 + len(request.more))
        await self._merge(request)
        further = await asyncio.gather(*map(self._merge, request.more), return_exceptions=True)
        return transaction_service_pb2.MergeTransactionResponse(more_merged=[each is None for each in further])

    async def _merge(self, request: Any) -> None:
        await asyncio.sleep(0)
        error = self._cluster.shard_error(request.shard_id)
        if error is not None:
            raise error
        self._cluster.merged.append((request.shard_id, request.staging_shard_id))
