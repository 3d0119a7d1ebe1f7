"""The TLS error of a connection that failed while it was opened: which end, which file, and what to do.

What holds: a failure that has nothing to do with TLS is None here, and the caller names it.
"""

from __future__ import annotations

import ssl

from rangelog_core.errors import HandshakeFailed
from rangelog_core.net.tls import CA_ENV, CERTIFICATE_ENV, KEY_ENV, TlsConfig

_GIVE_FILES = (
    "give the files of the certificate authority, of the certificate and of its key "
    f"(tls=; {CA_ENV}, {CERTIFICATE_ENV} and {KEY_ENV}; or --ca, --cert and --key)"
)
_PLAIN_PEER = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
    "HTTP_REQUEST",
    "UNEXPECTED_MESSAGE",
)
_ALERTS = {
    "EXPIRED": "has expired",
    "UNKNOWN_CA": "is not of an authority that it knows",
    "BAD_CERTIFICATE": "is damaged, or not of an authority that it knows",
    "DECRYPT_ERROR": "is not of an authority that it knows",
    "CERTIFICATE_REQUIRED": "is missing",
    "REVOKED": "is revoked",
    "CERTIFICATE_UNKNOWN": "is not accepted",
    "UNSUPPORTED_CERTIFICATE": "is not one for clients",
    "HANDSHAKE_FAILURE": "is not accepted",
}
"""What the peer's alert says of this side's certificate."""
_PLAIN_CLOSED = ("Socket closed", "Connection reset", "recvmsg", "connection closed", "Broken pipe")


def serves_tls(peer: str) -> HandshakeFailed:
    """Return the error of a connection without TLS to a port with it."""
    return HandshakeFailed(f"{peer} closes connections without TLS, or is going away: if it serves TLS, {_GIVE_FILES}")


def serves_plaintext(peer: str) -> HandshakeFailed:
    """Return the error of a connection with TLS to a port without it."""
    return HandshakeFailed(
        f"{peer} does not speak TLS at this port: is it the right port? Start the server with tls_ca, tls_cert and tls_key; "
        "only on loopback leave the certificates out here"
    )


def refused_certificate(
    peer: str, tls: TlsConfig, why: str = "has expired, or is not of an authority that it knows"
) -> HandshakeFailed:
    """Return the error of a peer that did not accept this side's certificate, or that it has none."""
    if not tls.cert:
        return HandshakeFailed(
            f"{peer} asks for a certificate: it does not accept tokens (`tokens = true` in its settings), or this is no port "
            f"for clients; else give {CERTIFICATE_ENV} and {KEY_ENV}"
        )
    return HandshakeFailed(
        f"{peer} refuses this side's certificate: {tls.cert} {why} "
        "(or its clock is wrong): issue one by the cluster's authority, `rangelog certs issue`"
    )


def untrusted_peer(peer: str, tls: TlsConfig, why: str) -> HandshakeFailed:
    """Return the error of a peer whose certificate this side does not accept."""
    return HandshakeFailed(
        f"the certificate of {peer} is not accepted ({why}): is {tls.ca} the cluster's authority? Otherwise issue the peer's "
        "certificate again; a certificate that is expired or not yet valid may also mean that a clock is wrong"
    )


def from_socket(error: BaseException | None, peer: str, tls: TlsConfig | None) -> HandshakeFailed | None:
    """Return what an error of opening a connection with the ssl module says of TLS, or None."""
    if tls is None or error is None:
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return untrusted_peer(peer, tls, error.verify_message)
    if isinstance(error, ssl.SSLError):
        reason = str(error.reason or error)
        if any(each in reason for each in _PLAIN_PEER):
            return serves_plaintext(peer)
        why = next((text for part, text in _ALERTS.items() if part in reason), None)
        if "ALERT" in reason and why is not None:
            return refused_certificate(peer, tls, why)
        return HandshakeFailed(f"the TLS handshake with {peer} failed ({reason}): are both ends of this version?")
    if isinstance(error, ConnectionResetError | ConnectionAbortedError):
        return HandshakeFailed(
            f"{peer} ended the TLS handshake: does it serve TLS, and does it accept {tls.cert or 'tokens'}?"
        )
    return None


def from_grpc(details: str, peer: str, tls: TlsConfig | None) -> HandshakeFailed | None:
    """Return what the message of a gRPC call that found no connection says of TLS, or None."""
    if not details.startswith("failed to connect to all addresses"):
        return None
    if tls is None:
        return serves_tls(peer) if any(each in details for each in _PLAIN_CLOSED) else None
    if any(each in details for each in _PLAIN_PEER):
        return serves_plaintext(peer)
    if "Hostname Verification" in details or "Custom verification" in details:
        return untrusted_peer(peer, tls, "it is of another role")
    if "handshake failed" in details:
        why = (
            details.rpartition("CERTIFICATE_VERIFY_FAILED: ")[2]
            if "VERIFY_FAILED" in details
            else "its signature is wrong"
        )
        return untrusted_peer(peer, tls, why.removesuffix(": OK")[:100])
    if "Socket closed" in details:
        return refused_certificate(peer, tls)
    return None
