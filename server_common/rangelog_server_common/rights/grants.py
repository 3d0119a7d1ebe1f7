"""Grants: what clients may do to resources, as the placement driver said, for as long as that counts. No I/O.

What holds: a grant counts for the version of rights that it follows from, and for GRANT_LIFETIME_S at most; the version comes
with each heartbeat's answer, so what was taken from a client ends with the next one. Nothing counts that was asked before a
change and answered after it. Ages go by this process's monotonic clock: no wall clock has a part in it. The number of grants is
bounded.
"""

from __future__ import annotations

from dataclasses import dataclass

from rangelog_core.rights import Verb

GRANT_LIFETIME_S = 600.0
RENEW_AFTER_S = 300.0
"""An older one is asked for again while it counts, so that nobody waits, and an outage of the placement drivers is bridged."""
UNKNOWN = -1
"""In place of a version: nobody has said yet whether rights are enforced. The first answer does."""
GRANTS_MAX = 100_000
"""Beyond it the oldest is forgotten, and asked for again when it is needed."""

Key = tuple[str, int, str, int]
"""Principal, kind, and a name or an id."""


@dataclass(frozen=True, slots=True)
class Grant:
    """The verbs of one client on one resource. `kind` and `name`: of the rule that decided."""

    verbs: Verb
    kind: int
    name: str


class Grants:
    """The grants that this process was given."""

    def __init__(self) -> None:
        self.version = 0
        """Of the rights in force; 0: they are not enforced; or UNKNOWN."""
        self._kept: dict[Key, tuple[Grant, int, float]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def heard(self, version: int) -> None:
        """Take the version in force, from the answer to a heartbeat or a registration."""
        if version != self.version:
            self.version = version
            self._kept.clear()

    def find(self, key: Key, now_s: float) -> Grant | None:
        """Return the grant that counts, if there is one."""
        kept = self._kept.get(key)
        if kept is None or now_s - kept[2] >= GRANT_LIFETIME_S:
            return None
        return kept[0]

    def is_old(self, key: Key, now_s: float) -> bool:
        """Whether a grant that counts is to be asked for again."""
        kept = self._kept.get(key)
        return kept is not None and now_s - kept[2] >= RENEW_AFTER_S

    def keep(self, key: Key, grant: Grant, version: int, asked_s: float) -> bool:
        """Keep an answer; return False where it is of rights before a change, and is to be asked for again."""
        if version > self.version:
            self.heard(version)
        if version < self.version:
            return False
        self._kept.pop(key, None)
        while len(self._kept) >= GRANTS_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (grant, version, asked_s)
        return True
