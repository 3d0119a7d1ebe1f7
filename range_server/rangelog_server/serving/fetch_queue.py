"""The fetches of one connection: their number, and their turns.

What holds: a fetch counts from `begin` to `end`; the number of fetches of one connection, and of all, is bounded by the memory
reserved for them. Few are active at once, so a connection's replies take turns; a bounded number starts in one turn of the
event loop, and none from within another; while the client does not read, none starts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rangelog_core.errors import Overloaded
from rangelog_core.limits import KIB, MIB

FETCH_BYTES = 2 * KIB
"""Memory of one waiting fetch: measured 1.1 KiB with all objects that refer to it."""
FETCHES_WAITING_MAX = 64 * MIB // FETCH_BYTES
"""Of one connection: 32,768. The write buffer and the active fetches bound the sent bytes, whatever the number of fetches."""
FETCHES_WAITING_IN_ALL_MAX = 256 * MIB // FETCH_BYTES
"""Of all connections: 131,072."""
QUESTIONS_WAITING_MAX = 256
"""Above these limits: fetches for offsets alone, so that a client with followers at the limit can still ask for an end."""
FETCHES_ACTIVE_MAX = 4
FETCHES_PER_TURN_MAX = 64
"""Of one connection, in one turn of the event loop: some milliseconds when all replies come from memory."""


class Fetching(Protocol):
    """A fetch before its last reply."""

    def renew(self, credit_bytes: int) -> None:
        """Add credit of so many bytes; 0: end the fetch, without another reply."""

    def may_go_on(self) -> bool:
        """Whether its client is known to have the right still; end the fetch where it has not."""


@dataclass(slots=True)
class FetchesInAll:
    """The number of fetches of all connections."""

    count: int = 0


class FetchQueue:
    """The fetches of one connection. For the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, in_all: FetchesInAll) -> None:
        self.following: dict[int, Fetching] = {}  # by request id: those with more than one reply
        self.active_count = 0
        self._loop = loop
        self._in_all = in_all
        self._running: dict[Fetching, None] = {}  # all before their last reply
        self._waiting: deque[Callable[[], None]] = deque()  # waiting for their turn
        self._left = FETCHES_PER_TURN_MAX  # fetches to start in this turn of the loop
        self._starting = False
        self._held = False

    @property
    def count(self) -> int:
        """The number of fetches before their last reply."""
        return len(self._running)

    def begin(self, fetch: Fetching, *, question: bool) -> None:
        """Count a fetch until its `end`. Raises Overloaded above the limit, which is higher for fetches of offsets alone."""
        more = QUESTIONS_WAITING_MAX if question else 0
        if len(self._running) >= FETCHES_WAITING_MAX + more:
            raise Overloaded(f"{FETCHES_WAITING_MAX} fetches wait on this connection already")
        if self._in_all.count >= FETCHES_WAITING_IN_ALL_MAX + more:
            raise Overloaded(f"{FETCHES_WAITING_IN_ALL_MAX} fetches wait on this server already")
        self._running[fetch] = None
        self._in_all.count += 1

    def end(self, fetch: Fetching) -> None:
        """Note the end of a fetch."""
        if fetch in self._running:
            del self._running[fetch]
            self._in_all.count -= 1

    def close(self) -> None:
        """End all fetches, since the connection is closed."""
        self._waiting.clear()
        for fetch in list(self._running):
            fetch.renew(0)

    def queue(self, start: Callable[[], None]) -> None:
        """Run a fetch in its turn; the fetch calls `done` when its reply is sent, or when it waits for records.

        `start` raises nothing: a failed fetch sends its error and returns its turn.
        """
        self._waiting.append(start)
        self._start()

    def done(self) -> None:
        """Note that one fetch is no longer active."""
        self.active_count -= 1
        self._start()

    def hold(self) -> None:
        """Start no fetch, since the client does not read."""
        self._held = True

    def release(self) -> None:
        """Start fetches again, since the client reads again."""
        self._held = False
        self._start()

    def _start(self) -> None:
        """Start as many fetches as allowed: never recursively, however many are done at once."""
        if self._starting:
            return  # by the loop below, of which this fetch is a step
        self._starting = True
        try:
            while self._waiting and self.active_count < FETCHES_ACTIVE_MAX and not self._held:
                if not self._left:
                    return  # the next turn continues
                self._left -= 1
                if not self._left:
                    self._loop.call_soon(self._next_turn)
                self.active_count += 1
                self._waiting.popleft()()
        finally:
            self._starting = False

    def _next_turn(self) -> None:
        self._left = FETCHES_PER_TURN_MAX
        self._start()
