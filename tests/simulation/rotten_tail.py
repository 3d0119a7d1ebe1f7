"""A fault of several steps: what one disk wrote last is rotten after a power cut, when an answer of that disk decides.

Of the three replicas of the main stream's last range one falls behind, so that the other two alone hold what is acked.
All machines lose power. What one of the two wrote last is rotten when it comes back, the other one stays away, and another
writer takes the stream: it has the answers of the rotten disk and of the one that is behind.

Or something before the last write is rotten: then it is not the tail that is cut, but a replica that must not answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.virtual_server import VirtualServer
from tests.simulation.virtual_time import WORLD

if TYPE_CHECKING:
    from tests.simulation.virtual_faults import Faults

ANYWHERE_SHARE = 0.3
"""How often two servers are taken at random, whatever they hold."""
TRIES = 50
"""How often to look whether what the disk wrote last is an append."""
LOOK_EVERY_S = 0.002
BEHIND_FLUSH_S = 1.0


class RottenTail:
    """See the module."""

    def __init__(self, faults: Faults) -> None:
        self._faults, self._cluster = faults, faults.cluster
        self._chance, self._loop = faults.chance, faults.loop
        self._middle = False

    def begin(self, *, middle: bool = False) -> None:
        """Choose the servers and strike, now or a moment later. All disks must be whole."""
        self._middle = middle
        ranges = list(self._cluster.state.ranges.of(1).values())
        members = [self._cluster.servers[each.server] for each in ranges[-1].replicas] if ranges else []
        if len(members) != 3 or self._chance.random() < ANYWHERE_SHARE:
            self._strike(*self._chance.sample(list(self._cluster.servers.values()), 2))
            return
        self._chance.shuffle(members)
        rotten, away, behind = members
        behind.flush_s = BEHIND_FLUSH_S
        self._loop.call_in(WORLD, self._chance.uniform(0.02, 0.2), lambda: self._wait(rotten, away, behind, TRIES))

    def _wait(self, rotten: VirtualServer, away: VirtualServer, behind: VirtualServer, tries: int) -> None:
        """Until the rotten disk wrote an append last: a copy that compaction made leaves the original where it was."""
        if not self._faults.running:
            return
        last = rotten.disk.last_durable()
        if tries and (last is None or last.moved):
            self._loop.call_in(WORLD, LOOK_EVERY_S, lambda: self._wait(rotten, away, behind, tries - 1))
            return
        behind.flush_s = 0.0003
        if self._faults.disks_are_whole():
            self._strike(rotten, away)

    def _strike(self, rotten: VirtualServer, away: VirtualServer) -> None:
        self._faults.cut_all()
        ranges = list(self._cluster.state.ranges.of(1).values())
        if self._middle and ranges:
            self._faults.rot_before_last(rotten, (1, ranges[-1].index))
        else:
            self._faults.rot_last(rotten)
        self._faults.client_kill()
        until_s = self._loop.now + self._chance.uniform(0.5, 8.0)
        self._loop.call_in(WORLD, 0.0, lambda: self._keep_away(away, until_s))

    def _keep_away(self, server: VirtualServer, until_s: float) -> None:
        if self._faults.running and self._loop.now < until_s:
            server.stop(power=True)
            self._loop.call_in(WORLD, 0.05, lambda: self._keep_away(server, until_s))
        elif self._faults.running:
            self._faults.start_again(server)
