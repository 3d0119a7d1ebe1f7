"""The cluster in memory with brokers: what is above streams, as the servers' own code does it, and what a test switches off."""

from __future__ import annotations

import asyncio
import gc
import importlib
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rangelog import Client, StreamConfig, errors
from rangelog.testing import FakeClock, FakeCluster
from tests.support.client_contract import ClientContract
from tests.support.waiting import until, until_arrived


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A new one for each test."""
    with FakeCluster(brokers=1) as made:
        yield made


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


@pytest.fixture
def stream() -> str:
    """Any name will do."""
    return "orders"


async def values(client: Client, topic: str, **options: Any) -> list[bytes]:
    """What a reader gets, in order of values."""
    return sorted([record.value async for record in client.topic_reader(topic, **options)])


class TestContract(ClientContract):
    """What holds for real servers holds for its streams."""

    async def test_a_full_range_is_left_for_the_next(self, client: Client, stream: str) -> None:
        """As there; how many ranges there are depends on how fast appends are besides calls of the placement driver."""
        await client.create_stream(stream, StreamConfig(range_size_bytes_max=64 * 1024))
        async with client.writer(stream) as writer:
            for number in range(40):
                await writer.append(b"%d " % number + b"." * 10_000)

            async def left() -> bool:
                return (await client.describe_stream(stream)).range_count > 1

            await until(left, "the full range is not left")
        found = [int(record.value.split()[0]) async for record in client.reader(stream)]
        assert found == list(range(40))


async def test_a_topic_is_written_scaled_read_and_removed(client: Client) -> None:
    """Records of one key stay in order over a split; a truncation and a sealing come to their ends."""
    await client.topics.create("t", shards=2)
    async with client.producer("t") as producer:
        for number in range(20):
            await producer.send(b"%02d" % number, key=b"k")
        await client.topics.scale("t", [0], 2)
        for number in range(20, 40):
            await producer.send(b"%02d" % number, key=b"k")
    assert [record.value async for record in client.topic_reader("t")] == [b"%02d" % number for number in range(40)]
    tail = await client.topics.cut("t", "head")
    await client.topics.truncate("t", tail)
    await client.topics.seal("t")

    async def sealed() -> bool:
        return (await client.topics.describe("t")).state == "sealed"

    await until(sealed, "the topic is not sealed")
    with pytest.raises(errors.RangelogError):
        async with client.producer("t", append_timeout_s=0.3) as late:
            await late.send(b"x")
    await client.topics.delete("t")


async def test_a_group_goes_on_where_it_committed(client: Client) -> None:
    """A second member gets what the first one left."""
    await client.topics.create("t")
    async with client.producer("t") as producer:
        for number in range(4):
            await producer.send(b"%d" % number)
    seen: list[bytes] = []
    for _ in range(2):
        async with asyncio.timeout(20), client.group("g", "t") as member:
            async for record in member:
                seen.append(record.value)
                if len(seen) % 2 == 0:
                    await member.commit()
                    break
    assert seen == [b"0", b"1", b"2", b"3"]


async def test_a_transaction_appears_as_a_whole_or_not_at_all(client: Client) -> None:
    """Committed: in both topics; aborted: in none."""
    for name in ("a", "b"):
        await client.topics.create(name)
    async with client.transactional("p") as program:
        async with program.transaction() as transaction:
            await transaction.send("a", b"1")
            await transaction.send("b", b"1")
        with pytest.raises(LookupError):
            async with program.transaction() as transaction:
                await transaction.send("a", b"2")
                raise LookupError
        async with program.transaction() as transaction:
            await transaction.send("a", b"3")
    await until_arrived(lambda: values(client, "a"), [b"1", b"3"], "two transactions")
    await until_arrived(lambda: values(client, "b"), [b"1"], "the first transaction")


async def test_a_table_keeps_its_conditions(client: Client) -> None:
    """A change under a condition that does not hold changes nothing."""
    await client.tables.create("counts")
    table = client.table("counts")
    version = await table.put_if_absent(b"a", b"1")
    await table.put_if_version(b"a", b"2", version)
    with pytest.raises(errors.PreconditionFailed):
        await table.put_if_version(b"a", b"3", version)
    row = await table.get(b"a")
    assert row is not None and row.value == b"2"


def test_blocking_clients_use_it(cluster: FakeCluster) -> None:
    """Each on a thread of its own."""
    with cluster.sync_client() as writing, cluster.sync_client() as reading:
        writing.topics.create("t")
        with writing.producer("t") as producer:
            producer.send(b"a")
        assert [record.value for record in reading.topic_reader("t")] == [b"a"]


async def test_the_clock_dates_records_of_producers() -> None:
    """Without a timestamp a record has the fake clock's time."""
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    with FakeCluster(brokers=1, clock=clock) as cluster:
        async with cluster.client() as client:
            await client.topics.create("t")
            async with client.producer("t") as producer:
                await producer.send(b"a")
                clock.advance(timedelta(hours=1))
                producer.send_nowait(b"b")
                await producer.send(b"old", timestamp=1_000)
            dates = [record.timestamp async for record in client.topic_reader("t")]
    assert dates[0] == datetime(2026, 5, 1, tzinfo=UTC)
    assert dates[1] - dates[0] == timedelta(hours=1) and dates[2].timestamp() == 1


