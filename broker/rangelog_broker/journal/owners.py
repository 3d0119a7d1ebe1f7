"""The owner's sides of the journals that this broker has: one for each journal, for as long as the journal is this one.

What holds: a side is closed as soon as its journal is not the broker's any more, or was opened again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from rangelog_core.errors import InvalidArgument, NotOwner, OutcomeUnknown, RangelogError
from rangelog_core.net.owner_calls import JOURNALS


class OwnerSide(Protocol):
    """What an owner does beside the commands: timers, merges, who waits."""

    @property
    def journal(self) -> object:
        """The journal."""

    def close(self) -> None:
        """End all of it. Idempotent."""


J = TypeVar("J")
S = TypeVar("S", bound=OwnerSide)


class JournalOwners(Generic[J, S]):
    """For one event loop; `close` it before the journals."""

    def __init__(self, find: Callable[[int], J], make: Callable[[J], S]) -> None:
        """`find` returns a journal that is open here, or raises NotOwner; `make` its owner's side."""
        self._find = find
        self._make = make
        self._sides: dict[int, S] = {}

    def close(self) -> None:
        """Close all: the next owners go on. Idempotent."""
        sides, self._sides = self._sides, {}
        for side in sides.values():
            side.close()

    def of(self, number: int) -> S:
        """Return the owner's side of a journal. Raises NotOwner, InvalidArgument."""
        if not 0 <= number < JOURNALS:
            raise InvalidArgument(f"journal {number}: there are {JOURNALS}")
        known = self._sides.pop(number, None)
        try:
            journal = self._find(number)
            if known is not None and known.journal is journal:
                self._sides[number] = known
                return known
        finally:
            if known is not None and number not in self._sides:
                known.close()
        side = self._sides[number] = self._make(journal)
        return side


def moved(error: RangelogError) -> RangelogError:
    """Return the end of a journal as what its caller is to do: find the owner, and repeat."""
    if error.outcome_unknown:
        return OutcomeUnknown(f"this broker has lost the journal: {error.message}")
    return NotOwner(f"this broker does not own the journal any more: {error.message}")
