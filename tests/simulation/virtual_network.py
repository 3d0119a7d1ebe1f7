"""Connections and calls between simulated processes: delays, pieces, stalls, resets, one-way cuts, lost answers.

A connection keeps order and loses nothing while both ends live, as TCP does: across a cut its bytes wait and arrive late,
perhaps long after the client gave up and sent the same on another connection. When an end dies the other one hears of it
(or not, after a power cut). A gRPC call may lose its request, or only its answer.
"""

from __future__ import annotations

import asyncio
import contextvars
import zlib
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc

from rangelog_server_common.grpc_server import ErrorInterceptor
from tests.simulation.virtual_time import Process, VirtualLoop, here

RTT_S = 0.0002
PIECE_BYTES_MAX = 256 * 1024


class Network:
    """Who listens where, and what is cut. `cuts` holds (source host, target host): that direction is silent."""

    def __init__(self, loop: VirtualLoop, trace: Callable[[str], None]) -> None:
        self.loop = loop
        self.trace = trace
        self.chance = loop.chance
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.services: dict[str, Service] = {}
        self.cuts: dict[tuple[str, str], None] = {}
        self.slow_s: dict[str, float] = {}  # host → what it adds to every delay
        self.loss = 0.0  # of calls and of their answers
        self.jitter = 0.1  # how often a delay is long
        self.links: dict[Link, None] = {}
        self.counts: dict[str, int] = {}

    def delay_s(self, source: str, target: str) -> float:
        """A message's way: mostly short, sometimes long."""
        delay = self.chance.expovariate(1 / RTT_S)
        if self.chance.random() < self.jitter:
            delay += self.chance.expovariate(1 / 0.02)
        return delay + self.slow_s.get(source, 0.0) + self.slow_s.get(target, 0.0)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing gets from one host to another now."""
        return (source, target) in self.cuts

    def heal(self) -> None:
        """Everything gets through again; what waited arrives."""
        self.cuts.clear()
        for link in list(self.links):
            link.pump()

    def count(self, what: str) -> None:
        """For the report."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def answers(self, host: str) -> bool:
        """Whether a machine is up and would refuse what belongs to nobody there."""
        return any(name == host and each.process.alive for (name, _), each in self.listeners.items())

    # ---- connections

    def listen(self, factory: Callable[[], Any], sock: Any) -> Listener:
        """A process listens from now on, until it closes or dies."""
        listener = Listener(self, here(), factory, sock)
        self.listeners[listener.address] = listener
        return listener

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Raises ConnectionRefusedError; waits for ever across a cut, as a SYN does."""
        source = here()
        loop = self.loop
        await asyncio.sleep(self.delay_s(source.name, host))
        while self.is_cut(source.name, host) or self.is_cut(host, source.name):
            await asyncio.sleep(0.2)
        listener = self.listeners.get((host, port))
        if listener is None or not listener.process.alive:
            raise ConnectionRefusedError(111, "Connection refused")
        link = Link(self, source, listener.process)
        near, far = link.ends
        near.protocol = factory()
        self.trace(f"connect {source.name} {host}")

        def accept() -> None:
            far.protocol = listener.factory()
            far.protocol.connection_made(far)
            link.pump()

        loop.call_in(listener.process, 0.0, accept)
        near.protocol.connection_made(near)
        return near, near.protocol

    def died(self, process: Process, *, silently: bool) -> None:
        """All its connections break; the other ends hear of it unless the machine itself went."""
        for link in list(self.links):
            for end in link.ends:
                if end.process is process:
                    link.end_died(end, silently=silently)

    def reset(self, host: str, other: str | None = None) -> None:
        """Break a host's connections from outside."""
        for link in list(self.links):
            names = [end.process.name for end in link.ends]
            if host in names and (other is None or other in names):
                for end in link.ends:
                    self.loop.call_in(
                        end.process, self.delay_s(host, host), end.lost, ConnectionResetError(104, "reset")
                    )
                link.over()


class Listener:
    """What loop.create_server returns."""

    def __init__(self, network: Network, process: Process, factory: Callable[[], Any], sock: Any) -> None:
        self.network, self.process, self.factory, self.sockets = network, process, factory, [sock]
        self.address: tuple[str, int] = sock.getsockname()

    def close(self) -> None:
        """Accept nothing more."""
        if self.network.listeners.get(self.address) is self:
            del self.network.listeners[self.address]

    async def wait_closed(self) -> None:
        """It is."""


