"""A program's transactions on coordinators in memory: committed, aborted, in doubt, fenced, over a limit; each error typed."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator

import pytest

from rangelog import Transactional
from rangelog._produce.record_rows import checked_row
from rangelog._transact import transaction as module
from rangelog.errors import (
    AppendTimeout,
    InvalidArgument,
    PreconditionFailed,
    ProducerFenced,
    RecordTooLarge,
    RequestTimeout,
    ShardEnded,
    TransactionNotFound,
    WriterClosed,
)
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.net.owner_calls import journal_of
from rangelog_core.rights import ANY, KINDS
from tests.support.transaction_cluster import TransactionCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


@pytest.fixture
async def cluster() -> AsyncIterator[TransactionCluster]:
    """A cluster with a topic "t" of two shards."""
    async with TransactionCluster() as cluster:
        yield cluster


@pytest.fixture
async def program(cluster: TransactionCluster) -> AsyncIterator[Transactional]:
    """An open program."""
    async with cluster.program() as program:
        yield program


async def state_of(cluster: TransactionCluster, name: str = "job") -> str:
    """The state of an id's latest transaction."""
    return (await cluster.administration.describe(name)).state


async def test_the_end_of_a_block_commits(cluster: TransactionCluster, program: Transactional) -> None:
    """Every shard at which something was staged merges it, and the next transaction has the next number."""
    for number in (1, 2):
        async with program.transaction() as transaction:
            await transaction.send("t", b"a", key=b"k")
            await (await transaction.submit("t", b"b", shard=1))
            assert await transaction.outcome() is None
        assert (transaction.number, await transaction.outcome()) == (number, True)
    await until(lambda: len(cluster.merged) == 4)
    assert cluster.staged == [(1, b"a"), (1, b"b"), (2, b"a"), (2, b"b")]


async def test_an_exception_in_a_block_aborts(cluster: TransactionCluster, program: Transactional) -> None:
    """The exception goes on, nothing is merged, and the next transaction may begin."""
    with pytest.raises(KeyError):
        async with program.transaction() as transaction:
            await transaction.send("t", b"a")
            raise KeyError
    assert await transaction.outcome() is False
    async with program.transaction():
        pass
    assert cluster.merged == []


async def test_a_transaction_ends_once(program: Transactional) -> None:
    """Commit after abort, abort after commit, each twice, and records afterwards: PreconditionFailed, by the program itself."""
    committed, aborted = program.transaction(), None
    with pytest.raises(PreconditionFailed, match="not begun"):
        await committed.commit()
    await committed.begin()
    await committed.commit()
    aborted = program.transaction()
    await aborted.begin()
    with pytest.raises(PreconditionFailed, match="once"):
        await aborted.begin()
    await aborted.abort()
    for each in (committed, aborted):
        for call in (
            each.commit,
            each.abort,
            lambda each=each: each.send("t", b"x"),
            lambda each=each: each.submit("t", b"x"),
        ):
            with pytest.raises(PreconditionFailed):
                await call()
    assert (await committed.outcome(), await aborted.outcome()) == (True, False)


async def test_one_transaction_at_a_time(program: Transactional) -> None:
    """Of two that begin at once one is refused; a third one while it is open as well."""
    first, second = program.transaction(), program.transaction()
    results = await asyncio.gather(first.begin(), second.begin(), return_exceptions=True)
    assert [type(each) for each in results] == [type(None), PreconditionFailed]
    with pytest.raises(PreconditionFailed, match="open"):
        program.transaction()
    await first.commit()
    await second.begin()
    await second.commit()


async def test_a_closed_program_makes_no_transactions(cluster: TransactionCluster) -> None:
    """Before `open` and after `close`; what was open is aborted by the close."""
    program = cluster.program()
    with pytest.raises(WriterClosed):
        program.transaction()
    async with program:
        left, late = program.transaction(), program.transaction()
        await left.begin()
    with pytest.raises(WriterClosed):
        program.transaction()
    with pytest.raises(WriterClosed):
        await late.begin()
    assert await left.outcome() is False


