"""One running range server: the log's threads, the data plane, the control plane and the agent on one event loop.

Order: sockets are bound, the log is recovered, the placement driver accepts the registration (which detects a directory that
was rolled back), and only then the server serves. After that it serves with or without the placement driver.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import socket
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from typing import Any, NoReturn

import structlog

from rangelog_core.errors import Unavailable
from rangelog_core.net.principals import Role
from rangelog_core.net.tls_peers import server_arguments
from rangelog_server.agent.agent import Agent
from rangelog_server.agent.compacting import Compacting
from rangelog_server.agent.scrubbing import Scrubbing
from rangelog_server.control import ControlPlane
from rangelog_server.identity import DataDirectory, DirectoryIdentity
from rangelog_server.metrics import Watched
from rangelog_server.ranges.compaction import Compaction
from rangelog_server.ranges.scrub import Scrub
from rangelog_server.ranges.store import Store
from rangelog_server.serving.connection import DataPlane
from rangelog_server.serving.handlers import make_connection_factory
from rangelog_server.settings import RangeServerSettings
from rangelog_server_common.address_settings import split_listen
from rangelog_server_common.metrics.listening import serve_metrics
from rangelog_server_common.process import remove_endpoint, write_endpoint
from rangelog_server_common.tls_settings import open_tls
from rangelog_server_common.tokens.settings import open_verifier
from rangelog_server_common.tokens.trust_keeper import TrustKeeper

READ_THREADS = 2
SWEEP_INTERVAL_S = 1.0
KEY_INTERVAL_SWEEPS = 30
"""How often it is looked whether another encryption key is current."""

_log = structlog.get_logger("range_server")


def fatal(message: str) -> NoReturn:
    """End the process at once, since no further reply is allowed. For any thread."""
    os.write(2, f"range-server: {message}\n".encode())
    os._exit(1)


def bind(listen: str) -> socket.socket:
    """Bind a port without listening on it yet. Raises Unavailable."""
    host, port = split_listen(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        raise Unavailable(f"cannot listen on {listen}: {error.strerror or error}") from error
    return bound


class Runtime:
    """One running range server."""

    def __init__(
        self, settings: RangeServerSettings, directory: DataDirectory, identity: DirectoryIdentity, store: Store
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._identity = identity
        self._store = store
        self._stop = asyncio.Event()
        self._metrics_address = ""

    def stop(self) -> None:
        """Make `run` return soon."""
        self._stop.set()

    async def run(self) -> None:
        """Serve until stopped. Raises Unavailable (port in use), RolledBack, or the error of a refused registration."""
        loop = asyncio.get_running_loop()
        store, settings = self._store, self._settings
        async with AsyncExitStack() as stack:
            stack.callback(_log.info, "stopped")
            open_tls(settings, Role.RANGE_SERVER)
            self._start_log(loop, stack)
            data_socket = stack.enter_context(bind(settings.data_listen))
            data_address = self._advertised(data_socket.getsockname())
            readers = ThreadPoolExecutor(READ_THREADS, thread_name_prefix="reader")
            stack.callback(readers.shutdown, cancel_futures=True)
            plane = DataPlane(store, self._identity, settings.token, loop, readers)
            trust = TrustKeeper()
            plane.verifier = open_verifier(stack, settings, trust.now)
            store.wal.on_spare = plane.resume_readers
            control = ControlPlane(settings, self._identity, store, plane, data_address)
            stack.push_async_callback(control.stop)
            watched = Watched(store, plane, control.calls, settings.data_dir, settings.capacity_bytes)
            self._metrics_address = await serve_metrics(
                stack,
                settings.metrics_listen,
                "range-server",
                settings.name,
                watched.parts(),
                watched.problems,
                settings.tls,
            )
            control_port = await control.start()
            control_address = self._advertised((split_listen(settings.control_listen)[0], control_port))
            if settings.pd:
                addresses = (data_address, control_address)
                agent = Agent(settings, self._identity, store, self._directory, *addresses, self._free_bytes)
                stack.push_async_callback(agent.close)
                control.agent = watched.agent = agent
                plane.rights.pd, agent.heard_rights = agent.pd, plane.rights.heard
                stack.push_async_callback(plane.rights.close)
                plane.quotas.pd, agent.heard_quotas = agent.pd, plane.quotas.heard
                stack.push_async_callback(plane.quotas.close)
                if plane.verifier is not None:
                    trust.pd, agent.heard_tokens = agent.pd, trust.heard
                    stack.push_async_callback(trust.close)
                if not await self._unless_stopped(agent.register()):
                    return
                agent.start()
            else:
                store.unknown_ranges_settled()
            stack.callback(plane.close)
            factory, tls = make_connection_factory(plane), server_arguments(settings.tls, tokens=settings.tokens)
            server = await loop.create_server(factory, sock=data_socket, backlog=1024, **tls)
            stack.callback(server.close)
            await control.set_serving(True)
            watched.serving = True
            await self._serve(stack, plane, control.agent, data_address, control_address)

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._directory.path).free

    def _start_log(self, loop: asyncio.AbstractEventLoop, stack: AsyncExitStack) -> None:
        wal = self._store.wal
        wal.on_fatal = fatal
        wal.start(lambda call: loop.call_soon_threadsafe(call), lambda call: loop.call_soon(call))
        stack.callback(wal.close)

    async def _serve(
        self, stack: AsyncExitStack, plane: DataPlane, agent: Agent | None, data_address: str, control_address: str
    ) -> None:
        """Write the endpoint file, and wait until stopped, or until the placement driver refuses this server."""
        sweeper = asyncio.create_task(self._sweep(plane))
        stack.callback(sweeper.cancel)
        if self._settings.scrub_bytes_per_s:
            scrub = Scrub(self._settings.scrub_bytes_per_s, self._settings.scrub_interval_s)
            scrubber = asyncio.create_task(Scrubbing(self._store, scrub).run())
            stack.callback(scrubber.cancel)
        rate = self._settings.compaction_bytes_per_s
        compacting = Compacting(self._store, Compaction(self._store.space, rate) if rate else None)
        compactor = asyncio.create_task(compacting.run())
        stack.callback(compactor.cancel)
        self._write_endpoint(data_address, control_address)
        stack.callback(remove_endpoint, self._directory.path)
        _log.info("serving", data=data_address, control=control_address, boot=self._identity.boot)
        if agent is None:
            await self._stop.wait()
        else:
            await self._unless_stopped(agent.wait_refused())

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> bool:
        """Wait for `work`; return False when a stop came first."""
        task = asyncio.create_task(work)
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return False
        task.result()
        return True

    def _advertised(self, address: tuple[str, int] | tuple[str, int, int, int]) -> str:
        host = self._settings.advertise_host or address[0]
        return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"

    def _write_endpoint(self, data_address: str, control_address: str) -> None:
        content = {
            "server": self._identity.name,
            "incarnation": self._identity.incarnation,
            "data_address": data_address,
            "control_address": control_address,
            "metrics_address": self._metrics_address,
        }
        write_endpoint(self._directory.path, content)

    async def _sweep(self, plane: DataPlane) -> None:
        said = ""
        for number in itertools.count(1):
            await asyncio.sleep(SWEEP_INTERVAL_S)
            if number % KEY_INTERVAL_SWEEPS == 0:
                self._store.wal.ask_key()
            self._store.turn_to_key()
            plane.sweep()
            plane.resume_readers()
            wal = self._store.wal
            if wal.problem != said:
                said = wal.problem
                _log.warning("the log cannot grow", problem=said) if said else _log.info("the log can grow again")
            if wal.problem:
                wal.retry_spare()
