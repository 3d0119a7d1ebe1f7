"""The changes of topics, shards and owners that one watch session has still to get, each row in its latest form.

What holds: the changes that wait are bounded by the number of watched topics and their shards; a change counts as delivered
only when it is acked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice

from rangelog_pd.state.store import State
from rangelog_pd.state.tables import ShardKey, mark
from rangelog_proto.v1 import broker_pb2, topic_pb2

TOPIC_ROWS_PER_ANSWER = 500


@dataclass(eq=False, slots=True)
class TopicWatch:
    """The topics of one session."""

    watched: dict[int, None] = field(default_factory=dict)
    topics: dict[int, None] = field(default_factory=dict)
    """The topics whose row must be sent."""
    shards: dict[ShardKey, None] = field(default_factory=dict)
    broker: str = ""
    """The broker whose assignments are watched, too."""
    assignments: dict[ShardKey, None] = field(default_factory=dict)
    held: dict[ShardKey, None] = field(default_factory=dict)
    """What was sent as assigned to that broker: its end is sent, too."""
    unacked_topics: list[int] = field(default_factory=list)
    unacked_shards: list[ShardKey] = field(default_factory=list)
    unacked_assignments: list[ShardKey] = field(default_factory=list)

    @property
    def has_news(self) -> bool:
        """Whether there are changes to send."""
        return bool(self.topics or self.shards or self.assignments)

    def begin(self, state: State, topic_id: int, map_version: int) -> None:
        """Send the topic and the shards that changed after a map version."""
        self.watched[topic_id] = None
        self.topics[topic_id] = None
        shard_map = state.topics.maps.of(topic_id)
        for _, shard_id in shard_map.changed_since(map_version, (0, 0), len(shard_map.ids)):
            self.shards[topic_id, shard_id] = None
        for _, shard_id in shard_map.current:
            if (topic_id, shard_id) in state.owners.assignments:
                self.assignments[topic_id, shard_id] = None

    def begin_broker(self, state: State, broker: str) -> None:
        """Send what is assigned to a broker, and what is not any more."""
        self.broker = broker
        self.assignments.update(self.held)
        self.assignments.update(state.owners.owned.get(broker, {}))

    def end(self, topic_id: int) -> None:
        """Send nothing more of a topic."""
        self.watched.pop(topic_id, None)
        self.topics.pop(topic_id, None)
        self.shards = {key: None for key in self.shards if key[0] != topic_id}
        if not self.broker:
            self.assignments = {key: None for key in self.assignments if key[0] != topic_id}

    def note(self, row: topic_pb2.Topic | topic_pb2.Shard | broker_pb2.Assignment) -> None:
        """Send a row that changed."""
        if isinstance(row, topic_pb2.Topic):
            self.topics[row.topic_id] = None
        elif isinstance(row, broker_pb2.Assignment):
            self.assignments[row.topic_id, row.shard_id] = None
        else:
            self.shards[row.topic_id, row.shard_id] = None

    def settle(self, *, acked: bool) -> None:
        """Forget the rows of the last answer, or send them again."""
        if not acked:
            self.topics.update((each, None) for each in self.unacked_topics if each in self.watched)
            self.shards.update((each, None) for each in self.unacked_shards if each[0] in self.watched)
            self.assignments.update(dict.fromkeys(self.unacked_assignments))
        self.unacked_topics, self.unacked_shards, self.unacked_assignments = [], [], []

    def take_assignments(self, state: State) -> list[broker_pb2.Assignment]:
        """Return the assignments to send now, bounded; one without an owner epoch where the shard has lost its owner."""
        taken: list[broker_pb2.Assignment] = []
        for key in list(islice(self.assignments, TOPIC_ROWS_PER_ANSWER)):
            del self.assignments[key]
            self.unacked_assignments.append(key)
            found = state.owners.assignments.find(key)
            taken.append(found or broker_pb2.Assignment(topic_id=key[0], shard_id=key[1]))
            mark(self.held, key, present=bool(self.broker) and found is not None and found.broker == self.broker)
        return taken

    def take(self, state: State) -> tuple[list[topic_pb2.Topic], list[topic_pb2.Shard], list[int]]:
        """Return (topics, shards, ids of deleted topics) to send now, bounded.

        A topic is sent after its shards, so who has its row has the whole map of its version.
        """
        shards: list[topic_pb2.Shard] = []
        for key in list(islice(self.shards, TOPIC_ROWS_PER_ANSWER)):
            del self.shards[key]
            self.unacked_shards.append(key)
            found = state.topics.shards.find(key)
            if found is not None:
                shards.append(found)
        topics: list[topic_pb2.Topic] = []
        deleted: list[int] = []
        waiting = {topic_id for topic_id, _ in self.shards}
        ready = (topic_id for topic_id in self.topics if topic_id not in waiting)
        for topic_id in list(islice(ready, TOPIC_ROWS_PER_ANSWER)):
            del self.topics[topic_id]
            self.unacked_topics.append(topic_id)
            row = state.topics.topics.find(topic_id)
            if row is not None:
                topics.append(row)
            else:
                deleted.append(topic_id)
        return topics, shards, deleted
