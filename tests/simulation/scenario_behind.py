"""A story of a replica that is behind: it hears nothing from the writer for a while, and readers hear it well.

It is the one that readers ask first. Meanwhile they start at the time of the newest acked record, which it does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from rangelog_proto.v1 import common_pb2
from tests.simulation import virtual_reading
from tests.simulation.virtual_clients import Clients
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_time import WORLD

_BEHIND_S = (0.2, 0.8)
_BETWEEN_S = (0.2, 0.6)
_ROUNDS = 60
_PAUSE_S = 0.1


class Behind:
    """See the module."""

    STORY = "a replica hears nothing from the writer, and readers start at the time of the newest record"

    def __init__(self, cluster: VirtualCluster, clients: Clients, chance: Random, running: Callable[[], bool]) -> None:
        """`running`: whether faults may happen."""
        self._cluster, self._clients, self._chance, self._running = cluster, clients, chance, running

    def begin(self) -> None:
        """Tell it."""
        role = virtual_reading.start_at_the_newest
        for name in ("a-newest-0", "a-newest-1"):
            self._clients.start(name, role(self._clients, self._clients.main, name, _ROUNDS, _PAUSE_S))
        self._later(self._fall_behind)

    def _later(self, call: Callable[[], None]) -> None:
        self._cluster.loop.call_in(WORLD, self._chance.uniform(*_BETWEEN_S), call)

    def _fall_behind(self) -> None:
        if not self._running():
            return
        self._later(self._fall_behind)
        ranges = list(self._cluster.state.ranges.of(1).values())
        writers = [name for name in self._clients.holders if self._clients.processes[name].alive]
        if not ranges or not writers or ranges[-1].state != common_pb2.RANGE_STATE_OPEN:
            return
        self._cluster.note("one-way partition")
        cut = writers[-1], ranges[-1].replicas[0].server
        self._cluster.network.cuts[cut] = None
        behind_s = self._chance.uniform(*_BEHIND_S)
        self._cluster.loop.call_in(WORLD, behind_s, lambda: self._cluster.network.cuts.pop(cut, None))
