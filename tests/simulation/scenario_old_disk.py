"""Two stories that drawn faults hardly ever tell: a server comes back with another disk, just when its word decides.

Copies of all disks are taken and all servers start anew, so that a copy differs from its disk. It is put back only when
the placement drivers have heard of that start: they cannot miss what they never heard of (RELIABILITY, "Not covered").
Later, of the three replicas of the open range one is cut off, so that the other two give the acks; then one of these gets
the older copy, or an empty disk, the other stands still, and another writer takes the stream. Who believes that disk ends
the range before what was acked.
"""

from __future__ import annotations

from random import Random

from rangelog_proto.v1 import common_pb2
from tests.simulation.virtual_clients import Clients
from tests.simulation.virtual_cluster import VirtualCluster
from tests.simulation.virtual_disk import ServerDisk
from tests.simulation.virtual_server import VirtualServer
from tests.simulation.virtual_time import WORLD

_TRY_AGAIN_S = 0.3
_LAG_S = 0.2
"""Some appends, and shorter than what makes a writer leave a replica that is silent."""
_TRIES_MAX = 20
_STANDS_STILL_S = 4.0
_LEASE_S = 5.5
"""An emptied disk registers as another incarnation only when the lease of the one before it is over."""


class OldDisk:
    """See the module."""

    def __init__(self, cluster: VirtualCluster, clients: Clients, chance: Random, *, empty: bool) -> None:
        self._empty = empty
        self._still_s = _STANDS_STILL_S + (_LEASE_S if empty else 0.0)
        self._cluster, self._clients, self._chance = cluster, clients, chance
        self._loop = cluster.loop
        self._copies: dict[str, ServerDisk] = {}
        self._tries = 0

    def begin(self) -> None:
        """Tell it."""
        self._loop.call_in(WORLD, self._chance.uniform(0.5, 1.0), self._copy_all)

    def _copy_all(self) -> None:
        for name, server in self._cluster.servers.items():
            self._copies[name] = server.disk.copy()
            server.stop(power=False)
            self._loop.call_in(WORLD, 0.05, lambda s=server: s.up or s.start())  # type: ignore[misc]
        self._loop.call_in(WORLD, self._chance.uniform(1.0, 2.0), self._cut_one_off)

    def _cut_one_off(self) -> None:
        members = self._members()
        if members is None:
            self._loop.call_in(WORLD, _TRY_AGAIN_S, self._cut_one_off)
            return
        self._chance.shuffle(members)
        self._cluster.note("partition")
        for name in self._clients.holders:
            self._cluster.network.cuts.update({(name, members[2].name): None, (members[2].name, name): None})
        self._loop.call_in(WORLD, _LAG_S, lambda: self._put_back(members))

    def _members(self) -> list[VirtualServer] | None:
        """The replicas of the open range, if all are well and the placement drivers know that their copies are older."""
        ranges = list(self._cluster.state.ranges.of(1).values())
        if not ranges or ranges[-1].state != common_pb2.RANGE_STATE_OPEN or not self._clients.holders:
            return None
        members = []
        for replica in ranges[-1].replicas:
            server, copy = self._cluster.servers[replica.server], self._copies[replica.server]
            now, before = server.disk.identity, copy.identity
            if not server.up or now is None or before is None or before.incarnation != now.incarnation:
                return None
            if now.incarnation != replica.incarnation or before.boot >= now.boot:
                return None
            if self._cluster.state.servers[replica.server].server.boot <= before.boot:
                return None  # its start after the copy has not reached them yet
            members.append(server)
        return members if len(members) == 3 else None

    def _put_back(self, members: list[VirtualServer]) -> None:
        first, second, _ = members
        still = self._members()
        if still is None or {server.name for server in still} != {server.name for server in members}:
            self._cluster.network.heal()  # the writer went on to another range meanwhile
            self._tries += 1
            if self._tries < _TRIES_MAX:
                self._loop.call_in(WORLD, _TRY_AGAIN_S, self._cut_one_off)
            return
        first.stop(power=True)
        if self._empty:
            self._cluster.note("disk lost")
            first.lose_disk()
        else:
            self._cluster.note("disk rolled back")
            first.roll_back(self._copies[first.name])
        self._loop.call_in(WORLD, 0.05, lambda: first.up or first.start())
        self._cluster.note("pause")
        life = second.life
        self._loop.pause(life)
        self._loop.call_in(WORLD, self._still_s, lambda: life.paused and self._loop.resume(life))
        for name in list(self._clients.holders):
            if self._clients.processes[name].alive:
                self._clients.kill(name)
        self._loop.call_in(
            WORLD, self._still_s, self._cluster.network.heal
        )  # what was under way is not to arrive first
        self._clients.start("heir", self._clients.write("heir", 200, 0.02))
