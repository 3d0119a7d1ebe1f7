"""Faults of the network: cut wholly, in part, one way; lossy; slow. They need hosts of their own (see chaos_network)."""

from __future__ import annotations

import threading
from typing import ClassVar

from tests.chaos.chaos_cluster import PDS, RANGE_SERVERS
from tests.chaos.chaos_faults import Fault, Replaced

LOSS_ON_S = (0.02, 0.08)
LOSS_OFF_S = (0.1, 0.3)
SLOW_BITS_PER_S = 1_500_000


class Cut(Fault):
    """Directions between hosts that are cut until it heals."""

    needs = frozenset({"network"})
    hold_s = (2.0, 6.0)

    def cut(self, *pairs: tuple[str, str]) -> None:
        """Cut (source, target) pairs."""
        self._pairs: tuple[tuple[str, str], ...] = pairs
        for source, target in pairs:
            self.system.network.set_cut(source, target, cut=True)

    def heal(self) -> None:
        """See Fault."""
        for source, target in getattr(self, "_pairs", ()):
            self.system.network.set_cut(source, target, cut=False)


def both_ways(host: str, others: list[str]) -> list[tuple[str, str]]:
    """Every direction between a host and others."""
    return [(host, other) for other in others] + [(other, host) for other in others]


class RangeServerCutOff(Cut):
    """A range server and everybody else."""

    name = "range-server-cut-off"

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        self.cut(*both_ways(victim, self.system.every_host_but(victim)))
        return victim


class PdLeaderCutOff(Cut):
    """The leading placement driver and everybody else: it goes on believing for a while."""

    name = "pd-leader-cut-off"
    side = "pd"

    def inject(self) -> str:
        """See Fault."""
        victim = self.system.leader()
        self.cut(*both_ways(victim, self.system.every_host_but(victim)))
        return victim


class PdLeaderCutFromPeers(Cut):
    """The leading placement driver and its peers, while clients and servers still reach it."""

    name = "pd-leader-cut-from-peers"
    side = "pd"

    def inject(self) -> str:
        """See Fault."""
        victim = self.system.leader()
        self.cut(*both_ways(victim, [name for name in PDS if name != victim]))
        return victim


class RangeServerCutFromPd(Cut):
    """A range server and the placement drivers: it serves on, its lease runs out."""

    name = "range-server-cut-from-pd"
    hold_s = (4.0, 8.0)

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        self.cut(*both_ways(victim, list(PDS)))
        return victim


class WriterCutFromServer(Cut):
    """A writer and one range server: everybody else finds that server well (gray failure)."""

    name = "writer-cut-from-server"
    side = "server"

    def inject(self) -> str:
        """See Fault."""
        stream = self.a_stream()
        victim = self.a_range_server(stream)
        host = self.system.load.current[stream].host
        self.cut((host, victim), (victim, host))
        return f"{stream}'s writer and {victim}"


class WriterCutFromPd(Cut):
    """A writer and the placement drivers: it cannot leave its range, and appends go on."""

    name = "writer-cut-from-pd"
    side = "pd"
    hold_s = (3.0, 6.0)

    def inject(self) -> str:
        """See Fault."""
        writer = self.system.load.current[self.a_stream()]
        self.cut(*both_ways(writer.host, list(PDS)))
        return writer.name


class PdsCutFromEachOther(Cut):
    """The leading placement driver and one follower; both reach the third (a partial partition inside the group)."""

    name = "pd-partial-cut"
    side = "pd"
    hold_s = (5.0, 9.0)

    def inject(self) -> str:
        """See Fault."""
        leader = self.system.leader()
        other = self.dice.choice([name for name in PDS if name != leader])
        self.cut((leader, other), (other, leader))
        return f"{leader}, leading, and {other}"


class OneWay(Cut):
    """What a server sends is lost; what is sent to it arrives. Or the other way round."""

    hold_s = (2.0, 5.0)
    outgoing: ClassVar[bool]

    def inject(self) -> str:
        """See Fault."""
        victim = self.a_range_server()
        others = self.system.every_host_but(victim)
        self.cut(*[(victim, other) if self.outgoing else (other, victim) for other in others])
        return f"{'from' if self.outgoing else 'to'} {victim}"


class RangeServerMute(OneWay):
    """Its answers are lost."""

    name = "range-server-mute"
    outgoing = True


class RangeServerDeaf(OneWay):
    """Nothing reaches it."""

    name = "range-server-deaf"
    outgoing = False


class PdLeaderMute(Cut):
    """The leading placement driver hears everything and is not heard."""

    name = "pd-leader-mute"
    side = "pd"

    def inject(self) -> str:
        """See Fault."""
        victim = self.system.leader()
        self.cut(*[(victim, other) for other in self.system.every_host_but(victim)])
        return f"from {victim}"


class WriterCutOff(Replaced):
    """A writer and everybody else; another takes over; the first, connected again, must be fenced."""

    name = "writer-cut-off"
    needs = frozenset({"network"})
    hold_s = (2.0, 5.0)
    _pairs: tuple[tuple[str, str], ...] = ()

    def inject(self) -> str:
        """See Fault."""
        host = self.prepare().host
        self._pairs = tuple(both_ways(host, self.system.every_host_but(host)))
        for source, target in self._pairs:
            self.system.network.set_cut(source, target, cut=True)
        return self.replace()

    def heal(self) -> None:
        """See Fault."""
        pairs, self._pairs = self._pairs, ()
        for source, target in pairs:
            self.system.network.set_cut(source, target, cut=False)
        self.expect_fenced()


class Lossy(Fault):
    """Packets from a range server to everybody are lost in short bursts, about a fifth of the time."""

    name = "lossy-network"
    needs = frozenset({"network"})
    hold_s = (3.0, 6.0)
    _thread: threading.Thread | None = None

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.a_range_server()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._flap, name="lossy", daemon=True)
        self._thread.start()
        return f"from {self._victim}"

    def heal(self) -> None:
        """See Fault."""
        if self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None

    def _flap(self) -> None:
        others = [*(each.host for each in self.system.load.current.values()), *RANGE_SERVERS, *PDS]
        others.remove(self._victim)
        while not self._stop.is_set():
            try:
                for other in others:
                    self.system.network.set_cut(self._victim, other, cut=True)
                self._stop.wait(self.dice.uniform(*LOSS_ON_S))
            finally:
                for other in others:
                    self.system.network.set_cut(self._victim, other, cut=False)
            self._stop.wait(self.dice.uniform(*LOSS_OFF_S))


class SlowLink(Fault):
    """A range server can send little: its queue overflows and packets are lost."""

    name = "slow-link"
    needs = frozenset({"network"})
    hold_s = (3.0, 6.0)
    _victim = ""

    def inject(self) -> str:
        """See Fault."""
        self._victim = self.a_range_server()
        self.system.network.set_rate(self._victim, SLOW_BITS_PER_S)
        return f"{self._victim} at {SLOW_BITS_PER_S // 1000} kbit/s"

    def heal(self) -> None:
        """See Fault."""
        if self._victim:
            self.system.network.set_rate(self._victim, None)
