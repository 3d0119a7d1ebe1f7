"""Sealed ranges that leave a server: one that is drained, or that has been slow or flapping for too long.

What holds: the server's place in a range is given to another server, which copies the range; the server that is left keeps
its copy, as a source, until every member is whole (directives.py). At most MOVES_MAX ranges are on their way at a time, so few
are short of a whole member; each gives away one place at a time. A range for which no server may take the place, or of which
no whole copy is at hand, stays where it is and is `blocked` until that changes. The queue is filled when a server begins to be
left, when a range is sealed on one, and by a new leader: nothing is scanned on a timer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rangelog_core.errors import NoPlacement
from rangelog_pd.placement import ANY, Candidate, ServerHealth, policy_of
from rangelog_pd.reconcile.copy_target import choose_copy
from rangelog_pd.state.indexes import Hosting
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_state_pb2

if TYPE_CHECKING:
    from rangelog_pd.reconcile.view import ClusterView

MOVES_MAX = 32
"""Ranges at a time whose new member does not hold everything yet."""

LOOKED_AT_MAX = 200
"""Ranges of the queue that one round examines; the next round continues."""

_NAMED_MAX = 8


class Moves:
    """The queue of one leader."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self.queue: dict[RangeKey, None] = {}
        self.under_way: dict[RangeKey, Hosting] = {}
        """Ranges on their way, and the server that has taken the place."""
        self.blocked: dict[RangeKey, str] = {}
        """Ranges that cannot leave at the moment, and why."""

    def begin(self, state: State) -> None:
        """Start over, from the state."""
        self.queue.clear()
        self.under_way.clear()
        self.blocked.clear()
        for name in (*state.modes.draining, *self._view.complaints.left):
            self.leave(state, name)

    def leave(self, state: State, server: str) -> None:
        """Queue what a server has, since it is left from now on."""
        known = state.servers.find(server)
        if known is not None:
            self.queue.update(state.hosted.of(server, known.server.incarnation).sealed)

    def note_sealed(self, state: State, of: common_pb2.Range) -> None:
        """A sealed range changed."""
        if self._leaving(state, of) is not None:
            self.queue[of.stream_id, of.index] = None

    def retry(self) -> None:
        """Examine what was blocked again: other servers may take replicas now, or the reason is another one."""
        self.queue.update(dict.fromkeys(self.blocked))
        self.blocked.clear()

    def wake(self, key: RangeKey) -> None:
        """Examine a blocked range again, since a server reports another state of a replica."""
        if self.blocked.pop(key, None) is not None:
            self.queue[key] = None

    def commands(self, state: State, now_ms: float) -> Iterator[pd_state_pb2.Command]:
        """Yield the replacements of this round, as many as may be on their way."""
        self._settle(state)
        if not self.queue or len(self.under_way) >= MOVES_MAX:
            return
        placer = self._view.fleet.placer_of_copies(state, now_ms, only_sound=True)
        known: list[Candidate] = []  # read once for all refusals of a round
        for key in list(islice(self.queue, LOOKED_AT_MAX)):
            if len(self.under_way) >= MOVES_MAX:
                return
            del self.queue[key]
            found = state.ranges.find(key)
            leaving = self._leaving(state, found) if found is not None else None
            if found is None or leaving is None or key in self.under_way:
                continue
            if found.start_offset < found.end_offset and not self._view.holders(state, found, now_ms):
                self.blocked[key] = "no server at hand has a whole copy"
                continue
            others = {each.server: None for each in found.replicas}
            try:
                target = choose_copy(
                    state,
                    placer,
                    found,
                    [each for each in found.replicas if each != leaving],
                    others,
                    common_pb2.REPLICA_REASON_LEFT,
                )
            except NoPlacement as refusal:
                has_policy = policy_of(state.streams[key[0]].config) != ANY
                known = known or self._view.fleet.candidates(state, now_ms)
                self.blocked[key] = refusal.message if has_policy else self._why_none(state, known, others)
                continue
            self.under_way[key] = (target.server, target.incarnation)
            yield pd_state_pb2.Command(
                replace_replica=pd_state_pb2.ReplaceReplica(
                    stream_id=key[0],
                    range_index=key[1],
                    lost=common_pb2.Replica(server=leaving.server, incarnation=leaving.incarnation),
                    replacement=target,
                )
            )

    def blocked_on(self, state: State, server: str, incarnation: int) -> Iterator[tuple[RangeKey, str]]:
        """Yield the ranges of a server that cannot leave it, and why. Its cost is that of what the server holds."""
        sealed = state.hosted.of(server, incarnation).sealed
        return ((key, self.blocked[key]) for key in sealed if key in self.blocked)

    # ---- inside

    def _settle(self, state: State) -> None:
        """Forget the ranges whose new member is whole or was replaced itself; what has another place to give queues again."""
        for key, (server, incarnation) in list(self.under_way.items()):
            found = state.ranges.find(key)
            is_member = found is not None and any(
                (each.server, each.incarnation) == (server, incarnation) for each in found.replicas
            )
            is_whole = self._view.holds(server, incarnation, key)
            is_empty = found is not None and found.start_offset == found.end_offset
            if is_member and not is_whole and not is_empty:
                continue
            del self.under_way[key]
            if found is not None:
                self.note_sealed(state, found)

    def _leaving(self, state: State, of: common_pb2.Range) -> common_pb2.Replica | None:
        """Return the first member of a sealed hot range whose server is left, if any."""
        if of.state != common_pb2.RANGE_STATE_SEALED or of.hot_dropped:
            return None
        return next((each for each in of.replicas if self._is_left(state, each)), None)

    def _is_left(self, state: State, replica: common_pb2.Replica) -> bool:
        if replica.server not in state.modes.draining and replica.server not in self._view.complaints.left:
            return False
        return state.servers[replica.server].server.incarnation == replica.incarnation

    def _why_none(self, state: State, known: Sequence[Candidate], members: dict[str, None]) -> str:
        """Return why no server takes a place of a range."""
        reasons = []
        for each in known[: 4 * _NAMED_MAX]:
            if each.server in members:
                continue
            reasons.append(f"{each.server} is {self._why_not(state, each)}")
        shown = ", ".join(reasons[:_NAMED_MAX]) + (", …" if len(reasons) > _NAMED_MAX else "")
        return f"no other server may take it: {shown or 'all have a replica'}"

    @staticmethod
    def _why_not(state: State, each: Candidate) -> str:
        if each.server in state.modes.draining:
            return "draining"
        if each.server in state.modes.cordoned:
            return "cordoned"
        return each.health.name.lower() if each.health is not ServerHealth.ALIVE else "avoided"
