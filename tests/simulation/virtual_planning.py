"""The role of a Spark driver: it plans spans of the stream and reads some of them twice, as a task that is run again does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rangelog.spark.options import parse_options
from rangelog.spark.reading import plan, span_reader
from rangelog_core.errors import RangelogError
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_passes import Pass

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

SPANS_READ_MAX = 2
TASK_S = 20.0
"""A task that takes longer is given up: it goes on trying for as long as the calm."""


async def plan_and_read(clients: Clients, life: Life, name: str, rounds: int, pause_s: float) -> None:
    """Plan, and read some spans twice: the rows must be the same, and be the log's."""
    client, chance = await clients.client(), clients.chance
    for number in range(rounds):
        if clients.stopping or life.deleting:
            return
        given = {"pd": "in memory", "stream": life.name, "records_per_partition": str(chance.randrange(10, 200))}
        options = parse_options(given)
        one = Pass(clients, life, f"{name}/{number}")
        try:
            planned = await plan(client, options)
            for start, end in chance.sample(planned.spans, min(len(planned.spans), SPANS_READ_MAX)):
                for attempt in range(2):
                    one = Pass(
                        clients,
                        clients.cluster.life_of(life.name, planned.stream_id),
                        f"{name}/{number}/{start}/{attempt}",
                    )
                    async with asyncio.timeout(TASK_S):
                        await one.run(span_reader(client, options, planned.stream_id, start, end))
                    one.life.bounded(one.name, start, end, clients.loop.now)
                    await asyncio.sleep(chance.expovariate(1 / pause_s))
                clients.cluster.note("a Spark plan read twice")
        except RangelogError as error:
            if not one.failed(error, 0):
                return
        except TimeoutError:
            clients.cluster.note("a Spark task took too long")
        await asyncio.sleep(chance.expovariate(1 / pause_s))
