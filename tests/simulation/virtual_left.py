"""A stream whose writers leave their ranges open: they are killed, they end, or they stay and write nothing more.

What they leave reaches its age within a second or two, and is sealed without anybody opening the stream again: at the end of
the run no range with records may be open that is older. A writer that stays and is idle leaves an old range by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.virtual_streams import create
from tests.simulation.virtual_writing import write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

AGE_S = 1.5
ROUNDS = 5
EVERY = 4
"""In so many seeds there is such a stream. Not drawn: that would change all other seeds."""


def start(clients: Clients) -> None:
    """Start the role."""
    clients.start("leaver", _leave(clients))


async def _leave(clients: Clients) -> None:
    chance = clients.chance
    life = await create(clients, "left", range_age_s=AGE_S)
    for number in range(ROUNDS):
        if clients.stopping:
            return
        name = f"v-{life.label}-{number}"
        way = chance.choice(("killed", "ends", "stays"))
        clients.start(name, write(clients, life, name, chance.randrange(1, 20), 0.05, stays=way == "stays"))
        await asyncio.sleep(chance.uniform(0.2, 1.0))
        if way == "killed" and clients.lives_on(name):
            clients.kill(name)
        await asyncio.sleep(chance.choice([0.5, 3.0, 6.0]))
