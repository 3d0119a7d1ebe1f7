"""A cluster in memory, its clients, and what a test can switch off in it."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from rangelog import sync
from rangelog._append.writer import Writer
from rangelog._client import Client
from rangelog._loop_thread import LoopThread
from rangelog.testing.clock import FakeClock
from rangelog.testing.connections import FakeConnections, FakePdClient, Switches
from rangelog.testing.placement_driver import FakePlacementDriver
from rangelog.testing.range_server import FakeRangeServer


class FakeCluster:
    """Streams in memory; what one of its clients writes, all of them read.

    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("orders")

    Clients may live in different threads and event loops. Everything is gone with the object.
    """

    def __init__(self, *, clock: FakeClock | None = None) -> None:
        """`clock`: dates records and streams; without one a clock that stands still at the start of 2026."""
        self.clock = clock if clock is not None else FakeClock()
        self._switches = Switches()
        self._server = FakeRangeServer()
        self._driver = FakePlacementDriver(self._server, lambda: self.clock.now_ms)
        self._connections: weakref.WeakSet[FakeConnections] = weakref.WeakSet()

    def client(self) -> Client:
        """Return a client, in place of `await rangelog.connect(…)`. Use it with `async with`, or close it."""
        connections = FakeConnections(self._server, self._switches)
        self._connections.add(connections)
        return _FakeClient(FakePdClient(self._driver, self._switches), connections, self.clock)

    def sync_client(self) -> sync.Client:
        """Return a blocking client, in place of `rangelog.sync.connect(…)`. Use it with `with`, or close it."""
        loop = LoopThread()

        async def make() -> Client:
            return self.client()

        try:
            return sync.Client(loop, loop.run(make()))
        except BaseException:
            loop.stop()
            raise

    # ---- faults

    def hold_acks(self) -> None:
        """Hold back appends from here on, as when too few range servers answer: each ends with AppendTimeout.

        A writer goes on trying, so what is held back is acked after `release_acks`, unless another writer took the stream.
        """
        with self._switches.lock:
            self._server.holds_appends = True

    def release_acks(self) -> None:
        """Take the appends that were held back, in the order in which they were sent."""
        with self._switches.lock:
            self._server.release_appends()

    def stop_placement_driver(self) -> None:
        """Let every call on streams fail with Unavailable, at once. Open writers and readers go on."""
        self._switches.no_placement_driver = True

    def start_placement_driver(self) -> None:
        """Let calls on streams succeed again."""
        self._switches.no_placement_driver = False

    def break_connections(self) -> None:
        """End all connections to the range server, as its restart does: writers and readers connect again and go on."""
        for connections in list(self._connections):
            connections.break_off()


class _FakeClient(Client):
    """The production client, on the fake's connections and clock."""

    def __init__(self, pd: FakePdClient, connections: FakeConnections, clock: FakeClock) -> None:
        super().__init__("fake:1", token=None, tls=None, tier_url=None, pd=pd, connections=connections)
        self._writer_class = partial(_ClockedWriter, clock)


class _ClockedWriter(Writer):
    """The production writer; a record without a timestamp has the fake clock's."""

    def __init__(self, clock: FakeClock, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._clock = clock

    def append_nowait(
        self,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | int | None = None,
    ) -> int:
        """See Writer."""
        given = self._clock.now_ms if timestamp is None else timestamp
        return super().append_nowait(value, key=key, headers=headers, timestamp=given)
