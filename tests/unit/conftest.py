"""Virtual time for tests that are marked `virtual`; placement drivers made of answers: real gRPC servers on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pytest_asyncio import is_async_test

from rangelog_pd.handlers.service import RULES
from rangelog_proto.v1 import pd_pb2
from rangelog_proto.v1.pd_pb2_grpc import PlacementDriverServicer, add_PlacementDriverServicer_to_server
from rangelog_server_common.grpc_server import GrpcServer
from tests.support.virtual_loop import LOOP, virtual_test

SERVICE_NAME = "rangelog.v1.PlacementDriver"
Handler = Callable[[Any], Awaitable[Any]]


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop of pytest-asyncio's tests and fixtures: that of `_virtual_time` where the test is marked."""
    return {"virtual": LOOP.get} if item.get_closest_marker("virtual") else {"real": asyncio.new_event_loop}


@pytest.fixture(autouse=True)
def _virtual_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before every other fixture of a marked test, so that they see its clocks; tests that do not await have none."""
    if request.node.get_closest_marker("virtual") and is_async_test(request.node):
        with virtual_test():
            yield
    else:
        yield


class FakePd(PlacementDriverServicer):
    """One member. Handlers by method name; `calls` is what came in, in order."""

    def __init__(self, handlers: dict[str, Handler]) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.address = ""
        self.server: GrpcServer
        self._handlers = dict(handlers)
        for method in pd_pb2.DESCRIPTOR.services_by_name["PlacementDriver"].methods:
            setattr(self, method.name, self._caller(method.name))

    def on(self, name: str, handler: Handler) -> None:
        """Answer the method `name` with `handler` from here on."""
        self._handlers[name] = handler

    def _caller(self, name: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: Any, context: Any) -> Any:
            self.calls.append((name, request))
            return await self._handlers[name](request)

        return call


StartPd = Callable[..., Awaitable[FakePd]]


@pytest.fixture
async def start_pd() -> AsyncIterator[StartPd]:
    """`await start_pd(ListServers=handler, …, token=…)`: a member that listens at `.address`."""
    async with AsyncExitStack() as stack:

        async def start(*, token: str | None = None, listen: str = "127.0.0.1:0", **handlers: Handler) -> FakePd:
            fake = FakePd(handlers)
            fake.server = GrpcServer(token=token, rules=RULES)
            add_PlacementDriverServicer_to_server(fake, fake.server.server)
            port = await fake.server.start(listen, (SERVICE_NAME,))
            stack.push_async_callback(fake.server.stop, 0)
            fake.address = f"127.0.0.1:{port}"
            return fake

        yield start


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address that refuses connections, and that nobody else takes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{probe.getsockname()[1]}"
