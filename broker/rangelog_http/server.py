"""The door's HTTP server: httptools parses, uvicorn serves, with the limits of this port.

What holds: the head of a request, its trailers too, is bounded before it is kept, and trailers are no headers of a request.
A request whose length is said in two ways is refused, so that no proxy and this server can disagree where it ends. An offer of
another protocol is not taken up, but for a WebSocket, by the application, once it knows who asks. Of requests that come before
their turn no more are kept than one step of the parser has. A client that reads nothing of its answer for too long loses its
connection.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl, service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rangelog.errors import InvalidArgument
from rangelog_http.cycle import RequestCycle
from rangelog_http.reading_time import ReadInTime
from rangelog_http.upgrades import UPGRADE, MessageSocket, switching
from rangelog_server_common.http_guard import BODY_NOW, Refusal
from rangelog_server_common.http_server import HeadInTime

STEP_BYTES = 4 * 1024
"""Parsed at a time."""
HEAD_BYTES_MAX = 48 * 1024
"""Of a head, which may have a position in as many shards as a topic has."""


class _HeldFlow(FlowControl):
    """Does not resume reading while there are bytes that are not parsed."""

    held = False

    def resume_reading(self) -> None:
        """Called by uvicorn, whenever a request is received or answered."""
        if not self.held:
            super().resume_reading()


class _StepwiseRequests(HttpToolsProtocol):  # type: ignore[misc]
    """One connection, as its parser has it."""

    flow: _HeldFlow

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._unparsed = b""
        self._head_bytes = 0
        self._held_bytes = 0  # since the parser called last: it may hold them, of a name or value that has not ended
        self._has_called = False
        self._in_head = False
        self._offered = False  # another protocol, by the request whose head is parsed
        self._is_half_closed = False
        self._asks_socket = False  # the request whose head is parsed for the second time
        self._idle_since_s: float | None = None  # None: something came after the last answer
        self._idle_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Part of asyncio.Protocol."""
        super().connection_made(transport)
        self.flow = _HeldFlow(transport)

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        self._idle_since_s = None
        self._unparsed += data
        self._parse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self._left()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Part of asyncio.Protocol. Keep the connection where an answer is due: its client may still read."""
        cycle = self.cycle
        if (
            cycle is None
            or self.scheme == "https"
            or cycle.more_body
            or (cycle.response_complete and not self._unparsed)
        ):
            return False
        self._is_half_closed = True
        of_all: list[Any] = [cycle, *(queued for queued, _ in self.pipeline)]
        for each in of_all:
            each.half_close()
        return True

    def on_response_complete(self) -> None:
        """Called by a cycle. In place of uvicorn's, which makes a timer for each answer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._idle_since_s = self.loop.time()
            if self._idle_timer is None:
                self._idle_timer = self.loop.call_later(self.timeout_keep_alive, self._look_whether_idle)
        if self._unparsed:
            self._parse()
        if self._is_half_closed and self.cycle.response_complete and not self.pipeline:
            self.transport.close()

    # ---- called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._head_bytes, self._has_called, self._in_head, self._offered = 0, True, True, False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A part of its target is there."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is there, or a trailer, which is dropped: who asks was known by the headers."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._has_called, self._in_head = True, False
        self._offered = self.parser.should_upgrade()
        if not self._offered:
            self._begin()
        elif self.parser.get_method() == b"CONNECT":
            raise ValueError("this is no proxy")

    def on_body(self, body: bytes) -> None:
        """A part of the body is there."""
        self._has_called = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there."""
        self._has_called = True
        if not self._offered:
            super().on_message_complete()

    # ---- inside

    def _left(self) -> None:
        """The connection is over, or another protocol has it."""
        self._unparsed = b""
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _upgraded(self, subprotocol: str) -> MessageSocket:
        """Give the connection to a socket, after the answer 101. Raises Refusal."""
        cycle = self.cycle
        if cycle.more_body or cycle.body or self.pipeline or self._unparsed or cycle.disconnected:
            raise Refusal(400, InvalidArgument("a request for a WebSocket has no body, and nothing follows it"))
        self.transport.write(switching(dict(self.headers), subprotocol))
        cycle.response_started = cycle.response_complete = cycle.disconnected = True
        self.connections.discard(self)
        self._left()
        socket = MessageSocket(self.transport, self.connections)
        self.transport.set_protocol(socket)
        return socket

    def _look_whether_idle(self) -> None:
        self._idle_timer = None
        if self._idle_since_s is None:
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._idle_timer = self.loop.call_later(left_s, self._look_whether_idle)
        else:
            self.transport.close()

    def _begin(self) -> None:
        """Run the application for the request whose head is there, in its turn. In place of uvicorn's, for the cycle."""
        version = self.parser.get_http_version()
        scope: Any = self.scope
        target = httptools.parse_url(self.url)
        path = target.path.decode("ascii")
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = target.path
        scope["query_string"] = target.query or b""
        limit = self.limit_concurrency
        is_full = limit is not None and max(len(self.connections), len(self.tasks)) >= limit
        before = self.cycle
        self.cycle = cycle = RequestCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        scope[BODY_NOW] = cycle.body_now
        if self._is_half_closed:
            cycle.half_close()
        if self._asks_socket:
            self._asks_socket, scope[UPGRADE] = False, self._upgraded
        app = service_unavailable if is_full else self.app
        if before is None or before.response_complete:
            self._start_asgi_task(cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))

    def _parse(self) -> None:
        """Parse step by step, until a request waits for its turn."""
        given, at = self._unparsed, 0
        while at < len(given) and not self.pipeline and not self.transport.is_closing():
            step = given[at : at + STEP_BYTES]
            at += len(step)
            self._has_called = False
            try:
                self.parser.feed_data(step)
            except httptools.HttpParserUpgrade as offer:
                self._asks_socket = (b"upgrade", b"websocket") in [
                    (name, value.lower()) for name, value in self.headers
                ]
                given, at = self._head_without_offer() + step[offer.args[0] :] + given[at:], 0
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                continue
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            self._held_bytes = 0 if self._has_called else self._held_bytes + len(step)
            if self._held_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")
        self._unparsed = given[at:] if self.pipeline else b""
        if self._unparsed:
            self.flow.held = True
            self.flow.pause_reading()
        elif self.flow.held:
            self.flow.held = False
            self.flow.resume_reading()

    def _head_without_offer(self) -> bytes:
        """Return the head as if the client had offered no other protocol: the parser takes what follows for that protocol."""
        line = b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())
        kept = (b"%s: %s\r\n" % each for each in self.headers if each[0] != b"upgrade")
        return line + b"".join(kept) + b"\r\n"

    def _count(self, size_bytes: int) -> None:
        """Raise ValueError, which the parser makes an error of the request."""
        self._has_called = self._has_called or self._in_head
        self._head_bytes += size_bytes
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError("the head of the request is too large")


class BoundedHead(HeadInTime, ReadInTime, _StepwiseRequests):
    """One connection. It is ended where its client reads nothing of an answer for too long."""

    def on_response_complete(self) -> None:
        """Called by uvicorn."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self.await_reading()

    def _left(self) -> None:
        self._stop_timer()
        self.end_waits()
        super()._left()