class Link:
    """One connection: two ends, each with bytes on their way to it."""

    def __init__(self, network: Network, near: Process, far: Process) -> None:
        self.network = network
        self.ends = (End(self, near), End(self, far))
        self.ends[0].peer, self.ends[1].peer = self.ends[1], self.ends[0]
        network.links[self] = None

    def pump(self) -> None:
        """Arrange for what is on its way to arrive."""
        for end in self.ends:
            end.arrange()

    def over(self) -> None:
        """Nobody needs it any more."""
        self.network.links.pop(self, None)

    def end_died(self, dead: End, *, silently: bool) -> None:
        """The process at one end is gone."""
        dead.gone = True
        if not silently:
            dead.peer.arriving.append((self.network.loop.now, b"", ConnectionResetError(104, "reset by peer")))
            dead.peer.arrange()
        elif dead.peer.gone:
            self.over()


class End(asyncio.Transport):
    """One end, as the protocol there sees it. `arriving`: (not before, bytes, error or None)."""

    def __init__(self, link: Link, process: Process) -> None:
        super().__init__()
        self.link = link
        self.process = process
        self.context = contextvars.copy_context()
        self.peer: End
        self.protocol: Any = None
        self.arriving: deque[tuple[float, bytes, BaseException | None]] = deque()
        self.gone = False  # closed here, or the process died
        self._arranged = False
        self._last = 0.0
        self._reading = True

    # ---- asyncio.Transport

    def write(self, data: Any) -> None:
        """Send."""
        if self.gone or not self.process.alive:
            return
        if not self.peer.process.alive and self.link.network.answers(self.peer.process.name):
            self.arriving.append((0.0, b"", ConnectionResetError(104, "reset by peer")))  # nobody knows this connection
            self.arrange()
            return
        self.peer.send_to(bytes(data))

    def writelines(self, parts: Any) -> None:
        """Send."""
        self.write(b"".join(parts))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is ever held back here."""

    def get_write_buffer_size(self) -> int:
        """Nothing."""
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing."""
        return default

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.gone

    def pause_reading(self) -> None:
        """Hold back what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Go on."""
        self._reading = True
        self.arrange()

    def close(self) -> None:
        """What was written still arrives, then the end."""
        self._close(None)

    def abort(self) -> None:
        """What is still on its way may be lost."""
        if not self.gone and self.link.network.chance.random() < 0.5:
            self.peer.arriving.clear()
        self._close(ConnectionResetError(104, "reset by peer"))

    def _close(self, error: BaseException | None) -> None:
        if self.gone:
            return
        self.gone = True
        self.peer.arriving.append((self.link.network.loop.now, b"", error or ConnectionAbortedError("eof")))
        self.peer.arrange()
        self.link.network.loop.call_in(self.process, 0.0, self._say_lost, None)

    # ---- the way here

    def send_to(self, data: bytes) -> None:
        """The peer sent this."""
        network = self.link.network
        due = network.loop.now + network.delay_s(self.peer.process.name, self.process.name)
        self._last = max(self._last, due)  # in order
        self.arriving.append((self._last, data, None))
        self.arrange()

    def arrange(self) -> None:
        """See that the first thing on its way arrives when it can."""
        if self._arranged or not self.arriving or not self._reading:
            return
        if self.link.network.is_cut(self.peer.process.name, self.process.name):
            return  # heal() comes back here
        self._arranged = True
        loop = self.link.network.loop
        loop.call_in(self.process, max(0.0, self.arriving[0][0] - loop.now), self._arrive)

    def _arrive(self) -> None:
        self._arranged = False
        network = self.link.network
        if not self.arriving or self.protocol is None or network.is_cut(self.peer.process.name, self.process.name):
            return
        _, data, error = self.arriving.popleft()
        if error is not None:
            self.lost(None if isinstance(error, ConnectionAbortedError) else error)
            return
        if self.gone:
            return
        if len(data) > 40 and network.chance.random() < 0.05:
            cut = network.chance.randrange(1, len(data))
            self.arriving.appendleft((network.loop.now + network.delay_s("", ""), data[cut:], None))
            self._last = max(self._last, self.arriving[0][0])
            data = data[:cut]
        network.trace(f"data {self.peer.process.name} {self.process.name} {len(data)} {zlib.crc32(data):08x}")
        self._feed(data)
        self.arrange()

    def _feed(self, data: bytes) -> None:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):  # a stream of asyncio
            protocol.data_received(data)
            return
        while data and not self.gone:
            buffer = protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            protocol.buffer_updated(size)

    def lost(self, error: BaseException | None) -> None:
        """The connection is over at this end."""
        if not self.gone:
            self.gone = True
            self._say_lost(error)
        self.link.over()

    def _say_lost(self, error: BaseException | None) -> None:
        if self.protocol is not None and self.process.alive:
            protocol, self.protocol = self.protocol, None
            protocol.connection_lost(error)


