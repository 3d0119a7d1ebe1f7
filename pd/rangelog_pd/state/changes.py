"""The last changes of the tables, for code that follows the state instead of reading all rows.

What holds: changes are numbered from 1 without gaps within one State; `since` returns all after a number, or None where
some of them are no longer kept (or belong to another State): then the follower has to read all rows once.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from google.protobuf.message import Message

CHANGES_MAX = 16_384
"""A change keeps two rows, of 1 KiB together at most: 16 MiB."""


class Change(NamedTuple):
    """A row before and after. Before is None for a new row, after for a removed one."""

    before: Message | None
    after: Message | None


class Changes:
    """The last changes, bounded in number."""

    def __init__(self) -> None:
        self.last = 0
        self._kept: deque[Change] = deque(maxlen=CHANGES_MAX)

    def note(self, before: Message | None, after: Message | None) -> None:
        """Note a change of a row."""
        self.last += 1
        self._kept.append(Change(before, after))

    def note_again(self, row: Message) -> None:
        """Let the followers look at a row again: what it depends on has changed."""
        self.note(row, row)

    def since(self, number: int) -> list[Change] | None:
        """Return the changes after the one of this number, oldest first; None where they are not all kept."""
        wanted = self.last - number
        if not 0 <= wanted <= len(self._kept):
            return None
        found = list(islice(reversed(self._kept), wanted))
        found.reverse()
        return found
