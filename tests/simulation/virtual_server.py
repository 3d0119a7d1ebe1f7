"""A simulated range server: the production runtime, store, log, data plane, agent and uploader in one process after another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest import mock

import rangelog._append.batch_builder
import rangelog._append.failover_seal
import rangelog._produce.producer
import rangelog.protocol.appender
import rangelog_server.agent.directives.copy
import rangelog_server.runtime
import rangelog_server.tier.manifests
import rangelog_server.tier.upload
from rangelog_core.errors import RangelogError
from rangelog_server.agent.registration import RolledBack
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.store import Store
from rangelog_server.runtime import Runtime
from rangelog_server.settings import RangeServerSettings
from rangelog_server.wal.log import LogFailed
from rangelog_server_common.metrics.call_tally import CallTally
from tests.simulation.hasty_compaction import HastyCompaction
from tests.simulation.virtual_disk import ServerDisk, VirtualWal
from tests.simulation.virtual_log_keys import VirtualLogKeys
from tests.simulation.virtual_network import Network
from tests.simulation.virtual_time import Process, VirtualLoop, here

DATA_PORT = 7000
FREE_BYTES = 1 << 40
"""Of every disk. That of the machine changes as others write to it: a seed must be the same again."""


class Ended(BaseException):
    """The process ends here."""


class VirtualServer:
    """See the module. `life` is the process that runs now."""

    def __init__(
        self, loop: VirtualLoop, network: Network, name: str, pds: list[str], temporary: Path, log_keys: VirtualLogKeys
    ) -> None:
        self.log_keys = log_keys
        self.loop, self.network, self.name = loop, network, name
        self.chance: Random = loop.chance
        self.disk = ServerDisk()
        self.old_disks: list[ServerDisk] = []
        self.boots = 0
        self.life = Process(name)
        self.life.alive = False
        self.store: Store | None = None
        self.flush_s = 0.0003
        self.wall_skew_s = 0.0
        self.host = ""
        self.incarnations = 0
        self._boots_again = self._put_back = False
        self._made_settings: RangeServerSettings | None = None
        self.notes: Callable[[str], None] = lambda what: None
        self.moments: Callable[[str, str], None] = lambda moment, host: None
        self._pds = pds
        self._temporary = temporary
        self._wal: VirtualWal | None = None

    @property
    def up(self) -> bool:
        """Whether it runs, paused or not."""
        return self.life.alive

    def start(self) -> None:
        """Start the process; recovery, registration and service follow."""
        self.life = Process(self.name, self.wall_skew_s)
        self.life.failed = self._failed
        self.loop.spawn(self.life, self._main())

    def stop(self, *, power: bool) -> None:
        """kill -9, or the power goes: then what was not flushed is gone as well."""
        if not self.up:
            return
        if self._wal is not None:
            self._wal.interrupt(self.chance)
        self.life.alive = False
        self.network.died(self.life, silently=power)
        self.store = self._wal = None
        if power:
            self.disk.io.power_loss(self.chance)
            self.disk.io.kill()
        else:
            self.disk.io.kill()

    def refuse_append(self) -> bool:
        """Have no segment ready for the next append, and one after it; return whether a process heard of it."""
        if self._wal is None or self.store is None:
            return False
        self._wal.refusing = True
        return True

    def lose_disk(self) -> None:
        """The machine gets an empty disk. It must be down."""
        self.disk.excuse()
        self.old_disks.append(self.disk)
        self.disk = ServerDisk()
        self._boots_again = self._put_back = False

    def roll_back(self, image: ServerDisk) -> None:
        """Somebody puts an older copy of the disk back. It must be down."""
        self.disk.excuse()
        self.old_disks.append(self.disk)
        now = self.disk.identity
        self._boots_again = now is not None and image.identity is not None and image.identity.boot + 1 == now.boot
        self.disk, self._put_back = image, True

    def disks_of(self, incarnation: int) -> list[ServerDisk]:
        """The disks of one incarnation, gone or not: more than one where an older image was put in place."""
        disks = [self.disk, *reversed(self.old_disks)]
        return [disk for disk in disks if disk.identity is not None and disk.identity.incarnation == incarnation]

    def disks_up_to(self, incarnation: int) -> list[ServerDisk]:
        """The disks of this incarnation and of all before it, gone or not."""
        disks = [self.disk, *reversed(self.old_disks)]
        return [disk for disk in disks if disk.identity is not None and disk.identity.incarnation <= incarnation]

    # ---- inside

    def _delay_s(self) -> float:
        return self.chance.expovariate(1 / self.flush_s)

    async def _main(self) -> None:
        try:
            while True:
                identity = self._boot()
                begun = lambda: self.moments("flush", self.name)  # noqa: E731
                keys = self.log_keys.of_a_start(identity.salt)
                self._wal = VirtualWal(self.loop, self.disk, self._delay_s, begun, keys)
                if self._wal.encrypts:
                    self.notes("a log is encrypted")
                store = Store(self._wal, cache_bytes=64 * 1024)
                for problem in store.open().problems:
                    self.notes(f"damage: {problem.split(' (')[0].rstrip('0123456789/ ')}")
                self.store = store
                manifests = self._temporary / f"manifests-{self.name}"
                manifests.mkdir(exist_ok=True)
                directory: Any = SimpleNamespace(
                    path=self._temporary, temporary_directory=self._temporary, manifest_directory=manifests
                )
                try:
                    await Runtime(self._settings(), directory, identity, store).run()
                except RolledBack:
                    if not self._put_back:
                        raise AssertionError(f"{self.name} is told that its directory is an older one") from None
                    self.notes("rolled back directory found out")
                    if self._boots_again:  # with the count of starts that the last run had
                        self.notes("a rolled-back directory of an earlier run found out")
                    self._wal = self.store = None
                    self.lose_disk()
        except (RangelogError, OSError, LogFailed) as error:
            self.notes(f"process ended: {type(error).__name__}")
            self._failed(str(error))
        except Ended:
            pass

    def _boot(self) -> DirectoryIdentity:
        known = self.disk.identity
        if known is None:
            self.incarnations += 1
            number = int(self.name.strip("s")) * 1000 + self.incarnations
            self.disk.identity = DirectoryIdentity(self.name, number, 1, number * 7919)
        else:
            self.disk.identity = DirectoryIdentity(self.name, known.incarnation, known.boot + 1, known.salt)
        return self.disk.identity

    def _settings(self) -> RangeServerSettings:
        if self._made_settings is None:  # to make them costs more than a start does
            self._made_settings = RangeServerSettings(
                name=self.name,
                data_dir=self._temporary,
                advertise_host=self.name,
                pd=self._pds,
                zone="z" if self.host else self.name,
                host=self.host,
            )
        return self._made_settings

    def _failed(self, message: str) -> None:
        """The process ends by its own will."""
        if self.life.alive:
            self.life.alive = False
            self.network.died(self.life, silently=False)
            self.store = self._wal = None
            self.disk.io.kill()
            self.notes("ended by itself")


class _Socket:
    def __init__(self, name: str) -> None:
        self._name = name

    def getsockname(self) -> tuple[str, int]:
        return self._name, DATA_PORT

    def __enter__(self) -> _Socket:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _ControlPlane:
    """The control plane listens on a real port; it has no part in what is simulated."""

    def __init__(self, *_: Any) -> None:
        self.agent: Any = None
        self.calls = CallTally()

    async def start(self) -> int:
        return 1

    async def stop(self) -> None:
        pass

    async def set_serving(self, serving: bool) -> None:
        pass


class _Worker:
    """In place of the uploader's thread."""

    def __init__(self, name: str) -> None:
        self._last: Any = None

    async def run(self, work: Callable[[], Any]) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        previous, self._last = self._last, loop.create_future()
        mine = self._last
        if previous is not None:
            await previous
        try:
            return await loop.run_in_executor(None, work)
        finally:
            if not mine.done():
                mine.set_result(None)

    def close(self) -> None:
        pass


