"""A peer that vanished without a word (its machine lost, its address translation forgotten) is noticed by the kernel.

What holds: an idle connection to it ends after `idle_s + count * interval_s`, one with something to send after
`unacknowledged_ms`; the values here are a client's. A slow peer keeps its connection, since its kernel acknowledges; one that
takes nothing at all in that time, with its buffers full, does not.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

KEEPALIVE_IDLE_S = 15
"""As gRPC's pings here, and below the minute or so after which routers forget a silent connection."""
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT = 3
"""One lost packet, or two, are no vanished peer."""
UNACKNOWLEDGED_MS_MAX = 30_000
"""As long as the above: without it the kernel sends again for a quarter of an hour."""


def notice_vanished_peer(
    transport: asyncio.BaseTransport,
    *,
    idle_s: int = KEEPALIVE_IDLE_S,
    interval_s: int = KEEPALIVE_INTERVAL_S,
    count: int = KEEPALIVE_COUNT,
    unacknowledged_ms: int = UNACKNOWLEDGED_MS_MAX,
) -> None:
    """Set a connection's socket up so. Does nothing where there is none, or what the system lacks."""
    end = transport.get_extra_info("socket")
    if end is None or end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = {
        "TCP_KEEPIDLE": idle_s,
        "TCP_KEEPINTVL": interval_s,
        "TCP_KEEPCNT": count,
        "TCP_USER_TIMEOUT": unacknowledged_ms,
    }
    with suppress(OSError):  # it is gone already
        end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in options.items():
            option = getattr(socket, name, None)  # Linux has them all
            if option is not None:
                end.setsockopt(socket.IPPROTO_TCP, option, value)
