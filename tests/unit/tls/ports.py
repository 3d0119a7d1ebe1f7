"""Every kind of port, real, on loopback: `opened(port, tls)` serves one, and returns how a program calls on it."""

from __future__ import annotations

import asyncio
import html
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import grpc

from rangelog.errors import StreamNotFound
from rangelog_broker.door import DoorContext
from rangelog_broker.rest.server import RestServer
from rangelog_broker.runtime import bind
from rangelog_broker.serving.connection import ProducerPort, make_factory
from rangelog_broker.verbs.consume import Consumes
from rangelog_broker.verbs.read import Reads
from rangelog_core.errors import RoleForbids, Unauthorized, UnsupportedVersion, error_from_code
from rangelog_core.net.channels import Channels
from rangelog_core.net.data_connection import DataConnection, replica_id
from rangelog_core.net.grpc_errors import from_rpc_error
from rangelog_core.net.principals import Port, Role
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.tls_peers import server_arguments
from rangelog_core.net.token_sources import metadata_for
from rangelog_http.door import HTTP
from rangelog_http.settings import HttpSettings
from rangelog_page.app import make_page_app
from rangelog_page.rendering import Rendering
from rangelog_pd.consensus.network.dialing import Dialing
from rangelog_pd.consensus.network.handshake import MemberIdentity, group_digest
from rangelog_pd.handlers.service import RULES
from rangelog_proto.v1 import (
    group_service_pb2,
    group_service_pb2_grpc,
    pd_pb2,
    pd_pb2_grpc,
    range_server_pb2,
    range_server_pb2_grpc,
)
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import make_connection_factory
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.http_server import HttpServer
from rangelog_server_common.metrics.endpoint import MetricsEndpoint
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.verifier import TokenVerifier

SERVER_ROLE = {
    Port.PD_API: Role.PD,
    Port.PD_RAFT: Role.PD,
    Port.RANGE_DATA: Role.RANGE_SERVER,
    Port.RANGE_CONTROL: Role.RANGE_SERVER,
    Port.BROKER_DATA: Role.BROKER,
    Port.BROKER_CONTROL: Role.BROKER,
    Port.BROKER_REST: Role.BROKER,
    Port.BROKER_HTTP: Role.BROKER,
    Port.METRICS: Role.PD,
    Port.PD_PAGE: Role.PD,
}
NAME = "m1"
"""Of the process that serves."""
INCARNATION = 7


class Opened(NamedTuple):
    """A port that is served."""

    number: int
    call: Callable[..., Awaitable[None]]
    """Uses the port as a program of this cluster does, with its files and its token. Raises what that program is told."""


@asynccontextmanager
async def opened(port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None = None) -> AsyncIterator[Opened]:
    """Serve one port. `verifier`: it accepts tokens."""
    async with AsyncExitStack() as stack:
        yield await _OPEN[port](stack, port, tls, verifier)


