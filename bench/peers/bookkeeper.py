"""Apache BookKeeper: three bookies and ZooKeeper, one ledger on all three; acked by two that have flushed their journal.

BookKeeper has no client for Python: the loops of the workload run in its Java client (java/bookkeeper). A journal collects
appends for up to 2 ms before it flushes; with `flush when idle` it flushes at once when no more are there, as rangelog does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from java_system import JavaSystem
from jvm import require
from measure import main
from servers import HOST, free_ports, listening

from rangelog_bench.anchors import BOOKKEEPER, BOOKKEEPER_FLUSH_WHEN_IDLE

BOOKIES, BOOKIES_FOR_FAILOVER = 3, 4
"""One more than a ledger needs, as for rangelog: with none to spare a ledger is closed at the first loss."""
_START_S_MAX = 60.0
_OPENS = [
    f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.io", "java.nio", "java.util.zip", "sun.nio.ch")
]
_SERVER = ["-Xms512m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10", *_OPENS]
_SMALL = ["-Xmx128m", "-XX:+UseSerialGC", *_OPENS]


class BookKeeper(JavaSystem):
    """See the module."""

    name = BOOKKEEPER.system
    peer = "bookkeeper"
    in_flight_bytes, in_flight_max = 16 << 20, 10_000

    def __init__(self, setting: str) -> None:
        super().__init__(setting)
        self._zookeeper_port, *self._ports = free_ports(1 + BOOKIES_FOR_FAILOVER)

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
        self._servers.spawn("zookeeper", self.java(_SMALL, main_class, str(config)))
        await listening(self._zookeeper_port, _START_S_MAX)
        self._servers.spawn("init", self.java(_SMALL, "BookKeeperLog", "init", self._metadata))
        await asyncio.to_thread(self._servers.finish, "init", _START_S_MAX)
        for number in range(BOOKIES):
            self._spawn(number)
        await self._wait_for(range(BOOKIES))
        await self.start_driver(_OPENS, "BookKeeperLog", "serve", self._metadata)

    @property
    def _metadata(self) -> str:
        return f"zk+null://{HOST}:{self._zookeeper_port}/ledgers"

    def _spawn(self, number: int) -> None:
        config = self._configure(number)
        command = self.java(_SERVER, "org.apache.bookkeeper.server.Main", "--conf", str(config))
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
            await listening(self._ports[number], _START_S_MAX)

    async def prepare_failover(self) -> None:
        """See System: one more bookie."""
        self._spawn(BOOKIES)
        await self._wait_for(range(BOOKIES, BOOKIES_FOR_FAILOVER))

    async def in_charge(self) -> str:
        """See System: nobody is in charge; a bookie of the ledger is killed."""
        address = (await self.servers_in_charge())[0]
        return f"bookie{self._ports.index(int(address.rpartition(':')[2]))}"

    async def restore(self, name: str) -> None:
        """See System."""
        number = int(name.removeprefix("bookie"))
        self._spawn(number)
        await self._wait_for(range(number, number + 1))


if __name__ == "__main__":
    main(BookKeeper, [BOOKKEEPER.setting, BOOKKEEPER_FLUSH_WHEN_IDLE.setting])
