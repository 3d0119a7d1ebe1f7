"""Appends of a writer or a producer that have no outcome yet: their size, waits for room, and the error that ended them.

What holds: there is room while less than `inflight_bytes_max` bytes are pending and the client's budget is not used up; the
budget holds back no writer that has nothing pending. Nothing is taken while `bytes_max` bytes or more are pending, or while it
is not `accepting`. When appends end, waits for room fail. The error of appends without a waiter is kept until a call raises it.
"""

from __future__ import annotations

import asyncio

from rangelog._append.batch_builder import tell
from rangelog_core.errors import RangelogError
from rangelog_core.net.budgets import AppendBudget

_OVERSHOOT = 2


class PendingAppends:
    """See the module. For one event loop, which it has from `open` on."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, budget: AppendBudget, *, append_timeout_s: float, inflight_bytes_max: int) -> None:
        """`append_timeout_s`: the limit of waits that have none of their own."""
        self.budget = budget
        self.append_timeout_s = append_timeout_s
        self.inflight_bytes_max, self.bytes_max = inflight_bytes_max, _OVERSHOOT * inflight_bytes_max
        self.size_bytes = 0
        self.accepting = self.closed = False
        self.left_unknown = False  # it ended while appends were sent and not acked
        self.untold: RangelogError | None = None  # the error of appends without a waiter
        self._told = False
        self._room: list[asyncio.Future[None]] = []

    def open(self) -> None:
        """Take appends from here on."""
        self.loop = asyncio.get_running_loop()
        self.accepting = True

    def close(self) -> None:
        """Take no more appends; call `end` afterwards."""
        self.closed, self.accepting = True, False

    @property
    def has_room(self) -> bool:
        """Whether an append need not wait, whatever is pending."""
        return self.size_bytes < self.inflight_bytes_max and not self.budget.is_used_up

    def room(self) -> asyncio.Future[None] | None:
        """Return what to wait for before the next look; None: there is room. It fails when appends end."""
        if self.size_bytes >= self.inflight_bytes_max:
            future: asyncio.Future[None] = self.loop.create_future()
        elif self.size_bytes and self.budget.is_used_up:
            future = self.budget.room(self)
        else:
            return None
        self._room.append(future)
        return future

    def make_room(self) -> None:
        """End the waits for room, if there is some: `size_bytes` fell."""
        if self._room and self.size_bytes < self.inflight_bytes_max:
            self._wake(None)

    def end(self, error: RangelogError, *, unknown: bool, untold: RangelogError | None) -> None:
        """Fail waits for room. `unknown`: appends may be in the log. `untold`: the error of those without a waiter, if any."""
        self.accepting, self.size_bytes = False, 0
        self.left_unknown = self.left_unknown or unknown
        self.untold = None if self._told else untold
        self._wake(error)

    def note_told(self) -> None:
        """A caller gets the error that ended the appends: `close` need not raise it again."""
        self._told, self.untold = True, None

    def _wake(self, error: RangelogError | None) -> None:
        room, self._room = self._room, []
        for future in room:
            if error is not None:
                tell(future, error)
            elif not future.done():
                future.set_result(None)
