"""Chooses TCP ports on loopback.

The ports are below the range from which the kernel takes the local ports of outgoing connections: when a server is killed and
started again on its old port, no connection may occupy that port. Two processes that choose at the same time choose different
ports: each has a block of its own, by a lock on a file.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TextIO

from rangelog_core.errors import Unavailable

LOOPBACK = "127.0.0.1"
_LOWEST = 12_000
_TRIES_MAX = 2_000
BLOCK_PORTS = 512


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
    found: list[int] = []
    for port in islice(_candidates(), _TRIES_MAX):
        if len(found) == count:
            return found
        if port not in found and port not in taken and is_free(port):
            found.append(port)
    raise Unavailable(f"found no {count} free ports on {LOOPBACK}: stop something and try again")


class _Block:
    """Ports that no other process of this user takes here: one after the other, so that none comes again soon."""

    _file: TextIO | None = None
    _process_id = 0
    _first = 0
    _next = 0

    def ports(self) -> Iterator[int]:
        """Yield the ports of the block, over and over; nothing where all blocks are in use."""
        while self._process_id == os.getpid() or self._lock():  # a forked process takes another one
            self._next = (self._next + 1) % BLOCK_PORTS
            yield self._first + self._next

    def _lock(self) -> bool:
        """Take a block: it is this process's until it ends."""
        lowest, highest = _bounds()
        numbers = list(range((highest - lowest) // BLOCK_PORTS))
        random.SystemRandom().shuffle(numbers)
        with suppress(OSError):
            folder = Path(tempfile.gettempdir()) / f"rangelog-ports-{os.getuid()}"
            folder.mkdir(mode=0o700, exist_ok=True)
            for number in numbers:
                file = (folder / str(number)).open("a")
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    file.close()
                    continue
                self._file, self._process_id = file, os.getpid()
                self._first = lowest + number * BLOCK_PORTS
                return True
        return False


_BLOCK = _Block()


def _candidates() -> Iterator[int]:
    """Yield ports to try: of this process's block, and at random where there is none, or it has too few."""
    yield from islice(_BLOCK.ports(), BLOCK_PORTS)
    lowest, highest = _bounds()
    chooser = random.SystemRandom()
    while True:
        yield chooser.randint(lowest, highest)


def _bounds() -> tuple[int, int]:
    highest = _ephemeral_start() - 1
    return (_LOWEST if highest - _LOWEST > 1_000 else 1_024), highest


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
