"""Addresses as host:port. The resolver takes every accepted address: it finds the host, or fails with a network error."""

from __future__ import annotations

import re

from rangelog_core.errors import InvalidArgument

_PORT = re.compile(r"[0-9]{1,5}")
_PORT_MAX = 65_535
_SCHEME = re.compile(r"(?:https?|grpcs?|tcp)://", re.IGNORECASE)
"""Of URLs, which no resolver takes. gRPC has schemes of its own, such as dns:///, which it does take."""
_HOST_LENGTH_MAX = 253  # of the domain name system
_SHOWN_LENGTH_MAX = 100


def split_address(address: str, *, port_min: int = 1) -> tuple[str, int]:
    """Return host and port of "host:port" or "[v6]:port". `port_min` 0 allows port 0, any free port. Raises InvalidArgument."""
    scheme = _SCHEME.match(address)
    if scheme is not None:
        raise InvalidArgument(
            f"bad address {address[:_SHOWN_LENGTH_MAX]!r}: write host:port, and leave out {scheme[0]}"
        )
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not _is_host(host) or not _PORT.fullmatch(port) or not port_min <= int(port) <= _PORT_MAX:
        raise InvalidArgument(f"bad address {address[:_SHOWN_LENGTH_MAX]!r}: write host:port")
    return host, int(port)


def _is_host(host: str) -> bool:
    """Whether the resolver takes the host: for some names it raises UnicodeError, which is not a network error."""
    if not 0 < len(host) <= _HOST_LENGTH_MAX or "\0" in host:
        return False
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True
