"""The checks of every request that a client makes over HTTP: certificate, token, origin, rights and quotas, beside HttpGuard's.

What holds: a request runs once its body is there, and speaks for its caller at the placement driver. A web page cannot use the
interface through somebody's browser: browsers name the page's origin, which is refused unless the interface lists it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from rangelog_core.errors import InternalError, RangelogError, RoleForbids, Unauthorized
from rangelog_core.net.acting import acting_for
from rangelog_core.net.principals import Port, Principal
from rangelog_core.quotas import Measure, charge
from rangelog_core.rights import Verb
from rangelog_core.tracing import served
from rangelog_server_common.http_answers import error_response, status_of
from rangelog_server_common.http_guard import BODY_NOW, App, Bodies, HttpGuard, Message, Receive, Refusal, Replay, Send
from rangelog_server_common.http_server import NEEDS_TOKEN, PRINCIPAL, REFUSAL
from rangelog_server_common.quotas.guard import QuotaGuard, client_of
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.admission import admit_caller
from rangelog_server_common.tokens.bounds import bounds_of
from rangelog_server_common.tokens.verifier import TokenVerifier

REQUEST_TIMEOUT_S = 75.0
"""Above the longest wait that a request may ask for."""
PATH_LENGTH_MAX = 200
"""Characters of a path that a span keeps."""
OPEN_PATH = "/openapi.json"
"""The description needs no token, as reflection needs none on the gRPC port."""

NeedsOfPath = Callable[[str, str], Iterable[tuple[Verb, int, str, int]]]
"""Given method and path: verbs, kind, name, and id of each resource."""


class CallerGuard(HttpGuard):
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        *,
        name: str,
        port: Port,
        token: str | None,
        bodies: Bodies,
        requests_max: int,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        needs_of_path: NeedsOfPath | None = None,
        rights: RightsGuard | None = None,
        verifier: TokenVerifier | None = None,
        quotas: QuotaGuard | None = None,
        origins: Collection[str] = (),
    ) -> None:
        """`name`: of the interface, in spans and logs. `verifier`: of tokens, if they are accepted.

        `rights`: what the clients of this process may do. `quotas`: what holds them off. `needs_of_path`: None where the
        application checks rights itself. `origins`: of the web pages that may use the interface.
        """
        super().__init__(app, requests_max=requests_max, request_timeout_s=request_timeout_s)
        self._port = port
        self._secret = token or None
        self._verifier = verifier
        self._bodies = bodies
        self._needs_of_path = needs_of_path
        self._rights = rights
        self._quotas = quotas
        self._origins = frozenset(each.encode() for each in origins)
        self._name = name
        self._log = logging.getLogger(f"rangelog.{name.lower()}")

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        self._check_connection(scope)
        headers = dict(scope["headers"])
        caller = self._caller(scope, headers)
        body = await self._bodies.read(headers, receive, now=scope.get(BODY_NOW))
        async with self._runs():
            with served(f"{self._name} {scope['method']}", scope["headers"], path=scope["path"][:PATH_LENGTH_MAX]):
                if self._rights is not None and self._needs_of_path is not None:
                    await self._rights.require(caller, self._needs_of_path(scope["method"], scope["path"]))
                if self._quotas is not None and self._quotas.book.any:
                    send = await self._hold(self._quotas, caller, len(body), send)
                with acting_for(caller, bounds_of(caller)):
                    await self._app(scope, Replay(body, receive), send)

    def _check_connection(self, scope: Message) -> None:
        """Raise Refusal where the role of the certificate may not use the port."""
        refused = scope.get("state", {}).get(REFUSAL)
        if refused is not None:
            raise Refusal(403, refused)

    def _refused(self, error: Exception, scope: Message) -> App:
        if isinstance(error, Refusal):
            return error_response(error.error, error.status)
        if isinstance(error, RangelogError):
            return error_response(error, status_of(error))
        self._log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        return error_response(InternalError("an internal error; the broker's log has the details"), 500)

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
        if b"origin" in headers and headers[b"origin"] not in self._origins:
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
                port=self._port,
                secret=self._secret,
                verifier=self._verifier,
                needs_token=bool(state.get(NEEDS_TOKEN)),
            )
        except RoleForbids as error:
            raise Refusal(403, error) from error
