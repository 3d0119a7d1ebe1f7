"""The service for transactions over real journals: what it refuses, each with its error, and that nothing changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog_broker.transactions import transaction_owner
from rangelog_broker.transactions.coordinator import PARTICIPANTS_MAX, TIMEOUT_MS_MAX
from rangelog_core.errors import (
    InvalidArgument,
    NotOwner,
    PreconditionFailed,
    ProducerFenced,
    RangelogError,
    RightMissing,
    SessionExpired,
    ShardNotFound,
    TransactionNotFound,
    Unavailable,
)
from rangelog_core.net.owner_calls import JOURNALS, journal_of
from rangelog_core.net.principals import Principal, Role
from rangelog_core.rights import KINDS, NONE, Verb
from rangelog_proto.v1 import transaction_pb2
from rangelog_proto.v1 import transaction_service_pb2 as pb
from rangelog_server_common import grpc_server
from rangelog_server_common.rights.grants import Grant
from tests.support.transaction_cluster import TransactionCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

JOURNAL = journal_of("job")[1]
UNKNOWN, OPEN, WAITING, COMMITTING, COMMITTED, ABORTED = (
    transaction_pb2.TRANSACTION_STATE_UNKNOWN,
    transaction_pb2.TRANSACTION_STATE_OPEN,
    transaction_pb2.TRANSACTION_STATE_WAITING,
    transaction_pb2.TRANSACTION_STATE_COMMITTING,
    transaction_pb2.TRANSACTION_STATE_COMMITTED,
    transaction_pb2.TRANSACTION_STATE_ABORTED,
)


class Caller:
    """Calls the handlers as one transactional id."""

    def __init__(self, cluster: TransactionCluster) -> None:
        self.cluster = cluster
        self.service = cluster.service
        self.name = transaction_pb2.TransactionName(transactional_id="job")

    async def init(self, *, name: str = "job", timeout_ms: int = 60_000) -> None:
        """Begin a new epoch, in a session of its own."""
        opening = pb.OpenTransactionSessionRequest(journal=JOURNALS, transactional_id=name)  # which the name decides
        opened = await self.service.OpenTransactionSession(opening, None)
        request = pb.InitTransactionsRequest(session=opened.session, transactional_id=name, timeout_ms=timeout_ms)
        found = await self.service.InitTransactions(request, None)
        self.name.producer_id, self.name.epoch, self.name.number = found.producer_id, found.epoch, found.number

    async def begin(self) -> None:
        """Begin the next transaction."""
        self.name.number += 1
        await self.service.BeginTransaction(pb.BeginTransactionRequest(name=self.name), None)

    async def commit(self, *shards: int, begin_next: bool = False) -> Any:
        """Commit, with shards of a topic."""
        participants = [
            transaction_pb2.Participant(topic_id=self.cluster.topic.topic_id, shard_id=each) for each in shards
        ]
        request = pb.CommitTransactionRequest(name=self.name, participants=participants, begin_next=begin_next)
        return await self.service.CommitTransaction(request, None)

    async def abort(self) -> None:
        """Abort."""
        await self.service.AbortTransaction(pb.AbortTransactionRequest(name=self.name), None)

    async def state(self) -> int:
        """The state."""
        answer = await self.service.DescribeTransaction(pb.DescribeTransactionRequest(name=self.name), None)
        return int(answer.result.state)


@pytest.mark.parametrize(
    ("verbs", "group", "refused"),
    [
        (Verb.APPEND, "", ""),
        (Verb.READ | Verb.ADMIN, "", "may not append topic"),
        (Verb.APPEND, "theirs", "may not read group"),
    ],
)
async def test_a_commit_names_only_what_its_client_may_use(
    caller: Caller, verbs: Verb, group: str, refused: str
) -> None:
    """The coordinator goes to every participant under the broker's certificate, whether anything was staged there or not."""
    topic = caller.cluster.topic
    grants = caller.cluster.rights.grants
    grants.heard(1)
    topic_key, group_key = ("client:a", KINDS["topic"], "", topic.topic_id), ("client:a", KINDS["group"], group, 0)
    grants.keep(topic_key, Grant(verbs, KINDS["topic"], topic.name), 1, 0.0)
    grants.keep(group_key, Grant(NONE, KINDS["group"], group), 1, 0.0)
    participants = [transaction_pb2.Participant(topic_id=topic.topic_id)]
    participants += [transaction_pb2.Participant(group=group)] if group else []
    token = grpc_server._CALLER.set((Principal(Role.CLIENT, "a"),))
    try:
        request = pb.CommitTransactionRequest(name=caller.name, participants=participants)
        if not refused:
            await caller.service.CommitTransaction(request, None)
            return
        with pytest.raises(RightMissing, match=refused):
            await caller.service.CommitTransaction(request, None)
    finally:
        grpc_server._CALLER.reset(token)
    assert await caller.state() == transaction_pb2.TRANSACTION_STATE_OPEN


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    """An id with one open transaction."""
    async with TransactionCluster() as cluster:
        caller = Caller(cluster)
        await caller.init()
        await caller.begin()
        yield caller


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"transactional_id": "other"}, TransactionNotFound),
        ({"producer_id": 1_000_000}, TransactionNotFound),
        ({"epoch": 0}, ProducerFenced),
        ({"epoch": 7}, ProducerFenced),
        ({"number": 0}, TransactionNotFound),
        ({"number": 9}, TransactionNotFound),
    ],
)
async def test_a_name_that_is_not_known(caller: Caller, change: dict[str, Any], error: type[RangelogError]) -> None:
    """Another id, producer, epoch or number: neither committed nor aborted, and the open one stays open."""
    name = transaction_pb2.TransactionName()
    name.CopyFrom(caller.name)
    for field, value in change.items():
        setattr(caller.name, field, value)
    with pytest.raises(error):
        await caller.commit(0)
    with pytest.raises(error):
        await caller.abort()
    caller.name.CopyFrom(name)
    assert await caller.state() == OPEN


