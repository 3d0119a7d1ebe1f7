"""The roles around whole streams: who makes them, deletes them under their clients and makes them anew, who trims, crowds.

A command that the SDK says was refused for certain must not have been carried out.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from rangelog_core.errors import RangelogError, StreamExists, StreamNotFound
from rangelog_core.stream_config import StreamConfig
from tests.simulation import virtual_reading
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_time import WORLD, here
from tests.simulation.virtual_writing import write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

CERTAIN_S = 4.0
"""A deletion that took longer may have given up waiting for a server that did not answer."""
CROWD = 300
OPENED_AGAIN = 9
MANY_STREAMS = 10


async def create(
    clients: Clients,
    name: str,
    *,
    range_age_s: float | None = None,
    always_tiered: bool = False,
    keeps_hot: bool = False,
) -> Life:
    """Make a stream, as long as it takes. `keeps_hot`: it never drops the replicas of what is tiered."""
    client, chance = await clients.client(), clients.chance
    hot_s = float("inf") if keeps_hot else chance.choice([None, 0.0, 5.0, float("inf")])
    tiered = chance.random() < 0.5 or always_tiered
    doubtful = False
    while True:
        try:
            info = await client.create_stream(
                name,
                StreamConfig(
                    range_size_bytes_max=64 * 1024,
                    range_age_seconds=range_age_s,
                    hot_retention_seconds=hot_s if tiered else float("inf"),
                    tiered=tiered,
                ),
            )
            break
        except StreamExists:
            if not doubtful:
                clients.cluster.fail(f"stream {name} exists, though to create it was refused")
            with contextlib.suppress(RangelogError):
                info = await client.describe_stream(name)
                break
        except RangelogError as error:
            clients.cluster.note(f"create_stream: {type(error).__name__}")
            doubtful |= error.outcome_unknown
        await asyncio.sleep(chance.uniform(0.1, 0.5))
    return clients.cluster.life_of(name, info.stream_id)


async def delete(clients: Clients, life: Life) -> None:
    """Delete it, as long as it takes."""
    client, cluster = await clients.client(), clients.cluster
    life.deleting = True
    certain, doubtful = cluster.is_well(), False
    began_s = clients.loop.now
    while True:
        try:
            await client.delete_stream(life.name)
            break
        except StreamNotFound:
            if not doubtful:
                cluster.fail(f"{life.label} is gone, though to delete it was refused")
            certain = False
            break
        except RangelogError as error:
            cluster.note(f"delete_stream: {type(error).__name__}")
            doubtful |= error.outcome_unknown
        await asyncio.sleep(clients.chance.uniform(0.1, 0.5))
    took_s = clients.loop.now - began_s
    life.gone(clients.loop.now, certain=certain and cluster.is_well() and took_s < CERTAIN_S)


async def keep(clients: Clients, name: str, lives: int) -> None:
    """Make a stream with a writer and readers, delete it under them, and make another one of that name."""
    chance = clients.chance
    for number in range(1, lives + 1):
        life = await create(clients, name)
        if number > 1:
            clients.cluster.note("a namesake created")
        writer, reader, other = f"v-{life.label}", f"f-{life.label}", f"b-{life.label}"
        on = here().name if chance.random() < 0.5 else ""
        clients.start(writer, write(clients, life, writer, chance.randrange(20, 200), chance.choice([0.02, 0.1])), on)
        clients.start(reader, virtual_reading.follow(clients, life, reader), on if chance.random() < 0.5 else writer)
        clients.start(other, virtual_reading.read_to_the_end(clients, life, other, 3, 0.3), on)
        await asyncio.sleep(chance.uniform(0.5, 4.0))
        if clients.stopping:
            return
        reading = reader in clients.followers
        await delete(clients, life)
        if reading and clients.lives_on(reader):
            clients.cluster.note("a stream deleted under its readers")
        await asyncio.sleep(chance.choice([0.0, 0.1, 1.0]))


async def trim(clients: Clients, life: Life) -> None:
    """Trim now and then, to somewhere that was acked."""
    client, chance = await clients.client(), clients.chance
    while True:
        await asyncio.sleep(chance.uniform(1.0, 6.0))
        acked = max(life.acked, default=0)
        target = chance.randrange(0, acked + 1)
        if target > life.trimmed and chance.random() < 0.5:
            life.trims.append((target, clients.loop.now))
            with contextlib.suppress(RangelogError):  # it may be trimmed, or not
                await client.trim_stream(life.name, target)
                clients.cluster.note("stream trimmed")


async def open_again(clients: Clients, name: str) -> None:
    """A stream that is nearly idle, with a follower: its writer appends now and then, and others open it for nothing."""
    chance = clients.chance
    life = await create(clients, name)
    follower = f"f-{life.label}"
    clients.start(follower, virtual_reading.follow(clients, life, follower))
    client = await clients.client()
    for number in range(OPENED_AGAIN):
        if number % 3 == 0:
            writer = f"v-{life.label}-{number}"
            clients.start(writer, write(clients, life, writer, chance.randrange(1, 4), 0.05))
        await asyncio.sleep(chance.choice([0.0, 0.05, 0.5]))
        if clients.stopping:
            return
        idle = client.writer(life.name, open_timeout_s=8.0)
        with contextlib.suppress(RangelogError):
            await idle.open()
            clients.cluster.note("a stream opened and nothing appended")
        await idle.close(flush=False)


async def write_many(clients: Clients, name: str) -> None:
    """Create many streams, each with a writer, on one client: after a server's death their seals go out in calls of many."""
    process = f"p-{name}"
    for number in range(MANY_STREAMS):
        life = await create(clients, f"{name}-{number}")
        if clients.stopping:
            return
        writer = f"v-{life.label}"
        clients.start(writer, write(clients, life, writer, 150, clients.chance.choice([0.1, 0.3])), process)


async def gather(clients: Clients, name: str) -> None:
    """Hundreds follow a nearly idle stream over one connection; their process stands still for a while, and goes on."""
    life = await create(clients, name)
    writer = f"v-{life.label}"
    clients.start(writer, write(clients, life, writer, 12, 0.3))
    crowd = f"c-{life.label}"
    names = [f"{crowd}-{number}" for number in range(CROWD)]
    for each in names:
        clients.start(each, virtual_reading.follow(clients, life, each), crowd)
    clients.cluster.note("hundreds of followers on one connection")
    await asyncio.sleep(1.0)
    process = clients.processes[crowd]
    clients.loop.pause(process)
    clients.loop.call_in(WORLD, 2.0, lambda: process.paused and clients.loop.resume(process))
    while clients.lives_on(writer) or not _arrived(life, names):
        if clients.stopping:
            return  # they are to arrive when another writer has sealed what this one left
        await asyncio.sleep(0.2)
    for each in names:
        clients.dismiss(each)


def _arrived(life: Life, names: list[str]) -> bool:
    end = max(life.acked, default=-1) + 1
    return all(life.positions.get(each, 0) >= end for each in names)
