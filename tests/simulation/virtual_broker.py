"""A simulated broker: the production runtime in one process after another. It keeps nothing between them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import rangelog_broker.runtime
from rangelog_broker.groups import consumed_reports
from rangelog_broker.journal.journal import Journal
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from rangelog_core.errors import RangelogError
from rangelog_server_common.metrics.call_tally import CallTally
from tests.simulation.virtual_hosts import SharedHosts
from tests.simulation.virtual_network import Network, Service
from tests.simulation.virtual_time import Process, VirtualLoop, here

PORT = 7190
CONTROL_PORT = 7191


class VirtualBroker:
    """See the module. `life` is the process that runs now."""

    def __init__(self, loop: VirtualLoop, network: Network, name: str, pds: list[str], hosts: SharedHosts) -> None:
        self.loop, self.network, self.name = loop, network, name
        self.life = Process(name)
        self.life.alive = False
        self.is_earlier = False
        """Whether it is started with the earlier program."""
        self.is_spared = False
        """Whether it is neither killed nor stopped: while an earlier one lives, the broker version does not rise."""
        self.notes: Callable[[str], None] = lambda what: None
        self.started: Callable[[Process], None] = lambda process: None
        self.runtime: Runtime | None = None
        self._settings = BrokerSettings(
            name=name,
            pd=pds,
            advertise_host=name,
            host=hosts.of_broker(name),
            rest_listen="",
            doors={"fetching": {"listen": "127.0.0.1:7193"}},
            watermark_interval_s=0.4,
            fetch_bytes_max=16 << 20,
        )

    @property
    def up(self) -> bool:
        """Whether it runs, paused or not."""
        return self.life.alive

    def start(self) -> None:
        """Start the process."""
        self.life = Process(self.name)
        self.life.is_earlier = self.is_earlier
        self.started(self.life)
        self.loop.spawn(self.life, self._main(self.life))

    def kill(self, *, silently: bool) -> None:
        """kill -9, or the machine goes."""
        if self.up:
            self.life.alive = False
            self.network.died(self.life, silently=silently)

    def stop(self) -> None:
        """SIGTERM: it hands over and ends."""
        if self.up and self.runtime is not None:
            self.runtime.stop()

    async def _main(self, life: Process) -> None:
        try:
            self.runtime = Runtime(self._settings)
            await self.runtime.run()
            self.notes("a broker handed over")
        except RangelogError as error:
            self.notes(f"a broker ended: {type(error).__name__}")
        if life.alive:
            life.alive = False
            self.network.died(life, silently=False)


class _Socket:
    def __init__(self, name: str) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name, PORT

    def __enter__(self) -> _Socket:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Services:
    """In place of the gRPC server, which listens on a real port."""

    network: Network

    def __init__(self, **_secured: object) -> None:
        process = here()
        self.calls = CallTally()
        self.server = Service(self.network, process, f"{process.name}:{CONTROL_PORT}")

    def limit_by(self, check: object) -> None:
        """Nobody has a certificate here, so nobody's rights are looked at."""

    def hold_by(self, hold: object) -> None:
        """Calls of the simulation's clients are not held: they are no load."""

    async def start(self, listen: str, service_names: tuple[str, ...]) -> int:
        return CONTROL_PORT

    async def set_serving(self, serving: bool) -> None:
        pass

    async def stop(self) -> None:
        pass


@contextlib.contextmanager
def virtual_brokers(network: Network) -> Iterator[None]:
    """Production code gets its sockets from here."""
    runtime: Any = rangelog_broker.runtime
    services = type("_Services", (_Services,), {"network": network})

    def note_failed(journal: Journal[Any], offset: int, error: Exception) -> None:
        network.loop.problems.append(f"the machine of {journal.stream} failed at entry {offset}: {error!r}")

    with (
        mock.patch.object(runtime, "bind", lambda listen: _Socket(here().name)),
        mock.patch.object(runtime, "GrpcServer", services),
        mock.patch.object(consumed_reports, "INTERVAL_S", 0.3),
        mock.patch.object(Journal, "note_failed", note_failed),
    ):
        yield
