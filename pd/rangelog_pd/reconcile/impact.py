"""May these range servers go down now? Which ranges would be left with too few copies, or with none.

What holds: a copy counts only while its server is alive and reports all of it, or, of an open range, is a living member that
reports no damage. A range that is empty or wholly in the tier has copies enough. Servers that the leader has not heard
completely count as empty, so the answer errs to "no". Its cost is that of what the named servers hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_pb2

LISTED_MAX = 100
"""Ranges of each kind in one answer."""


@dataclass(frozen=True, slots=True)
class Copies:
    """Who has a range."""

    key: RangeKey
    is_open: bool
    acks: int
    is_tiered: bool  # or empty: no server has to have it
    holders: frozenset[str]


@dataclass(slots=True)
class Impact:
    """The ranges that would lose copies. Each list is bounded, each count is whole; with each range, the copies left."""

    listed_max: int
    range_count: int = 0
    lost: list[tuple[RangeKey, int]] = field(default_factory=list)
    short: list[tuple[RangeKey, int]] = field(default_factory=list)
    stalled: list[tuple[RangeKey, int]] = field(default_factory=list)
    lost_count: int = 0
    short_count: int = 0
    stalled_count: int = 0

    @property
    def is_harmless(self) -> bool:
        """Whether every range keeps copies enough."""
        return not (self.lost_count or self.short_count or self.stalled_count)

    def add(self, of: Copies, going: Collection[str]) -> None:
        """Judge one range without the named servers."""
        self.range_count += 1
        left = len(of.holders) - sum(name in going for name in of.holders)
        if of.is_tiered or left >= of.acks:
            return
        if left == 0:
            self.lost_count += 1
            kind = self.lost
        elif of.is_open:
            self.stalled_count += 1
            kind = self.stalled
        else:
            self.short_count += 1
            kind = self.short
        if len(kind) < self.listed_max:
            kind.append((of.key, left))


def judge(ranges: Iterable[Copies], going: Collection[str], listed_max: int = LISTED_MAX) -> Impact:
    """Judge many ranges without the named servers."""
    impact = Impact(listed_max)
    for each in ranges:
        impact.add(each, going)
    return impact


def copies_of(state: State, view: ClusterView, key: RangeKey, now_ms: float) -> Copies | None:
    """Return who has a range; None for an unknown range, and for one whose hot copies were dropped or accepted as lost."""
    found = state.ranges.find(key)
    if found is None or found.hot_dropped or found.lost:
        return None
    is_open = found.state == common_pb2.RANGE_STATE_OPEN
    holders = [
        each.server
        for each in found.replicas
        if _is_copy(state, view, key, each.server, each.incarnation, now_ms, is_open=is_open)
    ]
    for name in view.strays.get(key, ()):
        seen = view.servers.get(name)
        if seen is not None and not is_open and is_whole(state, view, key, name, seen.incarnation, now_ms):
            holders.append(name)
    is_tiered = not is_open and found.tiered_end_offset >= found.end_offset  # so is an empty one
    return Copies(key, is_open, found.acks, is_tiered, frozenset(holders))


def held_by(state: State, view: ClusterView, names: Collection[str]) -> Iterator[RangeKey]:
    """Yield the ranges that the named servers are members of, or report copies of, each once."""
    seen: dict[RangeKey, None] = {}
    for name in names:
        known = state.servers.find(name)
        if known is None:
            continue
        hosted = state.hosted.of(name, known.server.incarnation)
        heard = view.of(name, known.server.incarnation)
        reported = heard.reports if heard is not None else ()
        for keys in (hosted.open, hosted.sealed, reported):
            for key in keys:
                if key not in seen:
                    seen[key] = None
                    yield key


def check(
    state: State, view: ClusterView, names: Collection[str], now_ms: float, listed_max: int = LISTED_MAX
) -> Impact:
    """Judge what the named servers hold, if all of them went down."""
    found = (copies_of(state, view, key, now_ms) for key in held_by(state, view, names))
    return judge((each for each in found if each is not None), names, listed_max)


def check_copies_to_come(
    state: State, view: ClusterView, name: str, now_ms: float, listed_max: int = LISTED_MAX
) -> Impact:
    """Judge the ranges that any server has yet to copy, without the named one: a dead one may have the last copy of such a
    range although others have taken its place. Its cost is that of the work in progress."""
    keys: dict[RangeKey, None] = {}
    for each in view.servers.values():
        for part in (each.attention.issued, each.attention.fresh, each.attention.waiting):
            keys.update(part)
    found = (copies_of(state, view, key, now_ms) for key in keys)
    return judge((each for each in found if each is not None and not each.is_open), (name,), listed_max)


def unreported(state: State, view: ClusterView, going: Collection[str], now_ms: float) -> list[str]:
    """Return the servers, but for the named ones and the dead, of which the leader does not know yet what they hold."""
    found = []
    for name, known in state.servers.items():
        if name in going:
            continue
        incarnation = known.server.incarnation
        seen = view.of(name, incarnation)
        if (seen is None or not seen.complete) and view.health(
            state, name, incarnation, now_ms
        ) is not ServerHealth.DEAD:
            found.append(name)
    return sorted(found)


def is_whole(state: State, view: ClusterView, key: RangeKey, server: str, incarnation: int, now_ms: float) -> bool:
    """Whether a living server reports that it holds a sealed range up to the end, and is not about to drop it."""
    is_alive = view.health(state, server, incarnation, now_ms) is ServerHealth.ALIVE
    return is_alive and view.holds(server, incarnation, key)


def _is_copy(
    state: State, view: ClusterView, key: RangeKey, server: str, incarnation: int, now_ms: float, *, is_open: bool
) -> bool:
    if not is_open:
        return is_whole(state, view, key, server, incarnation, now_ms)
    if view.health(state, server, incarnation, now_ms) is not ServerHealth.ALIVE:
        return False
    report = view.report(server, incarnation, key)
    return report is None or report.state != pd_pb2.REPLICA_STATE_QUARANTINED
