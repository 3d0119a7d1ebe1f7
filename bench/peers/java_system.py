"""A peer whose client is in Java: everything of a System but its servers, done by the driver (java/driver/Driver.java)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from jvm import JavaDriver, java
from servers import Servers

from rangelog_bench.system import Stop, System
from rangelog_bench.workload import SHARED

_READ_S_MAX = 300.0
_FRESH_S_MAX, _FRESH_AGAIN_S = 60.0, 0.5
_CLIENT = ["-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10"]


class JavaSystem(System):
    """Subclasses start the servers, and then the driver with `start_driver`."""

    peer: str
    """The folder of its jars."""
    abilities = SHARED
    compiles_while_running = True
    in_flight_bytes: int
    in_flight_max: int
    """How many records a flat-out append has in flight at most: so many bytes, and so many records."""

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self._servers = Servers(self.peer)
        self._driver: JavaDriver | None = None

    def java(self, options: Sequence[str], main_class: str, *arguments: str) -> list[str]:
        """The command line of a program of the peer."""
        return java(self.peer, self._servers.directory, options, main_class, *arguments)

    async def start_driver(self, options: Sequence[str], main_class: str, *arguments: str) -> None:
        """Start the client, once the servers are there."""
        command = self.java([*_CLIENT, *options], main_class, *arguments)
        self._driver = self.sampler = await JavaDriver.start(command, self._servers.directory / "client.out")

    async def stop(self) -> None:
        """See System."""
        try:
            if self._driver is not None:
                await self._driver.stop()
        finally:
            await asyncio.to_thread(self._servers.stop)

    def pids(self) -> Mapping[str, int]:
        """See System; the client in Java is a child of this process, and counts as client."""
        return self._servers.pids()

    @property
    def driver(self) -> JavaDriver:
        """The client in Java."""
        assert self._driver is not None
        return self._driver

    async def fresh_log(self) -> None:
        """See System. Servers that just started may not know each other yet: tried again for a minute."""
        end_s = asyncio.get_running_loop().time() + _FRESH_S_MAX
        while True:
            try:
                await self.driver.ask("fresh", limit_s=2 * _FRESH_S_MAX)
                return
            except RuntimeError:
                if self.driver.ended or asyncio.get_running_loop().time() > end_s:
                    raise
            await asyncio.sleep(_FRESH_AGAIN_S)

    async def pump(self, payload: bytes, seconds: float) -> int:
        """See System; the client makes records of the same size."""
        in_flight = min(self.in_flight_max, self.in_flight_bytes // len(payload))
        answer = await self.driver.ask("pump", len(payload), seconds, in_flight, limit_s=seconds + _READ_S_MAX)
        return int(answer["acked"])

    async def append(self, payload: bytes) -> None:
        """See System; the client makes a record of the same size."""
        await self.driver.one_in_flight(len(payload), 0)

    async def read_all(self, count: int) -> int:
        """See System."""
        return int((await self.driver.ask("read", count, limit_s=_READ_S_MAX))["came"])

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """See System; never called, since the client in Java follows the log itself."""
        raise RuntimeError("the client in Java follows the log itself")

    async def servers_in_charge(self) -> list[str]:
        """Addresses or ids of the servers at the end of the log, the one whose death hurts most first."""
        return [str(each) for each in (await self.driver.ask("in-charge"))["servers"]]

    def kill(self, name: str) -> None:
        """See System."""
        self._servers.kill(name)
