"""A connection whose client has to read: mixed into a protocol.

What holds: a connection of which a client reads nothing for too long, while there is something to be read, is ended.
"""

from __future__ import annotations

import asyncio

UNREAD_TIMEOUT_S = 30.0


class ReadInTime(asyncio.Protocol):
    """See the module."""

    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport

    unread_timeout_s = UNREAD_TIMEOUT_S
    _unread: asyncio.TimerHandle | None = None
    _has_read = False

    def pause_writing(self) -> None:
        """Part of asyncio.Protocol."""
        super().pause_writing()
        self.await_reading()

    def resume_writing(self) -> None:
        """Part of asyncio.Protocol."""
        self._has_read = True
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio.Protocol."""
        self.end_waits()
        super().connection_lost(exc)

    def await_reading(self) -> None:
        """Look later whether the client has read something."""
        if self._unread is None:
            self._has_read = False
            self._unread = self.loop.call_later(self.unread_timeout_s, self._look)

    def end_waits(self) -> None:
        """Look at nothing more."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self) -> None:
        self._unread = None
        if self.transport.get_write_buffer_size():
            if self._has_read:
                self.await_reading()
            else:
                self.transport.abort()
