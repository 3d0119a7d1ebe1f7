"""What an append message means for a log that holds part of it already. Pure.

What holds: only entries that conflict are ever cut. (pysyncobj cuts everything behind `previous` and writes it again; a
member that stops between the two has lost entries that it acknowledged.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rangelog_pd.consensus.files.journal import JournalEntry
from rangelog_pd.consensus.network.messages import Append


class LogView(Protocol):
    """What has to be known of the log."""

    @property
    def last_index(self) -> int:
        """Index of the last entry."""

    def term_at(self, index: int) -> int | None:
        """The term of an entry, None where there is none."""


@dataclass(frozen=True)
class Settled:
    """The message without what the log holds already. With `keeps_tail`, the log goes on beyond all the leader said."""

    previous_index: int
    previous_term: int
    entries: tuple[JournalEntry, ...]
    keeps_tail: bool


def settle(log: LogView, message: Append) -> Settled:
    """Skip the entries that match. A message whose `previous` does not match is left as it is, to be refused."""
    index, term = message.previous_index, message.previous_term
    if log.term_at(index) != term:
        return Settled(index, term, message.entries, keeps_tail=False)
    matching = 0
    for entry in message.entries:
        if log.term_at(entry.log_index) != entry.term:
            break
        matching += 1
        index, term = entry.log_index, entry.term
    rest = message.entries[matching:]
    return Settled(index, term, rest, keeps_tail=not rest and index < log.last_index)
