"""The cluster in memory: it keeps the client's contract, fails as a test tells it to, and is dated by its own clock."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import rangelog
from rangelog import Client, errors
from rangelog.testing import FakeClock, FakeCluster
from rangelog_proto.v1 import pd_pb2
from tests.support.client_contract import ClientContract, values, write

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def cluster() -> FakeCluster:
    """A new one for each test."""
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


@pytest.fixture
def stream() -> str:
    """Any name will do."""
    return "orders"


class TestContract(ClientContract):
    """What holds for real servers holds here."""


async def test_held_acks_end_in_a_timeout_and_come_after_all(cluster: FakeCluster, client: Client, stream: str) -> None:
    """An append that is held back times out with its outcome unknown; released, it is acked and in the log once."""
    await client.create_stream(stream)
    async with client.writer(stream) as writer:
        await writer.append(b"a")
        cluster.hold_acks()
        with pytest.raises(errors.AppendTimeout) as caught:
            await writer.append(b"b", timeout_s=0.05)
        assert caught.value.outcome_unknown
        assert await values(client, stream) == [b"a"]
        cluster.release_acks()
        await writer.flush()
    assert await values(client, stream) == [b"a", b"b"]


async def test_a_writer_that_is_fenced_with_appends_under_way(
    cluster: FakeCluster, client: Client, stream: str
) -> None:
    """Whether these are in the log it cannot know; they are not, and the later writer goes on where the log ends."""
    await client.create_stream(stream)
    first = client.writer(stream)
    await first.open()
    await first.append(b"a")
    cluster.hold_acks()
    under_way = first.submit(b"b")
    await asyncio.sleep(0)
    async with cluster.client() as other:
        second = other.writer(stream)
        await second.open()
        cluster.release_acks()
        with pytest.raises(errors.WriterFenced) as caught:
            await under_way
        assert caught.value.outcome_unknown
        assert await second.append(b"c") == rangelog.Ack(1)
        await second.close()
    await first.close(flush=False)
    assert await values(client, stream) == [b"a", b"c"]


async def test_without_a_placement_driver_open_writers_go_on(cluster: FakeCluster, client: Client, stream: str) -> None:
    """Calls on streams fail at once and are worth repeating; an open writer's appends are acked."""
    await client.create_stream(stream)
    async with client.writer(stream) as writer:
        cluster.stop_placement_driver()
        await writer.append(b"a")
        with pytest.raises(errors.Unavailable) as caught:
            await client.describe_stream(stream)
        assert caught.value.retriable
        cluster.start_placement_driver()
        assert (await client.describe_stream(stream)).name == stream
    assert await values(client, stream) == [b"a"]


async def test_broken_connections_are_made_again(cluster: FakeCluster, client: Client, stream: str) -> None:
    """A writer and a follower go on after the break: nothing is lost or there twice."""
    await client.create_stream(stream)
    async with client.writer(stream) as writer:
        following = asyncio.create_task(values(client, stream, follow=True, end=20))
        for number in range(20):
            if number % 5 == 0:
                cluster.break_connections()
            await writer.append(b"%d" % number)
        async with asyncio.timeout(20):
            assert await following == [b"%d" % number for number in range(20)]


async def test_the_clock_dates_streams_and_records(stream: str) -> None:
    """Without a timestamp a record has the fake clock's time; the clock moves when it is advanced, and not by itself."""
    clock = FakeClock(datetime(2026, 5, 1, tzinfo=UTC))
    cluster = FakeCluster(clock=clock)
    async with cluster.client() as client:
        assert (await client.create_stream(stream)).created_ms == clock.now_ms
        await write(client, stream, b"a")
        clock.advance(timedelta(hours=1))
        async with client.writer(stream) as writer:
            await writer.append(b"b")
            clock.advance(0.5)
            await writer.append_batch([b"c"])
            await writer.append(b"old", timestamp=1_000)
        dates = [record.timestamp async for record in client.reader(stream)]
        assert [date - dates[0] for date in dates[1:3]] == [timedelta(hours=1), timedelta(hours=1, seconds=0.5)]
        assert dates[0] == datetime(2026, 5, 1, tzinfo=UTC)
        assert dates[3].timestamp() == 1
        assert await values(client, stream, start=dates[1], end=2) == [b"b"]


def test_blocking_clients_share_a_cluster_across_threads(cluster: FakeCluster, stream: str) -> None:
    """What one blocking client writes another one follows, each on a thread of its own."""
    with cluster.sync_client() as writing, cluster.sync_client() as reading:
        writing.create_stream(stream)
        follower = reading.reader(stream, follow=True)
        with writing.writer(stream) as writer:
            for number in range(50):
                writer.append(b"%d" % number)
                assert next(follower).value == b"%d" % number


async def test_two_clusters_know_nothing_of_each_other(cluster: FakeCluster, client: Client, stream: str) -> None:
    """Streams live as long as their own cluster, and nowhere else."""
    await client.create_stream(stream)
    async with FakeCluster().client() as other:
        assert [each.name async for each in other.list_streams()] == []


async def test_the_example_of_the_readme_holds() -> None:
    """The tests that the README shows run as they stand there, with a program that appends what is ordered."""

    async def place_order(client: Client, what: str) -> None:
        await client.append("orders", [what.encode()])

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example, with_brokers = [block for block in blocks if "FakeCluster" in block]
    module: dict[str, Any] = {"place_order": place_order}
    exec(compile(example, "README.md", "exec"), module)
    await module["test_an_order_is_logged"]()
    exec(compile(with_brokers, "README.md", "exec"), module)
    async with asyncio.timeout(30):
        await module["test_orders_are_billed_once"]()


FOR_SERVERS_AND_PDCTL = {
    "PrepareObject",
    "CommitObject",
    "PrepareRepack",
    "CommitRepack",
    "RegisterServer",
    "Heartbeat",
    "ListTasks",
}
"""And for jobs over the tier, which the fake does not have."""


def test_every_call_of_the_client_has_its_counterpart(cluster: FakeCluster) -> None:
    """An RPC that is added to the protocol is answered by the fake as well, or named among those that no client makes."""
    methods = pd_pb2.DESCRIPTOR.services_by_name["PlacementDriver"].methods
    names = {method.name for method in methods}
    assert names > FOR_SERVERS_AND_PDCTL
    assert not [name for name in names - FOR_SERVERS_AND_PDCTL if not hasattr(cluster._driver, name)]
