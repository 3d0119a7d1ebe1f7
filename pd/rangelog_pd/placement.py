"""Which range servers get a range's replicas. Pure and deterministic.

What holds: never two replicas on one server; at least `acks` of the chosen servers are alive; zones are spread before load
counts; a server that is not alive is chosen only where too few are alive. A barred server is never chosen; an avoided one
counts as alive, and is chosen only where there is no other.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from rangelog_core.errors import NoPlacement


class ServerHealth(IntEnum):
    """The health of a range server by its heartbeats; lower is better."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One registered range server. `load` is compared only: replicas, open ranges, bytes."""

    server: str
    incarnation: int
    zone: str
    health: ServerHealth
    load: tuple[int, ...]
    barred: bool = False
    avoided: bool = False

    @property
    def rank(self) -> int:
        """Health, and below it whether the server is avoided; lower is better."""
        return 2 * self.health + self.avoided


def place(
    candidates: Sequence[Candidate],
    *,
    replicas: int,
    acks: int,
    exclude: Collection[str] = (),
    strictly: bool = False,
    zones_taken: Sequence[str] = (),
) -> list[Candidate]:
    """Choose up to `replicas` servers. Raises NoPlacement, which names what is missing.

    `zones_taken`: the zones in which the range has replicas already.
    """
    candidates = [each for each in candidates if not each.barred]
    allowed = [each for each in candidates if not (strictly and each.server in exclude)]
    alive = sum(each.health is ServerHealth.ALIVE for each in allowed)
    wanted = min(replicas, len(candidates))
    if len(allowed) < wanted or alive < acks:
        raise NoPlacement(_no_place(alive, acks, wanted, strictly=strictly))
    chosen: list[Candidate] = []
    zones: dict[str, int] = {}
    for zone in zones_taken:
        zones[zone] = zones.get(zone, 0) + 1
    rest = list(allowed)
    while len(chosen) < wanted:
        best = min(
            rest,
            key=lambda each: (
                each.rank,
                each.server in exclude,
                zones.get(each.zone, 0) if each.zone else 0,
                each.load,
                each.server,
            ),
        )
        rest.remove(best)
        chosen.append(best)
        zones[best.zone] = zones.get(best.zone, 0) + 1
    return chosen


def _no_place(alive: int, acks: int, wanted: int, *, strictly: bool) -> str:
    beside = " beside the excluded" if strictly else ""
    return f"{alive} range servers are alive{beside}, {acks} are needed of {wanted}: see `pdctl server list`"


class Placer:
    """Places many ranges in a row: each placement counts as load for the next, and the candidates are sorted once.

    What holds: each choice is that of `place` for the candidates with the load of all earlier choices.
    """

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        candidates = [each for each in candidates if not each.barred]
        self._count = len(candidates)
        self._alive = sum(each.health is ServerHealth.ALIVE for each in candidates)
        self._by_name = {each.server: each for each in candidates}
        self._zones: dict[str, list[tuple[int, tuple[int, ...], str]]] = {}
        for each in candidates:
            self._zones.setdefault(each.zone, []).append((each.rank, each.load, each.server))
        for ordered in self._zones.values():
            ordered.sort()

    def place(
        self, *, replicas: int, acks: int, exclude: Collection[str] = (), strictly: bool = False
    ) -> list[Candidate]:
        """Choose up to `replicas` servers, as `place` does, and count them as loaded. Raises NoPlacement."""
        excluded = [self._by_name[name] for name in dict.fromkeys(exclude) if name in self._by_name]
        count, alive = self._count, self._alive
        if strictly:
            count -= len(excluded)
            alive -= sum(each.health is ServerHealth.ALIVE for each in excluded)
        wanted = min(replicas, self._count)
        if count < wanted or alive < acks:
            raise NoPlacement(_no_place(alive, acks, wanted, strictly=strictly))
        chosen: dict[str, Candidate] = {}
        taken: dict[str, int] = {}
        while len(chosen) < wanted:
            best = min(
                (
                    (each.rank, each.server in exclude, taken.get(zone, 0) if zone else 0, each.load, each.server)
                    for zone, ordered in self._zones.items()
                    for each in self._best(ordered, chosen, exclude, strictly=strictly)
                ),
            )
            found = chosen[best[-1]] = self._by_name[best[-1]]
            taken[found.zone] = taken.get(found.zone, 0) + 1
        for each in chosen.values():
            self._load(each)
        return list(chosen.values())

    def _best(
        self,
        ordered: list[tuple[int, tuple[int, ...], str]],
        chosen: Collection[str],
        exclude: Collection[str],
        *,
        strictly: bool,
    ) -> Iterator[Candidate]:
        """Return the best candidate of a zone that is not excluded, and, where these are allowed, the best excluded one."""
        found_other = found_excluded = False
        for _, _, name in ordered:
            if name in chosen:
                continue
            each = self._by_name[name]
            if name not in exclude:
                yield each
                found_other = True
            elif not strictly and not found_excluded:
                yield each
                found_excluded = True
            if found_other:
                return

    def _load(self, each: Candidate) -> None:
        """Count one more open range on a server."""
        ordered = self._zones[each.zone]
        ordered.remove((each.rank, each.load, each.server))
        loaded = replace(each, load=tuple(part + 1 for part in each.load))
        self._by_name[each.server] = loaded
        insort(ordered, (loaded.rank, loaded.load, loaded.server))
