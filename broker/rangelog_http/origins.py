"""Web pages that may use the door: their origins, as the settings list them, and what browsers ask before they let a page.

What holds: without a list there is no page that may, and nothing is answered to a browser's question. With one, every answer
varies by origin, so that no cache gives one page's answer to another; an origin is named in the answers to itself alone, and no
answer allows credentials, which a browser would add of its own accord.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from rangelog_server_common.http_guard import App, Message, Receive, Send

METHODS = b"GET, POST, PUT, DELETE"
HEADERS = frozenset({
    b"accept", b"authorization", b"content-encoding", b"content-type", b"last-event-id", b"x-rangelog-key",
    b"x-rangelog-timestamp-ms",
})  # fmt: skip
HEADER_START = b"x-rangelog-header-"
ASKED_MAX = 32
"""Headers that a question may ask for."""
EXPOSED = b"retry-after, x-rangelog-more, x-rangelog-next"
AGE_S = 600
"""For so long a browser remembers an answer."""


def is_origin(text: str) -> bool:
    """Whether a text is an origin, as browsers send it: scheme, host, and a port where it is not the scheme's own.

    >>> is_origin("https://shop.example"), is_origin("*"), is_origin("https://shop.example/")
    (True, False, False)
    """
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return False
    host = f"[{parts.hostname}]" if parts.hostname is not None and ":" in parts.hostname else parts.hostname
    is_own = (parts.scheme, parts.port) in (("http", 80), ("https", 443))
    return bool(host) and "*" not in text and not is_own and text == f"{parts.scheme}://{host}{port}" and text.isascii()


class PageOrigins:
    """An ASGI application around another one, which refuses the origins that are not listed."""

    def __init__(self, app: App, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(each.encode() for each in origins)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Part of ASGI."""
        headers: dict[bytes, bytes] = dict(scope.get("headers", ()))
        origin = headers.get(b"origin")
        may = origin in self._origins
        added = [(b"vary", b"Origin")]
        if may and origin is not None:
            added += [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", EXPOSED)]

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        if may and scope.get("method") == "OPTIONS" and b"access-control-request-method" in headers:
            asked = _allowed(headers.get(b"access-control-request-headers", b"").split(b",", ASKED_MAX))
            answer = [
                (b"access-control-allow-methods", METHODS), (b"access-control-allow-headers", asked),
                (b"access-control-max-age", b"%d" % AGE_S), (b"content-length", b"0"),
            ]  # fmt: skip
            await named({"type": "http.response.start", "status": 200, "headers": answer})
            await named({"type": "http.response.body", "body": b""})
            return
        await self._app(scope, receive, named)


def _allowed(asked: Iterable[bytes]) -> bytes:
    names = [each.strip().lower() for each in asked]
    return b", ".join(
        name
        for name in names
        if name in HEADERS or (name.startswith(HEADER_START) and name.replace(b"-", b"").isalnum())
    )
