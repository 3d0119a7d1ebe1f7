"""One request and its answer on a connection: uvicorn's, and at a fraction of its cost where the answer is in one piece.

What holds: a client that closes its half of the connection after a request gets its answer. An answer whose length is said goes
out in one piece with its head; any other goes uvicorn's way. A body that is there before the application runs is had without a
wait.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

HALF_CLOSED = "rangelog.half_closed"
"""The type of a message: the client sends nothing more. It may be there for its answer, or gone."""
_BODILESS = (204, 304)


class RequestCycle(RequestResponseCycle):
    """See the module."""

    _start: Any = None  # of an answer, with its head unwritten
    _is_received = False  # all of the request
    _is_half_closed = False  # and the application does not know yet

    def body_now(self) -> bytes | None:
        """Return the body if all of it is there, once; `receive` has what follows. None: it has to be received."""
        if self.more_body or self.disconnected:
            return None
        body, self.body = bytes(self.body), bytearray()
        return body

    def half_close(self) -> None:
        """The client sends nothing more, and may read on."""
        self._is_half_closed = True
        self.message_event.set()

    async def receive(self) -> Any:
        """Part of ASGI. After the whole request, HALF_CLOSED once, if it is so."""
        message = await super().receive()
        if message["type"] == "http.request" and not message["more_body"]:
            if self._is_received and self._is_half_closed:
                self._is_half_closed = False
                return {"type": HALF_CLOSED}
            self._is_received = True
            if self._is_half_closed:
                self.message_event.set()
        return message

    async def send(self, message: Any) -> None:
        """Part of ASGI."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if not self.response_started and message["type"] == "http.response.start":
            self._start, self.response_started, self.waiting_for_100_continue = message, True, False
            return
        start, self._start = self._start, None
        if start is not None:
            if self._is_written_whole(start, message):
                return
            self.response_started = False
            await super().send(start)
        await super().send(message)

    def _is_written_whole(self, start: Any, message: Any) -> bool:
        """Write an answer in one piece; return whether it was possible."""
        status, body = start["status"], message.get("body", b"")
        if (
            message.get("more_body", False)
            or self.scope["method"] == "HEAD"
            or status in _BODILESS
            or self.disconnected
        ):
            return False
        headers = [*self.default_headers, *start.get("headers", ())]
        lines = [STATUS_LINE[status]]
        stated = b""
        for name, value in headers:
            if name == b"content-length":
                stated = value
            elif name in (b"connection", b"transfer-encoding"):
                return False
            lines += (name, b": ", value, b"\r\n")
        if stated != b"%d" % len(body):
            return False
        if HEADER_RE.search(b"".join([name for name, _ in headers])):
            return False
        if HEADER_VALUE_RE.search(b"".join([value for _, value in headers])):
            return False
        lines += (b"\r\n", body) if self.keep_alive else (b"connection: close\r\n\r\n", body)
        self.transport.write(b"".join(lines))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True
