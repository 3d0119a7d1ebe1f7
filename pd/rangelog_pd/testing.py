"""A placement driver in memory for `rangelog.testing.FakeCluster`: the production state, handlers and reconcilers, one member.

What holds: a command is applied at once and nothing is kept; range servers are registered by name and count as alive for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from rangelog_core.errors import RangelogError
from rangelog_pd.consensus.local import LocalConsensus
from rangelog_pd.driver import Driver
from rangelog_pd.handlers.service import BrokersService, CursorsService, Service, TopicsService
from rangelog_pd.settings import MemberSettings, PdSettings
from rangelog_pd.state.machine import Machine
from rangelog_proto.v1 import pd_pb2

RECONCILE_S = 0.02
_FOR_EVER_MS = 1 << 50


class MemoryPlacementDriver:
    """See the module. For one event loop."""

    def __init__(self, servers: Sequence[str], accepts: Callable[[str], bool]) -> None:
        """`servers`: the names of range servers. `accepts`: whether a broker listens at an address."""
        settings = PdSettings(
            name="fake",
            data_dir=Path("/nowhere"),
            members={"fake": MemberSettings(raft_address="fake:2", api_address="fake:1")},
            server_suspect_ms=_FOR_EVER_MS,
            server_dead_ms=2 * _FOR_EVER_MS,
        )
        machine = Machine()
        self._driver = Driver(settings, LocalConsensus(machine, name="fake"), machine)
        self._servers = servers

        async def answers(address: str) -> bool:
            return accepts(address)

        self._driver.broker_probes.accepts = answers  # type: ignore[method-assign]
        kinds = (Service, TopicsService, BrokersService, CursorsService)
        services = [kind(self._driver) for kind in kinds]
        self._handlers: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
            name: call for each in services for name, call in vars(each).items()
        }

    async def start(self) -> None:
        """Register the range servers; enable every feature."""
        for name in self._servers:
            request = pd_pb2.RegisterServerRequest(
                request_id=f"register-{name}",
                server=name,
                incarnation=1,
                boot=1,
                data_address=f"{name}:1",
                zone=name,
            )
            await self.call("RegisterServer", request)
            await self.call("Heartbeat", pd_pb2.HeartbeatRequest(server=name, incarnation=1, complete=True, sequence=1))
        await self._driver.reconcile()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            try:
                await self._driver.reconcile()
            except RangelogError:
                pass  # the next round
            await asyncio.sleep(RECONCILE_S)

    async def call(self, name: str, request: Any) -> Any:
        """Carry out an RPC. The answer shares no message with the state. Raises what its handler raises."""
        response = await self._handlers[name](type(request).FromString(request.SerializeToString()), None)
        return type(response).FromString(response.SerializeToString())
