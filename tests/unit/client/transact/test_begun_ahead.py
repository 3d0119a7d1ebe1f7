"""Transactions that are begun with the commit before: asked for by programs that begin at once, taken while they are fresh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog import Transactional
from rangelog._transact import begun_ahead as module
from rangelog._transact.begun_ahead import BACK_TO_BACK, BACK_TO_BACK_S, BegunAhead
from rangelog.errors import PreconditionFailed, ProducerFenced, RequestTimeout
from tests.support.transaction_cluster import TransactionCluster
from tests.support.waiting import until

pytestmark = pytest.mark.virtual


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TransactionCluster]:
    """A cluster with a topic "t" of two shards; no program is too slow for it."""
    monkeypatch.setattr(module, "BACK_TO_BACK_S", 60.0)
    async with TransactionCluster() as cluster:
        yield cluster


async def one(program: Transactional, value: bytes = b"a") -> int:
    """Make a transaction; return its number."""
    async with program.transaction() as transaction:
        await transaction.send("t", value, shard=0)
    return transaction.number


async def busy(cluster: TransactionCluster, program: Transactional) -> None:
    """Make so many that the next one is begun, number `BACK_TO_BACK + 2`."""
    for number in range(BACK_TO_BACK + 1):
        await until_merged(cluster, number)  # while a merge is under way, a commit begins none
        assert await one(program) == number + 1
    assert program.ahead.is_begun


async def until_merged(cluster: TransactionCluster, count: int) -> None:
    """Return once so many merges were carried out, and their coordinator knows it."""
    await until(lambda: len(cluster.merged) >= count and not cluster.merges)


def test_only_what_begins_at_once_is_begun_ahead() -> None:
    """A program that pauses longer than a moment begins its transactions itself, as do the first ones of a row."""
    ahead, now_s = BegunAhead(6.0), 100.0
    for number in range(2 * BACK_TO_BACK):
        assert not ahead.begins(now_s)
        assert ahead.wanted() is (number >= BACK_TO_BACK)
        ahead.committed(now_s, now_s, begun=False)
        now_s += BACK_TO_BACK_S
    assert not ahead.begins(now_s + BACK_TO_BACK_S)
    assert not ahead.wanted()


def test_what_is_begun_is_taken_once_and_in_time() -> None:
    """For a sixth of the time-out from before the commit was sent."""
    for late_s, taken in ((0.9, True), (1.0, False)):
        ahead = BegunAhead(6.0)
        ahead.committed(100.0, 100.5, begun=True)
        assert ahead.is_begun
        assert ahead.begins(100.0 + late_s) is taken
        assert not ahead.is_begun and not ahead.begins(100.0)


async def test_a_busy_program_calls_once_for_each_transaction(cluster: TransactionCluster) -> None:
    """Its commits begin the next ones, which are staged and committed like others; the close aborts the last one."""
    async with cluster.program() as program:
        await busy(cluster, program)
        cluster.names.clear()
        for number in range(10):
            assert await one(program, b"%d" % number) == BACK_TO_BACK + 2 + number
            await until_merged(cluster, BACK_TO_BACK + 2 + number)
        assert cluster.names.count("CommitTransaction") == 10
        assert cluster.names.count("BeginTransaction") <= 1  # the merge before the first commit may have been under way
        assert program.ahead.is_begun
        assert (await cluster.administration.describe("job")).state == "open"
    info = await cluster.administration.describe("job")
    assert (info.number, info.state) == (BACK_TO_BACK + 12, "aborted")
    assert cluster.staged[-10:] == [(BACK_TO_BACK + 2 + number, b"%d" % number) for number in range(10)]


async def test_what_was_begun_long_ago_is_asked_for(cluster: TransactionCluster) -> None:
    """It has its whole time-out again, from then on."""
    async with cluster.program() as program:
        await busy(cluster, program)
        program.ahead._begun_until_s = 0.001
        transaction = program.transaction()
        cluster.names.clear()
        await transaction.begin()
        assert cluster.names == ["BeginTransaction"]
        assert transaction.number == BACK_TO_BACK + 2
        await transaction.abort()


@pytest.mark.parametrize("lost", [False, True])
async def test_what_was_begun_and_aborted_is_passed_over(cluster: TransactionCluster, lost: bool) -> None:
    """By its time-out or an administrator; also where the program never heard that it was begun."""
    async with cluster.program() as program:
        await busy(cluster, program)
        if lost:
            await until_merged(cluster, BACK_TO_BACK + 1)
            cluster.lose_answers = {"CommitTransaction"}
            with pytest.raises(RequestTimeout):
                await one(program)
            cluster.lose_answers = set()
            with pytest.raises(PreconditionFailed, match="in doubt"):
                program.transaction()
            assert program.current is not None and await program.current.outcome() is True
        program.ahead._begun_until_s = 0.001
        info = await cluster.administration.abort("job")
        assert await one(program) == info.number + 1


async def test_a_repeated_commit_begins_the_next_one_once(cluster: TransactionCluster) -> None:
    """The answer was lost: the repeat says the same, and how fresh the next one is counts from the first try."""
    async with cluster.program() as program:
        await busy(cluster, program)
        await until_merged(cluster, BACK_TO_BACK + 1)
        transaction = program.transaction()
        await transaction.begin()
        await transaction.send("t", b"a", shard=0)
        cluster.lose_answers = {"CommitTransaction"}
        with pytest.raises(RequestTimeout):
            await transaction.commit()
        cluster.lose_answers = set()
        first_s = transaction._sent_s
        await transaction.commit()
        assert program.ahead._begun_until_s == first_s + 60.0 * module.SHARE_OF_TIMEOUT
        assert await transaction.outcome() is True
        assert await one(program) == transaction.number + 1


async def test_a_refused_commit_begins_nothing(cluster: TransactionCluster) -> None:
    """It was aborted: that is remembered until the program begins the next one."""
    async with cluster.program() as program:
        await busy(cluster, program)
        transaction = program.transaction()
        await transaction.begin()
        await transaction.send("t", b"a", shard=0)
        aborting = asyncio.create_task(cluster.administration.abort("job"))
        await aborting
        with pytest.raises(PreconditionFailed, match="aborted"):
            await transaction.commit()
        assert not program.ahead.is_begun
        info = await cluster.administration.describe("job")
        assert (info.number, info.state) == (transaction.number, "aborted")
        assert await one(program) == transaction.number + 1


async def test_a_commit_of_nothing_begins_nothing(cluster: TransactionCluster) -> None:
    """It is merged at once, and would be forgotten."""
    async with cluster.program() as program:
        await busy(cluster, program)
        async with program.transaction() as transaction:
            pass
        assert not program.ahead.is_begun
        assert (await cluster.administration.describe("job")).number == transaction.number


async def test_a_later_instance_ends_what_was_begun(cluster: TransactionCluster) -> None:
    """The earlier one learns of it at its commit, if not before."""
    async with cluster.program() as program:
        await busy(cluster, program)
        async with cluster.program() as later:
            with pytest.raises(ProducerFenced):
                await one(program)
            assert await one(later) == BACK_TO_BACK + 3
