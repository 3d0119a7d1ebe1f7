"""A page of a list, and whether another one follows."""

from __future__ import annotations

from collections.abc import Sized

from rangelog_core.errors import ProtocolViolation


def goes_on(more: bool, rows: Sized) -> bool:
    """Whether another page follows. Raises ProtocolViolation for a page without rows that says so: where it begins is not told.

    >>> goes_on(True, ["row"]), goes_on(False, [])
    (True, False)
    """
    if more and not len(rows):
        raise ProtocolViolation("a page of a list is empty and says that there is more: what was listed is not all")
    return more
