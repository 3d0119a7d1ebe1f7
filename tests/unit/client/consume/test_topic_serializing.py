"""Keys and values by the program's own functions in topics: producers, readers, groups and transactions, on both clients."""

# Type checkers do not know what a deserializer makes of a record.
# mypy: disable-error-code="arg-type, comparison-overlap, list-item"

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rangelog import AppendRecord, Client, Cut, SerializingProducer, SerializingTransaction, sync
from rangelog.errors import InvalidArgument
from rangelog.testing import FakeCluster
from tests.support.threads import WAIT_S, within

WRITES: dict[str, Any] = {"key_serializer": str.encode, "value_serializer": lambda value: json.dumps(value).encode()}
READS: dict[str, Any] = {"key_deserializer": bytes.decode, "value_deserializer": json.loads}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster with a topic "t" of one shard."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as made:
            await made.topics.create("t")
            yield made


async def raw(client: Client) -> list[tuple[bytes | None, bytes]]:
    """What is in the topic."""
    return [(record.key, record.value) async for record in client.topic_reader("t")]


async def filled(client: Client, values: list[bytes]) -> None:
    """The topic with these values, each with a key."""
    async with client.producer("t") as producer:
        await producer.send_batch([AppendRecord(value, key=b"k") for value in values])


async def test_every_way_to_send(client: Client) -> None:
    """Values and keys go through the functions once; a record without a key stays without."""
    async with client.producer("t", **WRITES) as producer:
        assert isinstance(producer, SerializingProducer)
        assert (await producer.send({"n": 0}, key="k", timestamp=5, timeout_s=WAIT_S)).offset == 0
        assert (await producer.submit([1], shard=0)).offset == 1
        producer.send_nowait("two", key="k", headers={"h": b"v"})
        await producer.ready()
        await producer.flush()
        assert [ack.offset for ack in await producer.send_batch([3, AppendRecord("4", key="k")])] == [3, 4]
        producer.note_time(6)
        assert (producer.closed, producer.shards) == (False, [0])
        assert producer.topic_id == (await client.topics.describe("t")).topic_id
    assert producer.closed
    async with client.producer("t", key_serializer=str.encode) as keys:
        await keys.send(b"bytes", key="k")
    assert await raw(client) == [
        (b"k", b'{"n": 0}'), (None, b"[1]"), (b"k", b'"two"'), (None, b"3"), (b"k", b'"4"'), (b"k", b"bytes"),
    ]  # fmt: skip


async def test_what_a_serializer_raises(client: Client) -> None:
    """It is the program's exception, nothing of the record or the list is sent, and the producer goes on."""
    async with client.producer("t", **WRITES) as producer:
        for call in (producer.send, producer.submit, producer.send_nowait):
            with pytest.raises(TypeError, match="not JSON serializable"):
                made: Any = call({1, 2})
                await made
        with pytest.raises(TypeError, match="not JSON serializable"):
            await producer.send_batch([1, {2}])
        await producer.send("last")
    async with client.producer("t", value_serializer=lambda value: value) as unlike:
        with pytest.raises(InvalidArgument, match="value is bytes"):
            await unlike.send("text")
    assert await raw(client) == [(None, b'"last"')]


async def test_what_is_no_function_is_refused(client: Client) -> None:
    """At once, with the name of the argument; on both clients."""
    makers: list[tuple[Any, tuple[str, ...], str]] = [
        (client.producer, ("t",), "value_serializer"), (client.transactional, ("job",), "key_serializer"),
        (client.topic_reader, ("t",), "key_deserializer"), (client.group, ("g", "t"), "value_deserializer"),
    ]  # fmt: skip
    for make, names, argument in makers:
        with pytest.raises(InvalidArgument, match=rf"{argument}( of .*)? (is|must be) a function"):
            make(*names, **{argument: "json"})

    def work() -> None:
        with FakeCluster(brokers=1) as cluster, cluster.sync_client() as blocking:
            for make, names, argument in makers:
                with pytest.raises(InvalidArgument, match=rf"{argument}( of .*)? (is|must be) a function"):
                    getattr(blocking, make.__name__)(*names, **{argument: "json"})

    await asyncio.to_thread(work)