# ---- calls


class Service:
    """A gRPC server: production handlers behind the production interceptor, called in memory."""

    def __init__(self, network: Network, process: Process, address: str) -> None:
        self.process = process
        self.handlers: dict[str, Any] = {}
        self._interceptor = ErrorInterceptor(None)
        network.services[address] = self

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """As grpc.aio.Server."""
        for each in handlers:
            self._generic = each

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """As grpc.aio.Server."""
        self.handlers.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    async def call(self, method: str, data: bytes) -> bytes:
        """Run a handler. Raises Aborted."""
        details: Any = SimpleNamespace(method=method, invocation_metadata=())

        async def continuation(_: Any) -> Any:
            return self.handlers.get(method)

        handler = await self._interceptor.intercept_service(continuation, details)
        request = handler.request_deserializer(data) if handler.request_deserializer else data
        response = await handler.unary_unary(request, _Context())
        return bytes(handler.response_serializer(response) if handler.response_serializer else response)


class Aborted(grpc.aio.AbortError):
    """A handler ended its call with a status."""

    def __init__(self, status: Any) -> None:
        super().__init__()
        self.status = status


class _Context:
    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def abort_with_status(self, status: Any) -> None:
        raise Aborted(status)


class Channel:
    """As grpc.aio.Channel: enough for generated stubs."""

    def __init__(self, network: Network, address: str) -> None:
        self._network, self._address = network, address

    def unary_unary(self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        """Return a callable for one method."""

        async def call(request: Any, timeout: float, metadata: Any = ()) -> Any:
            data = request_serializer(request)
            try:
                async with asyncio.timeout(timeout):
                    return response_deserializer(await self._call(method, data))
            except TimeoutError:
                raise _failed(grpc.StatusCode.DEADLINE_EXCEEDED) from None

        return call

    async def close(self, grace: float | None = None) -> None:
        """Nothing to close."""

    async def _call(self, method: str, data: bytes) -> bytes:
        network, loop = self._network, self._network.loop
        source = here()
        host = self._address.rpartition(":")[0]
        await asyncio.sleep(network.delay_s(source.name, host))
        if network.is_cut(source.name, host):
            await asyncio.sleep(3600)
        service = network.services.get(self._address)
        if service is None or not service.process.alive:
            raise _failed(grpc.StatusCode.UNAVAILABLE)
        if network.chance.random() < network.loss:
            network.count("call lost")
            if network.chance.random() < 0.5:
                await asyncio.sleep(3600)
            raise _failed(grpc.StatusCode.UNAVAILABLE)
        network.trace(f"call {source.name} {host} {method} {zlib.crc32(data):08x}")
        answer: asyncio.Future[Any] = loop.create_future()

        def deliver(outcome: Any) -> None:
            if not answer.done():
                answer.set_result(outcome)

        async def serve() -> None:
            try:
                outcome: Any = await service.call(method, data)
            except Aborted as error:
                outcome = error
            if network.is_cut(host, source.name):
                return
            if network.chance.random() < network.loss:
                network.count("answer lost")
                outcome = None
            loop.call_in(source, network.delay_s(host, source.name), deliver, outcome)

        loop.spawn(service.process, serve())
        service_process = service.process

        def watch() -> None:  # a dead server's connection breaks
            if not answer.done():
                if not service_process.alive:
                    deliver(None)
                else:
                    loop.call_in(source, 0.1, watch)

        loop.call_in(source, 0.1, watch)
        outcome = await answer
        if isinstance(outcome, Aborted):
            raise _failed_with(outcome.status)
        if outcome is None:
            raise _failed(grpc.StatusCode.UNAVAILABLE)
        return bytes(outcome)


def _failed(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=code.name)


def _failed_with(status: Any) -> grpc.aio.AioRpcError:
    trailing = grpc.aio.Metadata(*status.trailing_metadata)
    return grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, details=status.details)
