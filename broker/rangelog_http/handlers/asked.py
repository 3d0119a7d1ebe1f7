"""A request to one of the further routes, as its handler has it, and what a handler returns."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from rangelog.errors import InvalidArgument
from rangelog_broker.verbs.caller import Caller
from rangelog_http.handlers.records import Query, RecordsAnswer
from rangelog_http.wire.records_out import dumped
from rangelog_server_common.http_guard import Refusal, Send

JSON_BYTES_MAX = 64 * 1024
"""Of a body that says what to do, which is parsed on the loop."""


class Asked(NamedTuple):
    """A request. `write`: writes a whole answer; `send`: one in parts."""

    method: str
    query: Query
    headers: list[tuple[bytes, bytes]]
    body: bytes
    caller: Caller
    write: Callable[[RecordsAnswer], Awaitable[None]]
    send: Send

    def header(self, name: bytes) -> str:
        """Return a header; empty: it is not there."""
        return dict(self.headers).get(name, b"").decode("latin-1")

    def json_object(self) -> dict[str, Any]:
        """Return the body, an object of JSON; without a body an empty one. Raises InvalidArgument, Refusal."""
        if len(self.body) > JSON_BYTES_MAX:
            raise Refusal(413, InvalidArgument(f"a body of JSON has up to {JSON_BYTES_MAX} bytes here"))
        try:
            made = json.loads(self.body.decode()) if self.body else {}
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"the body is not JSON ({str(error)[:100]})") from None
        if not isinstance(made, dict):
            raise InvalidArgument("the body is an object of JSON")
        return made

    def check_method(self, *methods: str) -> None:
        """Raise Refusal where the resource has no such method."""
        if self.method not in methods:
            raise Refusal(405, InvalidArgument(f"the resource has no such method: there are {', '.join(methods)}"))


Route = Callable[[Asked], Awaitable[RecordsAnswer | None]]
"""Answers a request; None: it has sent the answer itself."""


def json_answer(status: int, value: Any) -> RecordsAnswer:
    """Return an answer of JSON."""
    return RecordsAnswer(status, "application/json", dumped(value))
