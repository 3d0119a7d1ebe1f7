"""The range servers as candidates for placement, kept in order by what changes, so that a placement costs what it chooses.

What holds: a candidate is read again once its ranges or its registration changed, a heartbeat of it came, or its lease ended;
all of them at least every half second, for what the others are compared with. Between these a choice counts as load, so
that placements which are not applied yet do not all go to one server.

Load, in this order: work, which is open ranges and the log's growth in units of what an open range of this cluster writes
on average; the part of the disk that is used, in steps; replicas. For copies of sealed ranges: the disk, replicas, work.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rangelog_pd.placement import Candidate, Placer, ServerHealth
from rangelog_pd.state.store import State
from rangelog_proto.v1 import common_pb2, pd_state_pb2

if TYPE_CHECKING:
    from rangelog_pd.reconcile.view import ClusterView

REFRESH_MS = 500.0
FULL_AT_PERCENT = 95
"""Of its disk: from here on a server is avoided. It refuses appends when there is nothing left."""
DISK_STEP_PERCENT = 5
WORK_UNIT_BYTES_PER_S = 65_536.0
"""The least that counts as one open range's work: below it, growth is noise."""
WORK_MAX = 1_000_000


class Fleet:
    """The candidates of one leader's view."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._state: State | None = None
        self._seen = 0
        self._stale: dict[str, None] = {}
        self._fresh_until_ms = -math.inf
        self._avoided: tuple[str, ...] = ()
        self._unit = WORK_UNIT_BYTES_PER_S
        self._placer = Placer()

    def forget(self) -> None:
        """Read all servers again at the next call."""
        self._state = None

    def note(self, server: str) -> None:
        """Read a server again at the next call."""
        self._stale[server] = None

    def placer(self, state: State, now_ms: float) -> Placer:
        """Return the candidates for new ranges."""
        changes = state.changes.since(self._seen) if self._state is state else None
        avoided = tuple(self._view.complaints.avoided)
        if changes is None or now_ms >= self._fresh_until_ms or avoided != self._avoided:
            self._avoided = avoided
            self._read_all(state, now_ms)
            return self._placer
        self._seen = state.changes.last
        for change in changes:
            for row in change:
                if isinstance(row, common_pb2.Range):
                    self._stale.update(dict.fromkeys(each.server for each in row.replicas))
                elif isinstance(row, pd_state_pb2.RegisteredServer):
                    self._stale[row.server.name] = None
        for name in self._stale:
            registered = state.servers.find(name)
            if registered is None:
                self._placer.remove(name)
            else:
                self._placer.put(self._candidate(state, registered.server, now_ms))
        self._stale.clear()
        return self._placer

    def placer_of_copies(self, state: State, now_ms: float, *, only_sound: bool = False) -> Placer:
        """Return the candidates for copies of sealed ranges: what they store counts before what they write.

        `only_sound`: none that is not alive, or is avoided.
        """
        found = self.candidates(state, now_ms)
        return Placer(self._for_copies(each) for each in found if not (only_sound and each.rank))

    def candidates(self, state: State, now_ms: float) -> list[Candidate]:
        """Return every registered server, as it is now."""
        return [self._candidate(state, registered.server, now_ms) for registered in state.servers.values()]

    def _read_all(self, state: State, now_ms: float) -> None:
        self._state, self._seen = state, state.changes.last
        self._stale.clear()
        growth = sum(view.writes.bytes_per_s for view in self._view.servers.values())
        opened = sum(len(hosted.open) for hosted in state.hosted.hostings().values())
        self._unit = max(WORK_UNIT_BYTES_PER_S, growth / max(1, opened))
        found = self.candidates(state, now_ms)
        self._placer = Placer(found)
        limits_ms = {ServerHealth.ALIVE: self._view.suspect_ms, ServerHealth.SUSPECT: self._view.dead_ms}
        ends = [
            now_ms + limits_ms[each.health] - self._view.silent_ms(each.server, now_ms)
            for each in found
            if each.health in limits_ms
        ]
        self._fresh_until_ms = min([now_ms + REFRESH_MS, *ends])

    def _candidate(self, state: State, server: common_pb2.Server, now_ms: float) -> Candidate:
        name, incarnation = server.name, server.incarnation
        hosted = state.hosted.of(name, incarnation)
        view = self._view.servers.get(name)
        work, used = len(hosted.open), 0
        if view is not None and view.incarnation == incarnation:
            work = min(WORK_MAX, work + int(view.writes.bytes_per_s / self._unit))
            used = used_percent(view.used_bytes, view.capacity_bytes)
        return Candidate(
            name,
            incarnation,
            server.zone,
            self._view.health(state, name, incarnation, now_ms),
            (work, used // DISK_STEP_PERCENT, len(hosted)),
            server.rack,
            server.host,
            frozenset(server.labels) if server.labels else _NO_LABELS,
            used >= FULL_AT_PERCENT,
            state.modes.bars(name),
            name in self._view.complaints.avoided,
        )

    @staticmethod
    def _for_copies(candidate: Candidate) -> Candidate:
        work, used, replicas = candidate.load
        return candidate.with_load((used, replicas, work))


_NO_LABELS: frozenset[str] = frozenset()


def used_percent(used_bytes: int, capacity_bytes: int) -> int:
    """Return the part of a disk that is used; 0 where the capacity is not known."""
    return min(100, used_bytes * 100 // capacity_bytes) if capacity_bytes else 0
