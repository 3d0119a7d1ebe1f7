"""The door's HTTP server: httptools parses, uvicorn serves, with the limits of this port.

What holds: the head of a request, its trailers too, is bounded before it is kept; a request whose length is said in two ways is
refused, so that no proxy and this server can disagree where it ends.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rangelog_server_common.http_server import HEAD_BYTES_MAX, HeadInTime


class BoundedHead(HeadInTime, HttpToolsProtocol):  # type: ignore[misc]
    """One connection."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head_bytes = 0
        self._in_head = False

    def data_received(self, data: bytes) -> None:
        """Part of asyncio.Protocol."""
        if self._in_head:  # what the parser holds of a name or value that has not ended
            self._take(len(data))
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The head of the request is too large.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Called by the parser."""
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._check(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser, for a trailer too."""
        self._check(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        self._in_head = False
        super().on_headers_complete()

    def _take(self, size_bytes: int) -> None:
        self._head_bytes += size_bytes

    def _check(self, size_bytes: int) -> None:
        """Raise ValueError, which the parser makes an error of the request."""
        self._take(size_bytes)
        if self._head_bytes > 2 * HEAD_BYTES_MAX:
            raise ValueError("the head of the request is too large")
