"""The checks of every request for the page, and the headers of every answer.

What holds: only GET is served, so nothing is changed through the page; without TLS the Host header names this machine by an
address or a configured name, so no foreign site can have its own name point here and read the page through somebody's browser
(DNS rebinding); with a token, who does not present it learns nothing; no answer can run scripts of others, be framed, be
kept in a cache, or be read by other sites. The rest is HttpGuard's.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
from collections.abc import Callable, Collection

from rangelog_core.errors import (
    InternalError,
    InvalidArgument,
    RangelogError,
)
from rangelog_core.net.principals import Port
from rangelog_page.failures import Failure, failure_of
from rangelog_server_common.http_guard import App, HttpGuard, Message, Receive, Send, refused_role
from rangelog_server_common.http_server import NEEDS_TOKEN, PRINCIPAL, REFUSAL
from rangelog_server_common.tokens.admission import admit_caller
from rangelog_server_common.tokens.verifier import TokenVerifier

REQUESTS_MAX = 48
REQUEST_TIMEOUT_S = 30.0
STATIC_PREFIX = "/static/"

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = (
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
NO_STORE = (b"cache-control", b"no-store")
SIGN_IN = (b"www-authenticate", b'Basic realm="rangelog", charset="UTF-8"')

Refuse = Callable[[Failure], bytes]

_log = logging.getLogger("rangelog.page")


class PageGuard(HttpGuard):
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        *,
        refuse: Refuse,
        token: str | None,
        hosts: Collection[str] | None,
        verifier: TokenVerifier | None = None,
        requests_max: int = REQUESTS_MAX,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """`refuse`: makes the page of an error. `hosts`: see is_own_host; None: not checked, as with TLS.

        `token`: the shared secret. `verifier`: of tokens, if they are accepted.
        """
        super().__init__(app, requests_max=requests_max, request_timeout_s=request_timeout_s)
        self._refuse = refuse
        self._secret = token or None
        self._verifier = verifier
        self._hosts = hosts

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        self._check(scope)
        async with self._runs():
            await self._app(scope, receive, send)

    def _starts(self, message: Message) -> None:
        message["headers"] = _with_security(list(message.get("headers", ())))

    def _refused(self, error: Exception, scope: Message) -> App:
        if not isinstance(error, RangelogError):
            _log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        return lambda _scope, _receive, send: self._answer(error, send)

    def _check(self, scope: Message) -> None:
        refused = scope.get("state", {}).get(REFUSAL)
        if refused is not None:
            raise refused_role(refused)
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and not is_own_host(host, self._hosts):
            raise _Misdirected(host)
        if scope["method"] != "GET":
            raise _WrongMethod()
        if headers.get(b"sec-fetch-site") == b"cross-site" and headers.get(b"sec-fetch-mode") != b"navigate":
            raise _Embedded()
        state = scope.setdefault("state", {})
        state[PRINCIPAL] = admit_caller(
            state.get(PRINCIPAL),
            shown_token(headers.get(b"authorization", b"")),
            port=Port.PD_PAGE,
            secret=self._secret,
            verifier=self._verifier,
            needs_token=bool(state.get(NEEDS_TOKEN)),
        )

    async def _answer(self, error: Exception, send: Send) -> None:
        shown = error if isinstance(error, RangelogError) else InternalError("an internal error of the page")
        failure = failure_of(shown)
        headers = [(b"content-type", b"text/html; charset=utf-8"), NO_STORE]
        status = failure.status
        if isinstance(error, _WrongMethod):
            status = 405
            headers.append((b"allow", b"GET"))
        elif isinstance(error, _Misdirected):
            status = 421
        elif isinstance(error, _Embedded):
            status = 403
        elif status == 401 and (self._secret is not None or self._verifier is not None):
            headers.append(SIGN_IN)
        body = self._refuse(failure)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _WrongMethod(InvalidArgument):
    def __init__(self) -> None:
        super().__init__("the page only shows: ask with GET, and change things with pdctl")


class _Embedded(InvalidArgument):
    def __init__(self) -> None:
        super().__init__("the page of a cluster is not embedded by other sites")


class _Misdirected(InvalidArgument):
    def __init__(self, host: str) -> None:
        super().__init__(
            f"the page is not served under the name {host[:100]!r}: use localhost or an IP address, or give the placement "
            "driver this name in page_hosts"
        )


def is_own_host(header: str, names: Collection[str]) -> bool:
    """Whether a Host header names this server: by an IP address, as localhost, or by one of `names` (in lower case).

    A name that somebody else controls may point to this machine; an address cannot be taken over in this way.

    >>> is_own_host("127.0.0.1:7250", ()), is_own_host("[::1]", ()), is_own_host("evil.example", ())
    (True, True, False)
    """
    host, _, port = header.rpartition(":") if not header.endswith("]") and ":" in header else (header, "", "")
    if port and not (port.isascii() and port.isdigit()):
        return False
    name = host.lower().removesuffix(".")
    if name == "localhost" or name in names:
        return True
    bracketed = name.startswith("[") and name.endswith("]")
    try:
        address = ipaddress.ip_address(name[1:-1] if bracketed else name)
    except ValueError:
        return False
    return bracketed == (address.version == 6)


def shown_token(authorization: bytes) -> str:
    """Return the token in an Authorization header: as Bearer, or, as browsers can, as the password of Basic."""
    scheme, _, given = authorization.partition(b" ")
    if scheme.lower() == b"bearer":
        return given.strip().decode("utf-8", "replace")
    if scheme.lower() != b"basic":
        return ""
    try:
        decoded = base64.b64decode(given.strip(), validate=True)
    except (binascii.Error, ValueError):
        return ""
    return decoded.partition(b":")[2].decode("utf-8", "replace")


def _with_security(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    given = {name.lower() for name, _ in headers}
    missing = [each for each in SECURITY_HEADERS if each[0] not in given]
    return [*headers, *missing, *([] if b"cache-control" in given else [NO_STORE])]
