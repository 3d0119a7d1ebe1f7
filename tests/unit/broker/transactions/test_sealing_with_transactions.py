"""A topic is sealed while transactions have staged records in it: what is open is aborted, what is committed appears (T5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rangelog import Client
from rangelog.errors import PreconditionFailed, RequestTimeout, TopicStateForbids
from rangelog_broker.shards.staging import TransactionKey
from rangelog_broker.transactions.inquiries import Inquiries
from rangelog_proto.v1.transaction_pb2 import TransactionResult
from tests.support.waiting import until
from tests.support.whole_broker import client_of_whole_broker


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster with one whole broker."""
    async with client_of_whole_broker() as made:
        yield made


async def sealed(client: Client, topic: str) -> None:
    """Seal it, and wait until it is."""
    await client.topics.seal(topic)
    await until_sealed(client, topic)


async def until_sealed(client: Client, topic: str) -> None:
    """Wait."""

    async def is_sealed() -> bool:
        return (await client.topics.describe(topic)).state == "sealed"

    await until(is_sealed, f"{topic} is not sealed")


async def values(client: Client, topic: str) -> list[bytes]:
    """All records."""
    return sorted([record.value async for record in client.topic_reader(topic)])


@pytest.mark.parametrize("scaled", [False, True])
async def test_what_is_open_is_aborted(client: Client, scaled: bool) -> None:
    """Its commit is refused, and no topic has its records; also where they were staged at a shard that was split since."""
    for topic in ("sealed", "other"):
        await client.topics.create(topic)
    async with client.transactional("job") as program:
        transaction = program.transaction()
        await transaction.begin()
        for topic in ("sealed", "other"):
            await transaction.send(topic, b"staged", key=b"k")
        if scaled:
            await client.topics.scale("sealed", [0], 2)
        await sealed(client, "sealed")
        with pytest.raises(PreconditionFailed):
            await transaction.commit()
        assert await transaction.outcome() is False
        async with program.transaction() as following:
            await following.send("other", b"next", key=b"k")
        async with asyncio.timeout(30):
            while not await values(client, "other"):
                await asyncio.sleep(0.01)
    assert (await values(client, "sealed"), await values(client, "other")) == ([], [b"next"])


async def test_every_commit_that_returned_is_there(client: Client) -> None:
    """Programs that commit one transaction after the other while the topic is sealed: none is lost, none is torn."""
    await client.topics.create("t", shards=2)
    committed: list[bytes] = []

    async def work(number: int) -> None:
        async with client.transactional(f"job-{number}") as program:
            for count in range(10_000):
                transaction = program.transaction()
                value = b"%d/%d" % (number, count)
                try:
                    async with transaction:
                        for part in range(3):
                            await transaction.send("t", value + b"/%d" % part, key=b"%d" % part)
                except (PreconditionFailed, TopicStateForbids):
                    return
                committed.append(value)

    programs = [asyncio.create_task(work(number)) for number in range(4)]
    await until(lambda: len(committed) >= 20)
    await sealed(client, "t")
    async with asyncio.timeout(60):
        await asyncio.gather(*programs)
    assert await values(client, "t") == sorted(value + b"/%d" % part for value in committed for part in range(3))


async def test_the_coordinator_is_asked_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that does not answer delays the seal; the topic takes plain records until the answer."""
    await client.topics.create("t")
    silent = False
    asked = 0
    production = Inquiries._described

    async def described(self: Inquiries, key: TransactionKey, transactional_id: str) -> TransactionResult:
        nonlocal asked  # also for a program's first batch at a shard
        asked += 1
        if silent:
            raise RequestTimeout("no answer")
        return await production(self, key, transactional_id)

    monkeypatch.setattr(Inquiries, "_described", described)
    async with client.transactional("job") as program, client.producer("t") as producer:
        transaction = program.transaction()
        await transaction.begin()
        await transaction.send("t", b"staged", key=b"k")
        silent, asked = True, 0
        await client.topics.seal("t")
        await until(lambda: asked >= 2)
        assert (await client.topics.describe("t")).state == "sealing"
        await producer.send(b"plain", key=b"k")
        silent = False
        await until_sealed(client, "t")
        with pytest.raises(PreconditionFailed):
            await transaction.commit()
    assert await values(client, "t") == [b"plain"]
