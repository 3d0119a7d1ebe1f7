"""The role of a Spark driver of a topic: it takes snapshots, plans each twice with time in between, and reads some of it twice.

What must hold: a snapshot has each record that was acked before it was asked for, if the ends that it was made of are exact;
all plans of it are of the same offsets; they have all that precedes a shard of which they have anything; what was read of it
is what the shards have in the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from rangelog import Client
from rangelog.errors import RangelogError
from rangelog.spark.filters import Selection
from rangelog.spark.options import Options, parse_options
from rangelog.spark.reading import span_reader
from rangelog.spark.topic_planning import ShardSpan, TopicSnapshot, plan_snapshot, take_snapshot
from rangelog_proto.v1 import topic_pb2
from tests.simulation.probes_of_topics import EXACT

if TYPE_CHECKING:
    from tests.simulation.virtual_topics import Topics

SPANS_READ_MAX = 2
TASK_S = 20.0
"""As in virtual_planning."""
PAUSE_S = 0.2

Extents = dict[int, tuple[int, int]]


class TopicDriver:
    """One driver, and all that it was told."""

    def __init__(self, topics: Topics, full_name: str) -> None:
        self._topics = topics
        self._clients = topics.clients
        self._name = full_name
        self._draw = random.Random(self._clients.cluster.seed)  # of its own: so the draws of all others stay
        self._plans: list[Extents] = []
        self._rows: dict[tuple[int, int], bytes] = {}

    async def run(self) -> None:
        """Snapshot after snapshot, until the end."""
        cluster = self._clients.cluster
        client = await self._clients.client()
        while not self._clients.stopping:
            try:
                async with asyncio.timeout(TASK_S):
                    await self._use_one(client)
            except RangelogError as error:
                cluster.note(f"a plan of a topic: {type(error).__name__}")
            except TimeoutError:
                cluster.note("a plan of a topic took too long")
            await self._pause()

    async def judge(self, shards: Sequence[topic_pb2.Shard], found: Mapping[int, list[tuple[int, bytes]]]) -> None:
        """Compare with what the shards have in the end, of which the last snapshot is all."""
        fail = self._clients.cluster.fail
        for (shard_id, offset), value in self._rows.items():
            if found[shard_id][offset][1] != value:
                fail(f"a Spark task read {value!r} at {(shard_id, offset)}, where {found[shard_id][offset][1]!r} is")
        rows = {shard.shard_id: shard for shard in shards}
        for plan in self._plans:
            for shard_id in plan:
                for before in rows[shard_id].predecessors:
                    if plan.get(before, (0, 0))[1] != rows[before].end_offset:
                        fail(
                            f"a plan has records of shard {shard_id}, and of shard {before} before it {plan.get(before)}"
                        )
        client = await self._clients.client()
        options = self._options()
        last = _extents(await plan_snapshot(client, options, await take_snapshot(client, options), Selection()))
        wanted = {shard_id: (0, len(records)) for shard_id, records in found.items() if records}
        if last != wanted:
            fail(f"a plan of the whole topic is of {last}, not {wanted}")

    # ---- inside

    def _options(self) -> Options:
        given = {"pd": "in memory", "topic": self._name, "records_per_partition": str(self._draw.randrange(10, 200))}
        return parse_options(given)

    async def _pause(self) -> None:
        await asyncio.sleep(self._draw.expovariate(1 / PAUSE_S))

    async def _use_one(self, client: Client) -> None:
        cluster = self._clients.cluster
        options = self._options()
        exact: list[bool] = []
        EXACT.set(exact)
        acked = [one for one in self._topics.sent if one.acked is not None]
        snapshot = await take_snapshot(client, options)
        planned = await plan_snapshot(client, options, snapshot, Selection())
        extents = _extents(planned)
        self._plans.append(extents)
        for one in acked:
            assert one.acked is not None
            shard_id, offset = one.acked
            if all(exact) and not offset < extents.get(shard_id, (0, 0))[1]:
                cluster.fail(f"{one.value!r} was acked at {one.acked}, and a later plan is of {extents}")
        for span in self._draw.sample(planned, min(len(planned), SPANS_READ_MAX)):
            await self._read(client, options, span)
        await self._pause()
        await self._plan_again(client, snapshot, extents)

    async def _plan_again(self, client: Client, snapshot: TopicSnapshot, extents: Extents) -> None:
        options = self._options()
        planned = await plan_snapshot(client, options, snapshot, Selection())
        if _extents(planned) != extents:
            self._clients.cluster.fail(f"a snapshot was of {extents}, and is of {_extents(planned)}")
        for span in self._draw.sample(planned, min(len(planned), SPANS_READ_MAX)):
            await self._read(client, options, span)
        self._clients.cluster.note("a Spark plan of a topic read twice")

    async def _read(self, client: Client, options: Options, span: ShardSpan) -> None:
        position = span.start
        reader = span_reader(client, options, span.stream_id, span.start, span.end, span.shard_id)
        async with aclosing(reader.chunks()) as chunks:
            async for chunk in chunks:
                for table in chunk:
                    offsets, values = table.column("offset").to_pylist(), table.column("value").to_pylist()
                    for offset, value in zip(offsets, values, strict=True):
                        self._saw(span.shard_id, offset, value, position)
                        position += 1
        if position != span.end:
            self._clients.cluster.fail(f"a Spark task of {span} ended at {position}")

    def _saw(self, shard_id: int, offset: int, value: bytes, expected: int) -> None:
        fail = self._clients.cluster.fail
        if offset != expected:
            fail(f"a Spark task was given offset {offset} of shard {shard_id} in place of {expected}")
        if self._rows.setdefault((shard_id, offset), value) != value:
            fail(f"Spark tasks were given {value!r} and {self._rows[shard_id, offset]!r} at {(shard_id, offset)}")


def _extents(planned: Sequence[ShardSpan]) -> Extents:
    """Return shard id → [start, end) of a plan, whose spans of a shard join."""
    found: Extents = {}
    for span in planned:
        start, end = found.get(span.shard_id, (span.start, span.start))
        assert end == span.start < span.end
        found[span.shard_id] = start, span.end
    return found
