"""The recent entries of a process's log, in memory. A core: its caller gives the times, and it waits for nothing.

What holds: entries have consecutive numbers from 1 on; the ring has at most so many entries and so many bytes, the newest ones;
a page has at most `limit` entries and PAGE_BYTES_MAX bytes, in order; a reader that goes on after the last number of a page
gets each entry once, or the number of those that are gone.

Example: `ring.add("info", 1_700_000_000_000, '{"event": "serving"}'); ring.read(limit=100).entries`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from rangelog_core.errors import InvalidArgument

LEVELS = ("debug", "info", "warning", "error", "critical")
COUNT_MAX = 2_000
BYTES_MAX = 1024 * 1024
LINE_BYTES_MAX = 16 * 1024
PAGE_BYTES_MAX = 512 * 1024


@dataclass(frozen=True, slots=True)
class RecentEntry:
    """One event. `rank`: the index of its level in LEVELS; `line`: JSON; `size_bytes`: of the line."""

    number: int
    rank: int
    wall_ms: int
    line: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """An answer. `last`: the last number that was looked at; `missed`: entries behind `after` that are gone."""

    entries: tuple[RecentEntry, ...]
    last: int
    missed: int
    more: bool


class LogRing:
    """The newest entries. For one thread at a time."""

    def __init__(self, *, count_max: int = COUNT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._entries: deque[RecentEntry] = deque()
        self._bytes = 0
        self._last = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """Bytes of all lines."""
        return self._bytes

    def add(self, level: str, wall_ms: int, line: str) -> None:
        """Add an entry; the oldest ones leave. An unknown level counts as info; a line over LINE_BYTES_MAX is refused.

        Raises InvalidArgument.
        """
        size_bytes = len(line.encode(errors="replace"))
        if size_bytes > LINE_BYTES_MAX:
            raise InvalidArgument(f"a line of the log has {size_bytes} bytes; at most {LINE_BYTES_MAX} are kept")
        self._last += 1
        self._entries.append(RecentEntry(self._last, rank_of(level), wall_ms, line, size_bytes))
        self._bytes += size_bytes
        while len(self._entries) > self._count_max or self._bytes > self._bytes_max:
            self._bytes -= self._entries.popleft().size_bytes

    def read(self, *, limit: int, level: str = "", since_ms: int = 0, after: int = 0) -> LogPage:
        """Return the oldest entries behind the number `after`; for 0, the newest of all.

        `level`: the lowest that is wanted, "" for all. `since_ms`: earlier entries are left out. Raises InvalidArgument.
        """
        if level and level not in LEVELS:
            raise InvalidArgument(f"{level[:20]!r} is no level of a log: take one of {', '.join(LEVELS)}")
        if not 1 <= limit <= COUNT_MAX:
            raise InvalidArgument(f"limit is {limit}: ask for 1 to {COUNT_MAX} entries")
        rank = LEVELS.index(level) if level else 0

        def wanted(each: RecentEntry) -> bool:
            return each.rank >= rank and each.wall_ms >= since_ms

        if after == 0:
            newest, _ = _taken((each for each in reversed(self._entries) if wanted(each)), limit)
            return LogPage(tuple(reversed(newest)), self._last, 0, more=False)
        first = self._entries[0].number if self._entries else self._last + 1
        found, more = _taken((each for each in self._entries if each.number > after and wanted(each)), limit)
        return LogPage(tuple(found), found[-1].number if more else self._last, max(0, first - after - 1), more)


def rank_of(level: str) -> int:
    """Return the place of a level among LEVELS; that of info for any other."""
    return LEVELS.index(level if level in LEVELS else "info")


def _taken(entries: Iterable[RecentEntry], limit: int) -> tuple[list[RecentEntry], bool]:
    """Return the first entries, up to the limits of a page, and whether there are others."""
    taken: list[RecentEntry] = []
    size_bytes = 0
    for each in entries:
        size_bytes += each.size_bytes
        if len(taken) == limit or (taken and size_bytes > PAGE_BYTES_MAX):
            return taken, True
        taken.append(each)
    return taken, False
