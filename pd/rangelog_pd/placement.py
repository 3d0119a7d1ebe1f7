"""Which range servers get a range's replicas. Pure and deterministic.

What holds: never two replicas on one server or host, so that all servers of a host count as one; at least `acks` of the chosen
servers are alive; a stream's policy is kept or the placement is refused with what is missing; zones are spread before racks,
and racks before load counts; a server that is not alive, is avoided, or whose disk is nearly full, is chosen only where there
are too few others. A barred one is never chosen; an avoided one counts as alive.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from rangelog_core.errors import NoPlacement
from rangelog_proto.v1 import common_pb2

_NO_REASON = common_pb2.REPLICA_REASON_UNSPECIFIED
_T = TypeVar("_T")
ZONES_NAMED_MAX = 10
"""Zones in the text of a refusal."""


Machine = tuple[str, ...]
"""A host, or a server without one: see Candidate.machine."""


class ServerHealth(IntEnum):
    """The health of a range server by its heartbeats; lower is better."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One registered range server. `load` is compared only: its first part is work, the others are what is stored."""

    server: str
    incarnation: int
    zone: str
    health: ServerHealth
    load: tuple[int, ...]
    rack: str = ""
    host: str = ""
    labels: frozenset[str] = frozenset()
    full: bool = False
    """Whether its disk is nearly full."""
    barred: bool = False
    """Whether it gets no new replica, whatever there is to choose from."""
    avoided: bool = False
    """Whether writers and peers have trouble with it."""
    reason: common_pb2.ReplicaReason = _NO_REASON
    """Of a chosen one."""

    @property
    def rank(self) -> int:
        """Health, and below it whether the server is avoided; lower is better."""
        return 2 * self.health + self.avoided

    @property
    def machine(self) -> Machine:
        """The host within its zone; of a server without a host, the server itself."""
        return (self.zone, self.host) if self.host else (self.server,)

    def loaded(self) -> Candidate:
        """Return it with one more replica."""
        return self.with_load(tuple(part + 1 for part in self.load))

    def with_load(self, load: tuple[int, ...]) -> Candidate:
        """Return it with another load."""
        return replace(self, load=load)

    def because(self, reason: common_pb2.ReplicaReason) -> Candidate:
        """Return it as chosen for a reason."""
        return replace(self, reason=reason)


@dataclass(frozen=True, slots=True)
class Policy:
    """The conditions of a stream on the servers of its replicas."""

    zones_min: int = 0
    labels: frozenset[str] = frozenset()

    def admits(self, candidate: Candidate) -> bool:
        """Whether a server may have replicas at all."""
        return not candidate.barred and self.labels <= candidate.labels


ANY = Policy()


class Place(NamedTuple):
    """Where a replica is that the range has already."""

    zone: str
    rack: str
    host: str = ""


def policy_of(config: common_pb2.StreamConfig) -> Policy:
    """Return the policy of a stream."""
    if not config.zones_min and not config.server_labels:
        return ANY
    return Policy(config.zones_min, frozenset(config.server_labels))


def replicas_of(chosen: Iterable[Candidate], *, with_reason: bool) -> list[common_pb2.Replica]:
    """Return the members of a new range. `with_reason`: all placement drivers keep it."""
    return [
        common_pb2.Replica(
            server=each.server, incarnation=each.incarnation, reason=each.reason if with_reason else _NO_REASON
        )
        for each in chosen
    ]