async def test_what_is_ended_stays_ended(caller: Caller) -> None:
    """A commit after an abort and an abort after a commit are refused; repeats of the same are answered."""
    await caller.abort()
    await caller.abort()
    with pytest.raises(PreconditionFailed, match="aborted"):
        await caller.commit(0)
    assert await caller.state() == ABORTED
    await caller.begin()
    await caller.commit(0)
    with pytest.raises(PreconditionFailed, match="committed"):
        await caller.abort()
    await caller.commit(0)
    await until(lambda: caller.cluster.merged == [(0, 0)])


async def test_numbers_follow_each_other(caller: Caller) -> None:
    """A begin of a later number, or while another transaction is open, is refused; a repeat is answered."""
    await caller.service.BeginTransaction(pb.BeginTransactionRequest(name=caller.name), None)
    with pytest.raises(PreconditionFailed, match="not decided"):
        await caller.begin()
    caller.name.number += 1
    with pytest.raises(PreconditionFailed, match="number"):
        await caller.service.BeginTransaction(pb.BeginTransactionRequest(name=caller.name), None)


async def test_an_older_epoch_is_fenced(caller: Caller) -> None:
    """The new instance aborts what was open; each command of the old one is refused."""
    old = transaction_pb2.TransactionName()
    old.CopyFrom(caller.name)
    await caller.init()
    caller.name.CopyFrom(old)
    for call in (caller.commit, caller.abort, caller.begin):
        with pytest.raises(ProducerFenced):
            await call()
    caller.name.CopyFrom(old)
    assert await caller.state() == ABORTED


async def test_an_expired_one_is_aborted(caller: Caller) -> None:
    """Of an id whose program is silent; its commit is refused."""
    await caller.init(timeout_ms=20)
    await caller.begin()
    async with asyncio.timeout(10):
        while await caller.state() == OPEN:
            await asyncio.sleep(0.005)
    with pytest.raises(PreconditionFailed, match="open for too long"):
        await caller.commit(0)
    assert caller.cluster.merged == []


