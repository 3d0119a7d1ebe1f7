"""How far snapshots reach, of shards that wait to be trimmed. In memory: asked of the brokers, answered with their heartbeats.

What holds: a broker reports durable snapshots, so a report stays true under any later owner, and the known offset of a shard
never falls. Only shards that somebody waits for are asked for and kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from rangelog_pd.state.owner_tables import OwnerTables
from rangelog_pd.state.tables import ShardKey
from rangelog_proto.v1 import broker_pb2

WANTED_MAX = 20_000
ASKED_PER_HEARTBEAT = 200
WANTED_MS = 10_000.0
"""How long a shard is asked for after it was last wanted."""
TURN_MS = 5_000.0
"""A shard that has ended is asked of one broker after another, each for so long."""


class Coverage:
    """See the module. Times on the leader's monotonic clock, in ms."""

    def __init__(self) -> None:
        self._wanted: dict[ShardKey, tuple[int, float]] = {}
        self._reached: dict[ShardKey, int] = {}

    def want(self, key: ShardKey, offset: int, now_ms: float) -> bool:
        """Return whether snapshots reach an offset; have one made otherwise."""
        if key in self._wanted or len(self._wanted) < WANTED_MAX:
            self._wanted.pop(key, None)
            self._wanted[key] = offset, now_ms  # at the end: in order of time
        return self._reached.get(key, 0) >= offset

    def reported(self, covered: Iterable[broker_pb2.ShardCover]) -> None:
        """Note what a broker reports."""
        for each in covered:
            key = (each.topic_id, each.shard_id)
            if key in self._wanted:
                self._reached[key] = max(each.offset, self._reached.get(key, 0))

    def asked_of(self, owners: OwnerTables, broker: str, now_ms: float) -> list[broker_pb2.ShardCover]:
        """Return what one broker should have covered: its own shards, and its part of those that have ended."""
        self._expire(now_ms)
        if not self._wanted:
            return []
        alive = sorted(name for name, each in owners.brokers.items() if not each.lost)
        asked: list[broker_pb2.ShardCover] = []
        for key, (offset, _) in self._wanted.items():
            if self._reached.get(key, 0) >= offset or len(asked) == ASKED_PER_HEARTBEAT:
                continue
            owner = owners.assignments.find(key)
            if owner is not None:
                asks = owner.broker == broker
            else:
                turn = sum(key) + int(now_ms / TURN_MS)
                asks = bool(alive) and not owners.can_be_owned(key) and alive[turn % len(alive)] == broker
            if asks:
                asked.append(broker_pb2.ShardCover(topic_id=key[0], shard_id=key[1], offset=offset))
        return asked

    def _expire(self, now_ms: float) -> None:
        while self._wanted:
            key, (_, wanted_ms) = next(iter(self._wanted.items()))
            if now_ms - wanted_ms < WANTED_MS:
                return
            del self._wanted[key]
            self._reached.pop(key, None)
