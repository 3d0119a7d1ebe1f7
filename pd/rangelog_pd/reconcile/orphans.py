"""Open ranges whose writer is gone, which are sealed without anybody asking: then they are completed, and reach the tier.

A living writer leaves a range when a replica is lost, when the range is old, and when a replica asks it to. So a range is
suspected when a member is lost or leaves, or when the range is older than its age limit by a grace; and it is orphaned once,
for `quiet_ms` from then on, no member has reported that it grew and no writer has opened its stream. If too few of its members
are left to say where it ends, it is lost: no server seals it before an operator accepts that.

What holds: a range without a record is left alone, until a report says that it grew, unless a member is to be left, which
would wait for its writer for good. The decision is a guess from outside: the server that carries it out asks the writer
first, over the connection that it may still have, and the epoch of the decision guards against a later writer. A living
writer that is taken for gone all the same is fenced, and loses nothing that was acked. Only suspected ranges are looked at, a
bounded number a round.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2

LOOKED_AT_MAX = 200
"""Suspected ranges that one round looks at, in turn."""
DUE_MAX = 500
"""Ranges that one round takes from those that have become old."""

QUIET_MS_DEFAULT = 60_000

WhySuspected = Callable[[common_pb2.Range, bool], str]
"""Why a living writer would have left this range; empty: it would not. The flag: it is not known to have a record."""
HasNoEnd = Callable[[common_pb2.Range], bool]
"""Whether too few members are left to say where an open range ends (state/losses.py)."""
EndOf = Callable[[common_pb2.Range], int | None]
"""The highest end that members report, the start where none that is heard has the range; None: none is heard."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """The end of a suspected range and the epoch of its stream, and since when they are what they are."""

    end_offset: int
    epoch: int
    since_ms: float


@dataclass(frozen=True, slots=True)
class Orphan:
    """Why a range is orphaned, and the epoch of its stream that this was seen in: who opens the stream afterwards is no dead
    writer."""

    reason: str
    epoch: int


class Orphans:
    """See the module. Times on the leader's monotonic clock, in ms, unless they are named cluster time."""

    def __init__(self, quiet_ms: float = QUIET_MS_DEFAULT) -> None:
        self._quiet_ms = quiet_ms
        self._ages: list[tuple[int, RangeKey]] = []
        self._suspects: dict[RangeKey, _Seen | None] = {}
        self.found: dict[RangeKey, Orphan] = {}
        """The orphaned ranges."""
        self.lost: dict[RangeKey, None] = {}
        """Of these, the ranges that nobody can seal any more."""

    def begin(self, due: Mapping[RangeKey, int]) -> None:
        """Start over, as a leader that knows when each open range is old, in cluster time."""
        self._ages = [(due_ms, key) for key, due_ms in due.items()]
        heapq.heapify(self._ages)
        self._suspects.clear()
        self.found.clear()
        self.lost.clear()

    def will_be_old(self, key: RangeKey, due_ms: int) -> None:
        """Note when a range is old, in cluster time."""
        heapq.heappush(self._ages, (due_ms, key))

    def suspect(self, key: RangeKey) -> None:
        """Look at a range from now on, until its writer has left it or it is orphaned."""
        self._suspects.setdefault(key, None)

    def writer_answers(self, key: RangeKey, now_ms: float) -> None:
        """The range's writer was asked, and is there: the range is no orphan, and is looked at again when it has been quiet."""
        self.found.pop(key, None)
        self.lost.pop(key, None)
        seen = self._suspects.get(key)
        if seen is not None:
            self._suspects[key] = replace(seen, since_ms=now_ms)

    def take_old(self, time_ms: int, due: Mapping[RangeKey, int]) -> None:
        """Suspect the ranges that are old by the times in force."""
        for _ in range(DUE_MAX):
            if not self._ages or self._ages[0][0] > time_ms:
                return
            due_ms, key = heapq.heappop(self._ages)
            if due.get(key) == due_ms:
                self.suspect(key)

    def look(
        self, state: State, now_ms: float, why: WhySuspected, end_of: EndOf, has_no_end: HasNoEnd
    ) -> list[RangeKey]:
        """Look at some suspects; return the ranges that are orphaned from now on, and those that are so no longer."""
        changed: list[RangeKey] = []
        for key in list(islice(self._suspects, LOOKED_AT_MAX)):
            seen = self._suspects.pop(key)
            was_found = key in self.found
            found = state.ranges.find(key)
            reason, lost = "", found is not None and has_no_end(found)
            if found is not None and (left_because := _suspicion(found, why, end_of)):
                end_offset = end_of(found)
                if end_offset is None and lost:
                    end_offset = found.start_offset  # there may be nobody left to hear
                epoch = state.streams[found.stream_id].epoch
                seen = _seen_now(seen, end_offset, epoch, now_ms)
                self._suspects[key] = seen  # at the end: the others come first
                if seen is not None and now_ms - seen.since_ms >= self._quiet_ms:
                    reason = left_because
            if reason:
                self.found[key] = Orphan(reason, epoch)
            else:
                self.found.pop(key, None)
            if reason and lost:
                self.lost[key] = None
            else:
                self.lost.pop(key, None)
            if was_found != bool(reason):
                changed.append(key)
        return changed


def _suspicion(found: common_pb2.Range, why: WhySuspected, end_of: EndOf) -> str:
    """Return why a living writer would have left a range; empty: it would not."""
    if found.state != common_pb2.RANGE_STATE_OPEN:
        return ""
    return why(found, end_of(found) == found.start_offset)


def _seen_now(before: _Seen | None, end_offset: int | None, epoch: int, now_ms: float) -> _Seen | None:
    if end_offset is None:
        return None
    same = before is not None and (before.end_offset, before.epoch) == (end_offset, epoch)
    return before if same else _Seen(end_offset, epoch, now_ms)