async def test_more_shards_than_the_limit(caller: Caller) -> None:
    """Refused, and the transaction is still open."""
    with pytest.raises(InvalidArgument, match="limit"):
        await caller.commit(*range(PARTICIPANTS_MAX + 1))
    assert await caller.state() == OPEN


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"shard_id": 99}, ShardNotFound),
        ({"shard_id": 2**64 - 1}, RangelogError),
        ({"topic_id": 0, "shard_id": 0}, InvalidArgument),
        ({"topic_id": 0, "shard_id": 1}, InvalidArgument),
        ({"group": "g"}, InvalidArgument),
        ({"topic_id": 0, "group": "not a name"}, InvalidArgument),
        ({"topic_id": 0, "group": "g" * 10_000}, InvalidArgument),
    ],
)
async def test_a_commit_that_nobody_can_merge(
    caller: Caller, fields: dict[str, Any], error: type[RangelogError]
) -> None:
    """Refused before it is proposed: once decided it would be tried for ever, and hold back each later one of the id."""
    topic_id = caller.cluster.topic.topic_id
    named = transaction_pb2.Participant(**{"topic_id": topic_id, **fields})
    request = pb.CommitTransactionRequest(
        name=caller.name, participants=[transaction_pb2.Participant(topic_id=topic_id), named]
    )
    with pytest.raises(error):
        await caller.service.CommitTransaction(request, None)
    assert await caller.state() == OPEN
    await caller.commit(0)
    await until(lambda: caller.cluster.merged)


async def test_a_commit_that_nobody_can_merge_ends_where_it_was_decided(caller: Caller) -> None:
    """By an earlier broker, or while the placement driver could not say: what there is is merged, and the next one begins."""
    topic_id = caller.cluster.topic.topic_id
    names: list[dict[str, Any]] = [{"topic_id": topic_id, "shard_id": each} for each in (0, 99)]
    participants = [transaction_pb2.Participant(**each) for each in (*names, {"group": "not a name"})]
    commit = transaction_pb2.TransactionCommit(name=caller.name, participants=participants)
    await caller.service.owner_of(JOURNAL).own(transaction_pb2.TransactionCommand(commit=commit))

    async def is_merged() -> bool:
        return await caller.state() == COMMITTED

    await until(is_merged)
    assert len(caller.cluster.merged) == 1
    await caller.begin()


@pytest.mark.parametrize("timeout_ms", [0, TIMEOUT_MS_MAX + 1])
async def test_a_time_out_out_of_range(caller: Caller, timeout_ms: int) -> None:
    """Refused, and the instance before goes on."""
    with pytest.raises(InvalidArgument, match="timeout"):
        await caller.init(timeout_ms=timeout_ms)
    await caller.commit()


@pytest.mark.parametrize("name", ["", "a b", "_internal", "x" * 300, "\x01" * 70_000])
async def test_a_name_against_the_rules(caller: Caller, name: str) -> None:
    """Of a transactional id."""
    journals = list(caller.cluster._journals.values())
    before = [each.applied_offset for each in journals]
    request = pb.InitTransactionsRequest(session=0, transactional_id=name, timeout_ms=1_000)
    with pytest.raises(InvalidArgument):
        await caller.service.InitTransactions(request, None)
    caller.name.transactional_id = name
    for call in (caller.begin, caller.commit, caller.abort, caller.state):
        with pytest.raises(InvalidArgument):
            await call()
    assert [each.applied_offset for each in journals] == before, "nothing was proposed"


async def test_one_id_is_listed_without_those_of_others(caller: Caller) -> None:
    """Whatever the rest of the request says: the right was asked for this one only."""
    await caller.init()
    other = next(each for each in (f"other-{number}" for number in range(999)) if journal_of(each) == journal_of("job"))
    await caller.init(name=other)
    for request, ids in (
        (pb.ListTransactionsRequest(journal=JOURNAL), ["job", other]),
        (pb.ListTransactionsRequest(journal=JOURNAL, transactional_id="job"), ["job"]),
        (pb.ListTransactionsRequest(journal=JOURNALS, transactional_id="job", page_size=9), ["job"]),
        (pb.ListTransactionsRequest(journal=JOURNAL, transactional_id="nobody"), []),
    ):
        listed = await caller.service.ListTransactions(request, None)
        assert [each.transactional_id for each in listed.transactions] == ids
        assert not listed.next_page_token


