"""The other end of a TLS connection of asyncio: what it is opened with, and whose certificate it shows.

What holds: nothing is sent to a server whose certificate does not name it, and nothing a client sends is looked at before its
role is known to be one for the port.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rangelog_core.errors import HandshakeFailed
from rangelog_core.net.principals import Port, Principal, Role, check_port, principal_of_certificate, server_dns_name
from rangelog_core.net.tls import HANDSHAKE_TIMEOUT_S, TlsConfig, certificates_of
from rangelog_core.net.tls_errors import untrusted_peer


def client_arguments(tls: TlsConfig | None, role: Role) -> dict[str, Any]:
    """Return what `loop.create_connection` to a server of this role is given. Raises ConfigInvalid."""
    if tls is None:
        return {}
    return {"ssl": certificates_of(tls).now.client, "server_hostname": server_dns_name(role)}


def server_arguments(tls: TlsConfig | None, *, tokens: bool = False) -> dict[str, Any]:
    """Return what `loop.create_server` is given. `tokens`: clients without a certificate are let in. Raises ConfigInvalid."""
    if tls is None:
        return {}
    return {"ssl": certificates_of(tls).server_context(tokens=tokens), "ssl_handshake_timeout": HANDSHAKE_TIMEOUT_S}


def check_server(certificate: Any, tls: TlsConfig, role: Role, name: str, peer: str) -> None:
    """Check that a certificate, as `getpeercert` returns it, is of the server of this role and name. Raises HandshakeFailed."""
    try:
        principal = principal_of_certificate(certificate or {})
    except HandshakeFailed as error:
        raise untrusted_peer(peer, tls, error.message) from error
    if not principal.is_called(role, name):
        raise untrusted_peer(peer, tls, f"it is that of {principal}")


def needs_token(transport: asyncio.BaseTransport) -> bool:
    """Whether a peer on TLS shows no certificate: a listener for tokens alone lets such clients in."""
    return transport.get_extra_info("sslcontext") is not None and not transport.get_extra_info("peercert")


def admit(transport: asyncio.BaseTransport, port: Port) -> Principal | None:
    """Return who has connected to this port, None without TLS. Raises RoleForbids, HandshakeFailed.

    A peer without a certificate is refused: look at `needs_token` before.
    """
    if transport.get_extra_info("sslcontext") is None:
        return None
    principal = principal_of_certificate(transport.get_extra_info("peercert") or {})
    check_port(principal, port)
    return principal
