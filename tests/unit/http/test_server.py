"""The server of the door over a loopback socket: where heads and requests end, and what is kept of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest

from rangelog_broker.door import DoorContext
from rangelog_broker.verbs.read import Reads
from rangelog_broker.verbs.send import Sends
from rangelog_core.net.principals import Port
from rangelog_http.app import Application
from rangelog_http.server import HEAD_BYTES_MAX, STEP_BYTES, BoundedHead
from rangelog_http.settings import HttpSettings
from rangelog_server_common.http_server import HttpServer
from tests.support.waiting import until

POST = b"POST /a HTTP/1.1\r\nHost: x\r\n"


class Echo:
    """Answers with the body, once it may; notes what came."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[bytes, bytes], bytes]] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Part of ASGI."""
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.came.append((dict(scope["headers"]), body))
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def echo() -> Echo:
    """The application."""
    return Echo()


@pytest.fixture
async def server(echo: Echo) -> AsyncIterator[HttpServer]:
    """The server, at a port of its own."""
    made = HttpServer(echo, port=Port.BROKER_HTTP, protocol=BoundedHead, grace_s=0.1)
    bound = socket.create_server(("127.0.0.1", 0))
    made.address = bound.getsockname()  # type: ignore[attr-defined]
    await made.start(bound)
    yield made
    echo.may_answer.set()
    await made.close()


