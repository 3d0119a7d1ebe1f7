"""A cluster in memory, its clients, and what a test can switch off in it.

Without brokers it is of the client's own package, and has streams. With brokers it runs the servers' production code on a
thread, and has what a cluster has above streams, too.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from rangelog import sync
from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._connecting import Connecting
from rangelog._produce.producer import TopicProducer
from rangelog._sync_bases import connected
from rangelog.testing.brokers import HostedCluster, HostedConnections, HostedOwnerCalls, HostedPdClient, hosted_names
from rangelog.testing.clock import FakeClock
from rangelog.testing.connections import FakeConnections, FakePdClient, Switches
from rangelog.testing.placement_driver import FakePlacementDriver
from rangelog.testing.range_server import FakeRangeServer
from rangelog_core.errors import InvalidArgument
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.token_sources import Token
from rangelog_core.record import BytesLike


class FakeCluster:
    """A cluster in memory; what one of its clients writes, all of them read.

    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("orders")

    With brokers it has topics, producers, groups, tables and transactions, too; close such a cluster, which has a thread:

    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as client:
            await client.topics.create("orders", shards=2)

    Clients may live in different threads and event loops. Everything is gone with the object.
    """

    def __init__(self, *, clock: FakeClock | None = None, brokers: int = 0) -> None:
        """Make a cluster.

        Args:
            clock: Dates records and streams; without one a clock that stands still at the start of 2026.
            brokers: How many brokers run, "b1" and so on, up to 16; with none there are streams only.

        Raises:
            MissingExtra: There are to be brokers, and rangelog[pd,broker] is not installed.
            InvalidArgument: Not a number of brokers.
        """
        self.clock = clock if clock is not None else FakeClock()
        self._switches = Switches()
        self._server = FakeRangeServer()
        self._driver = FakePlacementDriver(self._server, lambda: self.clock.now_ms)
        self._connections: weakref.WeakSet[FakeConnections] = weakref.WeakSet()
        self._hosted: HostedCluster | None = None
        names = hosted_names(brokers)
        if names:
            self._hosted = HostedCluster(names, self._switches, partial(_hosted_client, self.clock, None))
            weakref.finalize(self, self._hosted.close)

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the brokers and their thread; close the clients before. Idempotent."""
        if self._hosted is not None:
            self._hosted.close()

    def client(self) -> Client:
        """Return a client, in place of `await rangelog.connect(…)`. Use it with `async with`, or close it."""
        if self._hosted is not None:
            return _hosted_client(self.clock, self._connections, self._hosted)
        connections = FakeConnections(self._server, self._switches)
        self._connections.add(connections)
        return _FakeClient(FakePdClient(self._driver, self._switches), connections, self.clock)

    def sync_client(self) -> sync.Client:
        """Return a blocking client, in place of `rangelog.sync.connect(…)`. Use it with `with`, or close it."""
        return connected(sync.Client, Connecting(self.client))

    # ---- faults

    def hold_acks(self) -> None:
        """Hold back appends from here on, as when too few range servers answer: each ends with AppendTimeout.

        A writer goes on trying, so what is held back is acked after `release_acks`, unless another writer took the stream.
        """
        with self._switches.lock:
            for server in self._servers():
                server.holds_appends = True

    def release_acks(self) -> None:
        """Take the appends that were held back, in the order in which they were sent."""
        with self._switches.lock:
            for server in self._servers():
                server.release_appends()

    def stop_placement_driver(self) -> None:
        """Let every call on streams fail with Unavailable, at once. Open writers and readers go on."""
        self._switches.no_placement_driver = True

    def start_placement_driver(self) -> None:
        """Let calls on streams succeed again."""
        self._switches.no_placement_driver = False

    def break_connections(self) -> None:
        """End all connections of clients, as restarts of servers do: writers, readers and producers connect again and go on."""
        for connections in list(self._connections):
            connections.break_off()

    def kill_broker(self, name: str) -> None:
        """End a broker, as kill -9 does: others own what it had after a moment, or it does after `start_broker`.

        Raises InvalidArgument: it does not run.
        """
        self._with_brokers().kill_broker(name)

    def start_broker(self, name: str) -> None:
        """Start a broker, one that was killed or a further one. Raises InvalidArgument: it runs."""
        self._with_brokers().start_broker(name)

    # ---- inside

    def _servers(self) -> list[FakeRangeServer]:
        return [self._server] if self._hosted is None else list(self._hosted.servers.values())

    def _with_brokers(self) -> HostedCluster:
        if self._hosted is None:
            raise InvalidArgument("this FakeCluster has no brokers: make it with FakeCluster(brokers=1)")
        return self._hosted


class _FakeClient(Client):
    """The production client, on the fake's connections and clock."""

    def __init__(self, pd: PdClient, connections: FakeConnections, clock: FakeClock) -> None:
        super().__init__("fake:1", token=None, tls=None, tier_url=None, pd=pd, connections=connections)
        self._internal.writer_class = partial(_ClockedWriter, clock)
        self._metadata.clock_ms = lambda: clock.now_ms


class _HostedClient(_FakeClient):
    """The same, of a cluster with brokers."""

    def __init__(self, hosted: HostedCluster, connections: HostedConnections, clock: FakeClock) -> None:
        self._network = hosted.network
        super().__init__(HostedPdClient(hosted, hosted.switches), connections, clock)
        self._producer_class = partial(_ClockedProducer, clock)

    def _new_owner_calls(self, token: Token | None, tls: TlsConfig | None) -> OwnerCalls:
        return HostedOwnerCalls(self._pd, self._network)


def _hosted_client(
    clock: FakeClock, known: weakref.WeakSet[FakeConnections] | None, hosted: HostedCluster
) -> _HostedClient:
    """Return a client; `known`: gets its connections, those that a test breaks off."""
    connections = HostedConnections(hosted, hosted.switches)
    if known is not None:
        known.add(connections)
    return _HostedClient(hosted, connections, clock)


class _ClockedProducer(TopicProducer):
    """The production producer; a record without a timestamp has the fake clock's."""

    def __init__(self, clock: FakeClock, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._clock = clock

    def send_nowait(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        shard: int | None = None,
    ) -> None:
        """See TopicProducer."""
        given = self._clock.now_ms if timestamp is None else timestamp
        super().send_nowait(value, key=key, headers=headers, timestamp=given, shard=shard)


class _ClockedWriter(Writer):
    """The production writer; a record without a timestamp has the fake clock's."""

    def __init__(self, clock: FakeClock, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._clock = clock

    def append_nowait(
        self,
        value: BytesLike,
        *,
        key: BytesLike | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
        expected_end: int | None = None,
    ) -> int:
        """See Writer."""
        given = self._clock.now_ms if timestamp is None else timestamp
        return super().append_nowait(value, key=key, headers=headers, timestamp=given, expected_end=expected_end)
