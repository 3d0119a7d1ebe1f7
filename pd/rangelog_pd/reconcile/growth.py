"""Open ranges with fewer members than their stream wants, where a new range would have more: their writers are asked to leave.

What holds: a writer is asked only if a placement now, among servers that are alive, trusted and not nearly full, would give
more members than its range has; the stream's policy counts. So no writer is asked repeatedly without effect. A range for which
there are no servers costs nothing until the servers change: then all ranges that lack members are looked at once. The tried
placement is kept for each different wish of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import Candidate, Machine, place, policy_of
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2

FORMAT = "leave-wanted"
"""What a range server that knows how to ask a writer reports among its formats."""

_Wish = tuple[int, int, int, tuple[str, ...]]


class Growth:
    """The placements that are possible, for one leader."""

    def __init__(self) -> None:
        self._candidates: list[Candidate] = []
        self._seen: tuple[tuple[str, Machine, str, frozenset[str]], ...] = ()
        self._member_counts: dict[_Wish, int] = {}

    def begin(self) -> None:
        """Start over: all ranges that lack members are looked at again."""
        self._seen = ()

    def servers_are(self, state: State, usable: Collection[str], candidates: Callable[[], Sequence[Candidate]]) -> bool:
        """Note the servers that may take replicas; return whether the ranges that lack members are to be looked at.

        `candidates` is not called while no open range lacks members.
        """
        if not state.open_short:
            self._seen = ()
            self._candidates = []
            return False
        self._candidates = [each for each in candidates() if each.server in usable and not each.full]
        seen = tuple(sorted((each.server, each.machine, each.zone, each.labels) for each in self._candidates))
        changed = seen != self._seen
        if changed:
            self._seen = seen
            self._member_counts.clear()
        return changed

    def has_room(self, state: State, of: common_pb2.Range) -> bool:
        """Whether the range after an open one would have more members."""
        key: RangeKey = (of.stream_id, of.index)
        stream = state.streams.find(of.stream_id)
        if stream is None or key not in state.open_short or len(self._candidates) <= len(of.replicas):
            return False
        return self._members(stream.config) > len(of.replicas)

    def _members(self, config: common_pb2.StreamConfig) -> int:
        wish = (config.replicas, config.acks, config.zones_min, tuple(config.server_labels))
        found = self._member_counts.get(wish)
        if found is None:
            try:
                found = len(
                    place(self._candidates, replicas=config.replicas, acks=config.acks, policy=policy_of(config))
                )
            except NoPlacement:
                found = 0
            self._member_counts[wish] = found
        return found
