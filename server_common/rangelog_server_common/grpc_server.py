"""The server side of gRPC, shared by the placement driver and the range server.

What holds: every error that a client receives is a RangelogError, and the text of any other exception stays in the log; a
wrong token is refused in constant time; with TLS the role of the caller's certificate may use the port and the call, and so may
the role of the principal for whom a broker calls; a port in use is an error, not a second listener.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError
from grpc_status import rpc_status

from rangelog_core.errors import (
    ClientClosed,
    HandshakeFailed,
    InternalError,
    ProtocolViolation,
    RangelogError,
    RequestTimeout,
    RightMissing,
    RoleForbids,
    Unauthorized,
    Unavailable,
)
from rangelog_core.net.acting import ACTING_KEY, WITHIN_KEY, represented
from rangelog_core.net.bearer import is_bearer
from rangelog_core.net.grpc_errors import to_status
from rangelog_core.net.grpc_options import SERVER_OPTIONS
from rangelog_core.net.principals import RULES, CallRules, Port, Principal, Role, check_port, principal_of
from rangelog_core.net.tls import TlsConfig, certificates_of
from rangelog_core.tracing import served
from rangelog_server_common.logs_service import LOGS_SERVICE_NAME, add_logs_service
from rangelog_server_common.metrics.call_tally import CANCELLED, OK, CallTally
from rangelog_server_common.tokens.admission import admit_caller
from rangelog_server_common.tokens.verifier import TokenPrincipal, TokenVerifier

_log = logging.getLogger("rangelog.grpc")

CALL_TIMEOUT_S = 30.0
"""A handler that takes longer is cancelled, whatever the caller's deadline."""

_OPEN_SERVICES = ("/grpc.health.", "/grpc.reflection.")

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]
RightsCheck = Callable[[Principal, str, Any], Awaitable[None]]
"""Given who calls, what, and the request; raises where it may not."""
Refused = Callable[[Principal | None, str, str, RangelogError], None]
"""Given who was refused (None: nobody knows), its host, the method and the error."""
CallHold = Callable[[Principal | None, str, float | None, Any], Awaitable[Callable[[Any], object] | None]]
"""Given who calls, what, the time left in s (None: no deadline) and the request; waits until the call may be made.

Returns a function that is given the response; None: there is none.
"""
_REFUSALS = (Unauthorized, RoleForbids, RightMissing, HandshakeFailed)


async def abort_with(context: Any, error: RangelogError) -> None:
    """End a call with a RangelogError."""
    await context.abort_with_status(rpc_status.to_status(to_status(error)))


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Checks the token and maps errors, for every unary call but those of health and reflection."""

    def __init__(
        self,
        token: str | None,
        port: Port = Port.PD_API,
        *,
        tls: bool = False,
        verifier: TokenVerifier | None = None,
        rules: CallRules = RULES,
    ) -> None:
        """`token`: the shared secret. `tls`: callers have certificates, or tokens if there is a `verifier` of those."""
        self._rules = rules
        self._secret = token or None
        self._port = port
        self._tls = tls
        self._verifier = verifier
        self.calls = CallTally()
        self.check_rights: RightsCheck | None = None
        self.refused: Refused | None = None
        self.hold: CallHold | None = None

    async def intercept_service(self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the handler of a call, wrapped in the checks. Part of grpc.aio.ServerInterceptor."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or handler.unary_unary is None:
            return handler
        is_open = method.startswith(_OPEN_SERVICES)
        inner = handler.unary_unary

        async def call(data: bytes, context: Any) -> Any:
            began_s, code = time.perf_counter(), CANCELLED
            principal: Principal | None = None
            asker: Principal | None = None
            try:
                principal = self._caller(context, handler_call_details, is_open=is_open)
                if principal is not None:
                    check_port(principal, self._port)
                    self._rules.check(principal, method)
                asker = self._asker(principal, handler_call_details)
                _CALLER.set((asker,))
                request = _parsed(handler.request_deserializer, data)
                if principal is not None:
                    self._rules.check_caller(principal, method, request)
                    if self.check_rights is not None:
                        await self.check_rights(principal, method, request)
                counted = None
                if self.hold is not None and not is_open and Role.CLIENT in self._rules.roles_of(method):
                    counted = await self.hold(asker, method, context.time_remaining(), request)
                with served(method.removeprefix("/"), handler_call_details.invocation_metadata or ()):
                    async with asyncio.timeout(CALL_TIMEOUT_S):
                        response = await inner(request, context)
                if counted is not None:
                    counted(response)
                code = OK
                return response
            except Exception as error:
                if isinstance(error, grpc.aio.AbortError):
                    raise
                shown = _shown(error, method)
                code = shown.code
                if self.refused is not None and isinstance(shown, _REFUSALS):
                    self.refused(asker or principal, host_of(context), method.rpartition("/")[2], shown)
                await abort_with(context, shown)
            finally:
                self.calls.ended(method, code, time.perf_counter() - began_s)

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=None, response_serializer=handler.response_serializer
        )

    def _caller(
        self, context: Any, details: grpc.HandlerCallDetails, *, is_open: bool
    ) -> Principal | TokenPrincipal | None:
        """Return who makes a call. Raises Unauthorized, HandshakeFailed, RoleForbids, Unavailable."""
        bearer = self._tls and self._verifier is not None and _shows_bearer(context)
        certificate = certificate_of(context) if self._tls and not bearer else None
        if is_open:
            return certificate
        kind, _, text = _shown_as(details, "authorization").partition(" ")
        return admit_caller(
            certificate,
            text if kind == "Bearer" else "",
            port=self._port,
            secret=self._secret,
            verifier=self._verifier,
            needs_token=bearer,
        )

    def _asker(self, principal: Principal | None, details: grpc.HandlerCallDetails) -> Principal | None:
        """Return whom a call counts for. Raises RoleForbids, InvalidArgument."""
        said = _shown_as(details, ACTING_KEY)
        if not said:
            return principal
        asker = represented(principal, said, _shown_as(details, WITHIN_KEY), self._port)
        self._rules.check(asker, details.method)
        return asker


def _shown_as(details: grpc.HandlerCallDetails, name: str) -> str:
    """Return what the metadata of a call has under a name; empty: nothing."""
    given = next((value for key, value in details.invocation_metadata or () if key == name), "")
    return given.decode("latin-1") if isinstance(given, bytes) else str(given)


_CALLER: ContextVar[tuple[Principal | None] | None] = ContextVar("caller", default=None)
"""Whom the call counts for that this task handles, once the interceptor knows."""


def current_caller(context: Any, *, tls: bool) -> Principal | None:
    """Return the principal for whom the call that is being handled counts; None without TLS. Raises HandshakeFailed."""
    found = _CALLER.get()
    if found is not None:
        return found[0]
    return certificate_of(context) if tls else None


def _shows_bearer(context: Any) -> bool:
    """Whether a caller has no certificate of its own."""
    return is_bearer([each.decode(errors="replace") for each in context.auth_context().get("peer_uri", ())])


def certificate_of(context: Any) -> Principal:
    """Return whom the certificate of a caller over TLS names. Raises HandshakeFailed for a certificate without a principal."""
    shown = context.auth_context()
    uris, names = (
        [each.decode(errors="replace") for each in shown.get(key, ())] for key in ("peer_uri", "x509_common_name")
    )
    return principal_of(uris, names)


def host_of(context: Any) -> str:
    """Return the host from which a call comes; empty for one inside the process, which has no context.

    The peer is "ipv4:127.0.0.1:4711", or "ipv6:%5B::1%5D:4711".
    """
    if context is None:
        return ""
    kind, _, rest = str(context.peer()).partition(":")
    host = rest.rpartition(":")[0] if kind in ("ipv4", "ipv6") else rest
    return unquote(host).strip("[]")


def _shown(error: Exception, method: str) -> RangelogError:
    """Return the error that the client gets; what it may not see goes into the log."""
    if isinstance(error, ClientClosed):  # a client of this server, which stops; that of the caller is open
        return Unavailable("the server is stopping", outcome_unknown=error.outcome_unknown)
    if isinstance(error, RangelogError):
        return error
    if isinstance(error, TimeoutError):
        return RequestTimeout(f"the call took longer than {CALL_TIMEOUT_S:g} s")
    _log.error("%s failed", method, exc_info=error)
    return InternalError("an internal error; the server's log has the details")


def _parsed(parse: Callable[[bytes], Any] | None, data: bytes) -> Any:
    """Parse a request. The library's own parser would end a malformed request with an untyped error."""
    try:
        return parse(data) if parse is not None else data
    except DecodeError as error:
        raise ProtocolViolation("the request does not decode as its message") from error


