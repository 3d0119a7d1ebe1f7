"""The data that a connection has still to send, kept as it is until its transport has room for it.

What holds: bytes leave in the order in which they were put; the transport, which copies what its socket does not take at once,
never holds more than `TRANSPORT_BYTES_MAX` and one buffer. The queue itself is bounded by those who put: the append budget.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

TRANSPORT_BYTES_MAX = 1024 * 1024
_LARGE_BYTES = 32 * 1024
"""Such a buffer is written by itself: joining it with others would copy it, which costs more than a call of the kernel."""


class SendQueue:
    """The way out of one connection. For one event loop."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._in_turn = False
        self._held = False
        self._closed = False
        self._encrypted = transport.get_extra_info("sslcontext") is not None  # then each write is a record of its own
        transport.set_write_buffer_limits(high=TRANSPORT_BYTES_MAX)

    def put(self, buffers: Sequence[bytes]) -> None:
        """Send a frame.

        The first one of a turn of the loop goes at once, for the sake of latency; the others together, for each write is a call
        of the kernel that costs more than everything else about a small frame.
        """
        self._waiting.extend(buffers)
        if self._in_turn:
            return
        self._in_turn = True
        self._loop.call_soon(self._end_turn)
        self._write()

    def hold(self) -> None:
        """Write nothing more: the transport is full."""
        self._held = True

    def release(self) -> None:
        """Write again."""
        self._held = False
        self._write()

    def close(self) -> None:
        """Forget what was not written."""
        self._closed = True
        self._waiting.clear()

    def _end_turn(self) -> None:
        self._in_turn = False
        self._write()

    def _write(self) -> None:
        waiting = self._waiting
        while waiting and not self._held and not self._closed:
            if len(waiting[0]) >= _LARGE_BYTES:
                self._transport.write(waiting.popleft())
                continue
            small = [waiting.popleft()]
            while waiting and len(waiting[0]) < _LARGE_BYTES:
                small.append(waiting.popleft())
            if self._encrypted:
                self._transport.write(b"".join(small))
            else:
                self._transport.writelines(small)
