"""A handshake in memory, by which a process sees its own certificate as its peers will: before the first of them connects."""

from __future__ import annotations

import ssl
from typing import Any

from rangelog_core.errors import ConfigInvalid

_NO_CHECK_TIME = 0x20_0000  # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which the ssl module has no name for
_ROUNDS_MAX = 10


def no_password() -> str:
    """Answer OpenSSL's question for a key's password, which would otherwise be put to the terminal: an empty one."""
    return ""


def own_certificate(cert: str, key: str) -> dict[str, Any]:
    """Return a certificate of this side in the form of `ssl.SSLSocket.getpeercert`, also an expired one.

    Raises ConfigInvalid: the files are no certificate and key, or not of each other.
    """
    flags = ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    return rehearse(cert, key, cert, as_server=False, flags=flags)


def rehearse(cert: str, key: str, ca: str, *, as_server: bool, flags: int = 0) -> dict[str, Any]:
    """Return the certificate as a peer sees it that trusts `ca`. Raises ConfigInvalid where the peer would not accept it."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    shower, checker = (server, client) if as_server else (client, server)
    try:
        for context in dict.fromkeys((shower, server)):  # a server shows one in any case
            context.load_cert_chain(cert, key, password=no_password)
    except (OSError, ValueError) as error:
        raise ConfigInvalid(_why_not(error, cert, key)) from error
    try:
        checker.load_verify_locations(cafile=ca)
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{ca} has no certificates of authorities: give a PEM file of them") from error
    checker.verify_mode = ssl.CERT_REQUIRED
    checker.verify_flags |= flags  # type: ignore[assignment]
    try:
        return _handshake(server, client, as_server)
    except ssl.SSLCertVerificationError as error:
        raise ConfigInvalid(
            f"peers will not accept {cert} ({error.verify_message}): issue it by an authority in {ca}, and look at the clock"
        ) from error
    except ssl.SSLError as error:
        raise ConfigInvalid(f"{cert} cannot be used for TLS ({error.reason}): issue it again") from error


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, as_server: bool) -> dict[str, Any]:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)]
    unfinished = list(ends)
    for _ in range(_ROUNDS_MAX):
        for end in tuple(unfinished):
            try:
                end.do_handshake()
                unfinished.remove(end)
            except ssl.SSLWantReadError:
                pass
        if not unfinished:
            break
    return ends[0 if as_server else 1].getpeercert() or {}


def _why_not(error: Exception, cert: str, key: str) -> str:
    reason = getattr(error, "reason", None)
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key {key} is not that of the certificate {cert}: give the two that were issued together"
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return f"cannot read the TLS files {cert} and {key}: {error.strerror}"
    return f"{cert} and {key} are not a certificate and a key without a password, in PEM: issue them again"