async def test_a_later_instance_fences_the_earlier_one(cluster: TransactionCluster, program: Transactional) -> None:
    """Its open transaction is aborted, each call raises ProducerFenced, and it does not take the id back."""
    transaction = program.transaction()
    await transaction.begin()
    await transaction.send("t", b"a")
    async with cluster.program() as later:
        with pytest.raises(ProducerFenced, match="epoch 2"):
            await transaction.commit()
        with pytest.raises(WriterClosed):
            program.transaction()
        assert await transaction.outcome() is False
        async with later.transaction() as of_later:
            await of_later.send("t", b"b")
    assert (await transaction.outcome(), await of_later.outcome()) == (False, True)


async def test_a_commit_that_was_decided_before_the_fence(cluster: TransactionCluster, program: Transactional) -> None:
    """Its answer is lost, the repeat is fenced: the outcome is True, or not known any more, and never taken for an abort."""
    transactions = []
    for _ in range(2):
        await program.open()
        transaction = program.transaction()
        await transaction.begin()
        await transaction.send("t", b"a")
        cluster.lose_answers = {"CommitTransaction"}
        with pytest.raises(RequestTimeout):
            await transaction.commit()
        cluster.lose_answers = set()
        transactions.append(transaction)
        async with cluster.program() as later:
            with pytest.raises(ProducerFenced):
                await transaction.commit()
            if len(transactions) == 1:
                assert await transaction.outcome() is True
            async with later.transaction() as of_later:
                await of_later.send("t", b"b")
            async with later.transaction():
                pass
            await until(lambda: len(cluster.merged) == 2 * len(transactions))
            async with later.transaction():
                pass
    assert await transactions[0].outcome() is True
    with pytest.raises(TransactionNotFound, match="forgotten"):
        await transactions[1].outcome()


async def test_a_fenced_producer_does_not_bring_the_earlier_instance_back(
    cluster: TransactionCluster, program: Transactional
) -> None:
    """The abort that follows a fenced send leaves the epoch to the later instance."""
    transaction = program.transaction()
    await transaction.begin()
    await transaction.send("t", b"a")
    async with cluster.program() as later:
        cluster.stagers[0].fails = ProducerFenced("a later instance was here", epoch=2)
        with pytest.raises(ProducerFenced):
            await transaction.abort()
        async with later.transaction() as of_later:
            await of_later.send("t", b"b")
        assert await of_later.outcome() is True
    assert (await cluster.administration.describe("job")).epoch == 2


async def test_an_instance_that_cannot_stage_does_not_take_the_id_back(
    cluster: TransactionCluster, program: Transactional
) -> None:
    """Its abort begins a new epoch only while it is the living instance."""
    transaction = program.transaction()
    await transaction.begin()
    await transaction.send("t", b"a")
    async with cluster.program() as later:
        cluster.stagers[0].fails = AppendTimeout("not staged")
        with pytest.raises(ProducerFenced):
            await transaction.abort()
        assert await transaction.outcome() is False
        async with later.transaction() as of_later:
            await of_later.send("t", b"b")
        assert await of_later.outcome() is True


async def test_an_abort_that_is_cancelled_leaves_nothing_to_the_next_one(
    cluster: TransactionCluster, program: Transactional
) -> None:
    """The transaction stays in doubt until the abort is called again; a new epoch has a wire of its own."""
    transaction = program.transaction()
    await transaction.begin()
    await transaction.send("t", b"a")
    stager = cluster.stagers[0]

    async def never() -> None:
        await asyncio.Event().wait()

    stager.flush = never  # type: ignore[method-assign]
    aborting = asyncio.create_task(transaction.abort())
    await asyncio.sleep(0)
    aborting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await aborting
    with pytest.raises(PreconditionFailed, match="in doubt"):
        program.transaction()
    await program.open()
    async with program.transaction() as following:
        await following.send("t", b"b")
    assert stager.closed and stager._wire is not cluster.stagers[1]._wire
    assert stager._wire.number == 1


