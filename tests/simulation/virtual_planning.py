"""The role of a Spark driver: it plans spans of the stream and reads some of them twice, as a task that is run again does."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

from virtual_life import Life
from virtual_passes import Pass

import rangelog
from rangelog._reader import StreamView, confirmed_end
from rangelog.errors import RangelogError
from rangelog.spark.reading import ArrowReader

if TYPE_CHECKING:
    from virtual_clients import Clients

SPANS_READ_MAX = 2


async def plan_and_read(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Plan, and read some spans twice: the rows must be the same, and be the log's."""
    client, chance = await clients.client(), clients.chance
    for number in range(rounds):
        if clients.stopping or life.deleting:
            return
        one = Pass(clients, life, f"{name}/{number}")
        try:
            spans = await _plan(client, life, chance.randrange(10, 200))
            read_from = clients.loop.now
            for start, end in chance.sample(spans, min(len(spans), SPANS_READ_MAX)):
                for attempt in range(2):
                    one = Pass(clients, life, f"{name}/{number}/{start}/{attempt}")
                    async with asyncio.timeout(20.0):
                        await one.run(_reader(client, life, start, end))
                    one.life.bounded(one.name, start, end, clients.loop.now)
                    await asyncio.sleep(chance.expovariate(1 / pause_s))
                clients.cluster.note("a Spark plan read twice")
        except RangelogError as error:
            if not one.failed(error, 0):
                return
        except TimeoutError:
            clients.cluster.note(f"a Spark task took more than {clients.loop.now - read_from:.0f} s")
        await asyncio.sleep(chance.expovariate(1 / pause_s))


async def _plan(client: rangelog.Client, life: Life, records_per_span: int) -> list[tuple[int, int]]:
    """As the data source plans a batch read."""
    view = StreamView(client.metadata, life.name)
    tail = (await confirmed_end(view, client.connections)).offset
    first = view.stream.trim_offset
    spans: list[tuple[int, int]] = []
    for low, high in pairwise([each.start_offset for each in view.ranges] + [tail]):
        for position in range(max(low, first), high, records_per_span):
            spans.append((position, min(high, position + records_per_span)))
    return spans


def _reader(client: rangelog.Client, life: Life, start: int, end: int) -> ArrowReader:
    """As a task of the data source reads a span."""
    return ArrowReader(
        client.metadata,
        client.connections,
        client.cold_reader(),
        life.name,
        start=start,
        end=end,
        follow=False,
        read_preference="hot_first",
        timeout_s=10.0,
        resolved=True,
    )
