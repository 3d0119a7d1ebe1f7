"""The fetches of one connection: how many there may be, and whose turn it is.

What holds: a fetch counts from `begin` to `end`; of one connection, and of all, there are no more than the memory set aside for
them holds. Few are active at once, so a connection's replies take turns; a bounded number starts in one turn of the event
loop, and none from within another; while the client does not read, none starts.
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
"""Memory of one fetch that waits: measured 1.1 KiB with all that refers to it."""
FETCHES_WAITING_MAX = 64 * MIB // FETCH_BYTES
"""Of one connection: 32,768. What is sent is bounded by the write buffer and the active fetches, whatever their number."""
FETCHES_WAITING_IN_ALL_MAX = 256 * MIB // FETCH_BYTES
"""Of all connections: 131,072."""
QUESTIONS_WAITING_MAX = 256
"""Beyond these: fetches for offsets alone, so that followers at the limit do not keep a client from asking for an end."""
FETCHES_ACTIVE_MAX = 4
FETCHES_PER_TURN_MAX = 64
"""Of one connection, in one turn of the event loop: some milliseconds when all are answered from memory."""


class Fetching(Protocol):
    """A fetch that is not over."""

    def renew(self, credit_bytes: int) -> None:
        """Go on for so many bytes more; none: end, without another reply."""


@dataclass(slots=True)
class FetchesInAll:
    """Of all connections, those that are not over."""

    count: int = 0


class FetchQueue:
    """See the module. For the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, in_all: FetchesInAll) -> None:
        self.following: dict[int, Fetching] = {}  # by request id: those that are answered more than once
        self.active_count = 0
        self._loop = loop
        self._in_all = in_all
        self._running: dict[Fetching, None] = {}  # all that are not over
        self._waiting: deque[Callable[[], None]] = deque()  # for their turn
        self._left = FETCHES_PER_TURN_MAX  # to be started before the loop has another turn
        self._starting = False
        self._held = False

    @property
    def count(self) -> int:
        """Fetches that are not over: waiting in any way."""
        return len(self._running)

    def begin(self, fetch: Fetching, *, question: bool) -> None:
        """Count a fetch until its `end`. Raises Overloaded when there are too many; of questions for offsets some more."""
        more = QUESTIONS_WAITING_MAX if question else 0
        if len(self._running) >= FETCHES_WAITING_MAX + more:
            raise Overloaded(f"{FETCHES_WAITING_MAX} fetches wait on this connection already")
        if self._in_all.count >= FETCHES_WAITING_IN_ALL_MAX + more:
            raise Overloaded(f"{FETCHES_WAITING_IN_ALL_MAX} fetches wait on this server already")
        self._running[fetch] = None
        self._in_all.count += 1

    def end(self, fetch: Fetching) -> None:
        """A fetch is over."""
        if fetch in self._running:
            del self._running[fetch]
            self._in_all.count -= 1

    def close(self) -> None:
        """The connection is gone: end all."""
        self._waiting.clear()
        for fetch in list(self._running):
            fetch.renew(0)

    def queue(self, start: Callable[[], None]) -> None:
        """Run a fetch when it is its turn; it calls `done` when its reply is sent, or when it waits for more.

        `start` raises nothing: whatever happens to a fetch, it answers, and gives back its turn.
        """
        self._waiting.append(start)
        self._start()

    def done(self) -> None:
        """One fetch less is active."""
        self.active_count -= 1
        self._start()

    def hold(self) -> None:
        """The client does not read: start nothing."""
        self._held = True

    def release(self) -> None:
        """It reads again."""
        self._held = False
        self._start()

    def _start(self) -> None:
        """Start what may be started: never from within itself, however many are done at once."""
        if self._starting:
            return  # by the loop below, of which this fetch is a step
        self._starting = True
        try:
            while self._waiting and self.active_count < FETCHES_ACTIVE_MAX and not self._held:
                if not self._left:
                    return  # the next turn goes on
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
