"""Which range servers get a range's replicas. Pure and deterministic.

What holds: never two replicas on one server; at least `acks` of the chosen are alive; zones are spread before load is
looked at; a server that is not alive is chosen only where there are too few alive ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from rangelog_core.errors import NoPlacement


class Health(IntEnum):
    """By heartbeats; lower is better."""

    ALIVE = 0
    SUSPECT = 1
    DEAD = 2


@dataclass(frozen=True, slots=True)
class Candidate:
    """One registered range server. `load` is compared only: replicas, open ranges, bytes."""

    server: str
    incarnation: int
    zone: str
    health: Health
    load: tuple[int, ...]


def place(
    candidates: Sequence[Candidate],
    *,
    replicas: int,
    acks: int,
    exclude: Collection[str] = (),
    strictly: bool = False,
    zones_taken: Sequence[str] = (),
) -> list[Candidate]:
    """Choose up to `replicas` servers. Raises NoPlacement, saying what is missing.

    `zones_taken`: where the range has replicas already.
    """
    allowed = [each for each in candidates if not (strictly and each.server in exclude)]
    alive = sum(each.health is Health.ALIVE for each in allowed)
    wanted = min(replicas, len(candidates))
    if len(allowed) < wanted or alive < acks:
        raise NoPlacement(
            f"{alive} range servers are alive{' beside the excluded' if strictly else ''}, "
            f"{acks} are needed of {wanted}: see `pdctl server list`"
        )
    chosen: list[Candidate] = []
    zones: dict[str, int] = {}
    for zone in zones_taken:
        zones[zone] = zones.get(zone, 0) + 1
    rest = list(allowed)
    while len(chosen) < wanted:
        best = min(
            rest,
            key=lambda each: (
                each.health,
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
