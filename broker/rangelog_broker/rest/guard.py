"""What every request passes before it is looked at: certificate, token, origin, size of the body, number and time of requests.

What holds: a body is never held beyond its limit, no request takes longer than its limit, and no more requests than the limit
run at once. A request runs once its body is there: of bodies that are held back there is a bounded number, of which the one
that has waited longest goes. A web page cannot use the interface through somebody's browser: browsers name the page's origin,
which is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from rangelog.errors import (
    InternalError,
    InvalidArgument,
    Overloaded,
    RangelogError,
    RequestTimeout,
    RoleForbids,
    Unauthorized,
)
from rangelog_broker.rest.errors import Refusal, error_response, status_of
from rangelog_broker.rest.needs import needs_of_path
from rangelog_core.net.acting import acting_for
from rangelog_core.net.principals import Port, Principal
from rangelog_core.quotas import Measure, charge
from rangelog_core.tracing import served
from rangelog_server_common.http_server import NEEDS_TOKEN, PRINCIPAL, REFUSAL
from rangelog_server_common.quotas.guard import QuotaGuard, client_of
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.admission import admit_caller
from rangelog_server_common.tokens.bounds import bounds_of
from rangelog_server_common.tokens.verifier import TokenVerifier

BODY_BYTES_MAX = 1024 * 1024
DISCARD_TIMES = 16
"""So many times the limit is read, and not kept, of a body that is too large."""
BODY_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 75.0
"""Above the longest wait that a request may ask for."""
REQUESTS_MAX = 64
BODIES_MAX = 64
"""Bodies that have not come wholly."""
PATH_LENGTH_MAX = 200
"""Characters of a path that a span keeps."""
OPEN_PATH = "/openapi.json"
"""The description needs no token, as reflection needs none on the gRPC port."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_log = logging.getLogger("rangelog.rest")


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        *,
        token: str | None,
        body_bytes_max: int = BODY_BYTES_MAX,
        body_timeout_s: float = BODY_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        requests_max: int = REQUESTS_MAX,
        bodies_max: int = BODIES_MAX,
        rights: RightsGuard | None = None,
        verifier: TokenVerifier | None = None,
        quotas: QuotaGuard | None = None,
    ) -> None:
        """`rights`: what the clients of this process may do. `quotas`: what holds them off.

        `verifier`: of tokens, if they are accepted.
        """
        self._app = app
        self._secret = token or None
        self._verifier = verifier
        self._body_bytes_max = body_bytes_max
        self._body_timeout_s = body_timeout_s
        self._request_timeout_s = request_timeout_s
        self._requests_max = requests_max
        self._running = 0
        self._bodies_max = bodies_max
        self._bodies: dict[asyncio.Timeout, None] = {}  # that are being received, by their time limits
        self._rights = rights
        self._quotas = quotas

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request. Part of ASGI."""
        if scope["type"] != "http":
            return
        started = False

        async def note_start(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._pass_on(scope, receive, note_start)
        except Exception as error:
            refusal = _refusal(error, f"{scope['method']} {scope['path']}")
            if not started:
                await error_response(refusal.error, refusal.status)(scope, receive, send)

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        refused = scope.get("state", {}).get(REFUSAL)
        if refused is not None:
            raise Refusal(403, refused)
        headers = dict(scope["headers"])
        caller = self._caller(scope, headers)
        body = await self._body(headers, receive)
        if self._running >= self._requests_max:
            raise Overloaded(f"{self._requests_max} requests are running: try again")
        self._running += 1
        try:
            with served(f"REST {scope['method']}", scope["headers"], path=scope["path"][:PATH_LENGTH_MAX]):
                async with asyncio.timeout(self._request_timeout_s):
                    if self._rights is not None:
                        await self._rights.require(caller, needs_of_path(scope["method"], scope["path"]))
                    if self._quotas is not None and self._quotas.book.any:
                        send = await self._hold(self._quotas, caller, len(body), send)
                    with acting_for(caller, bounds_of(caller)):
                        await self._app(scope, _Replay(body, receive), send)
        except TimeoutError:
            raise RequestTimeout(f"the request took longer than {self._request_timeout_s:g} s") from None
        finally:
            self._running -= 1

    async def _hold(self, quotas: QuotaGuard, caller: Principal | None, body_bytes: int, send: Send) -> Send:
        """Wait until the client may go on; return what also counts the bytes that it is sent. Raises Overloaded."""
        who = client_of(caller)
        if who is None:
            return send
        await quotas.hold(who, Measure.CALLS, 1, self._request_timeout_s)
        await quotas.hold(who, Measure.APPEND, body_bytes, self._request_timeout_s)
        await quotas.hold(who, Measure.READ, 0, self._request_timeout_s)
        buckets = quotas.book.buckets(who, None, Measure.READ)

        async def counted(message: Message) -> None:
            charge(buckets, quotas.now_us(), len(message.get("body", b"")))
            await send(message)

        return counted if buckets else send

    def _caller(self, scope: Message, headers: dict[bytes, bytes]) -> Principal | None:
        """Return who asks; None: nobody knows, without TLS. Raises Refusal, Unauthorized, RoleForbids, Unavailable."""
        if b"origin" in headers:
            raise Refusal(403, Unauthorized("requests of web pages are not served"))
        state = scope.get("state", {})
        certificate: Principal | None = state.get(PRINCIPAL)
        if scope["path"] == OPEN_PATH:
            return certificate
        kind, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        try:
            return admit_caller(
                certificate,
                text if kind == "Bearer" else "",
                port=Port.BROKER_REST,
                secret=self._secret,
                verifier=self._verifier,
                needs_token=bool(state.get(NEEDS_TOKEN)),
            )
        except RoleForbids as error:
            raise Refusal(403, error) from error

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        too_large = Refusal(413, InvalidArgument(f"the body is above the limit of {self._body_bytes_max} bytes"))
        stated = headers.get(b"content-length", b"0")
        if len(stated) > 20 or int(stated) > self._body_bytes_max:
            if b"expect" not in headers:  # otherwise the client waits before it sends the body
                await self._discard(receive)
            raise too_large
        body = bytearray()
        try:
            async with self._receiving():
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refusal(400, InvalidArgument("the body ended early"))
                    body += message.get("body", b"")
                    if len(body) > self._body_bytes_max:
                        body.clear()
                        if message.get("more_body", False):
                            await self._discard(receive)
                        raise too_large
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            late = RequestTimeout(f"the body did not arrive within {self._body_timeout_s:g} s", outcome_unknown=False)
            raise Refusal(408, late) from None

    @asynccontextmanager
    async def _receiving(self) -> AsyncGenerator[None, None]:
        """Raise TimeoutError where a body does not come in time, or has waited longest of too many."""
        async with asyncio.timeout(self._body_timeout_s) as limit:
            self._bodies[limit] = None
            if len(self._bodies) > self._bodies_max:
                longest = next(iter(self._bodies))
                del self._bodies[longest]
                if not longest.expired():
                    longest.reschedule(asyncio.get_running_loop().time())
            try:
                yield
            finally:
                self._bodies.pop(limit, None)

    async def _discard(self, receive: Receive) -> None:
        """Read on for a while: a client that still sends would find the connection broken in place of its answer."""
        left = DISCARD_TIMES * self._body_bytes_max
        with suppress(TimeoutError):
            async with self._receiving():
                while left > 0:
                    message = await receive()
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
                    left -= len(message.get("body", b""))


class _Replay:
    """Gives the body that was received already, then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        body, self._body = self._body, None
        if body is None:
            return await self._receive()
        return {"type": "http.request", "body": body, "more_body": False}


def _refusal(error: Exception, what: str) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RangelogError):
        return Refusal(status_of(error), error)
    _log.error("%s failed", what, exc_info=error)
    return Refusal(500, InternalError("an internal error; the broker's log has the details"))
