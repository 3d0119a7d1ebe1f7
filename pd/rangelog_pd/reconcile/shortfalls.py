"""Which ranges have fewer copies than wanted, and since when, for people: counts and first names from indexes.

What holds: a range counts while its row names too few members, while a member is on a dead server or in an incarnation that is
gone, or while a member has still to copy it and no replaced one holds it; once, whatever the reasons. A range that is wholly in
the tier does not count: its records do not depend on copies. Since when: as long as this leader leads, by its wall clock. No
more than LOOKED_AT_MAX ranges are looked at for one answer; the rest of a dead server's ranges count as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from google.protobuf.message import Message

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2

LOOKED_AT_MAX = 10_000
NAMES_MAX = 3


@dataclass(frozen=True, slots=True)
class Shortage:
    """The ranges with fewer copies than wanted. `since_ms`: of the oldest, 0 with none. Not `exact`: so many at most."""

    count: int = 0
    open_count: int = 0
    first: tuple[RangeKey, ...] = ()
    since_ms: int = 0
    exact: bool = True


class Shortfalls:
    """The times at which ranges became short of members, for one leader; updated by the state's changes."""

    def __init__(self) -> None:
        self._state: State | None = None
        self._seen = 0
        self._since_ms: dict[RangeKey, int] = {}

    def clear(self) -> None:
        """Start over in another term of leadership."""
        self._state = None
        self._since_ms.clear()

    def follow(self, state: State, wall_ms: int) -> None:
        """Apply the changes since the last call."""
        changes = state.changes.since(self._seen) if self._state is state else None
        if changes is None:
            before = self._since_ms
            self._since_ms = {key: before.get(key, wall_ms) for key in chain(state.short, state.open_short)}
            self._state = state
        else:
            for change in changes:
                for key in _concerned(state, change.before, change.after):
                    self._note(state, key, wall_ms)
        self._seen = state.changes.last

    def _note(self, state: State, key: RangeKey, wall_ms: int) -> None:
        if key in state.short or key in state.open_short:
            self._since_ms.setdefault(key, wall_ms)
        else:
            self._since_ms.pop(key, None)

    def count(self, state: State, view: ClusterView, now_ms: float, wall_ms: int) -> Shortage:
        """Return all that is short now."""
        found: dict[RangeKey, None] = {}
        since_ms: list[int] = []
        looked_at = unseen = 0
        for keys, began_ms, is_short in self._sources(state, view, now_ms, wall_ms):
            any_found = False
            for number, key in enumerate(keys):
                if looked_at >= LOOKED_AT_MAX:
                    unseen += len(keys) - number
                    break
                looked_at += 1
                if is_short(key):
                    found[key] = None
                    any_found = True
            if any_found:
                since_ms.append(began_ms)
        return Shortage(
            count=len(found) + unseen,
            open_count=sum(_is_open(state, key) for key in found),
            first=tuple(key for key, _ in zip(found, range(NAMES_MAX), strict=False)),
            since_ms=min(since_ms, default=0),
            exact=not unseen,
        )

    def _sources(
        self, state: State, view: ClusterView, now_ms: float, wall_ms: int
    ) -> Iterator[tuple[Mapping[RangeKey, object], int, Callable[[RangeKey], bool]]]:
        """Yield ranges that may be short, since when, and the question whether one is."""

        def depends_on_copies(key: RangeKey) -> bool:
            return _needs_copies(state, key)

        def lacks_holders(key: RangeKey) -> bool:
            """A range that is moved has its former copy until the new one is whole."""
            if not _needs_copies(state, key):
                return False
            wanted = state.streams[key[0]].config.replicas
            return len(view.holders(state, state.ranges[key], now_ms)) < wanted

        if self._since_ms:
            yield self._since_ms, next(iter(self._since_ms.values())), self._since_ms.__contains__
        for (server, incarnation), hosted in state.hosted.hostings().items():
            if view.health(state, server, incarnation, now_ms) is ServerHealth.DEAD:
                began_ms = wall_ms - int(max(0.0, view.silent_ms(server, now_ms)))
                yield hosted.open, began_ms, depends_on_copies
                yield hosted.sealed, began_ms, depends_on_copies
        if view.upkeep.repairs.copying:
            yield view.upkeep.repairs.copying, view.upkeep.repairs.since_ms or wall_ms, lacks_holders


def _concerned(state: State, before: Message | None, after: Message | None) -> Iterable[RangeKey]:
    """Return the ranges whose wanted or named members a change may concern."""
    row = after if after is not None else before
    if isinstance(row, common_pb2.Range):
        return ((row.stream_id, row.index),)
    if (
        isinstance(before, common_pb2.Stream)
        and isinstance(after, common_pb2.Stream)
        and before.config.replicas != after.config.replicas
    ):
        return [(after.stream_id, index) for index in state.ranges.of(after.stream_id)]
    return ()


def _needs_copies(state: State, key: RangeKey) -> bool:
    found = state.ranges.find(key)
    if found is None or found.hot_dropped or found.lost:
        return False
    return found.state == common_pb2.RANGE_STATE_OPEN or found.tiered_end_offset < found.end_offset


def _is_open(state: State, key: RangeKey) -> bool:
    found = state.ranges.find(key)
    return found is not None and found.state == common_pb2.RANGE_STATE_OPEN
