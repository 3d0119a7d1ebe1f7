"""WebSocket connections, from the answer 101 on: wsproto has the frames, this module the limits.

What holds: a message of the client has a bounded length, in however many frames it comes, and of messages that were not taken a
bounded number is kept: beyond it the socket is not read. A message to it waits until it reads. A frame that breaks the
protocol ends the connection with the code that says why; so does a stop of the server, with 1001.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import generate_accept_token

from rangelog.errors import InvalidArgument
from rangelog_http.reading_time import ReadInTime
from rangelog_server_common.http_guard import Refusal

UPGRADE = "rangelog.upgrade"
"""In the scope of a request that asks for a WebSocket: a function that takes the chosen subprotocol and returns the socket."""
VERSION = b"13"
MESSAGE_LENGTH_MAX = 1_024
"""Characters of a client's message."""
MESSAGES_MAX = 16
"""Of a client that were not taken yet."""
CLOSE_TIMEOUT_S = 2.0
"""For the client's part of the closing handshake."""
GOING_AWAY, UNSUPPORTED, TOO_BIG = 1001, 1003, 1009
_REASON_LENGTH_MAX = 100


class MessageSocket(ReadInTime):
    """One connection. `close` it."""

    def __init__(self, transport: asyncio.Transport, connections: Any) -> None:
        """`connections`: those of the server, whose `shutdown` it calls when it stops."""
        self.loop = asyncio.get_running_loop()
        self.transport = transport
        self.has_answered = True
        """Whether anything came since the last ping."""
        self._frames = Connection(ConnectionType.SERVER)
        self._connections = connections
        self._part = ""
        self._came: deque[str] = deque()
        self._comes = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closing: asyncio.TimerHandle | None = None
        self._is_over = self._is_held = False
        connections.add(self)

    # ---- the handler

    async def send(self, text: str) -> bool:
        """Send a message once the client has read enough of those before; return False where the connection is over."""
        while not self._writable.is_set() and not self._is_over:
            await self._writable.wait()
        return self._write(TextMessage(data=text))

    async def receive(self) -> str | None:
        """Return the next message; None: the connection is over."""
        while not self._came:
            if self._is_over or self._closing is not None:
                return None
            self._comes.clear()
            await self._comes.wait()
        text = self._came.popleft()
        self._read_on()
        return text

    def ping(self) -> None:
        """Ask whether the client is there: see `has_answered`."""
        self.has_answered = False
        self._write(Ping())

    def close(self, code: int, reason: str = "") -> None:
        """End the connection, for a reason that the client is given. Idempotent."""
        if self._is_over or self._closing is not None:
            return
        self._closing = self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)
        if not self._write(CloseConnection(code=code, reason=reason[:_REASON_LENGTH_MAX])):
            self.transport.close()
        self._came.clear()
        self._comes.set()
        self._writable.set()
        self._read_on()

    # ---- the server

    def shutdown(self) -> None:
        """The server stops. Called by uvicorn."""
        self.close(GOING_AWAY, "this broker stops: ask another one")

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        self.has_answered = True
        if self._frames.state is ConnectionState.CLOSED or self._is_over:
            return
        self._frames.receive_data(data)
        for event in self._frames.events():
            if isinstance(event, CloseConnection):
                self._end(event)
            elif self._closing is None:
                self._take(event)

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._writable.clear()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._writable.set()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self._is_over = True
        if self._closing is not None:
            self._closing.cancel()
        self._connections.discard(self)
        self._comes.set()
        self._writable.set()
        super().connection_lost(exc)

    # ---- inside

    def _take(self, event: Any) -> None:
        if isinstance(event, TextMessage):
            self._part += event.data
            if len(self._part) > MESSAGE_LENGTH_MAX:
                self._part = ""
                self.close(TOO_BIG, f"a message has up to {MESSAGE_LENGTH_MAX} characters")
            elif event.message_finished:
                self._came.append(self._part)
                self._part = ""
                self._comes.set()
                if len(self._came) >= MESSAGES_MAX and not self._is_held:
                    self._is_held = True
                    self.transport.pause_reading()
        elif isinstance(event, BytesMessage):
            self.close(UNSUPPORTED, "messages are texts")
        elif isinstance(event, Ping) and self._writable.is_set():  # a client that reads nothing gets no answers
            self._write(Pong(payload=event.payload))

    def _read_on(self) -> None:
        if self._is_held and len(self._came) < MESSAGES_MAX and not self.transport.is_closing():
            self._is_held = False
            self.transport.resume_reading()

    def _end(self, event: CloseConnection) -> None:
        """Answer the client's closing, or what is no frame."""
        if self._frames.state is ConnectionState.REMOTE_CLOSING:
            self._write(event.response())
        elif self._closing is None:
            self._write(CloseConnection(code=event.code, reason=(event.reason or "")[:_REASON_LENGTH_MAX]))
        self._is_over = True
        self._comes.set()
        self._writable.set()
        self.transport.close()
        if self._closing is None:
            self._closing = self.loop.call_later(CLOSE_TIMEOUT_S, self.transport.abort)

    def _write(self, event: Any) -> bool:
        if self._is_over or self.transport.is_closing():
            return False
        if self._frames.state is not ConnectionState.OPEN and not isinstance(event, CloseConnection):
            return False
        self.transport.write(self._frames.send(event))
        return True


def check_handshake(headers: Mapping[bytes, bytes]) -> None:
    """Raise Refusal where a request for a WebSocket is not one of version 13 with a key."""
    if headers.get(b"sec-websocket-version") != VERSION:
        raise Refusal(426, InvalidArgument("WebSockets are served in version 13"))
    try:
        key = base64.b64decode(headers.get(b"sec-websocket-key", b""), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != 16:
        raise Refusal(400, InvalidArgument("Sec-WebSocket-Key is 16 bytes in base64"))


def switching(headers: Mapping[bytes, bytes], subprotocol: str) -> bytes:
    """Return the answer 101; `subprotocol`: the chosen one, "": none."""
    accept = generate_accept_token(headers[b"sec-websocket-key"]).strip()
    chosen = b"sec-websocket-protocol: %s\r\n" % subprotocol.encode() if subprotocol else b""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
        b"sec-websocket-accept: %s\r\n%s\r\n" % (accept, chosen)
    )


Upgrade = Callable[[str], MessageSocket]
"""Given the chosen subprotocol. Raises Refusal where the client sends on before it is answered."""
