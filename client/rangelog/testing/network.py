"""What the parts of a FakeCluster with brokers send each other, in memory: connections of bytes, and calls of services.

What holds: either end of a connection lives on an event loop of its own, and gets bytes there, in order; a call is carried out
on the loop of its service, with copies of its messages; what listens nowhere refuses at once, with the error that a closed
port gives.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import grpc
from grpc_status import rpc_status

from rangelog_core.errors import InternalError, RangelogError, Unavailable
from rangelog_core.net.grpc_errors import to_status

_T = TypeVar("_T")
_Factory = Callable[[], asyncio.BufferedProtocol]


async def run_on(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine on its loop, which another thread may run, and return its result. Raises Unavailable after its end."""
    if loop is asyncio.get_running_loop():
        return await work()
    started = work()
    try:
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(started, loop))
    except RuntimeError as error:
        started.close()
        raise Unavailable("the FakeCluster is closed") from error
    try:
        return await future
    except asyncio.CancelledError:
        me = asyncio.current_task()
        if me is not None and me.cancelling():
            raise
        raise Unavailable("the FakeCluster was closed", outcome_unknown=True) from None


class Network:
    """Who listens where. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, _Listener] = {}
        self._services: dict[str, _Services] = {}

    def accepts(self, address: str) -> bool:
        """Whether connections are accepted there."""
        return address in self._listeners

    def listen(self, address: str, factory: _Factory) -> Callable[[], None]:
        """Accept connections on the running loop; return what ends that."""
        with self._lock:
            self._listeners[address] = _Listener(asyncio.get_running_loop(), factory)
        return lambda: self._forget(self._listeners, address)

    def connect(self, address: str, protocol: asyncio.BufferedProtocol) -> Callable[[], None]:
        """Connect a protocol of the running loop; return what ends the connection. Raises ConnectionRefusedError."""
        listener = self._listeners.get(address)
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        near = _End(asyncio.get_running_loop(), protocol)
        far = _End(listener.loop)
        near.peer, far.peer = far, near
        factory = listener.factory
        far.soon(lambda: far.begin(factory()))
        near.begin(protocol)
        return near.close

    def serve(self, address: str, handlers: dict[str, Any]) -> Callable[[], None]:
        """Carry out calls on the running loop; `handlers`: as gRPC has them, by "/service/method". Return what ends that."""
        with self._lock:
            self._services[address] = _Services(asyncio.get_running_loop(), handlers)
        return lambda: self._forget(self._services, address)

    def channel(self, address: str) -> Any:
        """Return what stands in place of a gRPC channel, enough for generated stubs."""
        return _Channel(self, address)

    async def call(self, address: str, method: str, data: bytes) -> bytes:
        """Carry out a call. Raises grpc.aio.AioRpcError."""
        services = self._services.get(address)
        if services is None:
            raise _rpc_error(Unavailable(f"nobody serves at {address}"))
        try:
            return await run_on(services.loop, lambda: _handled(services.handlers[method], data))
        except RangelogError as error:
            raise _rpc_error(error) from error

    def _forget(self, known: dict[str, Any], address: str) -> None:
        with self._lock:
            known.pop(address, None)


class _Listener(NamedTuple):
    loop: asyncio.AbstractEventLoop
    factory: _Factory


class _Services(NamedTuple):
    loop: asyncio.AbstractEventLoop
    handlers: dict[str, Any]


async def _handled(handler: Any, data: bytes) -> bytes:
    try:
        response = await handler.unary_unary(handler.request_deserializer(data), None)
        return bytes(handler.response_serializer(response))
    except RangelogError:
        raise
    except Exception as error:
        raise InternalError(f"a broker of the FakeCluster failed: {error!r}") from error


def _rpc_error(error: RangelogError) -> grpc.aio.AioRpcError:
    status = rpc_status.to_status(to_status(error))
    trailing = grpc.aio.Metadata(*status.trailing_metadata)
    return grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, details=status.details)


class _Channel:
    """As grpc.aio.Channel."""

    def __init__(self, network: Network, address: str) -> None:
        self._network = network
        self._address = address

    def unary_unary(
        self, method: str, request_serializer: Any, response_deserializer: Any, **_: Any
    ) -> Callable[..., Awaitable[Any]]:
        """Return a callable for one method."""

        async def call(request: Any, timeout: float, metadata: Any = ()) -> Any:
            try:
                async with asyncio.timeout(timeout):
                    data = await self._network.call(self._address, method, request_serializer(request))
            except TimeoutError:
                code = grpc.StatusCode.DEADLINE_EXCEEDED
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata()) from None
            return response_deserializer(data)

        return call

    async def close(self, grace: float | None = None) -> None:
        """Nothing is open."""


class _End(asyncio.Transport):
    """One end of a connection, as the protocol there has it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.BufferedProtocol | None = None) -> None:
        super().__init__()
        self.peer: _End
        self._loop = loop
        self._protocol = protocol
        self._arrived: list[bytes] = []
        self._reading = True
        self._over = False

    def soon(self, work: Callable[[], None]) -> None:
        """Do something on this end's loop, if that still runs."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            self._over = True

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        """Let the protocol have this end."""
        self._protocol = protocol
        protocol.connection_made(self)

    # ---- asyncio.Transport

    def write(self, data: Any) -> None:
        """Send."""
        if not self._over:
            copy = bytes(data)
            self.peer.soon(lambda: self.peer._arrive(copy))

    def writelines(self, list_of_data: Any) -> None:
        """Send."""
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing is held back here."""

    def get_write_buffer_size(self) -> int:
        """Nothing is held back here."""
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket."""
        return default

    def is_closing(self) -> bool:
        """Whether the connection has ended."""
        return self._over

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand over what was kept."""
        self._reading = True
        self.soon(self._hand_over)

    def close(self) -> None:
        """End the connection; the other end has what was written before."""
        self.peer.soon(self.peer._lost)
        self.soon(self._lost)

    def abort(self) -> None:
        """End the connection."""
        self.close()

    # ---- inside

    def _arrive(self, data: bytes) -> None:
        self._arrived.append(data)
        self._hand_over()

    def _hand_over(self) -> None:
        while self._arrived and self._reading and not self._over and self._protocol is not None:
            rest = memoryview(self._arrived.pop(0))
            while rest and not self._over:
                buffer = memoryview(self._protocol.get_buffer(-1))
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                self._protocol.buffer_updated(count)
                rest = rest[count:]

    def _lost(self) -> None:
        if not self._over:
            self._hand_over()
            self._over = True
            if self._protocol is not None:
                self._protocol.connection_lost(None)
