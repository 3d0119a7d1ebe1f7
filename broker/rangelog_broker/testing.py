"""A broker in memory for `rangelog.testing.FakeCluster`: the production runtime, without ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

from rangelog import Client
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from rangelog_core.net.owner_calls import OwnerCalls
from rangelog_server_common.metrics.call_tally import CallTally
from rangelog_server_common.tokens.verifier import TokenVerifier

PORT, CONTROL_PORT = 1, 2
WATERMARK_INTERVAL_S = 0.1


class Surroundings(Protocol):
    """Where the broker lives."""

    def client(self) -> Client:
        """Return a client of its cluster."""

    def owner_calls(self, client: Client) -> OwnerCalls:
        """Return what calls the services of brokers."""

    def listen(self, address: str, factory: Callable[[], Any]) -> Callable[[], None]:
        """Accept connections; return what ends that."""

    def serve(self, address: str, handlers: dict[str, Any]) -> Callable[[], None]:
        """Carry out calls; return what ends that."""


class MemoryBroker(Runtime):
    """See the module. `run` it as a task; cancelled, it ends as one that is killed."""

    def __init__(self, name: str, around: Surroundings) -> None:
        super().__init__(
            BrokerSettings(
                name=name,
                pd=["fake:1"],
                listen=f"{name}:{PORT}",
                control_listen=f"{name}:{CONTROL_PORT}",
                rest_listen="",
                advertise_host=name,
                watermark_interval_s=WATERMARK_INTERVAL_S,
            )
        )
        self.serving = asyncio.Event()
        """It is registered, and owns what it is assigned."""
        self._name = name
        self._around = around

    def _announce(self, stack: AsyncExitStack, metrics_address: str) -> None:
        super()._announce(stack, metrics_address)
        self.serving.set()

    def _bind(self) -> Any:
        return _Address(self._name)

    def _check_tls(self) -> None:
        pass  # nothing leaves the process

    def _client(self) -> Client:
        return self._around.client()

    def _calls(self, client: Client) -> OwnerCalls:
        return self._around.owner_calls(client)

    def _control(self, verifier: TokenVerifier | None) -> Any:
        return _MemoryServer(f"{self._name}:{CONTROL_PORT}", self._around)

    async def _listen(self, factory: Callable[[], Any], bound: Any) -> Any:
        return _Listening(self._around.listen(f"{self._name}:{PORT}", factory))


class _Address:
    """As a bound socket."""

    def __init__(self, name: str) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name, PORT

    def __enter__(self) -> _Address:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Listening:
    """As asyncio.Server."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.close = end


class _MemoryServer:
    """As GrpcServer, and as the server in it."""

    def __init__(self, address: str, around: Surroundings) -> None:
        self.server = self
        self.calls = CallTally()
        self._address = address
        self._around = around
        self._handlers: dict[str, Any] = {}
        self._end: Callable[[], None] = lambda: None

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """As grpc.aio.Server: the registered handlers are the same."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """As grpc.aio.Server."""
        self._handlers.update({f"/{service}/{name}": handler for name, handler in handlers.items()})

    def limit_by(self, check: Any) -> None:
        """As GrpcServer: nobody has a certificate here."""

    def hold_by(self, hold: Any) -> None:
        """As GrpcServer: there are no quotas here."""

    async def start(self, listen: str, service_names: tuple[str, ...]) -> int:
        """As GrpcServer."""
        self._end = self._around.serve(self._address, self._handlers)
        return CONTROL_PORT

    async def set_serving(self, serving: bool) -> None:
        """As GrpcServer."""

    async def stop(self) -> None:
        """As GrpcServer."""
        self._end()