async def test_a_fenced_begin(cluster: TransactionCluster, program: Transactional) -> None:
    """Of a program that learns of the later instance with its next transaction."""
    transaction = program.transaction()
    async with cluster.program():
        with pytest.raises(ProducerFenced):
            await transaction.begin()
        with pytest.raises(PreconditionFailed):
            await transaction.outcome()


async def test_an_expired_transaction_is_aborted(cluster: TransactionCluster) -> None:
    """Its commit raises PreconditionFailed, and the program goes on with the next one."""
    async with cluster.program(timeout_s=0.05) as program:
        transaction = program.transaction()
        await transaction.begin()
        assert transaction._ping is not None
        transaction._ping.cancel()  # a program that is stuck
        await transaction.send("t", b"a")
        async with asyncio.timeout(10):
            while await transaction.outcome() is None:
                await asyncio.sleep(0.01)
        with pytest.raises(PreconditionFailed, match="open for too long"):
            await transaction.commit()
        following = program.transaction()
        await following.begin()
        assert following.number == transaction.number + 1
        await following.abort()


async def test_a_program_that_works_slowly_keeps_its_transaction(
    cluster: TransactionCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is pinged, and each ping moves the end of its time."""
    monkeypatch.setattr(module, "PINGS_PER_TIMEOUT", 1_000)
    owner = cluster.service.owner_of(journal_of("job")[1])
    async with cluster.program(timeout_s=30) as program, program.transaction() as transaction:
        _, begun_s = owner._heard_s["job"]
        await until(lambda: cluster.names.count("PingTransaction") >= 2)
        assert owner._heard_s["job"] > (transaction.number, begun_s)


@pytest.mark.parametrize("call", ["CommitTransaction", "AbortTransaction"])
async def test_what_has_no_answer_may_be_repeated(
    cluster: TransactionCluster, program: Transactional, call: str
) -> None:
    """The transaction is in doubt: nothing is sent, none begins, and the same call again ends the doubt."""
    transaction = program.transaction()
    await transaction.begin()
    await transaction.send("t", b"a")
    ending = transaction.commit if call == "CommitTransaction" else transaction.abort
    cluster.lose_answers = {call}
    with pytest.raises(RequestTimeout) as lost:
        await ending()
    assert lost.value.outcome_unknown
    with pytest.raises(PreconditionFailed, match="in doubt"):
        await transaction.send("t", b"b")
    with pytest.raises(PreconditionFailed, match="in doubt"):
        program.transaction()
    cluster.lose_answers = set()
    await ending()
    assert await transaction.outcome() is (call == "CommitTransaction")
    program.transaction()


async def test_an_outcome_ends_the_doubt(cluster: TransactionCluster, program: Transactional) -> None:
    """Asked for after a commit without an answer; the next transaction may begin."""
    cluster.lose_answers = {"CommitTransaction"}
    with pytest.raises(RequestTimeout):
        async with program.transaction() as transaction:
            await transaction.send("t", b"a")
    with pytest.raises(PreconditionFailed, match="committed"):
        await transaction.abort()
    assert await transaction.outcome() is True
    cluster.lose_answers = set()
    async with program.transaction():
        pass


async def test_an_open_ends_the_doubt(cluster: TransactionCluster, program: Transactional) -> None:
    """`open` goes on after any error, in a new epoch."""
    cluster.lose_answers = {"AbortTransaction"}
    with pytest.raises(KeyError):
        async with program.transaction():
            raise KeyError
    cluster.lose_answers = set()
    await program.open()
    async with program.transaction() as transaction:
        await transaction.send("t", b"a")
    assert await transaction.outcome() is True


async def test_a_refused_record_is_never_left_out(cluster: TransactionCluster, program: Transactional) -> None:
    """A commit raises what a submitted record was refused with, though nobody has waited for its future; then it aborts."""
    with pytest.raises(ShardEnded):
        async with program.transaction() as transaction:
            await transaction.submit("t", b"a")
            cluster.stagers[0].refuses = ShardEnded("it has ended")
            await transaction.submit("t", b"b", shard=0)
            cluster.stagers[0].refuses = None
    assert await transaction.outcome() is False
    assert cluster.merged == []
    async with program.transaction():
        pass


async def test_a_refused_row_is_never_left_out(cluster: TransactionCluster, program: Transactional) -> None:
    """Rows have no futures, and a producer tells their error once: every commit of the transaction raises it."""
    transaction = program.transaction()
    await transaction.begin()
    await transaction.submit_rows("t", [checked_row(b"a", None, None, 0)])
    cluster.stagers[0].refuses = ShardEnded("it has ended")
    await transaction.submit_rows("t", [checked_row(b"b", None, None, 0), checked_row(b"c", None, None, 0)])
    cluster.stagers[0].refuses = None
    for _ in range(3):
        with pytest.raises(ShardEnded):
            await transaction.commit()
    await transaction.abort()
    assert cluster.merged == []
    async with program.transaction() as following:
        await following.submit_rows("t", [checked_row(b"d", b"key", None, 0)])
    assert cluster.staged[-1] == (2, b"d")


async def test_batches_in_doubt_begin_a_new_epoch(cluster: TransactionCluster, program: Transactional) -> None:
    """A commit whose records are not staged in time aborts the block, and later records have another epoch."""
    with pytest.raises(AppendTimeout):
        async with program.transaction() as transaction:
            await transaction.send("t", b"a")
            cluster.stagers[0].fails = AppendTimeout("not staged")
    assert await transaction.outcome() is False
    async with program.transaction() as following:
        await following.send("t", b"b")
    assert [each.epoch for each in cluster.stagers] == [1, 2]
    assert cluster.stagers[0].closed


async def test_a_transaction_over_its_limits(
    cluster: TransactionCluster, program: Transactional, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes, shards and the size of one record: typed, before anything is staged, and the transaction stays open."""
    monkeypatch.setattr(module, "TRANSACTION_BYTES_MAX", 10)
    transaction = program.transaction()
    await transaction.begin()
    await transaction.send("t", b"12345678")
    with pytest.raises(InvalidArgument, match="limit is 10"):
        await transaction.submit("t", b"123")
    with pytest.raises(InvalidArgument, match="limit is 10"):
        await transaction.send("t", memoryview(array("Q", [1])))  # one item, eight bytes
    with pytest.raises(InvalidArgument, match="limit is 10"):
        await transaction.submit_rows("t", [checked_row(b"1", b"k", None, 0), checked_row(b"", b"k", None, 0)])
    await transaction.submit_rows("t", [])
    assert cluster.staged == [(1, b"12345678")]
    await transaction.commit()
    monkeypatch.undo()
    transaction = program.transaction()
    await transaction.begin()
    with pytest.raises(RecordTooLarge):
        await transaction.send("t", bytes(RECORD_SIZE_BYTES_MAX + 1))
    for shard_id in range(1_001):
        program.wire.acked(1, shard_id)
    with pytest.raises(InvalidArgument, match="1001 shards"):
        await transaction.commit()
    await transaction.abort()
    assert await transaction.outcome() is False


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 24 * 3600.1])
def test_a_bad_time_out(cluster: TransactionCluster, timeout_s: float) -> None:
    """Refused before any call."""
    with pytest.raises(InvalidArgument):
        cluster.program(timeout_s=timeout_s)


