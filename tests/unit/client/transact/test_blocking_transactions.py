"""Transactions in blocking code: the same verbs, outcomes and errors."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import rangelog
from rangelog import sync
from rangelog._loop_thread import LoopThread
from rangelog.errors import PreconditionFailed, ShardEnded
from tests.support.transaction_cluster import TransactionCluster


class Blocking:
    """A cluster on a thread of its own."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.cluster: TransactionCluster = self.loop.run(self._open())
        self.administration = sync.Transactions(self.loop, self.cluster.administration)

    async def _open(self) -> TransactionCluster:
        return await TransactionCluster().__aenter__()

    def program(self) -> sync.Transactional:
        """A program."""

        async def make() -> rangelog.Transactional:
            return self.cluster.program()

        return sync.Transactional(self.loop, self.loop.run(make()))


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    """A cluster."""
    made = Blocking()
    yield made
    made.loop.stop(made.cluster.__aexit__)


def test_blocks_commit_and_abort(blocking: Blocking) -> None:
    """By their end, by an exception, by a call; a refused record aborts."""
    with blocking.program() as program:
        with program.transaction() as transaction:
            transaction.send("t", b"a", key=b"k")
            transaction.submit("t", b"b")
        assert (transaction.number, transaction.outcome(), program.transactional_id) == (1, True, "job")
        with pytest.raises(KeyError), program.transaction() as transaction:
            raise KeyError
        assert transaction.outcome() is False
        with pytest.raises(ShardEnded), program.transaction() as transaction:
            transaction.submit("t", b"c")
            blocking.cluster.stagers[0].refuses = ShardEnded("it has ended")
            transaction.submit("t", b"d")
        transaction = program.transaction()
        transaction.begin()
        transaction.abort()
        with pytest.raises(PreconditionFailed):
            transaction.commit()


def test_the_administration(blocking: Blocking) -> None:
    """List, describe and abort."""
    with blocking.program() as program:
        transaction = program.transaction()
        transaction.begin()
        assert [each.state for each in blocking.administration.list(state="open")] == ["open"]
        assert blocking.administration.describe("job").number == 1
        assert blocking.administration.abort("job").state == "aborted"


@pytest.mark.parametrize("name", ["Transaction", "Transactional", "Transactions"])
def test_the_signatures_are_those_of_the_asynchronous_forms(name: str) -> None:
    """Every public method has the same parameters."""
    blocking: Any = getattr(sync, name)
    asynchronous: Any = getattr(rangelog, name)
    for method, found in vars(blocking).items():
        if method.startswith("_") or not callable(found):
            continue
        assert list(inspect.signature(found).parameters) == list(
            inspect.signature(getattr(asynchronous, method)).parameters
        ), method
