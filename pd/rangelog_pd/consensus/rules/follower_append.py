"""The effect of an append message on a follower's log that has some of the entries already. Pure.

What holds: only entries that conflict are ever cut. (pysyncobj cuts all entries behind `previous` and writes them again; a
member that stops between the two loses entries that it acknowledged.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from rangelog_pd.consensus.files.journal import JournalEntry
from rangelog_pd.consensus.network.messages import Append


class LogView(Protocol):
    """The properties of the log that this decision needs."""

    @property
    def last_index(self) -> int:
        """Index of the last entry."""

    def term_at(self, index: int) -> int | None:
        """Return the term of an entry, or None without that entry."""


@dataclass(frozen=True)
class Settled:
    """The message without the entries that the log has. With `keeps_tail`, the log extends beyond the message."""

    previous_index: int
    previous_term: int
    entries: tuple[JournalEntry, ...]
    keeps_tail: bool


def settle(log: LogView, message: Append) -> Settled:
    """Remove the entries that match. A message whose `previous` does not match stays unchanged, to be refused."""
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
