"""Which broker owns which shard: pure functions of the rows and of the loads that brokers report.

What holds:

* What has no owner gets one in turn: its former broker if that one is alive and owns no more than its even part, else the one
  that owns least; brokers of other zones come first among those that own equally many. The shards of a lost broker go to no
  broker of its host while brokers of other hosts live: they are lost soon after, if it is the host that failed.
* A move goes from the broker that bears most to the one that bears least, and only where the difference becomes smaller by
  it; so with constant loads moves end. Nothing is moved while something has no owner.
* The cost of assigning follows from what has no owner and from the number of brokers; that of a move, from what one of them
  owns.
"""

from __future__ import annotations

import heapq

from rangelog_core.limits import COMMAND_SHARDS_MAX, KIB
from rangelog_pd.reconcile.broker_view import BrokersView
from rangelog_pd.state.owner_tables import OwnerTables
from rangelog_pd.state.tables import ShardKey
from rangelog_proto.v1 import broker_pb2

COMMAND_ASSIGNMENTS_BYTES_MAX = 48 * KIB
"""Below the size of one Raft command, with room for the message around the assignments."""
_AROUND_BYTES = 4
RETURNS_MAX = 100
"""Assignments of one command that are given back; the next ones follow with the next round."""

TOLERANCE = 0.25
"""The difference of two brokers that is left alone, as a part of what one bears on average."""


def next_assignments(owners: OwnerTables) -> list[broker_pb2.Assignment]:
    """Return owners for what has none, a bounded number."""
    alive = {name: broker for name, broker in owners.brokers.items() if not broker.lost}
    if not alive or not owners.unowned:
        return []
    counts = {name: len(owners.owned.get(name, ())) for name in alive}
    for key in owners.unowned:
        former = owners.assignments.find(key)
        if former is not None and former.broker in counts:
            counts[former.broker] -= 1
    fair = -(-(sum(counts.values()) + len(owners.unowned)) // len(alive))
    ranks = _ranks_in_zone(alive)
    heap = [(count, ranks[name], name) for name, count in counts.items()]
    heapq.heapify(heap)
    known: dict[str, list[str]] = {}
    made: list[broker_pb2.Assignment] = []
    size = 0
    for key in owners.unowned:
        former = owners.assignments.find(key)
        stays = former is not None and counts.get(former.broker, fair) < fair
        elsewhere = _elsewhere(owners, former, alive, known) if former is not None and not stays else []
        if former is not None and stays:
            name = former.broker
        elif elsewhere:
            name = min(elsewhere, key=lambda each: (counts[each], ranks[each], each))
        else:
            name = _least(heap, counts)
        counts[name] += 1
        heapq.heappush(heap, (counts[name], ranks[name], name))
        made.append(_assignment(key, alive[name], former))
        size += made[-1].ByteSize() + _AROUND_BYTES
        if len(made) == COMMAND_SHARDS_MAX or size >= COMMAND_ASSIGNMENTS_BYTES_MAX:
            break
    return made


def next_move(owners: OwnerTables, view: BrokersView) -> broker_pb2.Assignment | None:
    """Return the assignment that evens out most, or None where the brokers bear about the same."""
    alive = {name: broker for name, broker in owners.brokers.items() if not broker.lost}
    if len(alive) < 2 or owners.unowned:
        return None
    loads = {name: view.total(name, broker.incarnation) for name, broker in alive.items()}
    count = sum(len(owners.owned.get(name, ())) for name in alive)
    load = sum(loads.values())
    if not count:
        return None

    def part(shards: int, bytes_per_s: int) -> float:
        """The part of all shards and of all bytes."""
        return shards / count + (bytes_per_s / load if load else 0.0)

    bears = {name: part(len(owners.owned.get(name, ())), loads[name]) for name in alive}
    most = max(sorted(bears), key=lambda name: bears[name])
    least = min(sorted(bears), key=lambda name: bears[name])
    difference = bears[most] - bears[least]
    if difference <= TOLERANCE * sum(bears.values()) / len(bears):
        return None
    incarnation = alive[most].incarnation
    weights = {key: part(1, view.load(most, incarnation, key)) for key in owners.owned.get(most, ())}
    fitting = [key for key in sorted(weights) if weights[key] < difference * (1 - 1e-9)]
    if not fitting:
        return None
    best = min(fitting, key=lambda key: abs(difference / 2 - weights[key]))
    return _assignment(best, alive[least], owners.assignments[best])


def next_returns(owners: OwnerTables, view: BrokersView) -> list[broker_pb2.Assignment]:
    """Return newer owners for what its owner's program is too old to open, a bounded number."""
    alive = sorted((view.feature_level(each), each.name) for each in owners.brokers.values() if not each.lost)
    made: list[broker_pb2.Assignment] = []
    for level, name in alive:
        if level == alive[-1][0]:
            break
        giver, taker = owners.brokers[name], owners.brokers[alive[-1][1]]
        for key in view.unopenable(giver):
            row = owners.assignments.find(key)
            if row is not None and (row.broker, row.incarnation) == (name, giver.incarnation):
                made.append(_assignment(key, taker, row))
    return made[:RETURNS_MAX]


def _assignment(
    key: ShardKey, broker: broker_pb2.Broker, former: broker_pb2.Assignment | None
) -> broker_pb2.Assignment:
    return broker_pb2.Assignment(
        topic_id=key[0],
        shard_id=key[1],
        broker=broker.name,
        incarnation=broker.incarnation,
        owner_epoch=former.owner_epoch if former is not None else 0,
    )


def _least(heap: list[tuple[int, int, str]], counts: dict[str, int]) -> str:
    """Take the broker that owns least. Entries with an earlier count are dropped."""
    while True:
        count, _, name = heapq.heappop(heap)
        if counts[name] == count:
            return name


def _elsewhere(
    owners: OwnerTables,
    former: broker_pb2.Assignment,
    alive: dict[str, broker_pb2.Broker],
    known: dict[str, list[str]],
) -> list[str]:
    """Return the living brokers of other hosts than a lost owner's; empty where all may own its shards. `known`: by host."""
    owner = owners.brokers.find(former.broker)
    if owner is None or not owner.lost or not owner.host:
        return []
    if owner.host not in known:
        others = [name for name, each in alive.items() if each.host != owner.host]
        known[owner.host] = others if len(others) < len(alive) else []
    return known[owner.host]


def _ranks_in_zone(brokers: dict[str, broker_pb2.Broker]) -> dict[str, int]:
    """Return the place of each broker among those of its zone: the first of all zones come before the second of any."""
    seen: dict[str, int] = {}
    ranks: dict[str, int] = {}
    for name in sorted(brokers):
        zone = brokers[name].zone
        ranks[name] = seen.get(zone, 0)
        seen[zone] = ranks[name] + 1
    return ranks