async def spoken(server: HttpServer, *parts: bytes) -> bytes:
    """Send parts, each as one piece; return all that comes until the server ends the connection."""
    reader, writer = await asyncio.open_connection(*server.address)  # type: ignore[attr-defined]
    try:
        for part in parts:
            writer.write(part)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_an_offer_of_another_protocol_costs_no_byte_of_the_body(echo: Echo, server: HttpServer) -> None:
    """As Java's client and curl --http2 make it; in one piece, and in many."""
    head = (
        POST
        + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\nContent-Length: 5\r\n\r\n"
    )
    end = b"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for parts in ([head + b"hello" + end], [head, b"hello", end], [head[:70], head[70:] + b"he", b"llo" + end]):
        echo.came.clear()
        assert (await spoken(server, *parts)).count(b"200 OK") == 2
        assert [body for _, body in echo.came] == [b"hello", b""]
    assert b"400" in await spoken(server, b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n")


async def test_trailers_are_no_headers(echo: Echo, server: HttpServer) -> None:
    """Whoever looks at heads, a proxy or this door, has not seen them."""
    head = POST + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert b"200 OK" in await spoken(server, head + b"5\r\nhello\r\n0\r\nX-User: root\r\n\r\n")
    ((headers, body),) = echo.came
    assert body == b"hello" and b"x-user" not in headers


async def test_heads_and_trailers_without_end_are_refused(echo: Echo, server: HttpServer) -> None:
    """Whatever part of them has no end, and nothing reaches the application."""
    endless = b"x" * (2 * HEAD_BYTES_MAX)
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n"
    for given in (
        b"GET /" + endless, POST + endless, POST + b"X: " + endless, POST + b"X: y\r\n" * 10_000,
        chunked + b"0\r\n" + endless, chunked + b"0\r\nX: " + endless, chunked + b"0\r\n" + b"X: y\r\n" * 10_000,
        chunked + b"5;" + endless, b"\r\n" * HEAD_BYTES_MAX,
    ):  # fmt: skip
        came = await spoken(server, given)  # nothing where the client still sends at the end of its connection
        assert b" 400 " in came or came == b"", given[:40]
    assert echo.came == []


async def test_a_head_in_two_pieces_before_a_large_body(echo: Echo, server: HttpServer) -> None:
    """The body that comes with the rest of the head is not counted as head."""
    head = POST + b"Connection: close\r\nContent-Length: 200000\r\n\r\n"
    assert b"200 OK" in await spoken(server, head[:30], head[30:] + bytes(200_000))
    assert [len(body) for _, body in echo.came] == [200_000]


async def test_a_flood_of_requests_before_their_turn_waits_in_the_socket(echo: Echo, server: HttpServer) -> None:
    """Few of them are kept; each is answered once."""
    echo.may_answer.clear()
    one = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    count = 5_000
    reader, writer = await asyncio.open_connection(*server.address)  # type: ignore[attr-defined]
    writer.write(one * count + one[:-2] + b"Connection: close\r\n\r\n")
    await until(lambda: bool(echo.came), "the first one is there")
    (connection,) = server._server.server_state.connections
    assert isinstance(connection, BoundedHead)
    await until(lambda: bool(connection.pipeline), "the others wait")
    kept_max = STEP_BYTES // len(one) + 1
    assert 1 <= len(connection.pipeline) <= kept_max and not connection.transport.is_reading()
    echo.may_answer.set()
    answers = 0
    async with asyncio.timeout(60):
        while data := await reader.read(1 << 20):
            answers += data.count(b"HTTP/1.1 200")
            assert len(connection.pipeline) <= kept_max
    writer.close()
    assert len(echo.came) == count + 1 and abs(answers - count) < count // 20  # one may be cut by two reads


async def test_a_client_that_reads_nothing_loses_its_connection(echo: Echo, server: HttpServer) -> None:
    """Whether its connection would go on or not; one that reads has all of it."""
    server._server.config.http_protocol_class.unread_timeout_s = 0.2  # type: ignore[attr-defined, union-attr]
    connections = server._server.server_state.connections
    for size, head in ((40 << 20, POST), (40 << 20, POST + b"Connection: close\r\n"), (3 << 20, POST)):
        reader, writer = await asyncio.open_connection(*server.address, limit=1 << 10)  # type: ignore[attr-defined]
        writer.write(head + b"Content-Length: %d\r\n\r\n" % size + bytes(size))
        await until(lambda: len(connections) == 1, "it is connected")
        if size > 3 << 20:
            await until(lambda: not connections, "it is disconnected")
        else:
            async with asyncio.timeout(60):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                assert await reader.readexactly(size) == bytes(size)
        writer.transport.abort()
        await until(lambda: not connections, "it is gone")


async def test_what_is_under_way_at_a_stop_is_answered(context: DoorContext) -> None:
    """A send's outcome is not known; a read can be asked of another broker. No answer says that there is a defect."""
    server = HttpServer(
        Application(context, HttpSettings(listen="127.0.0.1:0")),
        port=Port.BROKER_HTTP,
        protocol=BoundedHead,
        grace_s=0.1,
    )
    bound = socket.create_server(("127.0.0.1", 0))
    server.address = bound.getsockname()  # type: ignore[attr-defined]
    await server.start(bound)
    asked = asyncio.Event()

    async def stuck(*_: Any, **__: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    with mock.patch.object(Sends, "send", stuck), mock.patch.object(Reads, "read", stuck):
        path = b"/v1/topics/default/t/records HTTP/1.1\r\nHost: x\r\n"
        given = [b"POST " + path + b"Content-Length: 1\r\n\r\n1", b"GET " + path + b"\r\n"]
        answers = [asyncio.ensure_future(spoken(server, each)) for each in given]
        await asked.wait()
        await until(lambda: len(server._server.server_state.tasks) == 2, "both are under way")
        await server.close()
        sent, read = await asyncio.gather(*answers)
    assert sent.startswith(b"HTTP/1.1 504") and b'"outcome_unknown":true' in sent
    assert read.startswith(b"HTTP/1.1 503") and b"retry-after: 1" in read


async def half_closed(server: HttpServer, data: bytes) -> bytes:
    """Send data, close that half of the connection, and return all that comes."""
    reader, writer = await asyncio.open_connection(*server.address)  # type: ignore[attr-defined]
    writer.write(data)
    writer.write_eof()
    try:
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_sends_nothing_more_is_answered(echo: Echo, server: HttpServer) -> None:
    """All of its requests, and then the connection ends; one that is not whole is not carried out."""
    one = POST + b"Content-Length: 2\r\n\r\nhi"
    assert (await half_closed(server, one)).endswith(b"\r\n\r\nhi")
    assert (await half_closed(server, one * 500)).count(b"HTTP/1.1 200 OK") == 500
    echo.came.clear()
    assert (await half_closed(server, one + POST + b"Content-Length: 3\r\n\r\nhi")).count(b"200 OK") <= 1
    assert (await half_closed(server, POST)).count(b"200 OK") == 0
    assert await half_closed(server, b"") == b""
    assert all(body == b"hi" for _, body in echo.came)
    connections = server._server.server_state.connections  # type: ignore[union-attr]
    await until(lambda: not connections, "no connection is left")


async def test_what_waits_ends_where_a_client_sends_nothing_more(
    context: DoorContext, server_of_door: HttpServer
) -> None:
    """It may be gone: a read at the end is answered at once, and a tail ends."""
    path = b"GET /v1/topics/default/t/"
    answer = await half_closed(server_of_door, path + b"records?wait_ms=60000 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200") and b'"records":[]' in answer
    answer = await half_closed(server_of_door, path + b"records?wait_ms=x HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    await half_closed(server_of_door, path + b"tail HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (context.reads.waiting_count, context.reads.follow_count) == (0, 0)
