"""A client's machine vanishes: no FIN and no RST, and nothing is ever acknowledged again."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from rangelog_server.serving import connection as serving
from tests.chaos.chaos_cluster import RANGE_SERVERS
from tests.chaos.chaos_faults import FLUSHES_WITHIN_S, OPENS_WITHIN_S, Fault
from tests.chaos.chaos_load import Client
from tests.chaos.chaos_partitions import both_ways
from tests.support.waiting import WaitRanOut, eventually

STREAM = "far"
RECORDS = 500
NOTICED_WITHIN_S = 15 + max(
    serving.KEEPALIVE_IDLE_S + serving.KEEPALIVE_INTERVAL_S * serving.KEEPALIVE_COUNT,
    serving.USER_TIMEOUT_MS / 1000,
)
"""From the last packet on: what the kernel is told, and what its timers may add."""
_numbers = itertools.count(1)


class VanishedPeer(Fault):
    """A host with a writer and readers is cut off, and then its processes are killed: nobody can say goodbye."""

    name = "vanished-peer"
    needs = frozenset({"network"})
    side = "all"
    hold_s = (0.5, 1.5)
    _host = ""
    _writing = False

    def inject(self) -> str:
        """See Fault."""
        load = self.system.load
        self._host = f"ghost{next(_numbers)}"
        address = self.system.add_host(self._host)
        self._writing = True
        writer = load.begin(STREAM, self._host)
        readers = [load.side_reader(load.plan(stream), self._host, "tail") for stream in (STREAM, self.a_stream())]
        clients: list[Client] = [writer, *readers]
        eventually(
            lambda: all(each.pulse.records > RECORDS for each in clients), f"{self._host} gets nothing", OPENS_WITHIN_S
        )
        for source, target in both_ways(self._host, self.system.every_host_but(self._host)):
            self.system.network.set_cut(source, target, cut=True)
        self._vanished_s, self._address = time.monotonic(), address
        load.abandon(STREAM)
        for each in clients:
            each.process.kill()
        load.begin(STREAM)
        return f"{self._host} with {', '.join(each.name for each in clients)}; {self._connections()} connections to it"

    def heal(self) -> None:
        """It never comes back; another host has its stream, which then rests."""
        writing, self._writing = self._writing, False
        load = self.system.load
        if writing and STREAM in load.current:
            heir = load.current[STREAM]
            eventually(lambda: heir.pulse.records > 0, f"{heir.name} gets no acks", OPENS_WITHIN_S)
            load.end(STREAM, FLUSHES_WITHIN_S)

    def afterwards(self) -> str:
        """The servers have found out."""
        left_s = self._vanished_s + NOTICED_WITHIN_S - time.monotonic()
        try:
            eventually(lambda: not self._connections(), "connections are kept", max(0.0, left_s))
        except WaitRanOut:
            late_s = time.monotonic() - self._vanished_s
            return f"{self._connections()} connections of {self._host} are kept {late_s:.0f} s after it vanished"
        return ""

    def _connections(self) -> int:
        """How many connections to it the range servers have."""
        of_servers = [self.system.cluster.members[name] for name in RANGE_SERVERS]
        return sum(connections_to(self._address, process.pid) for process in of_servers if process.running)


def connections_to(address: str, pid: int) -> int:
    """How many TCP connections the process's network has open to an address (of IPv4); what was closed does not count."""
    there = bytes(reversed([int(part) for part in address.split(".")])).hex().upper()
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(each[2].startswith(f"{there}:") and each[9] != "0" for each in fields)
