"""Registering with the placement driver, and telling why it refuses."""

from __future__ import annotations

from rangelog.errors import RangelogError


class RolledBack(RangelogError):
    """The data directory is an older copy of what the placement driver knows of this incarnation."""

    code = "PRECONDITION_FAILED"
