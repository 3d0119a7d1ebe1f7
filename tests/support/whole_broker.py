"""A whole broker in this process, with its sockets, on a cluster in memory, and a client of both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rangelog import Client
from rangelog_broker import runtime as runtimes
from rangelog_broker.runtime import Runtime
from rangelog_broker.settings import BrokerSettings
from tests.support.owner_cluster import owner_cluster
from tests.support.waiting import until


@asynccontextmanager
async def client_of_whole_broker() -> AsyncIterator[Client]:
    """A client of a cluster with one broker, which owns everything."""
    async with owner_cluster() as cluster:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtimes, "Client", lambda *_, **__: cluster.client())
            settings = BrokerSettings(
                name="a", pd=["fake:1"], listen="127.0.0.1:0", control_listen="127.0.0.1:0", rest_listen=""
            )
            runtime = Runtime(settings)
            running = asyncio.create_task(runtime.run())
            await until(lambda: cluster.calls["RegisterBroker"] > 0)
        yield cluster.client()
        runtime.stop()
        await running
