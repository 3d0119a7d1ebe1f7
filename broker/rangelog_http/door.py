"""The door for plain HTTP, as brokers find it."""

from __future__ import annotations

import socket

from rangelog_broker.door import Door, DoorContext
from rangelog_core.net.principals import Port
from rangelog_http.app import application
from rangelog_http.server import BoundedHead
from rangelog_http.settings import HttpSettings
from rangelog_server_common.http_server import HttpServer

CONNECTIONS_MAX = 10_000
IDLE_TIMEOUT_S = 75
GRACE_S = 5.0
"""At a stop: the shards that are sent to have to find other owners."""


async def _open(context: DoorContext, settings: HttpSettings, bound: socket.socket) -> HttpServer:
    server = HttpServer(
        application(context, settings),
        port=Port.BROKER_HTTP,
        tls=context.tls,
        tokens=context.verifier is not None,
        idle_timeout_s=IDLE_TIMEOUT_S,
        grace_s=GRACE_S,
        connections_max=CONNECTIONS_MAX,
        protocol=BoundedHead,
    )
    await server.start(bound)
    return server


HTTP = Door("http", HttpSettings, _open)
