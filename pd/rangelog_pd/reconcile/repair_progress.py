"""Which sealed ranges lack whole copies, in which state their repair is, and how much was repaired since something was
lacking.

What holds: a range is in at most one of `waiting` and `blocked`; `copying` has the members that a heartbeat has shown without
all of the range. In the leader's memory: another leader finds the same from the state, and from the servers' complete
reports.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_pd.reconcile.repair_queue import RepairQueue
from rangelog_pd.state.tables import RangeKey


class RepairProgress:
    """See the module."""

    def __init__(self) -> None:
        self.waiting = RepairQueue()
        """Ranges with a member that another server may have to replace."""
        self.blocked: dict[RangeKey, str] = {}
        """Ranges that no server can be found for now, or no copy of which is at hand, with the reason."""
        self.lost: dict[RangeKey, None] = {}
        """Of these, the ranges that no member can bring back."""
        self.copying: dict[RangeKey, dict[str, None]] = {}
        """Ranges with members that do not have all of them."""
        self.done_count = 0
        self.copied_bytes = 0
        self.since_ms = 0
        """The leader's wall clock when the first of the ranges was noticed that lack something now; 0: none does."""
        self.took_ms = 0
        """How long it took the last time until none lacked anything."""

    def begin(self, short: Iterable[RangeKey]) -> None:
        """Start over."""
        self.waiting = RepairQueue(short)
        self.blocked.clear()
        self.lost.clear()
        self.copying.clear()
        self.done_count = self.copied_bytes = self.since_ms = self.took_ms = 0

    def put(self, key: RangeKey) -> None:
        """Examine a range, since it may lack a member."""
        self.blocked.pop(key, None)
        self.lost.pop(key, None)
        self.waiting.put(key)

    def update(self, keys: Iterable[RangeKey]) -> None:
        """Examine many."""
        for key in keys:
            self.put(key)

    def wake(self, key: RangeKey) -> None:
        """Examine a blocked range again, since its condition may hold now."""
        if key in self.blocked:
            self.put(key)

    def wake_all(self) -> None:
        """Examine all blocked ranges again."""
        self.update(list(self.blocked))

    def block(self, key: RangeKey, reason: str, *, lost: bool = False) -> None:
        """Note that a range cannot be repaired now."""
        self.waiting.discard(key)
        self.blocked[key] = reason
        if lost:
            self.lost[key] = None

    def lacks(self, key: RangeKey, server: str) -> None:
        """Note that a member does not have all of a range."""
        self.copying.setdefault(key, {})[server] = None

    def has(self, key: RangeKey, server: str, size_bytes: int) -> None:
        """Note that a member has all of a range; `size_bytes` counts if it did not have it before."""
        members = self.copying.get(key)
        if members is None or server not in members:
            return
        del members[server]
        self.copied_bytes += size_bytes
        if not members:
            del self.copying[key]
            self.done_count += 1

    def members_are(self, key: RangeKey, servers: Iterable[str]) -> None:
        """Forget members that were replaced; none: the range is gone, or needs no copies any more."""
        left = set(servers)
        members = self.copying.get(key)
        if members is not None:
            for server in [each for each in members if each not in left]:
                del members[server]
            if not members:
                del self.copying[key]
        if not left:
            self.waiting.discard(key)
            self.blocked.pop(key, None)
            self.lost.pop(key, None)

    @property
    def is_needed(self) -> bool:
        """Whether a range lacks something."""
        return bool(self.waiting or self.blocked or self.copying)

    def note_time(self, wall_ms: int) -> None:
        """Note when ranges began to lack something, and when none does any more."""
        if not self.is_needed:
            if self.since_ms:
                self.took_ms = wall_ms - self.since_ms
            self.since_ms = 0
        elif not self.since_ms:
            self.since_ms, self.done_count, self.copied_bytes = wall_ms, 0, 0
