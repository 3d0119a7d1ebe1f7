"""The role of an operator: range servers are drained under load, one at a time, and put back into service; the main stream gets
a further replica, and loses it again.

Nothing is judged here: what an operator does must not lose, move or repeat a record, which everybody else judges. An operator
at times leaves a server draining, for ever: the cluster heals on the others, and nothing may stay on that one.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

from rangelog import StreamConfigChange
from rangelog_core.errors import RangelogError
from rangelog_core.net.pd_client import PdClient
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from rangelog_proto.v1 import common_pb2, operations_pb2

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

EVERY = 4
"""In so many seeds there is an operator. Not drawn: that would change all other seeds."""
CALL_S = 4.0
STREAM = "s"
REPLICAS = 3
"""Of the main stream."""


def start(clients: Clients) -> None:
    """Start the role."""
    clients.start("operator", _operate(clients))
    clients.start("operator of replicas", _change_replicas(clients))


async def _change_replicas(clients: Clients) -> None:
    """Raise the replicas of the main stream, so that its open range lacks one, and lower them; they may stay raised."""
    chance = Random(f"operator of replicas of seed {clients.cluster.seed}")
    client = await clients.client()
    while not clients.stopping:
        for replicas in (REPLICAS + 1, REPLICAS):
            await asyncio.sleep(chance.uniform(0.5, 6.0))
            if clients.stopping:
                return
            with contextlib.suppress(RangelogError):
                await client.update_stream(STREAM, StreamConfigChange(replicas=replicas), timeout_s=CALL_S)


async def _operate(clients: Clients) -> None:
    chance = Random(f"operator of seed {clients.cluster.seed}")  # its own: seeds stay what they were
    pd = PdClient(clients.cluster.pd_addresses)
    calls = pd
    try:
        while clients.cluster.state.cluster_version < LEVEL_OPERATIONS:
            if clients.stopping:
                return
            await asyncio.sleep(0.3)
        while not clients.stopping:
            await asyncio.sleep(chance.uniform(0.2, 1.5))
            name = chance.choice(sorted(clients.cluster.servers))
            if await _set(clients, calls, name, common_pb2.SERVER_MODE_DRAINING, chance):
                await asyncio.sleep(chance.uniform(0.5, 5.0))
                if clients.stopping and chance.random() < 0.5:
                    clients.cluster.note("a server was draining to the end")
                    return
            while not await _set(clients, calls, name, common_pb2.SERVER_MODE_ACTIVE, chance):
                await asyncio.sleep(0.3)
    finally:
        await pd.close()


async def _set(clients: Clients, calls: PdClient, name: str, mode: common_pb2.ServerMode, chance: Random) -> bool:
    """Set a server's mode; return whether that is certain."""
    request = operations_pb2.SetServerModeRequest(request_id=f"{chance.random()}", server=name, mode=mode)
    with contextlib.suppress(RangelogError):
        await calls.call(request, operations_pb2.SetServerModeResponse, timeout_s=CALL_S)
        if mode == common_pb2.SERVER_MODE_DRAINING:
            clients.cluster.note("a server was drained")
        return True
    return False
