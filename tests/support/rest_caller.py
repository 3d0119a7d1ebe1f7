"""Calls an ASGI application in this process: one request, one answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

JSON = {"content-type": "application/json"}


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: Any
    headers: Mapping[str, str]


class RestCaller:
    """`await caller("POST", "/v1/streams", {"name": "s"})`."""

    def __init__(self, app: Any, **headers: str) -> None:
        self.app = app
        self.headers = headers

    async def __call__(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        raw: Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send `body` as JSON, or the parts of `raw` as they are; what comes is parsed if it is JSON."""
        parts = list(raw) if raw is not None else [json.dumps(body).encode()] if body is not None else []
        sent = self.headers | dict(JSON if parts and headers is None else headers or {})
        url = urlsplit(target)
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(url.path),
            "raw_path": url.path.encode(),
            "query_string": url.query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        incoming = [
            {"type": "http.request", "body": part, "more_body": at + 1 < len(parts)} for at, part in enumerate(parts)
        ] or [{"type": "http.request", "body": b"", "more_body": False}]
        came: list[Any] = []

        async def receive() -> Any:
            return incoming.pop(0) if incoming else await asyncio.Event().wait()  # it stays for its answer

        async def send(message: Any) -> None:
            came.append(message)

        await self.app(scope, receive, send)
        start = came[0]
        content = b"".join(each.get("body", b"") for each in came[1:])
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        parsed = json.loads(content) if found.get("content-type") == "application/json" else content
        return Answer(start["status"], parsed, found)