class Spread:
    """The hosts, zones and racks that a range has, and those it must still get, while its servers are chosen one by one."""

    def __init__(self, policy: Policy, taken: Iterable[Place], free: int) -> None:
        """`taken`: places of living replicas. `free`: the replicas to choose, now and later."""
        self.hosts: set[Machine] = set()
        self.zones: dict[str, int] = {}
        self.racks: dict[tuple[str, str], int] = {}
        self._spanned: dict[str, None] = {}
        self._free = free
        for place_ in taken:
            self._note(place_, alive=True)
        self.zones_min = policy.zones_min
        """Of a range that has replicas: what can still be reached, since these were placed under another policy perhaps."""
        if self.zones:
            self.zones_min = min(policy.zones_min, len(self._spanned) + free)

    @property
    def spanned(self) -> Collection[str]:
        """The zones of living replicas."""
        return self._spanned.keys()

    @property
    def wants_new_zone(self) -> bool:
        """Whether the next one must be in a further zone, and alive."""
        return self.zones_min - len(self._spanned) >= max(1, self._free)

    def counts(self, candidate: Candidate) -> tuple[int, int]:
        """Return how many replicas are in a server's zone, and in its rack. Unnamed zones and racks are not one place."""
        if not candidate.zone and not candidate.rack:
            return 0, 0
        in_rack = self.racks.get((candidate.zone, candidate.rack), 0) if candidate.rack else 0
        return self.zones.get(candidate.zone, 0) if candidate.zone else 0, in_rack

    def shares_host(self, candidate: Candidate) -> bool:
        """Whether the range has a replica on a server's host."""
        return bool(self.hosts) and candidate.machine in self.hosts

    def admits(self, candidate: Candidate) -> bool:
        """Whether a server's host is free, and the zones that are still missing can be had after this one."""
        if self.shares_host(candidate):
            return False
        if not self.wants_new_zone:
            return True
        return candidate.health is ServerHealth.ALIVE and self.is_new(candidate.zone)

    def is_new(self, zone: str) -> bool:
        """Whether no living replica is in a zone."""
        return bool(zone) and zone not in self._spanned

    def choose(self, candidate: Candidate) -> None:
        """Count a chosen server."""
        self._free -= 1
        self._note(Place(candidate.zone, candidate.rack, candidate.host), alive=candidate.health is ServerHealth.ALIVE)

    def _note(self, place_: Place, *, alive: bool) -> None:
        self.zones[place_.zone] = self.zones.get(place_.zone, 0) + 1
        rack = (place_.zone, place_.rack)
        self.racks[rack] = self.racks.get(rack, 0) + 1
        if place_.host:
            self.hosts.add((place_.zone, place_.host))
        if alive and place_.zone:
            self._spanned[place_.zone] = None


def place(
    candidates: Sequence[Candidate],
    *,
    replicas: int,
    acks: int,
    exclude: Collection[str] = (),
    strictly: bool = False,
    policy: Policy = ANY,
    taken: Sequence[Place] = (),
    later: int = 0,
) -> list[Candidate]:
    """Choose up to `replicas` servers. Raises NoPlacement, which names what is missing.

    `taken`: where the range has living replicas already. `later`: replicas that it gets after these.
    This is the definition, which looks at all candidates for each choice; Placer chooses the same faster.
    """
    fitting = [each for each in candidates if policy.admits(each)]
    tally = _Tally(fitting)
    wanted = min(replicas, len(tally.fitting))
    spread = Spread(policy, taken, wanted + later)
    allowed = [each for each in fitting if not (strictly and each.server in exclude)]
    counts = tally.without([each for each in fitting if strictly and each.server in exclude], spread.hosts)
    _check(policy, spread, acks, wanted, counts, len(candidates), later, strictly=strictly)
    chosen: list[Candidate] = []
    while len(chosen) < wanted:
        best = min(
            (each for each in allowed if spread.admits(each)),
            key=lambda each: (
                each.rank,
                each.server in exclude,
                each.full,
                *spread.counts(each),
                each.load,
                each.server,
            ),
        )
        allowed.remove(best)
        chosen.append(_with_reason(best, spread, only=len(fitting) <= wanted or _is_poor(best, exclude)))
        spread.choose(best)
    return chosen


class _Counts(NamedTuple):
    """The choice of a placement: hosts with a server, with a living one; living servers, and their zones."""

    servers: int
    allowed: int
    alive: int
    alive_servers: int
    zones: Sequence[str]


