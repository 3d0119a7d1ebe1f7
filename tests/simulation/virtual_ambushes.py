"""Faults that strike at the worst moment: something that matters has just begun, and who does it is hit in the middle of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.virtual_server import VirtualServer
from tests.simulation.virtual_time import WORLD

if TYPE_CHECKING:
    from tests.simulation.virtual_faults import Faults

MAIN_WRITERS = ("w", "heir")
"""So the processes of the main stream's writers are called."""
MOMENTS = {
    "flush": 0.1,
    "copy": 0.7,
    "seal_range": 0.3,
    "open_writer": 0.5,
    "stored": 0.3,
    "frozen": 0.1,
    "decided": 0.5,
    "copying": 0.5,
    "moving": 0.03,
}
"""How often each is taken, where it is taken at all."""
RECORDED = 0.05
"""How often the leader dies when entries of the audit log were acked, before the state knows. As below."""
MANY = 0.5
"""How often the driver that carries out a call of many is cut off from the others. In every run: drawing whether would
change all other draws."""
PACKING = 0.1
"""How often a server dies in the midst of a repack, for the same reason."""


class Ambushes:
    """See the module. `shares`: how often each moment is taken; `cut_off`: a writer about to seal is, rather than killed."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self.cluster, self.clients = faults.cluster, faults.clients
        self.chance, self.loop = faults.chance, faults.loop
        self.shares = {moment: self.chance.choice([0.0, often]) for moment, often in MOMENTS.items()}
        self.shares["many"] = MANY
        self.shares["packing"] = PACKING
        self.shares["recorded"] = RECORDED
        self.cut_off = False

    def only(self, **shares: float) -> None:
        """These moments and no others."""
        self.shares = dict.fromkeys(self.shares, 0.0) | shares

    def ambush(self, moment: str, host: str) -> None:
        """Something that matters begins on a host: now and then it is struck in the middle of it."""
        if host in self.clients.processes and not host.startswith(MAIN_WRITERS):
            return
        if not self._faults.running or self.chance.random() >= self.shares[moment]:
            return
        if host in self.cluster.pds:  # it takes the stream of the audit log over
            self._kill_pd(host)
            return
        if moment in ("decided", "copying") and host in self.cluster.servers:  # it seals what a gone writer left
            self._strike(self.cluster.servers[host], power=False)
            return
        if moment == "decided":
            self._restart_all(host)
            return
        if moment == "many":
            self.loop.call_in(WORLD, self.chance.uniform(0, 0.003), lambda: self._cut_off_driver(host))
            return
        if moment == "frozen" and self.cut_off:
            self._cut_off_writer(host)
            return
        if moment == "frozen":
            self.loop.call_in(WORLD, self.chance.uniform(0, 0.003), lambda: self._strike_client(host))
            return
        if moment == "copy":  # whoever has the longer answer goes, at once
            self._strike(self.cluster.servers[host], power=False)
            return
        if moment == "copying":
            self.loop.call_in(WORLD, self.chance.uniform(0, 0.002), lambda: self._strike_client(host))
            return
        if moment == "open_writer" and self.shares["decided"]:
            self._hold_back()
            return
        if moment in ("seal_range", "open_writer"):
            self._faults.pd_crash()
            return
        server = self.cluster.servers[host]
        kind = 1.0
        if moment in ("flush", "moving"):
            kind = self.chance.uniform(0.0 if moment == "flush" else 0.3, 1.0)
        if kind < 0.3:
            self.cluster.note("connections reset")
            self.cluster.network.reset(host)
        elif kind < 0.7:
            self.loop.call_in(WORLD, self.chance.uniform(0, server.flush_s), self._faults.cut_all)
        elif server.up and self._faults.living_server() is not None:
            power = moment in ("flush", "moving") or self.chance.random() < 0.5
            self.loop.call_in(
                WORLD, self.chance.uniform(0, 2) * server.flush_s, lambda: self._strike(server, power=power)
            )

    def _strike(self, server: VirtualServer, *, power: bool) -> None:
        if server.up and self._faults.running:
            self.cluster.note("power cut" if power else "crash")
            server.stop(power=power)
            self._faults.later(lambda: self._faults.start_again(server))

    def _strike_client(self, name: str) -> None:
        """A writer that is about to leave its range is gone, or comes back much later; another one takes the stream."""
        process = self.clients.processes[name]
        if not process.alive or process.paused or not self._faults.running:
            return
        if self.chance.random() < 0.5:
            self.clients.kill(name)
        else:
            self.cluster.note("client paused")
            self.loop.pause(process)
            self.loop.call_in(WORLD, self.chance.uniform(1, 6), lambda: process.paused and self.loop.resume(process))
        self._faults.another_writer()

    def _cut_off_writer(self, name: str) -> None:
        """A writer that is about to leave its range reaches one of the servers and nobody else; another one takes over."""
        reached = self.chance.choice(list(self.cluster.servers))
        others = [*self.cluster.pds, *(server for server in self.cluster.servers if server != reached)]
        self._faults.cut([pair for other in others for pair in ((name, other), (other, name))], "partition")
        self._faults.another_writer()

    def _cut_off_driver(self, name: str) -> None:
        """A placement driver that carries out a call of many no longer hears the others: who called it does hear it."""
        if self._faults.running:
            pairs = [(name, other) for other in self.cluster.pds if other != name]
            self._faults.cut(pairs + [(other, name) for name, other in pairs], "partition")

    def _hold_back(self) -> None:
        """Who had the stream stands still while the next one takes it, and goes on when that is over."""
        for name in self.clients.holders:
            process = self.clients.processes[name]
            if process.alive and not process.paused:
                self.cluster.note("client paused")
                self.loop.pause(process)
                self.loop.call_in(
                    WORLD, self.chance.uniform(0.1, 0.4), lambda p=process: p.paused and self.loop.resume(p)
                )  # type: ignore[misc]

    def _kill_pd(self, name: str) -> None:
        """A placement driver is gone in the middle of whatever it did, and starts anew."""

        def start() -> None:
            if not self.cluster.pds[name].alive:
                self.cluster.start_pd(name)

        if self.cluster.pds[name].alive:
            self.cluster.note("a leader died while it took over the audit log")
            self.loop.call_in(WORLD, 0.0, lambda: self.cluster.kill_pd(name))
            self.loop.call_in(WORLD, self.chance.uniform(0.3, 2.0), start)

    def _restart_all(self, recoverer: str) -> None:
        """A recoverer has its answers and stands still; all servers start anew; other writers hear from no placement driver."""
        process = self.clients.processes[recoverer]
        if not process.paused:
            self.cluster.note("client paused")
            self.loop.pause(process)
            self.loop.call_in(
                WORLD, self.chance.uniform(0.4, 1.5), lambda: process.paused and self.loop.resume(process)
            )
        others = [name for name in self.clients.processes if name != recoverer]
        pairs = [(name, pd) for name in others for pd in self.cluster.pds]
        self._faults.cut(pairs + [(pd, name) for name, pd in pairs], "partition")
        for server in self.cluster.servers.values():
            if server.up:
                self.cluster.note("crash")
                server.stop(power=False)
                self.loop.call_in(WORLD, self.chance.uniform(0, 0.1), lambda s=server: self._faults.start_again(s))  # type: ignore[misc]
