"""A peer that vanished without a word (its machine lost, its address translation forgotten) is noticed by the kernel.

What holds: an idle connection to it ends after KEEPALIVE_IDLE_S + KEEPALIVE_COUNT * KEEPALIVE_INTERVAL_S, one with something
to send after UNACKNOWLEDGED_MS_MAX. A slow peer keeps its connection, since its kernel acknowledges; one that takes nothing
at all in that time, with its buffers full, does not.
"""

from __future__ import annotations

import asyncio
import socket

KEEPALIVE_IDLE_S = 15
"""As gRPC's pings here, and below the minute or so after which routers forget a silent connection."""
KEEPALIVE_INTERVAL_S = 5
KEEPALIVE_COUNT = 3
"""One lost packet, or two, are no vanished peer."""
UNACKNOWLEDGED_MS_MAX = 30_000
"""As long as the above: without it the kernel sends again for a quarter of an hour."""

_OPTIONS = (
    ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
    ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
    ("TCP_KEEPCNT", KEEPALIVE_COUNT),
    ("TCP_USER_TIMEOUT", UNACKNOWLEDGED_MS_MAX),
)


def notice_vanished_peer(transport: asyncio.BaseTransport) -> None:
    """Set a connection's socket up so. Does nothing where there is none, or what the system lacks."""
    end = transport.get_extra_info("socket")
    if end is None or end.family not in (socket.AF_INET, socket.AF_INET6):
        return
    end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        option = getattr(socket, name, None)  # Linux has them all
        if option is not None:
            end.setsockopt(socket.IPPROTO_TCP, option, value)