class GrpcServer:
    """One gRPC server with health, reflection and the process's recent log. Add services to `server`, then `start`."""

    def __init__(
        self,
        *,
        token: str | None = None,
        tls: TlsConfig | None = None,
        port: Port = Port.PD_API,
        refused: Refused | None = None,
        verifier: TokenVerifier | None = None,
        rules: CallRules = RULES,
    ) -> None:
        """`port`: what the server is, for those who may use it with TLS. `refused`: called with each refused caller.

        `token`: the shared secret. `verifier`: of tokens, which are accepted in place of certificates then.
        `rules`: who may make its calls.
        """
        from grpc_health.v1 import health, health_pb2_grpc

        self._tls = tls
        self._tokens = verifier is not None
        interceptor = ErrorInterceptor(token, port, tls=tls is not None, verifier=verifier, rules=rules)
        interceptor.refused = refused
        self.calls = interceptor.calls
        self._interceptor = interceptor
        self.server: grpc.aio.Server = grpc.aio.server(interceptors=[interceptor], options=SERVER_OPTIONS)
        self._health: Any = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)
        add_logs_service(self.server)
        self._names: tuple[str, ...] = ()

    def limit_by(self, check: RightsCheck) -> None:
        """Check the rights of every call with a certificate, behind its role."""
        self._interceptor.check_rights = check

    def hold_by(self, hold: CallHold) -> None:
        """Let every call wait until its client may make it, behind all that may refuse it."""
        self._interceptor.hold = hold

    async def start(self, listen: str, service_names: tuple[str, ...]) -> int:
        """Listen on "host:port" (port 0: any free one) and return the port. Raises Unavailable when the port is in use."""
        from grpc_health.v1 import health
        from grpc_reflection.v1alpha import reflection

        self._names = (*service_names, LOGS_SERVICE_NAME)
        reflection.enable_server_reflection((*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), self.server)
        try:
            if self._tls is not None:
                credentials = certificates_of(self._tls).server_credentials(tokens=self._tokens)
                port = self.server.add_secure_port(listen, credentials)
            else:
                port = self.server.add_insecure_port(listen)
        except RuntimeError:
            port = 0
        if port == 0:
            raise Unavailable(f"cannot listen on {listen}: is the port taken? Choose another one")
        await self.server.start()
        return int(port)

    async def set_serving(self, serving: bool) -> None:
        """Set the status of the health service: SERVING or NOT_SERVING."""
        from grpc_health.v1 import health_pb2

        status = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", *self._names):
            await self._health.set(name, status)

    async def stop(self, grace_s: float = 1.0) -> None:
        """Wait up to `grace_s` for calls in progress, then stop; idempotent."""
        await self.server.stop(grace_s)