@pytest.mark.parametrize("name", ["", "a b", "_x", "ä", "x" * 300, "a/b"])
async def test_a_bad_name(cluster: TransactionCluster, name: str) -> None:
    """Of a program, and in the administration."""
    with pytest.raises(InvalidArgument):
        cluster.program(name)
    for call in (cluster.administration.describe, cluster.administration.abort):
        with pytest.raises(InvalidArgument):
            await call(name)
    assert cluster.names == []


async def test_the_list_has_every_id(cluster: TransactionCluster) -> None:
    """By prefix and by state, in order; those whose names are close to each other too."""
    names = [f"job{number}" for number in range(20)] + ["job", "jo", "job1.a", "joc"]
    programs = {name: cluster.program(name) for name in names}
    for program in programs.values():
        await program.open()
    listed = [each async for each in cluster.administration.list("job")]
    assert [each.transactional_id for each in listed] == sorted([*names[:21], "job1.a"])
    assert {(each.state, each.number, each.epoch) for each in listed} == {("none", 0, 1)}
    await programs["job1"].transaction().begin()
    async with programs["joc"].transaction():
        pass
    found = {each.transactional_id: each.state async for each in cluster.administration.list()}
    assert (len(found), found["job1"], found["joc"], found["job"]) == (24, "open", "committed", "none")
    assert [each.transactional_id async for each in cluster.administration.list(state="open")] == ["job1"]
    assert [each async for each in cluster.administration.list("ä")] == []
    with pytest.raises(InvalidArgument):
        await anext(cluster.administration.list(state="hanging"))
    for program in programs.values():
        await program.leave()


