"""The part of a FakeCluster that has topics: a placement driver and brokers, on an event loop in a thread of their own.

What holds: both are the production code, from the packages of the servers; this module has what they stand on, the range
servers in memory and the network between all of them. Without these packages `HostedCluster` raises MissingExtra.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rangelog._client import Client
from rangelog._loop_thread import LoopThread
from rangelog.testing.connections import FakeConnection, FakeConnections, Switches
from rangelog.testing.network import Network, run_on
from rangelog.testing.range_server import FakeRangeServer
from rangelog_core.errors import ClientClosed, InvalidArgument, MissingExtra, RangelogError, RequestTimeout, Unavailable
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import CONNECT_TIMEOUT_S, DataConnection, PeerKind
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_core.net.pd_client import PdClient
from rangelog_core.net.routes import route_of
from rangelog_proto.v1 import pd_pb2

SERVERS = ("rs1", "rs2", "rs3")
START_TIMEOUT_S = 30.0


def _server_part(name: str) -> Any:
    """Return a module of a server's package, which the client is not to depend on. Raises MissingExtra."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtra(
            f"a FakeCluster with brokers runs the servers' own code ({error}): pip install 'rangelog[pd,broker]'"
        ) from error


class HostedCluster:
    """See the module. For any thread but its own; `close` it."""

    def __init__(
        self, broker_names: list[str], switches: Switches, make_client: Callable[[HostedCluster], Client]
    ) -> None:
        """`make_client`: for the brokers. Raises MissingExtra."""
        placement_driver, broker = _server_part("rangelog_pd.testing"), _server_part("rangelog_broker.testing")
        self.network = Network()
        self.servers = {name: FakeRangeServer() for name in SERVERS}
        for name, server in self.servers.items():
            server.replica.server, server.replica.data_address = name, f"{name}:1"
        self.switches = switches
        self._make_client = make_client
        self._broker_class = broker.MemoryBroker
        self._driver = placement_driver.MemoryPlacementDriver(SERVERS, self.network.accepts)
        self._brokers: dict[str, asyncio.Task[None]] = {}
        self._thread = LoopThread()
        self.loop = self._thread.run(_running_loop())
        try:
            self._thread.run(self._start(broker_names))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all of it. Idempotent."""
        with suppress(InvalidArgument):  # the collector runs on the thread itself: it ends with the process
            self._thread.stop(self._stop)

    def start_broker(self, name: str) -> None:
        """Start a broker, and wait until it is registered. Raises InvalidArgument: it runs."""
        self._thread.run(self._start_broker(name))

    def kill_broker(self, name: str) -> None:
        """End a broker at once. Raises InvalidArgument: it does not run."""
        self._thread.run(self._kill_broker(name))

    async def call(self, name: str, request: Any) -> Any:
        """Call the placement driver; from any loop."""
        response = await run_on(self.loop, lambda: self._driver.call(name, request))
        self._commit_ends(response)
        return response

    # ---- the brokers' surroundings; see rangelog_broker.testing

    def client(self) -> Client:
        """A client of the cluster."""
        return self._make_client(self)

    def owner_calls(self, client: Client) -> OwnerCalls:
        """What calls the services of brokers."""
        return HostedOwnerCalls(client.metadata.pd, self.network)

    def listen(self, address: str, factory: Callable[[], Any]) -> Callable[[], None]:
        """Accept connections."""
        return self.network.listen(address, factory)

    def serve(self, address: str, handlers: dict[str, Any]) -> Callable[[], None]:
        """Carry out calls."""
        return self.network.serve(address, handlers)

    # ---- on the thread

    async def _start(self, broker_names: list[str]) -> None:
        await self._driver.start()
        self._reconciling = asyncio.create_task(self._driver.run())
        for name in broker_names:
            await self._start_broker(name)

    async def _start_broker(self, name: str) -> None:
        running = self._brokers.get(name)
        if running is not None and not running.done():
            raise InvalidArgument(f"broker {name} runs already")
        broker = self._broker_class(name, self)
        task = self._brokers[name] = asyncio.create_task(broker.run())
        serving = asyncio.create_task(broker.serving.wait())
        await asyncio.wait((task, serving), timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        if not serving.done():
            serving.cancel()
            raise RequestTimeout(f"broker {name} does not serve after {START_TIMEOUT_S:g} s")

    async def _kill_broker(self, name: str) -> None:
        task = self._brokers.pop(name, None)
        if task is None or task.done():
            raise InvalidArgument(f"no broker {name!r} runs: {', '.join(self._brokers) or 'none does'}")
        task.cancel()
        with suppress(asyncio.CancelledError, RangelogError):
            await task

    async def _stop(self) -> None:
        for name in list(self._brokers):
            with suppress(InvalidArgument):
                await self._kill_broker(name)

    def _commit_ends(self, response: Any) -> None:
        """Range servers learn where ranges end."""
        if isinstance(response, pd_pb2.SealRangeResponse):
            found = [response.range]
        elif isinstance(response, pd_pb2.SealRangesResponse):
            found = [each.response.range for each in response.results if each.HasField("response")]
        else:
            return
        with self.switches.lock:
            for each in found:
                for replica in each.replicas:
                    server = self.servers[replica.server]
                    server.commit_end(each.stream_id, each.index, each.start_offset, each.end_offset)


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


class HostedPdClient(PdClient):
    """Calls the hosted placement driver; a call that the real client would repeat until its deadline fails at once."""

    def __init__(self, hosted: HostedCluster, switches: Switches) -> None:
        super().__init__(["fake:1"])
        self._hosted = hosted
        self._switches = switches

    async def call(self, request: Any, response: Any, *, timeout_s: float, **_: Any) -> Any:
        """See PdClient."""
        self.home.check()
        await asyncio.sleep(0)
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._switches.no_placement_driver:
            raise Unavailable("no placement driver answers: the test switched it off")
        try:
            async with asyncio.timeout(timeout_s):
                return await self._hosted.call(route_of(type(request)).name, request)
        except TimeoutError as error:
            raise RequestTimeout(f"the placement driver did not answer within {timeout_s:g} s") from error


class HostedOwnerCalls(OwnerCalls):
    """Calls the services of the hosted brokers."""

    def __init__(self, pd: PdClient, network: Network) -> None:
        super().__init__(pd)
        self._network = network
        self._hosted_stubs: dict[tuple[str, type[Any]], Any] = {}

    def _stub(self, address: str, stub_type: type[Any]) -> Any:
        key = address, stub_type
        if key not in self._hosted_stubs:
            self._hosted_stubs[key] = stub_type(self._network.channel(address))
        return self._hosted_stubs[key]


class HostedConnections(FakeConnections):
    """Makes connections to the range servers in memory, and to the hosted brokers."""

    def __init__(self, hosted: HostedCluster, switches: Switches) -> None:
        super().__init__(FakeRangeServer(), switches)
        self._hosted = hosted
        self._to_brokers: dict[ReplicaId, Callable[[], None]] = {}

    def break_off(self) -> None:
        """End all connections; they are made again when they are needed."""
        super().break_off()
        for end in list(self._to_brokers.values()):
            end()

    async def _make(self, replica: ReplicaId, address: str, kind: PeerKind) -> DataConnection:
        hosted = self._hosted
        if kind != "broker":
            made: DataConnection = FakeConnection(replica, hosted.servers[replica.server], self._switches.lock)
        else:
            made = DataConnection(replica, kind)
            try:
                self._to_brokers[replica] = hosted.network.connect(address, made)
            except ConnectionRefusedError as error:
                raise Unavailable(f"{made.peer} at {address} cannot be reached") from error
            await made.greet(token=None, client_name="", timeout_s=CONNECT_TIMEOUT_S)
        self._connections[replica] = made
        return made


def hosted_names(count: int) -> list[str]:
    """Return the names of so many brokers. Raises InvalidArgument."""
    if type(count) is not int or not 0 <= count <= 16:
        raise InvalidArgument(f"a FakeCluster has 0 to 16 brokers, not {count!r}")
    return [f"b{number + 1}" for number in range(count)]
