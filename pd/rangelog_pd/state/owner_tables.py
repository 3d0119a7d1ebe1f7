"""The tables of brokers and of assignments, with the queue of what has no owner.

What holds: `unowned` has each current shard, and once there are brokers each coordinator journal, that is not assigned to a
broker of today: one that is registered in the incarnation of the assignment, and not lost. It follows from the rows. A lost
broker costs its own shards, whatever the others own.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_pd.state.tables import Hook, ShardKey, Table, discard, mark, row_of
from rangelog_proto.v1 import broker_pb2, topic_pb2

JOURNALS = 16
"""Coordinator journals of a cluster."""
JOURNAL_TOPIC_ID = 0
"""No topic has this id: with it, a ShardKey is that of a coordinator journal."""

JOURNAL_KEYS = tuple((JOURNAL_TOPIC_ID, number) for number in range(JOURNALS))


class OwnerTables:
    """All rows about brokers and what they own."""

    def __init__(self, note: Hook[broker_pb2.Assignment]) -> None:
        """`note`: the hook that notes changes for followers."""
        self.broker_version = 0
        """The feature level that every broker has, at most the cluster version. It never falls."""
        self.owned: dict[str, dict[ShardKey, None]] = {}
        """What is assigned to each broker, by name, whatever its incarnation."""
        self.unowned: dict[ShardKey, None] = {}
        self._current: dict[ShardKey, None] = {}
        self.brokers: Table[str, broker_pb2.Broker] = Table(self._broker_changed)
        self.assignments: Table[ShardKey, broker_pb2.Assignment] = Table(self._assignment_changed, note)

    def is_alive(self, name: str, incarnation: int) -> bool:
        """Whether a broker is registered in this incarnation and not lost."""
        broker = self.brokers.find(name)
        return broker is not None and broker.incarnation == incarnation and not broker.lost

    def raise_version(self, cluster_version: int) -> None:
        """Raise the broker version to the level that all brokers that are not lost have registered with."""
        levels = (each.feature_level for each in self.brokers.values() if not each.lost)
        self.broker_version = max(self.broker_version, min(cluster_version, min(levels, default=0)))

    def can_be_owned(self, key: ShardKey) -> bool:
        """Whether this is a current shard or a coordinator journal."""
        return key in self._current or key in JOURNAL_KEYS

    def load(self, brokers: Iterable[broker_pb2.Broker], assignments: Iterable[broker_pb2.Assignment]) -> None:
        """Put all rows of a snapshot, after those of the shards."""
        for broker in brokers:
            self.brokers.put(broker.name, broker)
        for each in assignments:
            self.assignments.put((each.topic_id, each.shard_id), each)

    def shard_changed(self, before: topic_pb2.Shard | None, after: topic_pb2.Shard | None) -> None:
        """A row of the shards changed: one that has ended, or is gone, has no owner."""
        row = row_of(before, after)
        key = (row.topic_id, row.shard_id)
        if after is not None and not after.ended_version:
            self._current[key] = None
            self._judge(key)
        else:
            self._current.pop(key, None)
            self.unowned.pop(key, None)
            self.assignments.remove(key)

    def _broker_changed(self, before: broker_pb2.Broker | None, after: broker_pb2.Broker | None) -> None:
        if before is None:
            for key in JOURNAL_KEYS:
                self._judge(key)
        for key in self.owned.get(row_of(before, after).name, ()):
            self._judge(key)

    def _assignment_changed(self, before: broker_pb2.Assignment | None, after: broker_pb2.Assignment | None) -> None:
        row = row_of(before, after)
        key = (row.topic_id, row.shard_id)
        if before is not None:
            discard(self.owned, before.broker, key)
        if after is not None:
            self.owned.setdefault(after.broker, {})[key] = None
        self._judge(key)

    def _judge(self, key: ShardKey) -> None:
        assignment = self.assignments.find(key)
        has_owner = assignment is not None and self.is_alive(assignment.broker, assignment.incarnation)
        wanted = key in self._current or (key in JOURNAL_KEYS and bool(self.brokers))
        mark(self.unowned, key, present=wanted and not has_owner)

    def indexes(self) -> list[object]:
        """Return all indexes, for comparison."""
        return [self.owned, self.unowned, self._current]
