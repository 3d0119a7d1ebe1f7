"""A story of a far placement driver: each roll of a range takes a long way, and readers start all the while.

Between the moment in which a writer leaves its range and the next acks there is all the time in the world for a reader to
ask for the end; and now and then the writer dies in it.
"""

from __future__ import annotations

from tests.simulation import virtual_planning, virtual_reading
from tests.simulation.virtual_clients import Clients
from tests.simulation.virtual_cluster import VirtualCluster

FAR_S = 0.05
VALUE_BYTES = 4_000
"""Ranges are at least 64 KiB: so one is full after a few dozen records."""


class FarDrivers:
    """See the module."""

    def __init__(self, cluster: VirtualCluster, clients: Clients) -> None:
        self._cluster, self._clients = cluster, clients

    def begin(self) -> None:
        """Tell it."""
        clients = self._clients
        clients.value_bytes = VALUE_BYTES
        for name in self._cluster.pds:
            self._cluster.network.slow_s[name] = FAR_S
        roles = (
            virtual_reading.read_to_the_end,
            virtual_reading.start_at_the_end,
            virtual_reading.ask_for_the_end,
            virtual_planning.plan_and_read,
        )
        for number, role in enumerate(roles):
            name = f"a-far-{number}"
            clients.start(name, role(clients, clients.main, name, 6, 0.2))
