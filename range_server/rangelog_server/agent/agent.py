"""The agent: registers, sends heartbeats, carries out directives. Without a placement driver the server continues to serve.

A heartbeat reports the replicas that changed since the last one with a reply, so a lost request loses no report; a leader
without a complete report requests one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import structlog

from rangelog_core.errors import PreconditionFailed, RangelogError
from rangelog_core.net.data_connection import DataConnections
from rangelog_core.net.pd_client import PdClient
from rangelog_core.versions import FEATURE_LEVEL
from rangelog_proto.v1 import pd_pb2 as pb
from rangelog_server.agent.directives.copy import Copier
from rangelog_server.agent.directives.drop import drop_replica
from rangelog_server.agent.directives.leave import Leaver
from rangelog_server.agent.directives.recover import Recoverer
from rangelog_server.agent.directives.repack import ObjectPacker
from rangelog_server.agent.directives.runner import DirectiveRunner, Executor
from rangelog_server.agent.directives.seal import seal_replica
from rangelog_server.agent.lost_range_recovery import host_doubtful_ranges
from rangelog_server.agent.registration import new_process_id, register, registration
from rangelog_server.agent.reporting import Reporting
from rangelog_server.identity import DataDirectory, DirectoryIdentity
from rangelog_server.ranges.store import Store
from rangelog_server.settings import RangeServerSettings
from rangelog_server.tier.upload import Uploader
from rangelog_tier.encryption_keys import key_provider

HEARTBEAT_INTERVAL_MS_DEFAULT = 500
HEARTBEAT_TIMEOUT_S = 2.0
REPORTS_PER_S = 20_000
"""The shortest time limit of a heartbeat; one with many reports has a longer limit."""
SEQUENCES_PER_BOOT = 1 << 32  # heartbeats of a later process have higher numbers: the driver detects late ones
LONG_INTERVAL_FACTOR = 0.2  # the delay of the next heartbeat after a change, in intervals

_log = structlog.get_logger("agent")


class Agent:
    """The agent of one range server: `register`, then `start`."""

    def __init__(
        self,
        settings: RangeServerSettings,
        identity: DirectoryIdentity,
        store: Store,
        directory: DataDirectory,
        data_address: str,
        control_address: str,
        free_bytes: Callable[[], int] | None = None,
    ) -> None:
        """`free_bytes`: returns what is free on the data directory's disk."""
        self._settings = settings
        self._free_bytes = free_bytes
        self._identity = identity
        self._store = store
        self._addresses = (data_address, control_address)
        self._process_id = new_process_id()
        self._pd = PdClient(settings.pd, token=settings.token, tls=settings.tls)
        name = f"range-server {identity.name}"
        self._connections = DataConnections(token=settings.token, tls=settings.tls, client_name=name)
        self._tier = Uploader(
            self._pd,
            identity,
            store,
            directory.temporary_directory,
            settings.tier_url,
            directory.manifest_directory,
            key_provider(settings.encryption_keys_dir, settings.encryption_kms_key_id),
        )
        copier = Copier(store, self._connections, identity, bytes_per_s=settings.repair_bytes_per_s)
        self._leaver = Leaver(store)
        self._recoverer = Recoverer(store, settings.pd, settings.token, settings.tls)
        executors: dict[str, Executor] = {
            "seal_replica": partial(seal_replica, store),
            "drop_replica": partial(drop_replica, store),
            "copy_replica": copier.copy_replica,
            "upload_range": self._tier.upload_range,
            "delete_objects": self._tier.delete_objects,
            "write_manifests": self._tier.write_manifests,
            "repack_objects": ObjectPacker(
                self._pd, identity, self._tier, directory.temporary_directory
            ).repack_objects,
            "recover_range": self._recoverer.recover_range,
            "leave_range": self._leaver.leave_range,
        }
        self._news = asyncio.Event()
        self._tasks = DirectiveRunner(executors, self._news.set, store.counts.directives)
        self._interval_s = HEARTBEAT_INTERVAL_MS_DEFAULT / 1000
        self._sequence = identity.boot * SEQUENCES_PER_BOOT
        self._reporting = Reporting(store)
        self._loop_task: asyncio.Task[None] | None = None
        self._doubt_task: asyncio.Task[None] | None = None
        self.heard_rights: Callable[[int], None] = lambda version: None
        """Told the version of the rights in force with each answer."""
        self.heard_tokens: Callable[[int], None] = lambda version: None
        """Told the version of what tokens are checked against with each answer."""
        self.heard_quotas: Callable[[int], None] = lambda version: None  # told that of quotas
        self.registered = False
        self.answered_s: float | None = None
        """When the placement driver answered a heartbeat last, on the loop's clock."""
        self._refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def register(self) -> None:
        """Register. Raises RolledBack, Unauthorized and other refusals: the server must not serve then."""
        end = self._store.wal.reported_end
        request = registration(self._identity, self._process_id, *self._addresses, end, self._settings)
        response = await register(self._pd, self._identity, request)
        if response.heartbeat_interval_ms:
            self._interval_s = response.heartbeat_interval_ms / 1000
        self._tier.learned_url(response.tier_url)
        self.heard_rights(response.rights_version)
        self.heard_tokens(response.tokens_version)
        self.heard_quotas(response.quotas_version)
        self._reporting.want_complete()
        self.registered = True
        _log.info("registered", cluster=response.cluster_id, incarnation=f"{self._identity.incarnation:016x}")

    @property
    def pd(self) -> PdClient:
        """The calls on the placement drivers."""
        return self._pd

    @property
    def tier_error(self) -> str:
        """The error of the last check of the tier; empty while it works."""
        return self._tier.watch.error

    def start(self) -> None:
        """Start heartbeats, directives and background work."""
        self._loop_task = asyncio.create_task(self._heartbeats())
        if self._store.server.doubt_unknown:
            self._doubt_task = asyncio.create_task(host_doubtful_ranges(self._pd, self._identity, self._store))

    async def wait_refused(self) -> None:
        """Wait without end; raises RolledBack or another refusal when the placement driver rejects a new registration."""
        await asyncio.shield(self._refused)

    async def close(self) -> None:
        """Stop all; idempotent."""
        for task in (self._loop_task, self._doubt_task):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._refused.cancel()
        await self._tasks.close()
        await self._tier.close()
        await self._recoverer.close()
        self._leaver.close()
        await self._connections.close()
        await self._pd.close()

    async def _heartbeats(self) -> None:
        loop = asyncio.get_running_loop()
        said = ""
        while True:
            began = loop.time()
            self._news.clear()
            self._store.counts.heartbeats += 1
            try:
                await self._heartbeat()
                self.answered_s = loop.time()
                if said:
                    _log.info("the placement driver answers again")
                said = ""
            except PreconditionFailed as error:
                self._store.counts.heartbeat_failures += 1
                _log.warning("the placement driver refused a heartbeat; registering again", problem=error.message)
                await self._register_again()
            except RangelogError as error:
                self._store.counts.heartbeat_failures += 1
                if error.message != said:
                    _log.warning("a heartbeat failed", problem=error.message)
                said = error.message
            except Exception:
                self._store.counts.heartbeat_failures += 1
                _log.exception("a heartbeat failed")
            await self._pause(began)

    async def _pause(self, began: float) -> None:
        """Wait until the next heartbeat is due; sooner after a directive is carried out."""
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(began + self._interval_s):
                await self._news.wait()
        await asyncio.sleep(max(0.0, began + self._interval_s * LONG_INTERVAL_FACTOR - loop.time()))

    async def _register_again(self) -> None:
        try:
            await self.register()
        except RangelogError as error:
            self._refused.set_exception(error)
            await asyncio.Event().wait()  # the runtime ends the process

    def _capacity_bytes(self) -> int:
        """Return the size at which the log is full: as configured, or as the disk has it; 0 where neither is known."""
        configured = self._settings.capacity_bytes
        if self._free_bytes is None:
            return configured
        try:
            disk = self._store.wal.used_bytes + self._free_bytes()
        except OSError:
            return configured
        return min(configured, disk) if configured else disk

    async def _heartbeat(self) -> None:
        store = self._store
        self._sequence += 1
        request = pb.HeartbeatRequest(
            server=self._identity.name,
            incarnation=self._identity.incarnation,
            sequence=self._sequence,
            tasks=self._tasks.reports(),
            used_bytes=store.wal.used_bytes,
            capacity_bytes=self._capacity_bytes(),
            log_end=store.wal.reported_end,
            wall_ms=time.time_ns() // 1_000_000,
            tier_error=self._tier.watch.error,
            log_error=store.wal.problem,
            feature_level=FEATURE_LEVEL,
            host=self._settings.host,
        )
        try:
            await self._reporting.fill(request)
            timeout_s = HEARTBEAT_TIMEOUT_S + len(request.replicas) / REPORTS_PER_S
            response = await self._pd.call(request, pb.HeartbeatResponse, timeout_s=timeout_s)
        except BaseException:
            self._reporting.failed()
            raise
        self._reporting.answered()
        if response.send_complete:
            self._reporting.want_complete()
            self._news.set()
        self.heard_rights(response.rights_version)
        self.heard_tokens(response.tokens_version)
        self.heard_quotas(response.quotas_version)
        if response.tier_url:
            self._tier.learned_url(response.tier_url)
        self._tasks.wanted(list(response.directives))
