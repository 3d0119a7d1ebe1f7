"""One running placement driver: consensus, the API, the reconcile loop; it ends by `stop`, or when consensus has failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import structlog

from rangelog_core.errors import RangelogError
from rangelog_core.net.addresses import split_address
from rangelog_core.net.principals import Role
from rangelog_core.net.tls import TlsConfig
from rangelog_pd import metrics
from rangelog_pd.audit_writer import AuditWriter
from rangelog_pd.consensus.pysyncobj_consensus import PySyncObjConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.service import RULES, add_services
from rangelog_pd.joining import group_to_join, note_group
from rangelog_pd.restoring import restore
from rangelog_pd.settings import PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_pd.tier_snapshots import TierSnapshots
from rangelog_server_common.garbage import spare_long_lived
from rangelog_server_common.grpc_server import GrpcServer
from rangelog_server_common.metrics.listening import serve_metrics
from rangelog_server_common.process import remove_endpoint, write_endpoint
from rangelog_server_common.tls_settings import open_tls
from rangelog_server_common.tokens.settings import open_verifier
from rangelog_server_common.tokens.verifier import TokenVerifier

RECONCILE_INTERVAL_S = 0.2

ServePage = Callable[[AsyncExitStack, PdSettings, TlsConfig | None, str, TokenVerifier | None], Awaitable[str]]
"""Serves the page for browsers until the stack ends, if the settings ask for it; returns its address. The last two
arguments are the address of this member's API, and the verifier of tokens, if they are accepted."""


_log = structlog.get_logger("pd")


class Runtime:
    """One running placement driver."""

    def __init__(self, settings: PdSettings, serve_page: ServePage | None = None) -> None:
        """`serve_page`: None: there is no page, whatever the settings say."""
        self._settings = settings
        self._serve_page = serve_page
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped. Raises the failure of consensus, or the error of listening."""
        settings = self._settings
        tls = open_tls(settings, Role.PD)
        if settings.restore_snapshot is not None:
            saved = restore(settings, settings.restore_snapshot)
            _log.info("restored", cluster=saved.cluster_id, streams=saved.stream_count, of_entry=saved.applied_index)
        machine = Machine(settings.feature_level_max)
        consensus = await self._consensus(machine, tls)
        driver = Driver(settings, consensus, machine)
        watched = AsyncExitStack()
        verifier = open_verifier(watched, settings, driver.token_trust)
        server = GrpcServer(token=settings.token, tls=tls, refused=driver.note_refusal, verifier=verifier, rules=RULES)
        service_names = add_services(driver, server.server)
        server.hold_by(driver.quotas.hold_call)
        snapshots = TierSnapshots(driver)
        audit = AuditWriter(driver, driver.api_addresses, settings.token, tls)
        tasks: list[asyncio.Task[Any]] = []
        try:
            listen = settings.listen or settings.api_address
            port = await server.start(listen, service_names)
            metrics_address = await serve_metrics(
                watched, settings.metrics_listen, "pd", settings.name, metrics.parts(driver, server),
                lambda: metrics.problems(consensus.status()), tls,
            )  # fmt: skip
            await consensus.start()
            note_group(settings.data_dir, consensus.initial)
            spare_long_lived()
            stopped, failed = asyncio.create_task(self._stop.wait()), asyncio.create_task(consensus.failed())
            works = (self._reconcile(driver, server), driver.tier_watch.run(), snapshots.run(), audit.run())
            tasks = [*map(asyncio.create_task, works), stopped, failed]
            api = f"{split_address(settings.api_address)[0]}:{port}"
            content = {
                "name": settings.name,
                "api_address": api,
                "metrics_address": metrics_address,
                "page_address": "",
            }
            if self._serve_page is not None:
                content["page_address"] = await self._serve_page(watched, settings, tls, api, verifier)
            write_endpoint(settings.data_dir, content)
            _log.info("serving", name=settings.name, api=listen, members=len(settings.members))
            await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
            if failed.done() and not self._stop.is_set():
                raise failed.result()
        finally:
            remove_endpoint(settings.data_dir)
            for task in tasks:
                task.cancel()
            snapshots.close()
            await audit.close()
            await watched.aclose()
            await server.stop()
            await consensus.close()
            _log.info("stopped", name=settings.name)

    async def _consensus(self, machine: Machine, tls: TlsConfig | None) -> PySyncObjConsensus:
        settings = self._settings
        raft = {name: member.raft_address for name, member in settings.members.items()}
        return PySyncObjConsensus(
            settings.name,
            raft,
            settings.data_dir,
            machine,
            secret=settings.raft_secret or "single",
            listen=settings.raft_listen or None,
            api_addresses={name: member.api_address for name, member in settings.members.items()},
            joined=await group_to_join(settings) if settings.join else None,
            timings=settings.timings,
            snapshot_entries=settings.snapshot_entries,
            feature_level=settings.feature_level_max,
            tls=tls,
        )

    async def _reconcile(self, driver: Driver, server: GrpcServer) -> None:
        serving: bool | None = None
        while True:
            known = driver.consensus.leader() is not None
            if known != serving:
                serving = known
                await server.set_serving(known)
            try:
                await driver.reconcile()
            except RangelogError as error:
                _log.warning("reconciling failed", problem=error.message)
            except Exception:
                _log.exception("reconciling failed")
            await asyncio.sleep(RECONCILE_INTERVAL_S)
