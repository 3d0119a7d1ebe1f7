"""When which members of a journal's groups are to be looked at for their silence. Pure.

What holds: each member that was added is named again and again, at the latest LOOK_MS after it was named last, until it is not
added again. A heartbeat costs nothing here: whoever is named decides by the machine's state whether the member is silent.
"""

from __future__ import annotations

import heapq

LOOK_MS = 60_000
"""Members that are gone are forgotten within this time, whatever their sessions."""


class MemberDeadlines:
    """The times of all members of a journal, the earliest first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, str]] = []
        self._listed: dict[tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, group: str, member: str, due_ms: int, now_ms: int) -> None:
        """Name a member at a time, or earlier; an earlier time that is listed stays."""
        due_ms = min(due_ms, now_ms + LOOK_MS)
        listed = self._listed.get((group, member))
        if listed is None or due_ms < listed:
            self._listed[group, member] = due_ms
            heapq.heappush(self._heap, (due_ms, group, member))

    @property
    def next_ms(self) -> int | None:
        """The earliest time; None: no member is listed."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[tuple[str, str]]:
        """Return the groups and members whose time has come; they are listed no more."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, group, member = heapq.heappop(self._heap)
            if self._listed.get((group, member)) == due_ms:
                del self._listed[group, member]
                found.append((group, member))
        return found