async def test_an_administrator_aborts(cluster: TransactionCluster, program: Transactional) -> None:
    """What is open, once and again; not what is committed, and not what is not there."""
    administration = cluster.administration
    with pytest.raises(TransactionNotFound):
        await administration.abort("job")
    with pytest.raises(TransactionNotFound):
        await administration.describe("other")
    transaction = program.transaction()
    await transaction.begin()
    assert (await administration.abort("job")).state == "aborted"
    assert (await administration.abort("job")).state == "aborted"
    with pytest.raises(PreconditionFailed, match="aborted"):
        await transaction.commit()
    async with program.transaction():
        pass
    with pytest.raises(PreconditionFailed):
        await administration.abort("job")
    assert await state_of(cluster) == "committed"


async def test_a_commit_outlives_its_owner(cluster: TransactionCluster, program: Transactional) -> None:
    """A merge that no shard carries out is shown as committing; the next owner of the journal goes on with it."""
    cluster.shard_error = lambda shard_id: RequestTimeout("no owner")
    async with program.transaction() as transaction:
        await transaction.send("t", b"a", shard=1)
    info = await cluster.administration.describe("job")
    assert (info.state, info.to_merge) == ("committing", ((cluster.topic.topic_id, 1),))
    await cluster.take(journal_of("job")[1])
    cluster.shard_error = lambda shard_id: None
    cluster.service.owner_of(journal_of("job")[1])
    async with asyncio.timeout(10):
        while await state_of(cluster) != "committed":
            await asyncio.sleep(0.01)
    assert cluster.merged[-1] == (1, 1)


def test_a_value_that_is_not_bytes_is_not_counted() -> None:
    """A value that is not bytes is the record's error, not an accident of the count."""
    assert module._size_bytes("text", None) == 0  # type: ignore[arg-type]


async def test_who_has_a_right_on_an_id_may_look_at_it(cluster: TransactionCluster) -> None:
    """And no right on those of others: the verb of the program is enough, to describe and to abort."""
    async with cluster.program() as program, cluster.program("job2"), cluster.program("joa"):
        await program.transaction().begin()
        cluster.needs.clear()
        assert (await cluster.administration.describe("job")).state == "open"
        assert cluster.needs == [(ANY, KINDS["transaction"], "job", 0)]
        assert (await cluster.administration.abort("job")).state == "aborted"
        assert {name for _, _, name, _ in cluster.needs} == {"job"}
        with pytest.raises(TransactionNotFound):
            await cluster.administration.describe("jo")
