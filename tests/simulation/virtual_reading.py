"""The roles of readers: who follows for ever, who reads up to the end, from the end, from a time, and who asks for the end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rangelog_core.errors import OffsetTrimmed, RangelogError
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_passes import Pass
from tests.simulation.virtual_time import WALL_S

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

TRY_S = 5.0
"""So long a reader goes on trying where no copy can be read."""


def ms_to_datetime(timestamp_ms: int) -> datetime:
    """Exactly that time."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)


async def follow(
    clients: Clients, life: Life, name: str, preference: str = "hot_first", start: Any = "earliest"
) -> None:
    """Follow the stream until it is deleted, going on where it was after every error."""
    clients.followers.add(name)
    client = await clients.client()
    position: Any = start
    number = 0
    life.positions[name] = 0
    while True:
        one = Pass(clients, life, f"{name}/{number}", name)
        reader = client.reader(life.name, start=position, follow=True, read_preference=preference, timeout_s=TRY_S)
        try:
            await one.run(reader)
        except RangelogError as error:
            if not one.failed(error, position):
                break
            if one.first is not None:
                position = one.position
            if isinstance(error, OffsetTrimmed):
                position = max(error.offset or 0, position if isinstance(position, int) else 0)
        number += 1
        await asyncio.sleep(clients.chance.uniform(0.1, 0.5))
    clients.followers.discard(name)


async def read_to_the_end(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Read up to the end again and again: all of it, from where the last one ended, from an acked record, from a time."""
    client, chance = await clients.client(), clients.chance
    position = 0
    for number in range(rounds):
        if clients.stopping or life.deleting:
            return
        start, timestamp_ms = _draw_start(clients, life, position)
        one = Pass(clients, life, f"{name}/{number}")
        preference = chance.choice(["hot_first", "hot_first", "cold_first"])
        reader = client.reader(life.name, start=start, read_preference=preference, timeout_s=TRY_S)
        try:
            await one.run(reader)
        except RangelogError as error:
            if not one.failed(error, start):
                return
            position = one.position if one.first is not None else position
        else:
            _ended(clients, one, start, timestamp_ms)
            position = one.position
        await asyncio.sleep(chance.expovariate(1 / pause_s))


def _draw_start(clients: Clients, life: Life, position: int) -> tuple[Any, int | None]:
    kind = clients.chance.randrange(5)
    if kind == 0:
        return "earliest", None
    if kind == 1 and life.acked:
        return clients.chance.choice(sorted(life.acked)), None
    if kind == 2:
        timestamp_ms = draw_time(clients, life)
        return ms_to_datetime(timestamp_ms), timestamp_ms
    return position, None


def _ended(clients: Clients, one: Pass, start: Any, timestamp_ms: int | None) -> None:
    clients.cluster.note("a bounded read ended")
    one.ended(start if isinstance(start, int) else 0 if start == "earliest" else _first(one))
    if timestamp_ms is not None:
        clients.cluster.note("a start by time")
        one.started(timestamp_ms, _first(one))


def _first(one: Pass) -> int:
    return one.first if one.first is not None else one.told[0]


def draw_time(clients: Clients, life: Life) -> int:
    """The latest that a record has, which a replica that is behind lacks; or that of some record, or a little beside it."""
    known = life.stamps_ms[-200:] or [int((WALL_S + clients.loop.now) * 1000)]
    if clients.chance.random() < 0.5:
        return max(known[-20:])
    return clients.chance.choice(known) + clients.chance.choice([0, 0, 1, 500])


async def start_at_the_end(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Begin at "latest", follow for a while, and begin again where that ended: it was told of this position."""
    client, chance = await clients.client(), clients.chance
    for number in range(rounds):
        if clients.stopping or life.deleting:
            return
        start: Any = "latest"
        for part in range(2):
            one = Pass(clients, life, f"{name}/{number}/{part}")
            reader = client.reader(life.name, start=start, follow=chance.random() < 0.6, timeout_s=TRY_S)
            try:
                async with asyncio.timeout(chance.uniform(0.3, 2.5)):
                    await one.run(reader, 100)
            except RangelogError as error:
                if not one.failed(error, start):
                    return
                break
            except TimeoutError:
                pass
            if not one.told:
                break  # the end was not found in time
            if start == "latest":
                clients.cluster.note("a start at latest")
                one.life.bounded(one.name, one.told[0], max(one.told[0], one.position), clients.loop.now)
            start = max(one.told[0] if start == "latest" else start, one.position)
        await asyncio.sleep(chance.expovariate(1 / pause_s))


async def start_at_a_time(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Begin at a time and follow for a while."""
    client, chance = await clients.client(), clients.chance
    for number in range(rounds):
        if clients.stopping or life.deleting:
            return
        timestamp_ms = draw_time(clients, life)
        one = Pass(clients, life, f"{name}/{number}")
        reader = client.reader(life.name, start=ms_to_datetime(timestamp_ms), follow=True, timeout_s=TRY_S)
        try:
            async with asyncio.timeout(chance.uniform(0.5, 3.0)):
                await one.run(reader, 50)
        except RangelogError as error:
            if not one.failed(error, 0):
                return
        except TimeoutError:
            pass
        if one.first is not None:
            clients.cluster.note("a start by time")
            one.started(timestamp_ms, one.first)
        await asyncio.sleep(chance.expovariate(1 / pause_s))


async def start_at_the_newest(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Begin at the time of the latest acked record, again and again: a replica that is behind does not have it yet."""
    client = await clients.client()
    for number in range(rounds):
        await asyncio.sleep(pause_s)
        if clients.stopping or life.deleting:
            return
        if not life.stamps_ms:
            continue
        timestamp_ms = max(life.stamps_ms[-20:])
        start = ms_to_datetime(timestamp_ms)
        one = Pass(clients, life, f"{name}/{number}")
        try:
            await one.run(client.reader(life.name, start=start, timeout_s=TRY_S))
        except RangelogError as error:
            if not one.failed(error, 0):
                return
        else:
            _ended(clients, one, start, timestamp_ms)


async def ask_for_the_end(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Call `end_offset`, and now and then read from there."""
    client, chance = await clients.client(), clients.chance
    for number in range(3 * rounds):
        if clients.stopping or life.deleting:
            return
        one = Pass(clients, life, f"{name}/{number}")
        end = 0
        try:
            end = await client.end_offset(life.name)
            life.told_end(name, end, one.invoked_s, clients.loop.now, exact=False)
            if chance.random() < 0.3:
                one = Pass(clients, life, f"{name}/{number}")
                await one.run(client.reader(life.name, start=end, timeout_s=TRY_S))
                one.ended(end)
        except RangelogError as error:
            if not one.failed(error, end):
                return
        await asyncio.sleep(chance.expovariate(3 / pause_s))