class _Tally:
    """How many servers take replicas, and on how many hosts."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.servers = 0
        self.fitting: dict[Machine, int] = {}
        self.alive: dict[Machine, int] = {}
        self.zones: dict[str, int] = {}
        """Servers by host, the living ones by host and by zone."""
        for each in candidates:
            self.add(each, 1)

    def add(self, candidate: Candidate, one: int) -> None:
        """Count a server (1), or count it no more (-1)."""
        machine = candidate.machine
        self.servers += one
        _add(self.fitting, machine, one)
        if candidate.health is ServerHealth.ALIVE:
            _add(self.alive, machine, one)
            _add(self.zones, candidate.zone, one)

    def without(self, gone: Iterable[Candidate], hosts: Iterable[Machine]) -> _Counts:
        """Return what is left without some of the servers, and without all servers of some hosts."""
        fitting, alive, zones = Counter[Machine](), Counter[Machine](), Counter[str]()
        for each in gone:
            fitting[each.machine] += 1
            if each.health is ServerHealth.ALIVE:
                alive[each.machine] += 1
                zones[each.zone] += 1
        for machine in hosts:
            fitting[machine], alive[machine] = self.fitting.get(machine, 0), self.alive.get(machine, 0)
        return _Counts(
            self.servers,
            _left(self.fitting, fitting),
            _left(self.alive, alive),
            sum(self.zones.values()) - alive.total(),
            [zone for zone, count in self.zones.items() if zone and count > zones[zone]],
        )


def _add(counts: dict[_T, int], key: _T, one: int) -> None:
    counts[key] = counts.get(key, 0) + one
    if not counts[key]:
        del counts[key]


def _left(counts: Mapping[Machine, int], gone: Mapping[Machine, int]) -> int:
    """Return how many hosts still have a server."""
    return len(counts) - sum(0 < counts.get(machine, 0) <= count for machine, count in gone.items())


def _check(
    policy: Policy,
    spread: Spread,
    acks: int,
    wanted: int,
    counts: _Counts,
    known: int,
    later: int,
    *,
    strictly: bool,
) -> None:
    """Raise NoPlacement unless there are enough living servers, on hosts of their own, and zones."""
    fitting, allowed, alive, alive_servers, zones = counts
    which = "range server" if alive_servers == 1 else "range servers"
    if policy.labels:
        which += f" with {', '.join(sorted(policy.labels))}"
    beside = " beside the excluded" if strictly else ""
    if allowed < wanted or alive < acks:
        can = "have these labels and take replicas" if policy.labels else "take replicas"
        of = f" ({fitting} of {known} servers {can})" if fitting < known else ""
        on = f" on {alive} host{'' if alive == 1 else 's'}" if alive < alive_servers else ""
        raise NoPlacement(
            f"{alive_servers} {which} {'is' if alive_servers == 1 else 'are'} alive{beside}{on}, "
            f"{acks} {'is' if acks == 1 else 'are'} needed and {wanted} wanted{of}: see `pdctl server list`"
        )
    reachable = {*spread.spanned, *zones}
    if len(reachable) + later < spread.zones_min:
        named = sorted(reachable)[:ZONES_NAMED_MAX]
        found = f"only {', '.join(named)}" if named else "none with a name"
        raise NoPlacement(
            f"the stream wants replicas in {policy.zones_min} zones, and {which} are alive in {len(reachable)}{beside} "
            f"({found}): start servers in other zones, or lower it with `pdctl stream update --zones-min`"
        )


def _is_poor(candidate: Candidate, exclude: Collection[str]) -> bool:
    return bool(candidate.rank) or candidate.full or candidate.server in exclude


def _with_reason(candidate: Candidate, spread: Spread, *, only: bool) -> Candidate:
    """Return a chosen server with the reason, as it is before it is counted."""
    in_zone, in_rack = spread.counts(candidate)
    if only:
        reason = common_pb2.REPLICA_REASON_ONLY_CHOICE
    elif spread.zones and candidate.zone and not in_zone:
        reason = common_pb2.REPLICA_REASON_NEW_ZONE
    elif spread.zones and candidate.rack and not in_rack:
        reason = common_pb2.REPLICA_REASON_NEW_RACK
    else:
        reason = common_pb2.REPLICA_REASON_LEAST_LOADED
    return candidate.because(reason)


_Key = tuple[int, bool, tuple[int, ...], str]


class Placer:
    """Places many ranges: each placement counts as load for the next, and the candidates are kept in order by zone.

    What holds: each choice is that of `place` for the candidates with the load of all earlier choices. A choice looks at the
    first few candidates of each zone, and at all of them only where labels or racks rule most of them out.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self._by_name: dict[str, Candidate] = {}
        self._zones: dict[str, list[_Key]] = {}
        self._tally = _Tally()
        for each in candidates:
            self.put(each)

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, server: str) -> Candidate | None:
        """Return a candidate as it counts now."""
        return self._by_name.get(server)

    def candidates(self) -> list[Candidate]:
        """Return all, as they count now."""
        return list(self._by_name.values())

    def put(self, candidate: Candidate) -> None:
        """Insert a candidate, or replace the one of the same name."""
        self.remove(candidate.server)
        self._by_name[candidate.server] = candidate
        if not candidate.barred:
            insort(self._zones.setdefault(candidate.zone, []), _key(candidate))
            self._tally.add(candidate, 1)

    def remove(self, server: str) -> None:
        """Remove a candidate, if it is there."""
        known = self._by_name.pop(server, None)
        if known is None or known.barred:
            return
        ordered = self._zones[known.zone]
        del ordered[bisect_left(ordered, _key(known))]
        if not ordered:
            del self._zones[known.zone]
        self._tally.add(known, -1)

    def place(
        self,
        *,
        replicas: int,
        acks: int,
        exclude: Collection[str] = (),
        strictly: bool = False,
        policy: Policy = ANY,
        taken: Sequence[Place] = (),
        later: int = 0,
    ) -> list[Candidate]:
        """Choose up to `replicas` servers, as `place` does, and count them as loaded. Raises NoPlacement."""
        tally = self._tally
        if policy.labels:
            tally = _Tally(each for each in self._by_name.values() if policy.admits(each))
        wanted = min(replicas, len(tally.fitting))
        spread = Spread(policy, taken, wanted + later)
        excluded = [self._by_name[name] for name in dict.fromkeys(exclude) if strictly and name in self._by_name]
        counts = tally.without([each for each in excluded if policy.admits(each)], spread.hosts)
        _check(policy, spread, acks, wanted, counts, len(self), later, strictly=strictly)
        chosen: dict[str, Candidate] = {}
        passed_over = {*exclude} if strictly else set()
        while len(chosen) < wanted:
            best = self._best(policy, spread, exclude, passed_over)
            only = tally.servers <= wanted or _is_poor(best, exclude)
            chosen[best.server] = _with_reason(best, spread, only=only)
            passed_over.add(best.server)
            spread.choose(best)
        for name in chosen:
            self.put(self._by_name[name].loaded())
        return list(chosen.values())

    def _best(
        self, policy: Policy, spread: Spread, exclude: Collection[str], passed_over: Collection[str]
    ) -> Candidate:
        """Return the best candidate of all zones."""
        only_new = spread.wants_new_zone
        best: tuple[tuple[object, ...], Candidate] | None = None
        for zone, ordered in self._zones.items():
            if only_new and not spread.is_new(zone):
                continue
            for rank, full, load, name in ordered:
                if best is not None and _is_behind(rank, full, best[0]):
                    break
                each = self._by_name[name]
                if name in passed_over or spread.shares_host(each) or not policy.admits(each):
                    continue
                key = (rank, name in exclude, full, *spread.counts(each), load, name)
                if best is None or key < best[0]:
                    best = (key, each)
                if not key[1] and not key[4]:
                    break  # the others of the zone have more load, or a replica in their rack
        if best is None:
            raise NoPlacement("no range server is left that may have the replica: see `pdctl server list`")
        return best[1]


def _is_behind(rank: int, full: bool, best: tuple[object, ...]) -> bool:
    """Whether a candidate, and all after it, are worse than the best one by their rank or disk alone."""
    return (rank, full) > (best[0], best[2]) and (rank != best[0] or not best[1])


def _key(candidate: Candidate) -> _Key:
    return candidate.rank, candidate.full, candidate.load, candidate.server