async def _grpc(stack: AsyncExitStack, port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    server = GrpcServer(tls=tls, port=port, verifier=verifier, rules=RULES)
    servicer, add, stub_type, method, request = _SERVICES[port]
    setattr(servicer, method, _let_in)
    add(servicer(), server.server)
    number = await server.start("127.0.0.1:0", ())
    stack.push_async_callback(server.stop, 0)

    async def call(given: TlsConfig | None, token: str = "") -> None:
        channels = Channels(given, SERVER_ROLE[port])
        try:
            await getattr(channels.stub(f"127.0.0.1:{number}", stub_type), method)(
                request, timeout=3, metadata=metadata_for(token, given, "localhost:1")
            )
        except grpc.RpcError as error:
            found = from_rpc_error(error, "the server", given)
            if not isinstance(found, UnsupportedVersion):
                raise found from error
        finally:
            await channels.close()

    return Opened(number, call)


async def _let_in(*_: Any) -> Any:
    raise UnsupportedVersion("the call was let in, and nothing is behind it")


_SERVICES: dict[Port, tuple[Any, ...]] = {
    Port.PD_API: (
        type("Served", (pd_pb2_grpc.PlacementDriverServicer,), {}), pd_pb2_grpc.add_PlacementDriverServicer_to_server,
        pd_pb2_grpc.PlacementDriverStub, "DescribeCluster", pd_pb2.DescribeClusterRequest(),
    ),
    Port.RANGE_CONTROL: (
        type("Served", (range_server_pb2_grpc.RangeServerServicer,), {}),
        range_server_pb2_grpc.add_RangeServerServicer_to_server,
        range_server_pb2_grpc.RangeServerStub, "GetStatus", range_server_pb2.GetStatusRequest(),
    ),
    Port.BROKER_CONTROL: (
        type("Served", (group_service_pb2_grpc.GroupsServicer,), {}), group_service_pb2_grpc.add_GroupsServicer_to_server,
        group_service_pb2_grpc.GroupsStub, "ListGroups", group_service_pb2.ListGroupsRequest(),
    ),
}  # fmt: skip


async def _frames(stack: AsyncExitStack, port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    loop = asyncio.get_running_loop()
    if port is Port.RANGE_DATA:
        wal = SimpleNamespace(kick=lambda: None, pending_bytes=0, waits_for_segment=False)
        identity = SimpleNamespace(name=NAME, incarnation=INCARNATION)
        plane = DataPlane(SimpleNamespace(wal=wal), identity, None, loop, None, verifier=verifier)  # type: ignore[arg-type]
        stack.callback(plane.close)
        factory: Any = make_connection_factory(plane)
    else:
        producers = ProducerPort(NAME, INCARNATION, None, None, loop, verifier=verifier)  # type: ignore[arg-type]
        stack.callback(producers.close)
        factory = make_factory(producers)
    server = await loop.create_server(factory, "127.0.0.1", 0, **server_arguments(tls, tokens=verifier is not None))
    stack.callback(server.close)
    number = server.sockets[0].getsockname()[1]

    async def call(given: TlsConfig | None, token: str = "") -> None:
        kind: Any = "range server" if port is Port.RANGE_DATA else "broker"
        replica = replica_id(NAME, INCARNATION)
        made = await DataConnection.connect(
            f"127.0.0.1:{number}", replica, token=token, tls=given, timeout_s=3, kind=kind
        )
        made.close()

    return Opened(number, call)


async def _raft(stack: AsyncExitStack, _port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    group, secret = group_digest([NAME, "x"]), b"the shared secret"
    listener = Dialing(MemberIdentity(NAME, group, secret), "127.0.0.1:0", retry_s=0.01, tls=tls)
    stack.callback(listener.stop)
    met: list[str] = []
    listener.start(lambda name, sock, _keys: (met.append(name), sock.close()))  # type: ignore[arg-type, func-returns-value]
    number = listener._server.getsockname()[1]

    async def call(given: TlsConfig | None, token: str = "") -> None:
        from rangelog_pd.consensus.network.handshake import dial
        from rangelog_pd.consensus.network.member_tls import MemberTls

        def meet() -> None:
            import socket

            sock = socket.create_connection(("127.0.0.1", number), timeout=3)
            try:
                if given is not None:
                    sock = MemberTls(given).connect(sock, NAME, 3)
                dial(sock, MemberIdentity("x", group, secret), NAME, timeout_s=3)
            finally:
                sock.close()

        await asyncio.to_thread(meet)

    return Opened(number, call)


class _NoStreams:
    async def describe_stream(self, name: str, **_: Any) -> Any:
        raise StreamNotFound(f"no stream {name!r}")


async def _rest(stack: AsyncExitStack, _port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    bound = bind("127.0.0.1:0")
    server = RestServer(_NoStreams(), token=None, tls=tls, verifier=verifier)  # type: ignore[arg-type]
    await server.start(bound)
    stack.push_async_callback(server.close)
    number = bound.getsockname()[1]

    async def call(given: TlsConfig | None, token: str = "") -> None:
        status, body = await asyncio.to_thread(_get, number, given, "/v1/streams/s", token)
        if status != 404:
            told = json.loads(body)
            raise error_from_code(told["code"], told["message"])

    return Opened(number, call)


async def _http(stack: AsyncExitStack, _port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    bound = bind("127.0.0.1:0")
    quotas, nothing = QuotaGuard(), cast(Any, None)
    context = DoorContext(
        nothing, nothing, nothing, Reads(nothing, quotas), nothing, RightsGuard(), quotas, verifier, None, tls,
        Consumes(nothing, quotas),
    )  # fmt: skip
    server = await HTTP.open(context, HttpSettings(listen="127.0.0.1:0"), bound)
    stack.push_async_callback(server.close)
    number = bound.getsockname()[1]

    async def call(given: TlsConfig | None, token: str = "") -> None:
        status, body = await asyncio.to_thread(_get, number, given, "/v1/topics/default/t/records?limit=0", token)
        if status != 400:
            told = json.loads(body)
            raise error_from_code(told["code"], told["message"])

    return Opened(number, call)


async def _metrics(stack: AsyncExitStack, _port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    endpoint = MetricsEndpoint("pd", NAME, [], lambda: (), tls)
    stack.push_async_callback(endpoint.close)
    number = int((await endpoint.start("127.0.0.1:0")).rpartition(":")[2])

    async def call(given: TlsConfig | None, token: str = "") -> None:
        status, body = await asyncio.to_thread(_get, number, given, "/livez", token)
        if status != 200:
            raise RoleForbids(body.decode())

    return Opened(number, call)


async def _page(stack: AsyncExitStack, port: Port, tls: TlsConfig | None, verifier: TokenVerifier | None) -> Opened:
    asking = SimpleNamespace()  # a static file asks nothing of the cluster
    app = make_page_app(asking, Rendering(NAME), token=None, hosts=None, verifier=verifier)  # type: ignore[arg-type]
    server = HttpServer(app, port=port, tls=tls, tokens=verifier is not None)
    bound = bind("127.0.0.1:0")
    await server.start(bound)
    stack.push_async_callback(server.close)
    number = bound.getsockname()[1]

    async def call(given: TlsConfig | None, token: str = "") -> None:
        status, body = await asyncio.to_thread(_get, number, given, "/static/page.css", token)
        if status != 200:
            raise (Unauthorized if status == 401 else RoleForbids)(html.unescape(body.decode()))

    return Opened(number, call)


def _get(number: int, given: TlsConfig | None, path: str, token: str) -> tuple[int, bytes]:
    if given is None:
        made = http.client.HTTPConnection("127.0.0.1", number, timeout=3)
    else:
        context = ssl.create_default_context(cafile=given.ca)
        if given.cert:
            context.load_cert_chain(given.cert, given.key)
        made = http.client.HTTPSConnection("127.0.0.1", number, timeout=3, context=context)
    try:
        made.request("GET", path, headers={"authorization": f"Bearer {token}"} if token else {})
        answer = made.getresponse()
        return answer.status, answer.read()
    finally:
        made.close()


_OPEN: dict[Port, Callable[[AsyncExitStack, Port, TlsConfig | None, TokenVerifier | None], Awaitable[Opened]]] = {
    Port.PD_API: _grpc,
    Port.PD_RAFT: _raft,
    Port.RANGE_DATA: _frames,
    Port.RANGE_CONTROL: _grpc,
    Port.BROKER_DATA: _frames,
    Port.BROKER_CONTROL: _grpc,
    Port.BROKER_REST: _rest,
    Port.BROKER_HTTP: _http,
    Port.METRICS: _metrics,
    Port.PD_PAGE: _page,
}
