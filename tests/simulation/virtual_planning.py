"""The role of a Spark driver: it plans spans of the stream and reads some of them twice, as a task that is run again does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan

from rangelog import Client
from rangelog.spark.filters import Selection
from rangelog.spark.options import Options, parse_options
from rangelog.spark.planning import Plan, plan
from rangelog.spark.reading import span_reader
from rangelog_core.errors import RangelogError
from rangelog_tier.arrow import SCHEMA
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_passes import Pass

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

SPANS_READ_MAX = 2
SELECTED_MAX = 500
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
            planned = await plan(client, options, Selection())
            await _read_selected(clients, options, planned)
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


async def _read_selected(clients: Clients, options: Options, planned: Plan) -> None:
    """Plan again with filters: the rows must be those that the filters leave of all rows of the first plan."""
    client, chance = await clients.client(), clients.chance
    if not planned.spans or chance.random() < 0.5:
        return
    end = planned.spans[-1][1]
    start = max(planned.spans[0][0], end - SELECTED_MAX)
    try:
        async with asyncio.timeout(TASK_S):
            everything = await _rows(client, options, planned.stream_id, [(start, end)])
            times = sorted(everything.column("timestamp").to_pylist())
            selection = Selection()
            selection.take(
                [
                    GreaterThanOrEqual(("timestamp",), chance.choice(times)),
                    LessThan(("timestamp",), chance.choice(times)),
                ]
            )
            again = await plan(client, replace(options, start=start, end=end), selection)
            if again.stream_id != planned.stream_id:
                return  # the name is another stream's by now
            found = await _rows(client, options, planned.stream_id, again.spans)
    except (RangelogError, TimeoutError):
        return  # what the others read is judged
    offsets = [selection.rows(each).column("offset").to_pylist() for each in (found, everything)]
    if offsets[0] != offsets[1]:
        clients.cluster.fail(f"a plan of {selection.times_ms} gives {offsets[0]}, not {offsets[1]}")
    if found.num_rows < everything.num_rows:
        clients.cluster.note("a Spark plan left out what a filter does not want")


async def _rows(client: Client, options: Options, stream_id: int, spans: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    tables: list[pa.RecordBatch] = []
    for start, end in spans:
        async for chunk in span_reader(client, options, stream_id, start, end).chunks():
            tables += chunk
    return pa.RecordBatch.from_pylist([row for table in tables for row in table.to_pylist()], schema=SCHEMA)
