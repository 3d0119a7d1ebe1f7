"""Writers that are connected for a range of which this server has no replica, since nothing was appended to it yet.

What holds: a writer says that it is there when it connects; it is known until its connection ends, a replica of the range
exists, or a writer of a higher epoch is there. So a server that is to be left can send it away, and a writer that is alive is
not taken for gone. At most IDLE_WRITERS_MAX are known; a further one is treated as unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rangelog_server.ranges.hosted_replica import RangeKey, Writing

IDLE_WRITERS_MAX = 100_000
_SWEPT_FROM = 1_000


@dataclass(slots=True)
class IdleWriter:
    """A writer that has not appended to its range."""

    epoch: int
    start_offset: int
    writing: Callable[[], Writing | None]
    confirm_count: int = 0
    """Of its messages: one that comes after a question is an answer."""

    def connected(self) -> Writing | None:
        """Return the connection, unless it has ended."""
        found = self.writing()
        return found if found is not None and not found.closed else None


class IdleWriters:
    """Those of one server."""

    def __init__(self) -> None:
        self._known: dict[RangeKey, IdleWriter] = {}
        self._sweep_at = _SWEPT_FROM

    def __len__(self) -> int:
        return len(self._known)

    def note(self, key: RangeKey, epoch: int, start_offset: int, writing: Callable[[], Writing | None]) -> None:
        """A writer is connected for a range."""
        before = self._known.get(key)
        if before is not None and before.epoch > epoch:
            return
        if before is None and not self._has_room():
            return
        count = before.confirm_count + 1 if before is not None else 1
        self._known[key] = IdleWriter(epoch, start_offset, writing, count)

    def answered(self, key: RangeKey, epoch: int) -> None:
        """A writer has sent its confirm offset."""
        found = self._known.get(key)
        if found is not None and found.epoch == epoch:
            found.confirm_count += 1

    def of(self, key: RangeKey) -> IdleWriter | None:
        """Return the writer that is connected for a range, if any."""
        found = self._known.get(key)
        if found is not None and found.connected() is None:
            del self._known[key]
            return None
        return found

    def forget(self, key: RangeKey) -> None:
        """A replica of the range exists now, which knows its writer itself."""
        self._known.pop(key, None)

    def _has_room(self) -> bool:
        """Whether one more may be known. Now and then those whose connection has ended are forgotten."""
        if len(self._known) >= self._sweep_at:
            self._known = {key: each for key, each in self._known.items() if each.connected() is not None}
            self._sweep_at = min(IDLE_WRITERS_MAX, max(_SWEPT_FROM, 2 * len(self._known)))
        return len(self._known) < IDLE_WRITERS_MAX
