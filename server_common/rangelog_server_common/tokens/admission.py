"""Who a caller is, by the certificate and the token that it shows: the one rule of all ports that accept tokens.

What holds: a certificate names its holder whatever token comes along; without one the token does, and then its role must be
one for the port; who shows neither where one is needed is refused. A shared secret (the setting `token`) opens a port and
names no principal; a token that was signed does in its place.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Protocol

from rangelog_core.errors import Unauthorized
from rangelog_core.net.principals import Port, Principal, check_port
from rangelog_core.net.tls_peers import admit, needs_token
from rangelog_core.net.token_sources import is_signed
from rangelog_server_common.tokens.verifier import TokenPrincipal, TokenVerifier


def admit_caller(
    certificate: Principal | None,
    text: str,
    *,
    port: Port,
    secret: str | None,
    verifier: TokenVerifier | None,
    needs_token: bool,
) -> Principal | None:
    """Return the caller's principal; None on a port without TLS.

    Args:
        certificate: Whom the certificate names, if one was shown.
        text: The token, "" where none was shown.
        port: Where the caller has connected.
        secret: The shared one, if there is one.
        verifier: None: tokens are not accepted.
        needs_token: The port has TLS, and the caller no certificate.

    Raises:
        Unauthorized, RoleForbids: The caller may not go on.
        Unavailable: The token may be known in a moment.
    """
    shares = secret is not None and hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())
    signed = verifier is not None and is_signed(text) and not shares
    if verifier is not None and signed and (certificate is None or secret is not None):
        found = verifier.verify(text)
        check_port(found, port)
        return certificate or found
    if secret is not None and not shares:
        raise Unauthorized("the token is missing or wrong: a valid token is needed, pass --token or set RANGELOG_TOKEN")
    if needs_token:
        raise Unauthorized("a certificate or a token is needed: give RANGELOG_TLS_CERT, or RANGELOG_TOKEN_FILE")
    return certificate


class Gate(Protocol):
    """Checks the rights of a connection's client."""

    def admitted(self, principal: Principal | None) -> None:
        """Note who it is; None: not known, on a port without TLS."""


class ConnectionCaller:
    """Who has opened a connection of frames: by its certificate, and by the token of its hello."""

    def __init__(self, gate: Gate, port: Port, secret: str | None, verifier: TokenVerifier | None) -> None:
        """`gate`: gets the refusals. The rest: see admit_caller."""
        self._gate = gate
        self._port = port
        self._secret = secret
        self._verifier = verifier
        self._certificate: Principal | None = None
        self._needs_token = False
        self._token: TokenPrincipal | None = None
        self.principal: Principal | None = None
        """Who it is; None: nobody knows, without TLS."""

    def connected(self, transport: asyncio.BaseTransport) -> None:
        """Take the certificate. Raises RoleForbids, HandshakeFailed."""
        if self._verifier is not None and needs_token(transport):
            self._needs_token = True
            return
        self._certificate = self.principal = admit(transport, self._port)
        self._gate.admitted(self._certificate)

    def greeted(self, text: str) -> None:
        """Take the token of a hello; of a later one, too: so a client renews it. Raises as admit_caller."""
        found = admit_caller(
            self._certificate,
            text,
            port=self._port,
            secret=self._secret,
            verifier=self._verifier,
            needs_token=self._needs_token,
        )
        self.principal = found
        self._token = found if isinstance(found, TokenPrincipal) else None
        self._gate.admitted(found)

    def check(self) -> None:
        """Raise Unauthorized once the token has expired, or was revoked."""
        if self._token is not None and self._verifier is not None:
            self._verifier.check(self._token)
