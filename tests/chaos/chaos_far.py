"""The placement drivers are far away, 50 ms each way, while a writer rolls all the time and is killed.

Between a writer's decision to leave a range and the placement driver's answer there is time then, in which readers start;
two of them are near the placement drivers, so that they start often.
"""

from __future__ import annotations

from tests.chaos.chaos_cluster import PDS, SIDE_HOSTS
from tests.chaos.chaos_faults import FLUSHES_WITHIN_S, OPENS_WITHIN_S, Fault
from tests.chaos.chaos_load import READER_HOST, Client
from tests.chaos.chaos_proxy import DelayProxy
from tests.support.waiting import eventually

DELAY_S = 0.05
STREAM = "far"
KILLS = 6
MORE_S = (0.0, 0.6)
"""How much longer a writer lives than its heir takes to start."""
NEAR = SIDE_HOSTS
READER_HOSTS = (READER_HOST, *NEAR)
PAUSE_S = 0.02


class FarPlacementDriver(Fault):
    """Clients are 50 ms away from the placement drivers, but for two readers; a writer of small ranges is killed often."""

    name = "far-placement-driver"
    needs = frozenset({"network"})
    side = "all"
    hold_s = (0.0, 0.1)
    _proxy: DelayProxy | None = None
    _readers: tuple[Client, ...] = ()

    def inject(self) -> str:
        """See Fault."""
        load = self.system.load
        self._move_away()
        self._acks(load.begin(STREAM))
        self._readers = tuple(
            load.side_reader(load.plan(STREAM), host, "starts", seed=self.dice.randrange(1 << 30), pause=PAUSE_S)
            for host in READER_HOSTS
        )
        for _ in range(KILLS):
            heir = load.standby(STREAM)
            self.interrupts.wait(self.dice.uniform(*MORE_S))
            load.current[STREAM].process.kill()
            load.retire(load.take_over(heir))
            self._acks(heir)
        return f"{STREAM}'s writer killed {KILLS} times"

    def _acks(self, writer: Client) -> None:
        eventually(lambda: writer.pulse.records > 0, f"{writer.name} gets no acks", OPENS_WITHIN_S)

    def heal(self) -> None:
        """The way is short again, the stream rests."""
        proxy, self._proxy = self._proxy, None
        readers, self._readers = self._readers, ()
        if proxy is None:
            return
        proxy.close()
        for host in self._far:
            for name in PDS:
                self.system.network.set_stand_in(host, name, on=False)
        load = self.system.load
        for reader in readers:
            reader.process.kill()
        if STREAM in load.current:
            load.end(STREAM, FLUSHES_WITHIN_S)

    def _move_away(self) -> None:
        """Each client's host takes the placement drivers' addresses, where a slow proxy listens."""
        self._proxy = DelayProxy(DELAY_S)
        addresses = {pd.name: (pd.host, pd.api_port) for pd in self.system.cluster.plan.pds}
        self._far = [host for host in self.system.client_hosts if host not in NEAR]
        for host in self._far:
            for name, target in addresses.items():
                self.system.network.set_stand_in(host, name, on=True)
                self._proxy.forward(self.system.network.listen(host, *target), target)
