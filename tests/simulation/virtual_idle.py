"""Writers that have a stream open and append nothing for a while: then they do, or they are killed before it.

Servers are drained meanwhile. No server has anything of such a range, and it has to leave a drained one all the same: by its
writer, which goes on with its stream, or, if that is gone, without one. At the end of the run none may be left there.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.virtual_streams import create
from tests.simulation.virtual_writing import write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

ROUNDS = 4


def start(clients: Clients) -> None:
    """Start the role."""
    clients.start("idler", _idle(clients))


async def _idle(clients: Clients) -> None:
    chance = Random(f"idler of seed {clients.cluster.seed}")  # its own: seeds stay what they were
    life = await create(clients, "unwritten")
    for number in range(ROUNDS):
        if clients.stopping:
            return
        name = f"v-{life.label}-{number}"
        clients.start(name, write(clients, life, name, chance.randrange(1, 4), 0.05, waits_s=chance.uniform(0.5, 8.0)))
        await asyncio.sleep(chance.uniform(0.5, 8.0))
        if chance.random() < 0.4 and clients.lives_on(name):
            clients.kill(name)
