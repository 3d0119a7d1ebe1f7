"""The requests that wait for the acks of their records: all for as long, so that one timer serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType

from rangelog import ProducerAck
from rangelog.errors import RangelogError

Futures = Sequence[asyncio.Future[ProducerAck] | RangelogError]


class OutcomeWaits:
    """See the module. For one event loop; `close` it.

    Example:
        ```python
        with waits.limited(futures, 30.0):
            outcomes = [await each for each in futures]
        ```
    """

    def __init__(self) -> None:
        self._waits: dict[OutcomeWait, None] = {}  # the one that has waited for longest first
        self._timer: asyncio.TimerHandle | None = None

    def limited(self, futures: Futures, limit_s: float) -> OutcomeWait:
        """Return a `with` block in which the futures that are not done in time are cancelled."""
        loop = asyncio.get_running_loop()
        wait = OutcomeWait(self._waits, futures, loop.time() + limit_s)
        if self._timer is None:
            self._timer = loop.call_at(wait.ends_s, self._look)
        return wait

    def close(self) -> None:
        """Stop: the waits have the producers' limits."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for wait in list(self._waits):
            if wait.ends_s > loop.time():
                self._timer = loop.call_at(wait.ends_s, self._look)
                return
            wait.end()


class OutcomeWait:
    """The wait of one request."""

    __slots__ = ("_futures", "_waits", "ends_s")

    def __init__(self, waits: dict[OutcomeWait, None], futures: Futures, ends_s: float) -> None:
        self._waits = waits
        self._futures = futures
        self.ends_s = ends_s

    def __enter__(self) -> None:
        self._waits[self] = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._waits.pop(self, None)

    def end(self) -> None:
        """Cancel what is not done."""
        self._waits.pop(self, None)
        for each in self._futures:
            if isinstance(each, asyncio.Future):
                each.cancel()
