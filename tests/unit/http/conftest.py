"""A broker's verbs over a cluster in memory, as the door has them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rangelog import Client
from rangelog.testing import FakeCluster
from rangelog_broker.door import DoorContext
from rangelog_broker.verbs.consume import Consumes
from rangelog_broker.verbs.read import Reads
from rangelog_broker.verbs.send import Sends
from rangelog_core.net.principals import Port
from rangelog_http.app import application
from rangelog_http.server import BoundedHead
from rangelog_http.settings import HttpSettings
from rangelog_server_common.http_server import HttpServer
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster with a topic "t"."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as made:
            await made.topics.create("t")
            yield made


@pytest.fixture
async def context(client: Client) -> AsyncIterator[DoorContext]:
    """The broker behind the door."""
    quotas = QuotaGuard()
    sends, consumes = Sends(client, quotas), Consumes(client, quotas, "b1")
    nothing = cast(Any, None)
    yield DoorContext(
        nothing, nothing, sends, Reads(client, quotas), client, RightsGuard(), quotas, None, None, None, consumes
    )
    await consumes.close()
    await sends.close()


@pytest.fixture
async def server_of_door(context: DoorContext) -> AsyncIterator[HttpServer]:
    """The door, at a port of its own."""
    made = HttpServer(
        application(context, HttpSettings(listen="127.0.0.1:0")),
        port=Port.BROKER_HTTP,
        protocol=BoundedHead,
        grace_s=0.1,
    )
    bound = socket.create_server(("127.0.0.1", 0))
    made.address = bound.getsockname()  # type: ignore[attr-defined]
    await made.start(bound)
    yield made
    await made.close()


@pytest.fixture
def server(server_of_door: HttpServer) -> HttpServer:
    """The same."""
    return server_of_door
