"""The HTTP server on real sockets: it serves, bounds what a connection may hold, and ends cleanly."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from rangelog.errors import StreamNotFound
from rangelog_broker.rest.server import RestServer


class FakeClient:
    """Knows no stream; the answer waits for `go`."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()

    async def describe_stream(self, name: str, **_: Any) -> Any:
        self.entered.set()
        await self.go.wait()
        raise StreamNotFound(f"no stream {name!r}")


@asynccontextmanager
async def serving(client: Any, **options: Any) -> AsyncIterator[tuple[RestServer, int]]:
    """A server on a free port."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    server = RestServer(client, token=None, **options)
    await server.start(bound)
    try:
        yield server, bound.getsockname()[1]
    finally:
        await server.close()


async def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes, and read until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()


REQUEST = b"GET /v1/streams/s HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


async def test_a_request_and_its_answer() -> None:
    """HTTP/1.1, JSON; nothing about the program in the headers. The broker's signal handlers are untouched."""
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with serving(FakeClient()) as (_, port):
        head, _, body = (await exchange(port, REQUEST)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 404") and b"server:" not in head.lower()
        assert json.loads(body)["code"] == "STREAM_NOT_FOUND"
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


@pytest.mark.parametrize("sent", [b"\x00\xff" * 40_000, b"GET\r\n\r\n", b"GET /" + b"a" * 70_000])
async def test_garbage_on_the_port(sent: bytes) -> None:
    """The connection is closed with a 400; others are served."""
    async with serving(FakeClient()) as (_, port):
        assert (await exchange(port, sent)).startswith(b"HTTP/1.1 400")
        assert (await exchange(port, REQUEST)).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize("first", [b"", REQUEST.replace(b"connection: close\r\n", b"")])
@pytest.mark.parametrize("sent", [b"", b"GET /v1/streams HTTP/1.1\r\n"])
async def test_a_head_that_stays_incomplete(monkeypatch: pytest.MonkeyPatch, first: bytes, sent: bytes) -> None:
    """A connection without a whole request is closed after its time: a new one, and one that had an answer."""
    monkeypatch.setattr("rangelog_broker.rest.server.IDLE_TIMEOUT_S", 0.05 if not sent else 60)
    async with serving(FakeClient(), head_timeout_s=60 if first else 0.05) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(30):
            if first:
                writer.write(first)
                assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 404")
            protocol: Any = server._server.config.http
            protocol.timeout_s = 0.05
            writer.write(sent)
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()


async def test_a_stop_waits_for_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that runs has its answer; new connections are refused; a second close does nothing."""
    monkeypatch.setattr("rangelog_broker.rest.server.GRACE_S", 60)
    client = FakeClient()
    client.go.clear()
    async with serving(client) as (server, port):
        asked = asyncio.create_task(exchange(port, REQUEST))
        await client.entered.wait()
        closing = asyncio.create_task(server.close())
        async with asyncio.timeout(30):
            while await _accepts(port):
                await asyncio.sleep(0.001)
        client.go.set()
        assert (await asked).startswith(b"HTTP/1.1 404")
        await closing
        await server.close()


async def test_a_stop_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that stays is ended after the grace period, and an idle connection at once."""
    monkeypatch.setattr("rangelog_broker.rest.server.GRACE_S", 0.05)
    client = FakeClient()
    async with serving(client) as (server, port), asyncio.timeout(60):
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        idle_writer.write(REQUEST.replace(b"connection: close\r\n", b""))
        await idle.readuntil(b"}")
        client.go.clear()
        client.entered.clear()
        asked = asyncio.create_task(exchange(port, REQUEST))
        await client.entered.wait()
        await server.close()
        assert b"STREAM_NOT_FOUND" not in await asked
        assert await idle.read() == b""
        idle_writer.close()


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


def test_the_web_framework_is_loaded_only_where_it_is_used() -> None:
    """A broker without a REST port does not import it."""
    code = "import sys, rangelog_broker.runtime; print('fastapi' in sys.modules, 'uvicorn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "False"]
