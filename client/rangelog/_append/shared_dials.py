"""Connections that writers wait for: one task dials a range server, however many ranges of a client have a replica there.

What holds: a server that cannot be reached is dialed again while anybody waits for it, with growing pauses. Each waiter gets
the connection, or each failure until then; a waiter that joins during a pause shortens it. The client's table of addresses is
looked up again, once at a time, when a dial fails.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from rangelog._append.placement_calls import PlacementCalls
from rangelog._metadata import backoff_s
from rangelog_core.errors import InternalError, RangelogError
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnection, DataConnections

PAUSE_S_MIN = 0.05
"""Between two dials of one server, whoever joins meanwhile."""
STABLE_S = 1.0
"""After a connection that lasted so long the pauses begin with the shortest again."""


class DialWaiter(Protocol):
    """Who waits for connections; called on the event loop."""

    def dialed(self, replica: ReplicaId, connection: DataConnection) -> None:
        """The connection is there; the wait is over."""

    def not_dialed(self, replica: ReplicaId, error: RangelogError) -> None:
        """A dial failed; another one follows."""


class _Server:
    """What is known of one server that is, or was, waited for."""

    __slots__ = ("connected_s", "dialed_s", "failures", "joined", "task", "waiters")

    def __init__(self) -> None:
        self.waiters: dict[DialWaiter, None] = {}
        self.joined = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.failures = 0  # in a row; a connection that did not last counts as one
        self.dialed_s = float("-inf")
        self.connected_s: float | None = None


class SharedDials:
    """Of one client. All methods are for its event loop."""

    def __init__(self, connections: DataConnections, calls: PlacementCalls) -> None:
        self._connections = connections
        self._calls = calls
        self._servers: dict[ReplicaId, _Server] = {}
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def dialing(self) -> int:
        """How many servers are being dialed."""
        return sum(server.task is not None for server in self._servers.values())

    def wait(self, replica: ReplicaId, waiter: DialWaiter, *, broke: bool = False) -> None:
        """Dial a server until it answers, or until nobody waits for it any more. `broke`: a connection ended just now."""
        server = self._servers.setdefault(replica, _Server())
        if broke and server.connected_s is not None:
            now_s = asyncio.get_running_loop().time()
            server.failures = 0 if now_s - server.connected_s > STABLE_S else server.failures + 1
            server.connected_s, server.dialed_s = None, now_s
        server.waiters[waiter] = None
        server.joined.set()
        if server.task is None:
            server.task = asyncio.create_task(self._dial(replica, server))

    def forget(self, replica: ReplicaId, waiter: DialWaiter) -> None:
        """The waiter does not want the connection any more. Idempotent."""
        server = self._servers.get(replica)
        if server is not None:
            server.waiters.pop(waiter, None)

    def close(self) -> None:
        """Stop dialing."""
        for server in self._servers.values():
            if server.task is not None:
                server.task.cancel()
        if self._refreshing is not None:
            self._refreshing.cancel()

    # ---- inside

    async def _dial(self, replica: ReplicaId, server: _Server) -> None:
        loop = asyncio.get_running_loop()
        try:
            while server.waiters:
                await self._pause(server)
                server.joined.clear()
                server.dialed_s = loop.time()
                try:
                    connection = await self._connections.get(replica)
                    problem = connection.closed
                except RangelogError as error:
                    problem = error
                    self._refresh()  # its address may be another by now
                except Exception as error:
                    problem = InternalError(f"a link failed: {error!r}")
                if problem is None:
                    server.connected_s = loop.time()
                    waiters, server.waiters = server.waiters, {}
                    for waiter in waiters:
                        waiter.dialed(replica, connection)
                    continue
                server.failures += 1
                for waiter in list(server.waiters):
                    if waiter in server.waiters:
                        waiter.not_dialed(replica, problem)
        finally:
            server.task = None

    async def _pause(self, server: _Server) -> None:
        """Wait since the last dial, or the end of the last connection: longer after each failure, shorter for one who joins."""
        loop = asyncio.get_running_loop()
        rest_s = server.dialed_s + backoff_s(server.failures) - loop.time()
        if rest_s <= 0:
            return
        try:
            async with asyncio.timeout(rest_s):
                await server.joined.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(0.0, server.dialed_s + PAUSE_S_MIN - loop.time()))

    def _refresh(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._look_up())

    async def _look_up(self) -> None:
        listed = await self._calls.addresses()
        if not listed:
            return
        self._connections.addresses = listed
        for replica in [each for each, server in self._servers.items() if server.task is None and each not in listed]:
            del self._servers[replica]
