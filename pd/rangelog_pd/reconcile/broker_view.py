"""The leader's view of the brokers: the last heartbeat, and the loads of their shards. In memory; a new leader starts empty.

What holds: a broker is silent from its last heartbeat on, or from the start of this leadership. The loads of a broker count
only in its present incarnation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rangelog_pd.state.owner_tables import OwnerTables
from rangelog_pd.state.tables import ShardKey
from rangelog_proto.v1 import broker_pb2

LOADS_MAX = 200_000
"""Loads that are kept of one broker; more of them are left out, which costs balance only."""
UNOPENABLE_MAX = 1_000
"""Of one broker; the others are heard of once these are assigned to another one."""


@dataclass(slots=True)
class BrokerLoads:
    """One broker as it reports itself."""

    incarnation: int
    heard_ms: float
    complete: bool = False
    feature_level: int = 0
    """Of its program; 0: not heard yet, or a program that does not tell."""
    loads: dict[ShardKey, tuple[int, int]] = field(default_factory=dict)
    """(events/s, bytes/s) of its shards; none for 0."""
    bytes_per_s: int = 0
    """Of all of them."""
    unopenable: tuple[ShardKey, ...] = ()
    """What was written by a later program than its own."""

    def put(self, key: ShardKey, load: tuple[int, int]) -> None:
        """Replace the load of a shard."""
        self.bytes_per_s -= self.loads.pop(key, (0, 0))[1]
        if load != (0, 0) and len(self.loads) < LOADS_MAX:
            self.loads[key] = load
            self.bytes_per_s += load[1]


class BrokersView:
    """All brokers as this leader hears of them. Times on its monotonic clock, in ms."""

    def __init__(self, lost_ms: float) -> None:
        """`lost_ms`: the silence after which a broker counts as lost."""
        self.lost_ms = lost_ms
        self._since_ms = 0.0
        self.moved_ms = 0.0
        """When the last shard was moved for balance."""
        self._brokers: dict[str, BrokerLoads] = {}

    def start_leading(self, now_ms: float) -> None:
        """Clear all; silence counts from here."""
        self._since_ms = self.moved_ms = now_ms
        self._brokers.clear()

    def registered(self, name: str, incarnation: int, now_ms: float) -> None:
        """Note a registration: earlier reports are void."""
        self._brokers[name] = BrokerLoads(incarnation, now_ms)

    def heartbeat(
        self, owners: OwnerTables, request: broker_pb2.BrokerHeartbeatRequest, now_ms: float
    ) -> broker_pb2.BrokerHeartbeatResponse:
        """Apply a heartbeat; return whether the broker must register, or send all of its loads."""
        if not owners.is_alive(request.name, request.incarnation):
            return broker_pb2.BrokerHeartbeatResponse(register=True)
        known = self._heard(request.name, request.incarnation)
        if known is None:
            known = self._brokers[request.name] = BrokerLoads(request.incarnation, now_ms)
        known.heard_ms = now_ms
        known.feature_level = request.feature_level
        known.unopenable = tuple((each.topic_id, each.shard_id) for each in request.unopenable[:UNOPENABLE_MAX])
        if request.complete:
            known.loads.clear()
            known.bytes_per_s = 0
            known.complete = True
        for each in request.loads:
            known.put((each.topic_id, each.shard_id), (each.events_per_s, each.bytes_per_s))
        return broker_pb2.BrokerHeartbeatResponse(send_all=not known.complete)

    def _heard(self, name: str, incarnation: int) -> BrokerLoads | None:
        known = self._brokers.get(name)
        return known if known is not None and known.incarnation == incarnation else None

    def feature_level(self, broker: broker_pb2.Broker) -> int:
        """Return the level of a broker's program; 0: not heard in this incarnation, or a program that reports no level."""
        known = self._heard(broker.name, broker.incarnation)
        return (known.feature_level if known is not None else 0) or broker.feature_level

    def unopenable(self, broker: broker_pb2.Broker) -> tuple[ShardKey, ...]:
        """Return what a broker cannot open, since a later program than its own wrote it."""
        known = self._heard(broker.name, broker.incarnation)
        return known.unopenable if known is not None else ()

    def load(self, name: str, incarnation: int, key: ShardKey) -> int:
        """Return the bytes/s of a shard, as its owner reports it."""
        known = self._heard(name, incarnation)
        return known.loads.get(key, (0, 0))[1] if known is not None else 0

    def total(self, name: str, incarnation: int) -> int:
        """Return the bytes/s of all shards that a broker reports."""
        known = self._heard(name, incarnation)
        return known.bytes_per_s if known is not None else 0

    def carry(self, key: ShardKey, giver: str, taker: str) -> None:
        """Count the load of a shard that is moved at its new owner, until both report it themselves."""
        source, target = self._brokers.get(giver), self._brokers.get(taker)
        if source is not None and target is not None and key in source.loads:
            target.put(key, source.loads[key])
            source.put(key, (0, 0))

    def is_silent(self, broker: broker_pb2.Broker, now_ms: float) -> bool:
        """Whether nothing was heard of a broker for so long that it counts as lost."""
        known = self._heard(broker.name, broker.incarnation)
        return now_ms - (known.heard_ms if known is not None else self._since_ms) >= self.lost_ms
