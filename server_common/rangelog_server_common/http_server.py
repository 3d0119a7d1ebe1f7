"""An HTTP/1.1 server on the event loop of a process, for the REST interface of brokers, metrics, and the page.

What holds: signals and logging stay the process's. A connection that does not complete the head of a request in time is closed,
and there are at most so many connections. `close` refuses new requests, gives those that run a moment, and ends the rest.
Every HTTP port of a server is made here. With TLS, a handshake has a time limit, and who connects in a role that the port is
not for has REFUSAL in the state of each request, for the application to answer with.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rangelog_core.errors import RangelogError
from rangelog_core.net.principals import Port
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.tls_peers import admit, needs_token, server_arguments

REFUSAL = "rangelog.refusal"
"""In the state of a request: the error with which the connection is refused."""
PRINCIPAL = "rangelog.principal"
"""In the state of a request: who has connected, by the certificate; None without TLS."""
NEEDS_TOKEN = "rangelog.needs_token"  # noqa: S105 - no secret
"""In the state of a request: True for a connection with TLS and without a certificate, which the port lets in."""
HEAD_BYTES_MAX = 16 * 1024
HEAD_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 30
CONNECTIONS_MAX = 256
GRACE_S = 2.0
_CANCEL_S = 3.0


class HttpServer:
    """An ASGI application behind one port. For one event loop."""

    def __init__(
        self,
        app: Any,
        *,
        port: Port,
        tls: TlsConfig | None = None,
        tokens: bool = False,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        grace_s: float = GRACE_S,
        connections_max: int = CONNECTIONS_MAX,
        protocol: type[HeadInTime] | None = None,
    ) -> None:
        """`port`: what it is to those who connect with TLS. `tokens`: clients without a certificate are let in, and the
        application has to look at NEEDS_TOKEN. `protocol`: None: uvicorn's on h11, whose heads are bounded.

        Raises ConfigInvalid where the files of `tls` cannot be used."""
        protocol = protocol or _H11InTime

        class Protocol(protocol):  # type: ignore[misc, valid-type]
            timeout_s = head_timeout_s
            served_port = port
            takes_tokens = tokens

        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=connections_max,
            timeout_keep_alive=idle_timeout_s,  # type: ignore[arg-type]
            timeout_graceful_shutdown=grace_s,  # type: ignore[arg-type]
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._grace_s = grace_s
        self._server = _Server(config, server_arguments(tls, tokens=tokens))
        self._serving: asyncio.Task[None] | None = None

    async def start(self, bound: socket.socket) -> None:
        """Serve on a bound socket, which is closed with the server."""
        bound.listen(1024)
        bound.setblocking(False)
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]))
        listening = asyncio.create_task(self._server.listening.wait())
        try:
            await asyncio.wait((self._serving, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
        if self._serving.done():
            self._serving.result()

    def problems(self) -> list[str]:
        """Return why it is not ready."""
        return [] if self._serving is not None and not self._serving.done() else ["its HTTP server has ended"]

    def leave(self) -> None:
        """Take no new connection."""
        for each in self._server.servers:
            each.close()

    async def close(self) -> None:
        """End all connections, after a grace period for requests that run. Idempotent."""
        serving, self._serving = self._serving, None
        if serving is None:
            return
        self._server.should_exit = True
        with suppress(TimeoutError):
            async with asyncio.timeout(self._grace_s + _CANCEL_S):
                await serving


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tls: dict[str, Any]) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and note it. In place of uvicorn's, which has no time limit for TLS handshakes."""

        def connection() -> asyncio.Protocol:
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config, server_state=self.server_state, app_state={}
            )

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(connection, sock=each, backlog=self.config.backlog, **self._tls)
            for each in sockets or ()
        ]
        self.started = True
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the process."""
        yield


class HeadInTime(asyncio.Protocol):
    """Closes connections whose next request does not begin, or stays without its whole head, for too long.

    Mixed into a protocol of uvicorn's.
    """

    cycle: Any
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    app_state: dict[str, Any]

    timeout_s: float = HEAD_TIMEOUT_S
    served_port: Port
    takes_tokens: bool = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Part of asyncio.Protocol."""
        super().connection_made(transport)
        try:
            if self.takes_tokens and needs_token(transport):
                self.app_state = self.app_state | {NEEDS_TOKEN: True}
            else:
                self.app_state = self.app_state | {PRINCIPAL: admit(transport, self.served_port)}
        except RangelogError as error:
            self.app_state = self.app_state | {REFUSAL: error}  # of this connection
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self._stop_timer()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.timeout_s, self._end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class _H11InTime(HeadInTime, H11Protocol):  # type: ignore[misc]
    pass
