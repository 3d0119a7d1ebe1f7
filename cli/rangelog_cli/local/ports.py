"""Chooses TCP ports on loopback.

The ports are below the range from which the kernel takes the local ports of outgoing connections: when a server is killed and
started again on its old port, no connection may occupy that port.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

from rangelog_core.errors import Unavailable

LOOPBACK = "127.0.0.1"
_LOWEST = 12_000
_TRIES_MAX = 2_000


def is_free(port: int) -> bool:
    """Whether no process listens on this port of the loopback interface."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)  # bind alone succeeds beside a listener that set SO_REUSEPORT
        except OSError:
            return False
    return True


def free_ports(count: int, *, taken: Collection[int] = ()) -> list[int]:
    """`count` different ports that are free now, and none of `taken`: of members that do not run now.

    Raises Unavailable when none can be found.
    """
    highest = _ephemeral_start() - 1
    lowest = _LOWEST if highest - _LOWEST > 1_000 else 1_024
    found: list[int] = []
    chooser = random.SystemRandom()
    for _ in range(_TRIES_MAX):
        if len(found) == count:
            return found
        port = chooser.randint(lowest, highest)
        if port not in found and port not in taken and is_free(port):
            found.append(port)
    raise Unavailable(f"found no {count} free ports on {LOOPBACK}: stop something and try again")


def refuse_busy(ports: dict[str, int]) -> None:
    """Raise Unavailable, which names the first port in use; `ports` maps purposes to numbers."""
    for purpose, port in ports.items():
        if not is_free(port):
            raise Unavailable(
                f"port {port} ({purpose}) is in use: stop what listens there, or choose other ports with --port"
            )


def _ephemeral_start() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
