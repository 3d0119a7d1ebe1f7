"""A rebalance that is carried out: a bounded number of moves at a time, each checked again when its turn comes.

What holds: a move replaces a member by compare-and-set, and the former member keeps its replica as a source until the new one
is whole, so that there are never fewer copies than before; nothing is begun while repairs are going on; a move that is no
longer possible is skipped. It is in the leader's memory only: the next leader finishes a move that has begun like any copy;
the others are planned again with the next request for a rebalance.
"""

from __future__ import annotations

from collections import deque

from rangelog_pd.placement import ServerHealth
from rangelog_pd.reconcile.rebalancing import Move, RebalancePlan, busy_with, why_not_there, why_unmovable
from rangelog_pd.reconcile.view import ClusterView
from rangelog_pd.state.store import State
from rangelog_pd.state.tables import RangeKey
from rangelog_proto.v1 import common_pb2, pd_state_pb2, placement_pb2

UNDER_WAY_MAX = 16
"""Moves at a time, of all servers."""


class Rebalance:
    """See the module."""

    def __init__(self, rebalance_id: str, plan: RebalancePlan) -> None:
        self.rebalance_id = rebalance_id
        self._waiting = deque(plan.moves)
        self._under_way: dict[RangeKey, Move] = {}
        self._state = placement_pb2.RebalanceState(
            rebalance_id=rebalance_id, moves=len(plan.moves), bytes=plan.size_bytes, done=not plan.moves
        )

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return not self._waiting and not self._under_way

    def describe(self) -> placement_pb2.RebalanceState:
        """Return how far it is."""
        found = placement_pb2.RebalanceState()
        found.CopyFrom(self._state)
        found.under_way = len(self._under_way)
        found.done = self.done
        return found

    def commands(self, state: State, view: ClusterView, now_ms: float) -> list[pd_state_pb2.Command]:
        """Return the moves to begin in this round."""
        for move in list(self._under_way.values()):
            self._settle(move, state, view)
        self._state.waiting_for = ""
        begun: list[pd_state_pb2.Command] = []
        while self._waiting and len(self._under_way) < UNDER_WAY_MAX:
            self._state.waiting_for = busy_with(view, self._under_way)
            if self._state.waiting_for:
                break
            move = self._waiting.popleft()
            problem = self._problem(move, state, view, now_ms)
            if problem:
                self._skip(problem)
                continue
            self._under_way[move.key] = move
            begun.append(_command(move))
        return begun

    def _problem(self, move: Move, state: State, view: ClusterView, now_ms: float) -> str:
        """Return why a move is not begun; empty: it is."""
        target = view.fleet.placer(state, now_ms).get(move.target.server)
        if target is None or target.incarnation != move.target.incarnation or target.health is not ServerHealth.ALIVE:
            return f"{move.target.server} is not alive"
        return why_unmovable(state, view, move.key, now_ms) or why_not_there(state, move.key, move.source, target)

    def _settle(self, move: Move, state: State, view: ClusterView) -> None:
        """Note how a move that was begun went, once that is known."""
        found = state.ranges.find(move.key)
        member = _replica(move)
        if found is None or not any(_is_same(each, member) for each in found.replicas):
            del self._under_way[move.key]
            self._skip(f"{member.server} did not become, or is no longer, a member of the range")
        elif view.holds(member.server, member.incarnation, move.key):
            del self._under_way[move.key]
            self._state.moved += 1
            self._state.moved_bytes += move.size_bytes

    def _skip(self, problem: str) -> None:
        self._state.skipped += 1
        self._state.last_skipped = problem


def _replica(move: Move) -> common_pb2.Replica:
    return common_pb2.Replica(
        server=move.target.server,
        incarnation=move.target.incarnation,
        reason=common_pb2.REPLICA_REASON_REBALANCED,
    )


def _is_same(one: common_pb2.Replica, other: common_pb2.Replica) -> bool:
    return (one.server, one.incarnation) == (other.server, other.incarnation)


def _command(move: Move) -> pd_state_pb2.Command:
    source = common_pb2.Replica(server=move.source.server, incarnation=move.source.incarnation)
    return pd_state_pb2.Command(
        replace_replica=pd_state_pb2.ReplaceReplica(
            stream_id=move.key[0], range_index=move.key[1], lost=source, replacement=_replica(move)
        )
    )
