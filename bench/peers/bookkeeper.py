"""Apache BookKeeper: three bookies and ZooKeeper, one ledger on all three; acked by two that have flushed their journal.

BookKeeper has no client for Python: the loops of the workload run in its Java client (java/bookkeeper). A journal collects
appends for up to 2 ms before it flushes; with `flush when idle` it flushes at once when no more are there, as rangelog does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from jvm import JavaDriver, java, require
from measure import main
from servers import HOST, Servers, free_ports, wait_port

from rangelog_cli.bench.anchors import BOOKKEEPER, BOOKKEEPER_FLUSH_WHEN_IDLE
from rangelog_cli.bench.system import Stop, System
from rangelog_cli.bench.workload import SHARED

BOOKIES, BOOKIES_FOR_FAILOVER = 3, 4
"""One more than a ledger needs, as for rangelog: with none to spare a ledger is closed at the first loss."""
_IN_FLIGHT_BYTES, _IN_FLIGHT_MAX = 16 << 20, 10_000
_READ_S_MAX = 300.0
_START_S_MAX = 60.0
_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.io", "java.nio", "java.util.zip", "sun.nio.ch")
]
_SERVER = ["-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10", *_OPENS]
_CLIENT = ["-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10", *_OPENS]
_SMALL = ["-Xmx128m", "-XX:+UseSerialGC", *_OPENS]


class BookKeeper(System):
    """See the module."""

    name = BOOKKEEPER.system
    abilities = SHARED
    compiles_while_running = True

    def __init__(self, setting: str) -> None:
        self.setting = setting
        self._servers = Servers("bookkeeper")
        self._zookeeper_port, *self._ports = free_ports(1 + BOOKIES_FOR_FAILOVER)
        self._driver: JavaDriver | None = None

    # ---- servers

    async def start(self) -> None:
        """See System."""
        require("bookkeeper")
        at = self._servers.directory
        config = at / "zookeeper.properties"
        config.write_text(
            f"dataDir={at}/zookeeper\nclientPort={self._zookeeper_port}\nclientPortAddress={HOST}\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )
        main_class = "org.apache.zookeeper.server.ZooKeeperServerMain"
        self._servers.spawn("zookeeper", self._java(_SMALL, main_class, str(config)))
        await asyncio.to_thread(wait_port, self._zookeeper_port)
        self._servers.spawn("init", self._java(_SMALL, "BookKeeperLog", "init", self._metadata))
        await asyncio.to_thread(self._servers.finish, "init", _START_S_MAX)
        for number in range(BOOKIES):
            self._spawn(number)
        await self._wait_for(range(BOOKIES))
        driver = self._java(_CLIENT, "BookKeeperLog", "serve", self._metadata)
        self._driver = self.sampler = await JavaDriver.start(driver, at / "client.out")

    @property
    def _metadata(self) -> str:
        return f"zk+null://{HOST}:{self._zookeeper_port}/ledgers"

    def _java(self, options: list[str], main_class: str, *arguments: str) -> list[str]:
        return java("bookkeeper", self._servers.directory, options, main_class, *arguments)

    def _spawn(self, number: int) -> None:
        config = self._configure(number)
        command = self._java(_SERVER, "org.apache.bookkeeper.server.Main", "--conf", str(config))
        self._servers.spawn(f"bookie{number}", command)

    def _configure(self, number: int) -> Path:
        at = self._servers.directory
        settings = {
            "bookiePort": self._ports[number],
            "advertisedAddress": HOST,
            "listeningInterface": "lo",
            "allowLoopback": "true",
            "metadataServiceUri": self._metadata,
            "journalDirectories": f"{at}/bookie{number}/journal",
            "ledgerDirectories": f"{at}/bookie{number}/ledgers",
            "journalSyncData": "true",
            "journalFlushWhenQueueEmpty": str(self.setting == BOOKKEEPER_FLUSH_WHEN_IDLE.setting).lower(),
            "journalMaxSizeMB": 512,
            "journalMaxBackups": 0,
            # Nothing holds the writer back for the slowest of three, and a bookie refuses more than 10,000 by default.
            "maxPendingAddRequestsPerThread": 200_000,
            "httpServerEnabled": "false",
            "minUsableSizeForIndexFileCreation": 1 << 20,
            "minUsableSizeForEntryLogCreation": 1 << 20,
        }
        config = at / f"bookie{number}.conf"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return config

    async def _wait_for(self, numbers: range) -> None:
        for number in numbers:
            await asyncio.to_thread(wait_port, self._ports[number], _START_S_MAX)

    async def stop(self) -> None:
        """See System."""
        if self._driver is not None:
            await self._driver.stop()
        await asyncio.to_thread(self._servers.stop)

    def pids(self) -> Mapping[str, int]:
        """See System; the client in Java is a child of this process, and counts as client."""
        return self._servers.pids()

    @property
    def driver(self) -> JavaDriver:
        """The client in Java."""
        assert self._driver is not None
        return self._driver

    # ---- workload

    async def fresh_log(self) -> None:
        """See System. Bookies that just started are not known to the client at once."""
        for attempts_left in reversed(range(60)):
            try:
                await self.driver.ask("fresh")
                return
            except RuntimeError:
                if not attempts_left:
                    raise
                await asyncio.sleep(0.5)

    async def pump(self, payload: bytes, seconds: float) -> int:
        """See System."""
        in_flight = min(_IN_FLIGHT_MAX, _IN_FLIGHT_BYTES // len(payload))
        answer = await self.driver.ask("pump", len(payload), seconds, in_flight, limit_s=seconds + _READ_S_MAX)
        return int(answer["acked"])

    async def append(self, payload: bytes) -> None:
        """See System; the client makes a record of the same size."""
        await self.driver.one_in_flight(len(payload), 0)

    async def read_all(self, count: int) -> int:
        """See System: eight requests under way, each for as many entries as make a MiB."""
        return int((await self.driver.ask("read", count, limit_s=_READ_S_MAX))["came"])

    async def tail(self, on_record: Callable[[bytes], None]) -> Stop:
        """See System; never called, since the client in Java follows the log itself."""
        raise RuntimeError("the client in Java follows the log itself")

    # ---- failover

    async def prepare_failover(self) -> None:
        """See System: one more bookie."""
        self._spawn(BOOKIES)
        await self._wait_for(range(BOOKIES, BOOKIES_FOR_FAILOVER))

    async def in_charge(self) -> str:
        """See System: nobody is in charge; a bookie of the ledger is killed."""
        address = str((await self.driver.ask("in-charge"))["servers"][0])
        return f"bookie{self._ports.index(int(address.rpartition(':')[2]))}"

    def kill(self, name: str) -> None:
        """See System."""
        self._servers.kill(name)

    async def restore(self, name: str) -> None:
        """See System."""
        number = int(name.removeprefix("bookie"))
        self._spawn(number)
        await self._wait_for(range(number, number + 1))


if __name__ == "__main__":
    main(BookKeeper, [BOOKKEEPER.setting, BOOKKEEPER_FLUSH_WHEN_IDLE.setting])
