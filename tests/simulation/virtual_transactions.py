"""Transactional programs beside the producers of a topic: all of a transaction's records appear, or none ever does (T5).

A program notes each transaction before its first record, and what the commit or abort said. What stayed in doubt is asked for
at the end. A program that dies leaves its transaction to its time-out, or to the next instance of its transactional id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog.errors import PreconditionFailed, ProducerFenced, RangelogError, TransactionNotFound
from rangelog_broker.transactions.coordinator import COMMITTING, WAITING
from rangelog_core.net.owner_calls import journal_of
from rangelog_proto.v1 import transaction_pb2, transaction_service_pb2
from rangelog_proto.v1.transaction_service_pb2_grpc import TransactionsStub

if TYPE_CHECKING:
    from rangelog import Client, TransactionInfo
    from rangelog._transact.transactional import Transaction, Transactional
    from tests.simulation.virtual_clients import Clients

KEYS = 4
TIMEOUT_S = 5.0
MERGED_S = 120.0
RECORDS_MAX = 6
PAUSES = 0.2
"""How often a program waits between two records until the first one is staged."""
STAGED_S = 3.0
LATEST = 5
_FINISHED = ("none", "committed", "aborted")


async def until_merged(client: Client, transactional_id: str, is_late: Callable[[], bool]) -> None:
    """Return once the latest transactions of an id are finished, or it is too late for that.

    The one before an aborted one may still be merged.
    """
    while not is_late():
        with contextlib.suppress(RangelogError):
            latest = await client.transactions.describe(transactional_id)
            numbers = range(max(1, latest.number - LATEST), latest.number + 1)
            if latest.state in _FINISHED and all([await _is_finished(client, latest, each) for each in numbers]):
                return
        await asyncio.sleep(0.3)


async def _is_finished(client: Client, latest: TransactionInfo, number: int) -> bool:
    name = transaction_pb2.TransactionName(
        transactional_id=latest.transactional_id, producer_id=latest.producer_id, epoch=latest.epoch, number=number
    )
    answer = await client.transactions._calls.call(
        journal_of(latest.transactional_id), TransactionsStub, lambda stub: stub.DescribeTransaction,
        transaction_service_pb2.DescribeTransactionRequest(name=name), timeout_s=5.0, repeatable=True,
    )  # fmt: skip
    return answer.result.state not in (WAITING, COMMITTING)


async def _nothing(shard_id: int) -> None:
    """Nobody lies in wait."""


@dataclass
class Noted:
    """One transaction. `outcome`: what its program knows of it; None: nothing, or that it is in doubt."""

    program: str
    records: list[tuple[bytes, bytes]] = field(default_factory=list)
    outcome: bool | None = None
    transaction: Transaction | None = None
    is_forgotten: bool = False
    """Nobody can say any more what its commit has come to: a later transaction of its program was begun."""


class Transactions:
    """The programs of one topic."""

    def __init__(self, clients: Clients, topic: str, *, keeps_all: bool) -> None:
        """`keeps_all`: nothing of the topic is trimmed."""
        self.clients = clients
        self.keeps_all = keeps_all
        self.topic = topic
        self.noted: list[Noted] = []
        self.between: Callable[[int], Awaitable[None]] = _nothing
        """Called with a shard at which something is staged, before something else is sent."""

    async def run(self, name: str) -> None:
        """Make transactions, one after the other."""
        clients, chance = self.clients, self.clients.chance
        client = await clients.client()
        program = client.transactional(name, timeout_s=TIMEOUT_S)
        is_open = False
        while not clients.stopping:
            try:
                if not is_open:
                    await program.open()
                    is_open = True
                await self._one(program, name)
            except ProducerFenced:
                clients.cluster.note("a transactional program was fenced")
                is_open = False
            except RangelogError as error:
                clients.cluster.note(f"transaction: {type(error).__name__}")
                with contextlib.suppress(RangelogError):
                    await program.close()
                is_open = False
            await asyncio.sleep(chance.expovariate(1 / 0.05))
        with contextlib.suppress(RangelogError):
            await program.close()

    async def _one(self, program: Transactional, name: str) -> None:
        chance, note = self.clients.chance, self.clients.cluster.note
        noted = Noted(name)
        self.noted.append(noted)
        first = RECORDS_MAX * len(self.noted)
        transaction = noted.transaction = program.transaction()
        await transaction.begin()
        for number in range(first, first + chance.randrange(1, RECORDS_MAX)):
            key = b"x-%d" % chance.randrange(KEYS)
            value = b"%s %s %d" % (name.encode(), key, number)
            noted.records.append((key, value))
            staged = await transaction.submit(self.topic, value, key=key)
            if chance.random() < PAUSES:
                await asyncio.wait([staged], timeout=STAGED_S)
                if staged.done() and staged.exception() is None:
                    await self.between(staged.result().shard)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.choice([0.05, 1.0, 2 * TIMEOUT_S]))
        if chance.random() < 0.2:
            await transaction.abort()
            noted.outcome = False
            note("a transaction was aborted")
            return
        try:
            await transaction.commit()
        except PreconditionFailed:
            noted.outcome = False
            note("a transaction was aborted before its commit")
            raise
        noted.outcome = True
        note("a transaction was committed")

    async def at_shard(self, program: Transactional, shard_id: int) -> None:
        """Stage one record at a shard, in a transaction of its own, and commit it."""
        if program.closed:
            await program.open()
        noted = Noted(program.transactional_id)
        self.noted.append(noted)
        transaction = noted.transaction = program.transaction()
        await transaction.begin()
        key = b"at-%d" % len(self.noted)
        value = b"%s %s 0" % (noted.program.encode(), key)
        noted.records.append((key, value))
        await transaction.send(self.topic, value, key=key, shard=shard_id)
        await transaction.commit()
        noted.outcome = True

    async def leave_open(self, name: str, staged: asyncio.Event) -> None:
        """Stage records of all keys in a transaction that nobody ends; set `staged` once they are staged."""
        noted = Noted(name, outcome=False)
        self.noted.append(noted)
        client = await self.clients.client()
        while not staged.is_set():
            program = client.transactional(name, timeout_s=TIMEOUT_S)
            with contextlib.suppress(RangelogError):
                await program.open()
                transaction = program.transaction()
                await transaction.begin()
                for number in range(KEYS):
                    key, value = b"x-%d" % number, b"%s x-%d %d" % (name.encode(), number, len(noted.records))
                    noted.records.append((key, value))
                    await transaction.send(self.topic, value, key=key)
                staged.set()
        await asyncio.sleep(STAGED_S)

    async def settle(self, program: str | None = None) -> None:
        """Ask for what is in doubt, of one program or of all, until nothing is open."""
        for noted in self.noted:
            if program not in (None, noted.program) or noted.is_forgotten:
                continue
            while noted.outcome is None and noted.transaction is not None and noted.transaction.number:
                try:
                    noted.outcome = await noted.transaction.outcome()
                    if noted.outcome is not None:
                        self.clients.cluster.note("a transaction in doubt was decided")
                        break
                except TransactionNotFound:
                    noted.is_forgotten = True
                    self.clients.cluster.note("the outcome of a transaction was forgotten")
                    break
                except RangelogError:
                    pass
                await asyncio.sleep(0.3)

    async def merged(self) -> None:
        """Wait until all that was decided is in its shards: a merge that a dead broker had begun may take a while."""
        client = await self.clients.client()
        deadline = self.clients.loop.now + MERGED_S
        for program in dict.fromkeys(noted.program for noted in self.noted):
            await until_merged(client, program, lambda: self.clients.loop.now > deadline)

    def judge(self, places: Mapping[bytes, tuple[int, int]], depth: Mapping[int, int]) -> None:
        """All or nothing, and in order of each key."""
        fail = self.clients.cluster.fail
        last: dict[tuple[str, bytes], tuple[bytes, tuple[int, int, int]]] = {}
        for noted in self.noted:
            there = [value in places for _, value in noted.records]
            if noted.outcome is True and not all(there) and self.keeps_all:
                missing = noted.records[there.index(False)][1]
                fail(f"of a committed transaction {there.count(False)} records are not there: {missing!r}")
            if noted.is_forgotten and any(there) and not all(there):
                fail(f"of a transaction with {len(there)} records {there.count(False)} are not there")
            if noted.outcome is not True and not noted.is_forgotten and any(there):
                fail(f"{noted.records[there.index(True)][1]!r} is there, and its transaction is not committed")
            for key, value in noted.records:
                if value not in places:
                    continue
                shard_id, offset = places[value]
                at = (depth[shard_id], shard_id, offset)
                before = last.get((noted.program, key))
                if before is not None and before[1] >= at:
                    fail(f"{value!r} is at {at}, before {before[0]!r} at {before[1]}")
                last[noted.program, key] = value, at

    def values(self) -> set[bytes]:
        """Every value that was sent."""
        return {value for noted in self.noted for _, value in noted.records}
