"""A whole broker in this process, with its sockets, on a cluster in memory: how it starts, serves and stops."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rangelog.errors import NotOwner, PreconditionFailed, RangelogError, Unauthorized, Unavailable, WrongServer
from rangelog.protocol.lag_limits import LagLimits
from rangelog_broker import runtime as runtimes
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Opcode
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.net.data_connection import DataConnection
from rangelog_pd.broker_probe import BrokerProbes
from rangelog_proto.v1 import broker_pb2, data_pb2
from tests.support.owner_cluster import OwnerCluster, made_batch, owner_cluster
from tests.support.waiting import until


@pytest.fixture
async def cluster(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OwnerCluster]:
    """A cluster whose placement driver really looks whether a broker accepts connections."""
    async with owner_cluster() as made:
        made.driver.broker_probes = BrokerProbes()
        monkeypatch.setattr(runtimes, "Client", lambda *_, **__: made.client())
        yield made


def settings(name: str, **more: Any) -> BrokerSettings:
    """On free ports."""
    fields = {"name": name, "pd": ["fake:1"], "listen": "127.0.0.1:0", "control_listen": "127.0.0.1:0"}
    fields["rest_listen"] = ""
    return BrokerSettings(**(fields | more))


class Running:
    """A runtime and its task."""

    def __init__(self, cluster: OwnerCluster, made: BrokerSettings) -> None:
        self.cluster = cluster
        self.runtime = Runtime(made)
        self.row = self.runtime._row
        self.task = asyncio.create_task(self.runtime.run())

    async def registered(self) -> Running:
        """Wait until the placement driver knows it."""
        async with asyncio.timeout(20):
            while not self._known() and not self.task.done():
                await asyncio.sleep(0.001)
        if self.task.done():
            self.task.result()
        return self

    def _known(self) -> bool:
        with self.cluster.driver.state() as state:
            found = state.owners.brokers.find(self.row.name)
        return found is not None and found.incarnation == self.row.incarnation

    async def stopped(self) -> None:
        """Stop, and wait for the end."""
        self.runtime.stop()
        async with asyncio.timeout(30):
            await self.task

    async def connect(self, incarnation: int | None = None) -> DataConnection:
        """A connection of a producer."""
        number = self.row.incarnation if incarnation is None else incarnation
        return await DataConnection.connect(self.row.address, ReplicaId(self.row.name, Incarnation(number)))


@asynccontextmanager
async def running(cluster: OwnerCluster, name: str, **more: Any) -> AsyncIterator[Running]:
    """A broker that serves."""
    made = Running(cluster, settings(name, **more))
    try:
        yield await made.registered()
    finally:
        if not made.task.done():
            await made.stopped()


async def endpoint_in(run_dir: Path) -> dict[str, str]:
    """Return what the broker has announced: it is registered a moment before."""
    file = run_dir / "endpoint.json"
    async with asyncio.timeout(20):
        while not file.exists():
            await asyncio.sleep(0.001)
    found: dict[str, str] = json.loads(file.read_text())
    return found


async def produce(connection: DataConnection, topic_id: int, shard_id: int, producer: Producer) -> int:
    """Send a batch until the broker owns the shard; return the offset."""
    message = data_pb2.Produce(topic_id=topic_id, shard_id=shard_id).SerializeToString()
    batch = made_batch(producer, b"%d" % producer.sequence)
    async with asyncio.timeout(20):
        while True:
            try:
                frame = await connection.request(Opcode.PRODUCE, message, [batch], timeout_s=10)
                return data_pb2.ProduceReply.FromString(frame.message).offset
            except NotOwner:
                await asyncio.sleep(0.001)


async def test_a_broker_serves_what_it_is_assigned(cluster: OwnerCluster, tmp_path: Path) -> None:
    """From its port to the shard and back; where it listens is in its file while it runs."""
    topic_id = await cluster.create_topic()
    async with running(cluster, "a", run_dir=tmp_path) as broker:
        connection = await broker.connect()
        assert await produce(connection, topic_id, 0, Producer(7, 0, 0)) == 0
        assert await produce(connection, topic_id, 0, Producer(7, 0, 0)) == 0
        endpoint = await endpoint_in(tmp_path)
        assert endpoint["address"] == broker.row.address and endpoint["broker"] == "a"
        connection.close()
    assert not (tmp_path / "endpoint.json").exists()
    assert await cluster.read(topic_id, 0) == [b"0"]


async def test_a_connection_meant_for_another_incarnation_is_refused(cluster: OwnerCluster) -> None:
    """Who looked up an owner that is gone does not produce to its successor by chance."""
    async with running(cluster, "a") as broker:
        with pytest.raises(WrongServer):
            await broker.connect(incarnation=5)


async def test_a_broker_with_a_token_asks_for_it(cluster: OwnerCluster) -> None:
    """Without it no connection is served."""
    async with running(cluster, "a", token="secret") as broker:
        with pytest.raises(Unauthorized):
            await broker.connect()


async def test_the_rest_interface_is_served_and_ends_with_the_broker(cluster: OwnerCluster, tmp_path: Path) -> None:
    """On its own port, over the broker's client; its address is in the endpoint file."""
    async with running(cluster, "a", run_dir=tmp_path, rest_listen="127.0.0.1:0", token="secret") as broker:
        host, _, port = (await endpoint_in(tmp_path))["rest_address"].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = b"GET /v1/brokers HTTP/1.1\r\nhost: x\r\n"
        writer.write(head + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        writer.write(head + b"authorization: Bearer secret\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        assert b"HTTP/1.1 200" in answer and b'"name":"a"' in answer
        writer.close()
        await broker.stopped()
        with pytest.raises(OSError):
            await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("which", ["listen", "control_listen", "rest_listen"])
async def test_a_port_in_use_is_a_typed_error(cluster: OwnerCluster, which: str) -> None:
    """It names the address; nothing was registered."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        broker = Running(cluster, settings("a", **{which: address}))
        with pytest.raises(Unavailable, match=address):
            await broker.task
    assert cluster.calls["RegisterBroker"] == 0


async def test_a_name_in_use_is_refused(cluster: OwnerCluster) -> None:
    """While the other one accepts connections; its shards stay with it. Once it is gone the name is free."""
    topic_id = await cluster.create_topic()
    async with running(cluster, "a") as first:
        second = Running(cluster, settings("a"))
        with pytest.raises(PreconditionFailed):
            await second.task
        connection = await first.connect()
        assert await produce(connection, topic_id, 0, Producer(7, 0, 0)) == 0
        connection.close()
    async with running(cluster, "a") as third:
        connection = await third.connect()
        assert await produce(connection, topic_id, 0, Producer(7, 0, 1)) == 1
        connection.close()


async def test_it_registers_once_a_placement_driver_answers(cluster: OwnerCluster) -> None:
    """A start before the placement drivers waits for them."""
    cluster.fail("RegisterBroker", *[Unavailable("nobody leads")] * 2)
    async with running(cluster, "a"):
        assert cluster.calls["RegisterBroker"] == 3


async def test_a_stop_before_it_is_registered_ends_it(cluster: OwnerCluster) -> None:
    """It does not wait for a placement driver that never comes."""
    cluster.fail("RegisterBroker", *[Unavailable("nobody leads")] * 10_000)
    broker = Running(cluster, settings("a"))
    await until(lambda: cluster.calls["RegisterBroker"] > 0)
    await broker.stopped()


async def test_a_broker_that_counts_as_lost_registers_again(cluster: OwnerCluster) -> None:
    """Its next heartbeat is told so; what it is assigned then it opens."""
    topic_id = await cluster.create_topic()
    async with running(cluster, "a") as broker:
        cluster.driver.broker_probes.accepts = cluster._accepts  # type: ignore[method-assign]  # of nobody
        lost = broker_pb2.ReportBrokerLostRequest(name="a", incarnation=broker.row.incarnation)
        assert (await cluster.call("ReportBrokerLost", lost)).lost
        await until(lambda: cluster.calls["RegisterBroker"] == 2)
        connection = await broker.connect()
        assert await produce(connection, topic_id, 0, Producer(7, 0, 0)) == 0
        connection.close()


async def test_a_stop_hands_over(cluster: OwnerCluster) -> None:
    """Others own everything when it returns; a connection is served until then, and every retry has its first answer."""
    topic_id = await cluster.create_topic(shards=3)
    async with running(cluster, "a") as first, running(cluster, "b") as second:
        for shard_id in range(3):
            await cluster.assign(topic_id, shard_id, "a", first.row.incarnation)
        connection = await first.connect()
        offsets = [await produce(connection, topic_id, each, Producer(7, 0, 0)) for each in range(3)]
        await first.stopped()
        other = await second.connect()
        for shard_id in range(3):
            assert await produce(other, topic_id, shard_id, Producer(7, 0, 0)) == offsets[shard_id]
            assert await produce(other, topic_id, shard_id, Producer(7, 0, 1)) == 1
        other.close()
        with cluster.driver.state() as state:
            assert not state.owners.owned.get("a")


async def test_the_last_broker_stops_at_once(cluster: OwnerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can take over, it does not wait for somebody who does."""
    monkeypatch.setattr(runtimes, "HAND_OVER_S", 1_000.0)
    topic_id = await cluster.create_topic()
    async with running(cluster, "a") as broker:
        connection = await broker.connect()
        await produce(connection, topic_id, 0, Producer(7, 0, 0))
        await broker.stopped()


async def test_brokers_that_stop_together_do_not_wait_for_each_other(
    cluster: OwnerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a whole cluster."""
    monkeypatch.setattr(runtimes, "HAND_OVER_S", 1_000.0)
    await cluster.create_topic(shards=8)
    made = [await Running(cluster, settings(name)).registered() for name in "abc"]
    await asyncio.gather(*(each.stopped() for each in made))


async def test_a_stop_without_a_placement_driver_ends(cluster: OwnerCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot hand over, and does not wait for ever."""
    monkeypatch.setattr(runtimes, "HAND_OVER_S", 0.1)
    await cluster.create_topic()
    broker = await Running(cluster, settings("a")).registered()
    silent: Callable[[], list[RangelogError]] = lambda: [Unavailable("nobody leads")] * 10_000  # noqa: E731
    for name in ("ReportBrokerLost", "ListBrokers", "Watch", "BrokerHeartbeat"):
        cluster.fail(name, *silent())
    await broker.stopped()


async def test_its_writers_go_by_the_lag_limits_of_its_settings() -> None:
    """Whatever the environment says for other programs."""
    client = Runtime(settings("b1", replica_lag_ms_min=30_000, replica_lag_ms_max=60_000))._client()
    assert client.internal.lag_limits == LagLimits(30_000, 60_000)
    await client.close()