async def test_a_topic_reader_makes_what_it_hands_out(client: Client) -> None:
    """Iterated; chunks stay as they are. The record that a function refuses counts as read, none behind it is lost."""
    await filled(client, [b"1", b"[2]", b"not json", b"4"])
    chunks = [chunk async for chunk in client.topic_reader("t", **READS).chunks()]
    assert [each.value for chunk in chunks for each in chunk.records] == [b"1", b"[2]", b"not json", b"4"]
    reader, seen = client.topic_reader("t", **READS), []
    with pytest.raises(ValueError, match="Expecting value") as told:
        async for record in reader:
            seen.append((record.key, record.value))
    assert seen == [("k", 1), ("k", [2])] and told.value.__notes__ == ["of the record at offset 2 of shard 0"]
    assert reader.position() == Cut((await client.topics.describe("t")).topic_id, {0: 3})
    assert [record.value async for record in client.topic_reader("t", start=reader.position(), **READS)] == [4]


async def test_a_member_makes_what_it_hands_out(client: Client) -> None:
    """A commit skips the record that a function refuses; the next loop goes on behind it."""
    await filled(client, [b"1", b"not json", b"3", b"4"])
    seen: list[Any] = []
    async with client.group("g", "t", **READS) as member:
        with pytest.raises(ValueError, match="Expecting value") as told:
            async for record in member:
                seen.append(record.value)
        assert told.value.__notes__ == ["of the record at offset 1 of shard 0"]
        async for record in member:
            seen.append((record.topic, record.key, record.value))
            break
        await member.commit()
    async with client.group("g", "t", **READS) as member:
        async for record in member:
            seen.append(record.value)
            break
    assert seen == [1, ("default/t", "k", 3), 4]


async def test_a_transaction_makes_what_it_sends(client: Client) -> None:
    """A function that raises sends nothing and leaves the transaction open; out of the block it aborts it."""
    async with client.transactional("job", **WRITES) as program:
        async with program.transaction() as transaction:
            assert isinstance(transaction, SerializingTransaction)
            await transaction.send("t", {"n": 0}, key="k")
            await transaction.submit("t", [1], shard=0)
            with pytest.raises(TypeError, match="not JSON serializable"):
                await transaction.send("t", {1})
        with pytest.raises(TypeError):
            async with program.transaction() as transaction:
                await transaction.submit("t", "never there")
                await transaction.submit("t", {1})
        assert await transaction.outcome() is False
    async with asyncio.timeout(20):
        while len(found := await raw(client)) < 2:
            await asyncio.sleep(0.01)
    assert found == [(b"k", b'{"n": 0}'), (None, b"[1]")]


def test_blocking_code_has_them_too() -> None:
    """All of them, with functions on the calling thread."""
    threads = set()

    def encode(value: Any) -> bytes:
        threads.add(threading.current_thread())
        return json.dumps(value).encode()

    def decode(data: bytes) -> Any:
        threads.add(threading.current_thread())
        return json.loads(data)

    def work() -> set[threading.Thread]:
        with FakeCluster(brokers=1) as cluster, cluster.sync_client() as client:
            client.topics.create("t")
            with client.producer("t", key_serializer=str.encode, value_serializer=encode) as producer:
                producer.send(0, key="k", timestamp=5)
                producer.submit(1).result(WAIT_S)
                producer.send_nowait(2)
                producer.send_batch([3, AppendRecord(4, key="k")])
                for call in (producer.send, producer.submit, producer.send_nowait):
                    with pytest.raises(TypeError):
                        call({1})
            with client.transactional("job", value_serializer=encode) as program:
                with program.transaction() as transaction:
                    assert isinstance(transaction, sync.SerializingTransaction)
                    transaction.send("t", 5, key=b"k")
                    transaction.submit("t", 6)
                with pytest.raises(TypeError), program.transaction() as transaction:
                    transaction.submit("t", {1})
            _read_back(client, decode)
        return {threading.current_thread()}

    assert within(work) == threads


def _read_back(client: sync.Client, decode: Any) -> None:
    reader = client.topic_reader("t", follow=True, key_deserializer=bytes.decode, value_deserializer=decode)
    found = []
    for record in reader:
        found.append((record.key, record.value))
        if len(found) == 7:
            break
    assert found == [("k", 0), (None, 1), (None, 2), (None, 3), ("k", 4), ("k", 5), (None, 6)]
    with client.group("g", "t", value_deserializer=decode) as member:
        for record in member:
            if record.value == 3:
                break
        member.commit()
        assert next(iter(member)).value == 4
