"""Whether the next transaction of a program is begun already, together with the commit of the one before. No I/O.

What holds: a commit begins the next transaction only for a program that has been beginning one right behind the other. What
was begun so is taken as long as its time-out is far; afterwards the coordinator is asked, where it may be aborted by then.
"""

from __future__ import annotations

BACK_TO_BACK_S = 0.05
"""A program that begins its next transaction so soon after a commit is expected to do it again."""
BACK_TO_BACK = 3
"""After so many in a row."""
SHARE_OF_TIMEOUT = 1 / 6
"""Of the time-out, from before the commit is sent: what was begun with it is taken without asking for so long."""


class BegunAhead:
    """Of one epoch of a program. Times are in seconds, of one clock that never goes back."""

    def __init__(self, timeout_s: float) -> None:
        self._fresh_s = timeout_s * SHARE_OF_TIMEOUT
        self._committed_s: float | None = None
        self._in_a_row = 0
        self._begun_until_s: float | None = None
        self.maybe = False
        """A commit has asked for it: the coordinator may have begun the next number, and aborted it by its time-out."""

    def begins(self, now_s: float) -> bool:
        """Note that the program begins its next transaction; return whether that is begun already."""
        soon = self._committed_s is not None and now_s - self._committed_s <= BACK_TO_BACK_S
        self._in_a_row = self._in_a_row + 1 if soon else 0
        until_s, self._begun_until_s, self._committed_s = self._begun_until_s, None, None
        return until_s is not None and now_s < until_s

    def wanted(self) -> bool:
        """Return whether a commit that is sent now should begin the next transaction, and note that it is asked to."""
        wanted = self._in_a_row >= BACK_TO_BACK
        self.maybe = self.maybe or wanted
        return wanted

    def committed(self, sent_s: float, now_s: float, *, begun: bool) -> None:
        """Note the answer of a commit, and when it was sent."""
        self._committed_s = now_s
        self._begun_until_s = sent_s + self._fresh_s if begun else None

    @property
    def is_begun(self) -> bool:
        """Whether the next one was begun and nobody has taken it yet."""
        return self._begun_until_s is not None
