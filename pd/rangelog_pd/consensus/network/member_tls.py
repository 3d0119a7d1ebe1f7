"""TLS between the members, below their own handshake: encrypted, and only for certificates of placement drivers.

What holds: a connection whose other end shows no certificate of a placement driver is closed before a byte of Raft is read; a
member that dials reaches the member it means; both within the time limit of the handshake.
"""

from __future__ import annotations

import socket
import ssl

from rangelog_core.errors import HandshakeFailed, RangelogError, Unauthorized, Unavailable
from rangelog_core.net.principals import Port, Principal, Role, check_port, principal_of_certificate, server_dns_name
from rangelog_core.net.tls import TlsConfig, certificates_of
from rangelog_core.net.tls_errors import from_socket
from rangelog_core.net.tls_peers import check_server


class MemberTls:
    """The TLS of one member. For any thread."""

    def __init__(self, config: TlsConfig) -> None:
        """Raises ConfigInvalid."""
        self._config = config
        self._certificates = certificates_of(config)

    def accept(self, sock: socket.socket, timeout_s: float) -> tuple[ssl.SSLSocket, Principal]:
        """Return the encrypted socket of a peer that dialled, and who it is. Raises RangelogError, after closing."""
        sock.settimeout(timeout_s)
        context = self._certificates.now.server
        if context is None:
            raise HandshakeFailed("this member has no certificate")
        wrapped = self._wrap(sock, context, server_side=True, peer="a peer")
        try:
            principal = principal_of_certificate(wrapped.getpeercert() or {})
            check_port(principal, Port.PD_RAFT)
        except RangelogError:
            wrapped.close()
            raise
        return wrapped, principal

    def connect(self, sock: socket.socket, member: str, timeout_s: float) -> ssl.SSLSocket:
        """Return the encrypted socket to the dialled member. Raises RangelogError, after closing."""
        sock.settimeout(timeout_s)
        peer = f"placement driver {member}"
        wrapped = self._wrap(sock, self._certificates.now.client, server_side=False, peer=peer)
        try:
            check_server(wrapped.getpeercert(), self._config, Role.PD, member, peer)
        except HandshakeFailed:
            wrapped.close()
            raise
        return wrapped

    def _wrap(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool, peer: str) -> ssl.SSLSocket:
        name = None if server_side else server_dns_name(Role.PD)
        try:
            return context.wrap_socket(sock, server_side=server_side, server_hostname=name)
        except OSError as error:
            sock.close()
            failed = from_socket(error, peer, self._config)
            raise failed or Unavailable(f"the TLS handshake with {peer} broke off: {error}") from error


def check_name_of(principal: Principal, name: str) -> None:
    """Check that the peer with this certificate calls itself by its own name. Raises Unauthorized."""
    if not principal.is_called(Role.PD, name):
        raise Unauthorized(f"a peer calls itself {name}, with the certificate of {principal}")
