"""TCP keepalive: the kernel closes the connection to a peer that vanished (its machine lost, its NAT entry expired).

What holds: an idle connection to such a peer ends after `idle_s + count * interval_s`, one with data to send after
`unacknowledged_ms`; the values here are those of a client. A slow peer keeps its connection, since its kernel acknowledges;
a peer whose buffers stay full for that time loses it.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

KEEPALIVE_IDLE_S = 15
"""As for gRPC's pings, and below the minute or so after which routers drop an idle connection."""
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT = 3
"""One or two lost packets do not end a connection."""
UNACKNOWLEDGED_MS_MAX = 30_000
"""As long as the limit above; without it the kernel retransmits for a quarter of an hour."""


def notice_vanished_peer(
    transport: asyncio.BaseTransport,
    *,
    idle_s: int = KEEPALIVE_IDLE_S,
    interval_s: int = KEEPALIVE_INTERVAL_S,
    count: int = KEEPALIVE_COUNT,
    unacknowledged_ms: int = UNACKNOWLEDGED_MS_MAX,
) -> None:
    """Set the keepalive options of a connection's socket, as far as the system has them. Does nothing without a socket."""
    end = transport.get_extra_info("socket")
    if end is None or end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {
        "TCP_KEEPIDLE": idle_s,
        "TCP_KEEPINTVL": interval_s,
        "TCP_KEEPCNT": count,
        "TCP_USER_TIMEOUT": unacknowledged_ms,
    }
    with suppress(OSError):  # the socket is closed already
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            option = getattr(socket, name, None)  # Linux has all of them
            if option is not None:
                end.setsockopt(socket.IPPROTO_TCP, option, value)
