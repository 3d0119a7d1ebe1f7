"""The replies to one subscription of a data-plane connection, in their order.

What holds: the replies that came before an error are read before it is raised; of two status replies in a row the later one is
kept, so what waits here is bounded by the credit of the subscription.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from rangelog_core.errors import InternalError, RangelogError
from rangelog_core.frame import Frame, Opcode

if TYPE_CHECKING:
    from rangelog_core.net.data_connection import DataConnection


class Replies:
    """The replies to one subscription. One task at a time may wait; `close` it when no more replies are needed."""

    def __init__(self, connection: DataConnection, request_id: int) -> None:
        self._connection = connection
        self._request_id = request_id
        self._frames: deque[Frame] = deque()
        self._error: RangelogError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def failed(self) -> bool:
        """Whether an error has ended them: no request of this id is in progress at the peer."""
        return self._error is not None

    async def next(self, *, timeout_s: float) -> Frame:
        """Return the next reply. Raises the error that the peer sent after the earlier replies, RequestTimeout, Unavailable."""
        if not self._frames and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._connection.wait_for(self._waiter, timeout_s)
            finally:
                self._waiter = None
        if self._frames:
            return self._frames.popleft()
        raise self._error or InternalError("a reply was announced and is missing")

    def send(self, opcode: Opcode, message: bytes) -> None:
        """Send a frame with the request's id. Does nothing once the connection is closed."""
        self._connection.send(opcode, message, request_id=self._request_id)

    def close(self) -> None:
        """Drop all later replies; idempotent."""
        self._connection.unsubscribe(self._request_id)

    def put(self, frame: Frame) -> None:
        """Queue a reply. Called by the connection."""
        frames = self._frames
        if frames and not frame.payload and not frames[-1].payload:
            frames.pop()  # of two status replies the later one counts, and a reader may fetch neither for hours
        frames.append(frame)
        self._wake()

    def fail(self, error: RangelogError) -> None:
        """End the replies with an error. Called by the connection."""
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