async def test_another_broker_takes_over() -> None:
    """A broker is killed with records under way: each is in the topic once, in order, and the group's state stays."""
    with FakeCluster(brokers=2) as cluster:
        async with cluster.client() as client:
            await client.topics.create("t", shards=4)
            await client.tables.create("counts")
            async with client.producer("t") as producer:
                sent = [producer.submit(b"%02d" % number, key=b"k%d" % (number % 4)) for number in range(40)]
                await client.table("counts").put(b"a", b"1")
                cluster.kill_broker("b1")
                sent += [producer.submit(b"%02d" % number, key=b"k%d" % (number % 4)) for number in range(40, 60)]
                async with asyncio.timeout(30):
                    await asyncio.gather(*sent)
                    row = await client.table("counts").get(b"a")
            assert row is not None and row.value == b"1"
            assert await values(client, "t") == [b"%02d" % number for number in range(60)]
            with pytest.raises(errors.InvalidArgument):
                cluster.kill_broker("b1")
            cluster.start_broker("b1")
            with pytest.raises(errors.InvalidArgument):
                cluster.start_broker("b1")


async def test_the_only_broker_comes_back(cluster: FakeCluster, client: Client) -> None:
    """Without a broker nothing is acked; what is under way then is acked once it is there again."""
    await client.topics.create("t")
    async with client.producer("t") as producer:
        await producer.send(b"a")
        cluster.kill_broker("b1")
        with pytest.raises(errors.AppendTimeout) as caught:
            await producer.send(b"b", timeout_s=0.1)
        assert caught.value.outcome_unknown
        cluster.start_broker("b1")
        async with asyncio.timeout(30):
            await producer.flush()
    assert await values(client, "t") == [b"a", b"b"]


async def test_faults_reach_producers(cluster: FakeCluster, client: Client) -> None:
    """Held acks end in a time-out and come after all; broken connections are made again; no placement driver is Unavailable."""
    await client.topics.create("t")
    async with client.producer("t") as producer:
        await producer.send(b"a")
        cluster.hold_acks()
        with pytest.raises(errors.AppendTimeout):
            await producer.send(b"b", timeout_s=0.1)
        cluster.release_acks()
        await producer.flush()
        cluster.break_connections()
        async with asyncio.timeout(30):
            await producer.send(b"c")
        cluster.stop_placement_driver()
        with pytest.raises(errors.Unavailable):
            await client.topics.describe("t")
        await producer.send(b"d")
        cluster.start_placement_driver()
    assert await values(client, "t") == [b"a", b"b", b"c", b"d"]


async def test_without_brokers_the_error_names_the_option() -> None:
    """A cluster of streams has no topics, and none of the faults of brokers."""
    cluster = FakeCluster()
    async with cluster.client() as client:
        with pytest.raises(errors.UnsupportedVersion, match="brokers=1"):
            await client.topics.create("t")
    with pytest.raises(errors.InvalidArgument, match="brokers=1"):
        cluster.kill_broker("b1")
    for count in (-1, 17, True, 1.5):
        with pytest.raises(errors.InvalidArgument):
            FakeCluster(brokers=count)  # type: ignore[arg-type]
    cluster.close()


def test_without_the_servers_packages_the_error_names_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """The light client alone has a cluster of streams."""
    found = importlib.import_module

    def missing(name: str, package: str | None = None) -> Any:
        if name.startswith("rangelog_broker"):
            raise ModuleNotFoundError("No module named 'sortedcontainers'")
        return found(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(errors.MissingExtra, match=r"sortedcontainers.*pip install 'rangelog\[pd,broker\]'"):
        FakeCluster(brokers=1)


async def test_what_is_closed_is_unavailable_and_leaves_no_thread() -> None:
    """A client that is still used gets a typed error; a cluster that is dropped without a close ends as well."""
    before = set(threading.enumerate())
    cluster = FakeCluster(brokers=1)
    async with cluster.client() as client:
        await client.topics.create("t")
        cluster.close()
        cluster.close()
        with pytest.raises(errors.Unavailable):
            await client.topics.describe("t")
    dropped = FakeCluster(brokers=1)
    seen = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert seen() is None
    assert set(threading.enumerate()) <= before
