"""In every fifth seed servers share hosts: no range that is made, and no further copy, is on a host that has one already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rangelog_pd.state.machine import Machine
from rangelog_pd.state.versions import LEVEL_HOSTS
from rangelog_proto.v1 import common_pb2

if TYPE_CHECKING:
    from tests.simulation.virtual_cluster import VirtualCluster

EVERY = 5
MEMBERS_CHANGED = ("create_range", "seal_range", "seal_ranges", "replace_replica", "register_server")
"""Commands after which a range may have another member, or a server another host."""
HOSTS = {"s1": "h1", "s2": "h1", "s3": "h2", "s4": "h3", "s5": "h4"}
BROKER_HOSTS = {"b1": "h1", "b2": "h1"}


class SharedHosts:
    """The hosts of a run, and the ranges that were seen with their members."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self._cluster = cluster
        self._members: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self._known_s: float | None = None
        if cluster.seed % EVERY == 0:
            for name, server in cluster.servers.items():
                server.host = HOSTS[name]

    def of_broker(self, name: str) -> str:
        """Return the host of a broker; empty where it has none."""
        return "" if self._cluster.seed % EVERY else BROKER_HOSTS.get(name, "")

    def check(self, machine: Machine) -> None:
        """After a command: members that a range did not have before share no host with another member."""
        if self._cluster.seed % EVERY or not self._all_known(machine):
            return
        for key, each in machine.state.ranges.items():
            members = [(one.server, one.incarnation) for one in each.replicas]
            before = self._members.get(key)
            if before == members:
                continue
            self._members[key] = members
            self._check_range(machine, each, {*members} - {*(before or ())})

    def _all_known(self, machine: Machine) -> bool:
        """Whether all hosts are registered. A placement of before may be on its way: the first check is a second later."""
        state = machine.state
        known = state.cluster_version >= LEVEL_HOSTS and all(each.server.host for each in state.servers.values())
        if not known:
            return False
        if self._known_s is None:
            self._known_s = self._cluster.loop.now
            self._cluster.note("servers that share hosts are registered with them")
        if self._cluster.loop.now < self._known_s + 1.0:
            self._members = {
                key: [(one.server, one.incarnation) for one in each.replicas] for key, each in state.ranges.items()
            }
            return False
        return True

    def _check_range(self, machine: Machine, of: common_pb2.Range, added: set[tuple[str, int]]) -> None:
        hosts: dict[str, str] = {}
        for name in sorted(each.server for each in of.replicas):
            host = machine.state.servers[name].server.host
            beside = hosts.setdefault(host, name)
            if beside != name and added & {
                (one.server, one.incarnation) for one in of.replicas if one.server in (name, beside)
            }:
                self._cluster.fail(
                    f"range {of.index} of stream {of.stream_id} has copies on {beside} and {name}, both of host {host}"
                )
        if HOSTS["s1"] in hosts:
            self._cluster.note("a range has one copy on a host of two servers")
