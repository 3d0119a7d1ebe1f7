"""Which sealed replicas to move so that all range servers have as much to store, of their capacity where all report one. Pure.

What holds: a move goes from a server with more to one that has still not more afterwards, so moves never go in circles and a
plan that is carried out again and again ends; a range is moved once in a plan; after a move its replicas are in no fewer
zones and racks, no more of them in one, the moved one on a host of its own, and they keep the policy of their stream. Only
ranges all of whose replicas are whole and alive are moved. A plan ends at its bounds, or when every server is near the mean.
A copy that its server drops soon, since it is no member of the range any more, does not count: a plan right after a rebalance
finds nothing to do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from rangelog_pd.placement import Candidate, ServerHealth, policy_of
from rangelog_pd.reconcile.directives import is_dropped_once_replaced
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2

MOVES_MAX = 1_000
"""Moves of one plan."""
RANGES_LOOKED_AT_MAX = 20_000
TARGETS_LOOKED_AT_MAX = 16
"""The ranges of a plan, and the targets of a range, that are examined."""
TOLERANCE = 0.1
"""The part of the mean by which a server may differ from it."""
REPLICA_BYTES = 65_536
"""What a replica counts for beside its records: servers with many small ones have more to do."""


class Move(NamedTuple):
    """Move one replica from a member of its range to a server that is not a member."""

    key: RangeKey
    source: Candidate
    target: Candidate
    size_bytes: int


@dataclass(slots=True)
class RebalancePlan:
    """The moves in their order, and what each server has to store before and after them."""

    moves: list[Move] = field(default_factory=list)
    before: dict[str, int] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    """Empty where not all servers report one."""
    refusal: str = ""

    @property
    def size_bytes(self) -> int:
        """The bytes that all moves copy."""
        return sum(move.size_bytes for move in self.moves)


def busy_with(view: ClusterView, moving: Mapping[RangeKey, object]) -> str:
    """Return why nothing may be moved now, beside what is moving; empty: it may."""
    repairs = view.upkeep.repairs
    if repairs.waiting:
        return f"{len(repairs.waiting)} ranges wait for a repair: see `pdctl repair list`"
    if view.upkeep.moves.queue or view.upkeep.moves.under_way:
        return "ranges leave servers that are drained or avoided: see `pdctl server list`"
    copying = sum(key not in moving for key in repairs.copying)
    if copying:
        return f"{copying} ranges are being copied: see `pdctl task list`"
    return ""


def plan_rebalance(
    state: State, view: ClusterView, now_ms: float, *, bytes_max: int = 0, tolerance: float = TOLERANCE
) -> RebalancePlan:
    """Return the moves that bring all living servers near the mean. `bytes_max`: what they copy together; 0: no bound."""
    view.upkeep.follow(state)
    living = [each for each in view.fleet.candidates(state, now_ms) if each.health is ServerHealth.ALIVE]
    plan = RebalancePlan(refusal=busy_with(view, {}))
    leaving = _leaving_bytes(state, view)
    for each in living:
        heard = view.servers.get(each.server)
        if heard is None or not heard.complete:
            plan.refusal = plan.refusal or f"{each.server} has not reported all of its replicas yet: try again soon"
            continue
        replicas = len(state.hosted.of(each.server, each.incarnation))
        plan.before[each.server] = heard.held_bytes - leaving.get(each.server, 0) + REPLICA_BYTES * replicas
        plan.capacity[each.server] = heard.capacity_bytes
    if not all(plan.capacity.values()):
        plan.capacity = {}
    plan.after = dict(plan.before)
    if not plan.refusal and len(living) > 1:
        _Planner(state, view, living, plan, now_ms).fill(bytes_max, tolerance)
    return plan


def _leaving_bytes(state: State, view: ClusterView) -> dict[str, int]:
    """Return, by server, the bytes of the copies that it drops soon. Looks at the copies that are no members of their range."""
    leaving: dict[str, int] = {}
    for key, servers in view.strays.items():
        if not is_dropped_once_replaced(state, key):
            continue
        found = state.ranges.find(key)
        members = {each.server for each in found.replicas} if found is not None else set()
        for name in [each for each in servers if each not in members]:
            heard = view.servers.get(name)
            report = heard.reports.get(key) if heard is not None else None
            leaving[name] = leaving.get(name, 0) + (report.size_bytes if report is not None else 0)
    return leaving


class _Planner:
    def __init__(
        self, state: State, view: ClusterView, living: Sequence[Candidate], plan: RebalancePlan, now_ms: float
    ) -> None:
        self._state, self._view, self._now_ms = state, view, now_ms
        self._plan = plan
        self._by_name = {each.server: each for each in living}
        self._moved: dict[RangeKey, None] = {}
        self._ranges = {each.server: iter(state.hosted.of(each.server, each.incarnation).sealed) for each in living}
        self._looked_at = 0
        self._order = sorted((self._share(each.server), each.server) for each in living if not each.barred)
        """The servers that take replicas, those with the smallest shares first."""

    def fill(self, bytes_max: int, tolerance: float) -> None:
        """Add moves, from the server with the largest share, until all are near the mean or a bound is reached."""
        plan, copied = self._plan, 0
        weights = plan.capacity or dict.fromkeys(plan.before, 1)
        mean = sum(plan.before.values()) / max(1, sum(weights.values()))
        sources = sorted((self._share(name), name) for name in self._by_name)
        while sources and len(plan.moves) < MOVES_MAX and self._looked_at < RANGES_LOOKED_AT_MAX:
            share, source = sources.pop()
            if share != self._share(source):  # it is a target meanwhile
                insort(sources, (self._share(source), source))
                continue
            if share <= mean * (1 + tolerance) and (not self._order or self._order[0][0] >= mean * (1 - tolerance)):
                return
            if bytes_max and copied >= bytes_max:
                return
            move = self._next_move(source, bytes_max - copied if bytes_max else 0)
            if move is not None:
                copied += move.size_bytes
                self._carry_out(move)
                insort(sources, (self._share(source), source))

    def _next_move(self, source: str, bytes_left: int) -> Move | None:
        """Return the next move of a replica from one server, or None."""
        for key in self._ranges[source]:
            self._looked_at += 1
            if self._looked_at > RANGES_LOOKED_AT_MAX:
                return None
            if key in self._moved or why_unmovable(self._state, self._view, key, self._now_ms):
                continue
            size_bytes = size_of(self._view, self._by_name[source], key)
            if bytes_left and size_bytes > bytes_left:
                continue
            for target in self._targets(source, size_bytes + REPLICA_BYTES):
                if not why_not_there(self._state, key, self._by_name[source], target):
                    return Move(key, self._by_name[source], target, size_bytes)
        return None

    def _targets(self, source: str, size_bytes: int) -> Iterator[Candidate]:
        """Yield the servers with the smallest shares that do not have more than the source after the move."""
        left = self._share(source, -size_bytes)
        for _, name in islice(self._order, TARGETS_LOOKED_AT_MAX):
            if name == source or self._share(name, size_bytes) > left:
                return
            yield self._by_name[name]

    def _carry_out(self, move: Move) -> None:
        self._plan.moves.append(move)
        self._moved[move.key] = None
        for name, size_bytes in ((move.source.server, -move.size_bytes), (move.target.server, move.size_bytes)):
            listed = not self._by_name[name].barred
            if listed:
                del self._order[bisect_left(self._order, (self._share(name), name))]
            self._plan.after[name] += size_bytes + (REPLICA_BYTES if name == move.target.server else -REPLICA_BYTES)
            if listed:
                insort(self._order, (self._share(name), name))

    def _share(self, name: str, more_bytes: int = 0) -> float:
        return (self._plan.after[name] + more_bytes) / (self._plan.capacity[name] if self._plan.capacity else 1)


def size_of(view: ClusterView, holder: Candidate, key: RangeKey) -> int:
    """Return the size of a replica, as its server reports it."""
    report = view.report(holder.server, holder.incarnation, key)
    return report.size_bytes if report is not None else 0


def why_unmovable(state: State, view: ClusterView, key: RangeKey, now_ms: float) -> str:
    """Return why no replica of a range may be moved now; empty: it may."""
    found = state.ranges.find(key)
    if found is None or found.state != common_pb2.RANGE_STATE_SEALED or found.hot_dropped or key in state.due.hot_drops:
        return "the range is gone, or is about to leave the range servers"
    if key in state.short:
        return "the range has fewer replicas than its stream wants"
    if any(each.state == common_pb2.OBJECT_STATE_PREPARED for each in state.objects_of(*key)):
        return "the range is being uploaded"
    if not all(view.holds(each.server, each.incarnation, key) for each in found.replicas):
        return "not all replicas of the range are whole"
    if any(
        view.health(state, each.server, each.incarnation, now_ms) is not ServerHealth.ALIVE for each in found.replicas
    ):
        return "not all servers of the range are alive"
    return ""


def why_not_there(state: State, key: RangeKey, source: Candidate, target: Candidate) -> str:
    """Return why a range's replica may not be moved from one server to another; empty: it may."""
    found = state.ranges[key]
    members = {each.server: each.incarnation for each in found.replicas}
    if members.get(source.server) != source.incarnation or target.server in members:
        return "the range has other replicas now"
    if target.full or not policy_of(state.streams[found.stream_id].config).admits(target):
        return f"{target.server} takes no replica of this stream"
    others = [state.servers[name].server for name in members if name != source.server]
    if target.host and any((each.zone, each.host) == target.machine for each in others):
        return f"the range has a replica on the host of {target.server}"
    for was, would_be in (
        (_spread([each.zone for each in others], source.zone), _spread([each.zone for each in others], target.zone)),
        (
            _spread([_rack(each.zone, each.rack) for each in others], _rack(source.zone, source.rack)),
            _spread([_rack(each.zone, each.rack) for each in others], _rack(target.zone, target.rack)),
        ),
    ):
        if would_be < was:
            return f"the replicas would be closer together with {target.server}"
    return ""


def _rack(zone: str, rack: str) -> str:
    return f"{zone}\0{rack}" if rack else ""


def _spread(others: Sequence[str], one: str) -> tuple[int, int]:
    """Return how far apart replicas are: in how many places, and less how many are in one. More is better."""
    places = [each for each in [*others, one] if each]
    return len({*places}), -max(map(places.count, places), default=0)