def _fatal(message: str) -> NoReturn:
    here().failed(message)
    raise Ended(message)


@contextlib.contextmanager
def virtual_servers() -> Iterator[None]:
    """Production code gets its sockets, threads and the end of its process from here."""
    runtime: Any = rangelog_server.runtime
    patches = [
        mock.patch.object(runtime, "bind", lambda listen: _Socket(here().name)),
        mock.patch.object(runtime, "ControlPlane", _ControlPlane),
        mock.patch.object(runtime, "fatal", _fatal),
        mock.patch.object(runtime, "Compaction", HastyCompaction),
        mock.patch.object(runtime.Runtime, "_write_endpoint", lambda *_: None),
        mock.patch.object(runtime.Runtime, "_free_bytes", lambda *_: FREE_BYTES),
        mock.patch.object(rangelog_server.tier.upload, "SingleThread", _Worker),
        mock.patch.object(rangelog_server.tier.manifests, "SingleThread", _Worker),
        mock.patch.object(rangelog_server.agent.directives.copy, "FETCH_BYTES", 16 * 1024),  # segments are small here
        mock.patch.object(rangelog._append.failover_seal, "FETCH_BYTES_MAX", 32 * 1024),
        mock.patch.object(rangelog.protocol.appender, "FRAME_PAYLOAD_BYTES_MAX", 64 * 1024),
        mock.patch.object(rangelog._append.batch_builder, "BATCH_BYTES_MAX", 64 * 1024),
        mock.patch.object(rangelog._produce.producer, "BATCH_BYTES_MAX", 64 * 1024),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield
