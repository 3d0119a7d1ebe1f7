"""Addresses in the settings of servers: read when the process starts, and refused by the name of their key."""

from __future__ import annotations

from rangelog_core.errors import InvalidArgument
from rangelog_core.net.addresses import split_address


def split_listen(value: str) -> tuple[str, int]:
    """Return (host, port) of "host:port"; port 0 lets the system choose. Raises ValueError."""
    return _split(value, port_min=0)


def check_peer(value: str) -> str:
    """Return "host:port" of another process, or of this one as others know it. Raises ValueError."""
    _split(value, port_min=1)
    return value


def check_listen(value: str) -> str:
    """Return "host:port" to listen on. Raises ValueError."""
    split_listen(value)
    return value


def check_listen_or_none(value: str) -> str:
    """Return "host:port" to listen on, or "" for no port. Raises ValueError."""
    return check_listen(value) if value else value


def _split(value: str, *, port_min: int) -> tuple[str, int]:
    try:
        return split_address(value, port_min=port_min)
    except InvalidArgument as error:
        raise ValueError(error.message) from error
