"""The commands about owners that the leader proposes by itself: lost brokers, shards without an owner, paced moves.

Pure, as reconcile/commands.py is: each command is checked again when it is applied.
"""

from __future__ import annotations

from rangelog_pd.reconcile.assigning import next_assignments, next_move, next_returns
from rangelog_pd.reconcile.broker_view import BrokersView
from rangelog_pd.state.owner_tables import OwnerTables
from rangelog_proto.v1 import pd_state_pb2

MOVE_INTERVAL_MS = 2_000.0
"""Between two moves: each costs its shard the time of a fence."""


def owner_commands(owners: OwnerTables, view: BrokersView, now_ms: float) -> list[pd_state_pb2.Command]:
    """Return the commands of this round: of lost brokers first, since their shards are assigned in the next round."""
    lost = [each for each in owners.brokers.values() if not each.lost and view.is_silent(each, now_ms)]
    if lost:
        return [
            pd_state_pb2.Command(
                mark_broker_lost=pd_state_pb2.MarkBrokerLost(name=each.name, incarnation=each.incarnation)
            )
            for each in lost
        ]
    assign = assign_command(owners)
    if assign is not None:
        return [assign]
    returns = next_returns(owners, view)
    if returns:
        return [pd_state_pb2.Command(assign_shards=pd_state_pb2.AssignShards(assignments=returns))]
    if now_ms - view.moved_ms < MOVE_INTERVAL_MS:
        return []
    move = next_move(owners, view)
    if move is None:
        return []
    key = (move.topic_id, move.shard_id)
    view.carry(key, owners.assignments[key].broker, move.broker)
    view.moved_ms = now_ms
    return [pd_state_pb2.Command(assign_shards=pd_state_pb2.AssignShards(assignments=[move]))]


def assign_command(owners: OwnerTables) -> pd_state_pb2.Command | None:
    """Return the command that gives owners to what has none, or None."""
    made = next_assignments(owners)
    return pd_state_pb2.Command(assign_shards=pd_state_pb2.AssignShards(assignments=made)) if made else None
