"""The bytes and requests that all writers and readers of one client may have under way together.

What holds: a writer or reader with nothing under way may begin, so none waits for ever for others; beyond that, appends wait
while the budget is used up, and a reader beyond it gets the least credit that keeps it going. Memory is bounded by the budget
and a small part for each writer and reader, however many there are.
"""

from __future__ import annotations

import asyncio

from rangelog_core.limits import APPENDS_BYTES_MAX, FETCH_CREDIT_BYTES_MIN, FETCHES_BYTES_MAX


class AppendBudget:
    """Batches of all writers that are sent and not acked. For one event loop."""

    def __init__(self, bytes_max: int = APPENDS_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.batches_in_flight = 0
        self.bytes_in_flight = 0
        self._waiting: dict[object, asyncio.Future[None]] = {}

    @property
    def is_used_up(self) -> bool:
        """Whether a writer that has something in flight should wait."""
        return self.bytes_in_flight >= self.bytes_max

    def sent(self, size_bytes: int) -> None:
        """A batch is in flight."""
        self.batches_in_flight += 1
        self.bytes_in_flight += size_bytes

    def ended(self, size_bytes: int) -> None:
        """A batch was acked, or never will be."""
        self.batches_in_flight -= 1
        self.bytes_in_flight -= size_bytes
        while self._waiting and self.bytes_in_flight < self.bytes_max:
            future = self._waiting.pop(next(iter(self._waiting)))
            if not future.done():
                future.set_result(None)
                return  # one at a time: what it appends counts before the next one is let go on

    def room(self, writer: object) -> asyncio.Future[None]:
        """Return what resolves, in turn, as batches end and the budget is not used up. One for each writer.

        Not the only thing to wait for: a writer that gives its turn up does not pass it on. Each writer's own acks go on.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.pop(writer, None)
        self._waiting[writer] = future
        return future


class FetchBudget:
    """The credit of all pushed fetches."""

    def __init__(self, bytes_max: int = FETCHES_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.granted_bytes = 0

    def take(self, wanted_bytes: int) -> int:
        """Return the credit of a new fetch; `give_back` it when the fetch ends."""
        left = self.bytes_max - self.granted_bytes
        granted = min(wanted_bytes, max(FETCH_CREDIT_BYTES_MIN, left))
        self.granted_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        """A fetch ended."""
        self.granted_bytes -= granted_bytes