async def test_journals_and_pages_out_of_range(caller: Caller) -> None:
    """A journal that no cluster has, a page that is too large, and a session that no journal has opened."""
    with pytest.raises(InvalidArgument):
        await caller.service.OpenTransactionSession(pb.OpenTransactionSessionRequest(journal=JOURNALS), None)
    with pytest.raises(InvalidArgument):
        await caller.service.ListTransactions(pb.ListTransactionsRequest(journal=JOURNAL, page_size=1_001), None)
    request = pb.InitTransactionsRequest(session=1 << 60, transactional_id="job", timeout_ms=1_000)
    with pytest.raises(SessionExpired):
        await caller.service.InitTransactions(request, None)


async def test_a_journal_that_is_another_brokers(caller: Caller) -> None:
    """Every call raises NotOwner, so that the caller looks for the owner."""
    await caller.cluster._journals[JOURNAL].close()
    for call in (caller.commit, caller.abort, caller.state, caller.begin):
        with pytest.raises(NotOwner):
            await call()


async def test_time_outs_keep_nothing_of_finished_transactions(caller: Caller) -> None:
    """However many transactions an id has had, the owner remembers one time for it; a shorter time-out holds at once."""
    owner = caller.service.owner_of(JOURNAL)
    for _ in range(20):
        await caller.commit()
        await caller.begin()
    assert (len(owner._due), len(owner._heard_s)) == (1, 1)
    await caller.init(timeout_ms=20)
    await caller.begin()
    async with asyncio.timeout(10):
        while await caller.state() == OPEN:
            await asyncio.sleep(0.005)
    assert await caller.state() == ABORTED


async def test_the_word_that_a_commit_is_merged_waits_for_company(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written with the journal's next entry, and before it; by itself after a moment."""
    monkeypatch.setattr(transaction_owner, "NOTE_S", 60.0)
    await caller.commit(0, 1)
    await until(lambda: len(caller.service.owner_of(JOURNAL)._notes) == 1)
    assert await caller.state() == COMMITTING
    first = transaction_pb2.TransactionName()
    first.CopyFrom(caller.name)
    await caller.begin()
    assert caller.cluster.find(JOURNAL).machine.view(first).state == UNKNOWN  # finished, then forgotten
    monkeypatch.setattr(transaction_owner, "NOTE_S", 0.0)
    await caller.commit(0)
    async with asyncio.timeout(10):
        while await caller.state() != COMMITTED:
            await asyncio.sleep(0.001)


async def test_who_waits_for_a_merge_does_not_wait_for_company(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that waits for the one before is decided as soon as that is merged."""
    monkeypatch.setattr(transaction_owner, "NOTE_S", 60.0)
    caller.cluster.shard_error = lambda shard_id: Unavailable("no owner")
    await caller.commit(0)
    await caller.begin()
    assert (await caller.commit(1)).state == WAITING
    caller.cluster.shard_error = lambda shard_id: None
    async with asyncio.timeout(10):
        while await caller.state() == WAITING:
            await asyncio.sleep(0.001)
    assert await caller.state() == COMMITTING


@pytest.mark.parametrize("noted", [False, True])
async def test_a_repeated_commit_does_not_have_its_own_outcome_forgotten(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    """It is merged, or about to be said to be: its answer may be lost once more, so nothing is begun behind it."""
    monkeypatch.setattr(transaction_owner, "NOTE_S", 0.0 if noted else 60.0)
    await caller.commit(0)
    await until(lambda: len(caller.cluster.merged) == 1)
    async with asyncio.timeout(10):
        while noted and await caller.state() != COMMITTED:
            await asyncio.sleep(0.001)
    answer = await caller.commit(0, begin_next=True)
    assert (answer.state in (COMMITTING, COMMITTED), answer.begun) == (True, False)
    assert (await caller.commit(0, begin_next=True)).state == COMMITTED
    assert await caller.state() == COMMITTED
