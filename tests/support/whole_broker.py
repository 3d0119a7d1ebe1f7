"""A whole broker in this process, with its sockets, on a cluster in memory, and a client of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from rangelog import Client
from rangelog_broker import runtime as runtimes
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from tests.support.openings import WITHIN_S, all_answer
from tests.support.owner_cluster import OwnerCluster, owner_cluster
from tests.support.waiting import until

ANY_PORT = "127.0.0.1:0"


class WholeBroker:
    """The only broker of a cluster: it owns everything. `start` it."""

    def __init__(self, cluster: OwnerCluster) -> None:
        self.cluster = cluster
        self.client = cluster.client()
        self._listen, self._control_listen = ANY_PORT, ANY_PORT

    async def start(self) -> None:
        """Register, and serve: at the former addresses, if there were any."""
        self._own_client = self.cluster.client()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtimes, "Client", lambda *_, **__: self._own_client)
            settings = BrokerSettings(
                name="a", pd=["fake:1"], listen=self._listen, control_listen=self._control_listen, rest_listen=""
            )
            self.runtime = Runtime(settings)
            registered = self.cluster.calls["RegisterBroker"]
            self._running = asyncio.create_task(self.runtime.run())
            await until(lambda: self.cluster.calls["RegisterBroker"] > registered)
        self._listen, self._control_listen = self.runtime._row.address, self.runtime._row.control_address

    async def stop(self) -> None:
        """As SIGTERM does."""
        self.runtime.stop()
        await self._running

    async def everything_opens(self, within_s: float = WITHIN_S) -> int:
        """Kill it: from now on it calls nobody. Start it, and return how many journals and shards it then opens."""
        await self._own_client.metadata.pd.close()
        await self._own_client.connections.close()
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        await self.start()
        return await all_answer(self.client, within_s)


@asynccontextmanager
async def whole_broker() -> AsyncIterator[WholeBroker]:
    """A cluster with one broker, which runs."""
    async with owner_cluster() as cluster:
        broker = WholeBroker(cluster)
        await broker.start()
        yield broker
        await broker.stop()


@asynccontextmanager
async def client_of_whole_broker() -> AsyncIterator[Client]:
    """A client of a cluster with one broker, which owns everything."""
    async with whole_broker() as broker:
        yield broker.client
