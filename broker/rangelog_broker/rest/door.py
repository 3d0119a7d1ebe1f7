"""The REST interface, as a door: administration over HTTP/1.1 and JSON."""

from __future__ import annotations

import socket

from rangelog_broker.door import Door, DoorContext, DoorSettings
from rangelog_broker.rest.server import RestServer


async def _open(context: DoorContext, settings: DoorSettings, bound: socket.socket) -> RestServer:
    rest = RestServer(
        context.client,
        token=context.token,
        tls=context.tls,
        rights=context.rights,
        verifier=context.verifier,
        quotas=context.quotas,
    )
    await rest.start(bound)
    return rest


REST = Door("rest", DoorSettings, _open)
