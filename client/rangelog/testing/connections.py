"""The client's two ways into a FakeCluster: calls on its placement driver, and connections to its range server.

What holds: both are the production classes but for the last step, where bytes would go to a socket or a message to gRPC.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

from rangelog.testing.placement_driver import FakePlacementDriver
from rangelog.testing.range_server import FakeRangeServer
from rangelog.testing.session import FakeSession
from rangelog_core.errors import ClientClosed, RangelogError, Unavailable, UnsupportedVersion
from rangelog_core.frame import Frame
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnection, DataConnections, PeerKind
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_core.versions import DATA_PLANE_VERSIONS, FEATURES


class Switches:
    """What a test has switched off, and the lock that one cluster's parts share."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.no_placement_driver = False


class FakePdClient(PdClient):
    """Calls the fake placement driver; a call that the real client would repeat until its deadline fails at once."""

    def __init__(self, driver: FakePlacementDriver, switches: Switches) -> None:
        super().__init__(["fake:1"])
        self._driver = driver
        self._switches = switches

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        """See PdClient."""
        self.home.check()
        await asyncio.sleep(0)
        service, name = route_of(type(request))
        if service not in ("rangelog.v1.PlacementDriver", "rangelog.v1.Cursors"):
            raise UnsupportedVersion(
                "this FakeCluster has streams only: make it with FakeCluster(brokers=1) for topics and tables"
            )
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._switches.no_placement_driver:
            raise Unavailable("no placement driver answers: the test switched it off")
        with self._switches.lock:
            return getattr(self._driver.cursors if service.endswith("Cursors") else self._driver, name)(request)


class FakeConnection(DataConnection):
    """Hands its frames to a session of the fake range server."""

    def __init__(self, replica: ReplicaId, server: FakeRangeServer, lock: threading.RLock) -> None:
        super().__init__(replica)
        self.protocol_version = DATA_PLANE_VERSIONS.highest
        self.features = frozenset(FEATURES)
        self.session = FakeSession(server, lock, asyncio.get_running_loop(), self._delivered)

    def break_off(self) -> None:
        """End as a connection does whose server went away."""
        self.session.soon(lambda: self.connection_lost(None))

    def _put(self, buffers: Sequence[bytes]) -> None:
        self.session.feed(b"".join(buffers))

    def _delivered(self, frame: Frame) -> None:
        if self.closed is None:
            self._received_count += 1
            self._dispatch(frame)

    def _close(self, error: RangelogError) -> None:
        super()._close(error)
        self.session.locked(self.session.close)()


class FakeConnections(DataConnections):
    """Makes connections to the one fake range server."""

    def __init__(self, server: FakeRangeServer, switches: Switches) -> None:
        super().__init__()
        self._server = server
        self._switches = switches

    def break_off(self) -> None:
        """End all connections; they are made again when they are needed."""
        for connection in list(self._connections.values()):
            if isinstance(connection, FakeConnection):
                connection.break_off()

    async def _make(self, replica: ReplicaId, address: str, kind: PeerKind) -> DataConnection:
        connection = FakeConnection(replica, self._server, self._switches.lock)
        self._connections[replica] = connection
        return connection
