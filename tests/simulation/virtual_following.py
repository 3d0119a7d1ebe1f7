"""The role of a streaming query of Spark, of a stream and of a topic: micro-batch after micro-batch, by its checkpoint alone.

What must hold: with a bound no micro-batch is larger; all positions in a topic are cuts, and behind all that was acked before
they were told, if the ends are exact; a micro-batch that is run again has the same rows; all of them together have each record
once, those of a stream without a hole but for what was trimmed, which is counted; and of a topic that keeps everything they
have in the end exactly what its shards have.
"""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from rangelog import Client
from rangelog._topics.shard_graph import ShardGraph
from rangelog.errors import OffsetTrimmed, RangelogError, StreamNotFound
from rangelog.spark.following import Ends, find_ends, find_start, go_on, plan_batch
from rangelog.spark.following_topics import BatchSpan
from rangelog.spark.offsets import QueryOffsets
from rangelog.spark.reading import span_reader
from rangelog.spark.stream_options import StreamOptions, parse_stream_options
from rangelog_proto.v1 import topic_pb2
from tests.simulation.probes_of_topics import EXACT
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_passes import Pass

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients
    from tests.simulation.virtual_topics import Topics

CORNER_CASES = (
    "a micro-batch of a stream was read",
    "a micro-batch was read again",
    "a streaming query went on from a shard to those that follow it",
)
RARE = ("records that were trimmed unread were counted",)
BATCH_S = 20.0
"""A micro-batch that takes longer is given up, and planned again, as a query that is started again does."""
PAUSE_S = 0.3
AGAIN = 0.3
"""How often a driver dies between a micro-batch and its commit."""
LAST_BATCHES = 200
"""At the end, when nothing fails."""

Rows = dict[tuple[int, int], bytes]
"""(stream id, offset), or (shard id, offset) → value."""


class Query(ABC):
    """One query's checkpoint, as text, and what it was given."""

    def __init__(self, clients: Clients, **given: str) -> None:
        """`given`: options."""
        self.clients = clients
        self.draw = random.Random(clients.cluster.seed * 31 + 7)  # of its own: so the draws of all others stay
        self._given = {"pd": "in memory", "startingOffsets": "earliest", **given}
        self.start: str | None = None
        self.planned: str | None = None
        self.rows: Rows = {}
        self._tried: Rows | None = None
        self._one = asyncio.Lock()  # a query has one micro-batch at a time, also while it is judged

    def forget(self) -> None:
        """Begin a new query."""
        self.start = self.planned = self._tried = None
        self.rows = {}

    def options(self) -> StreamOptions:
        """Some: what divides a micro-batch may differ each time it is planned."""
        more = {"records_per_partition": str(self.draw.randrange(10, 200))}
        return parse_stream_options({**self._given, **more})

    async def run_one(self, client: Client, budget: int | None) -> None:
        """Plan a micro-batch unless one is planned, read it, and commit it or not."""
        async with self._one:
            await self._run_one(client, budget)

    async def _run_one(self, client: Client, budget: int | None) -> None:
        options = self.options()
        if self.start is None:
            self.start = _text(await find_start(client, options))
        start = _offsets(self.start)
        if self.planned is None:
            ends = await self.ends(client, options)
            reached = go_on(options, start, ends, budget)
            self.reached(start, reached, ends, budget)
            self.planned = _text(reached)
        end = _offsets(self.planned)
        rows: Rows = {}
        for span in await plan_batch(client, options, start, end):
            await self.read(client, options, span, rows)
        self._same(rows)
        if self.draw.random() < AGAIN:
            self._tried = rows
            return
        twice = rows.keys() & self.rows.keys()
        if twice:
            self.clients.cluster.fail(f"a streaming query was given {min(twice)} in two micro-batches")
        self.committed(start, end, rows)
        self.rows |= rows
        self.start, self.planned, self._tried = self.planned, None, None

    def _same(self, rows: Rows) -> None:
        tried = self._tried
        if tried is None:
            return
        self.clients.cluster.note("a micro-batch was read again")
        changed = [key for key, value in rows.items() if tried.get(key) != value]
        missing = [key for key in tried if key not in rows and not self.may_miss(key)]
        if changed or missing:
            self.clients.cluster.fail(f"a micro-batch that is read again has {changed[:3]} and has not {missing[:3]}")

    # ---- what differs

    async def ends(self, client: Client, options: StreamOptions) -> Ends:
        """Find the ends."""
        return await find_ends(client, options, needs_heads=True)

    @abstractmethod
    def reached(self, start: QueryOffsets, reached: QueryOffsets, ends: Ends, budget: int | None) -> None:
        """Judge how far a micro-batch is to go."""

    @abstractmethod
    async def read(self, client: Client, options: StreamOptions, span: BatchSpan, rows: Rows) -> None:
        """Read one span."""

    @abstractmethod
    def committed(self, start: QueryOffsets, end: QueryOffsets, rows: Rows) -> None:
        """Judge a whole micro-batch."""

    @abstractmethod
    def may_miss(self, key: tuple[int, int]) -> bool:
        """Whether a record may be gone since it was read."""


class StreamQuery(Query):
    """Of the main stream: whatever is trimmed is counted, and whoever has its name next is another query's."""

    def __init__(self, clients: Clients, life: Life) -> None:
        """`life`: of its name."""
        super().__init__(clients, stream=life.name, failOnDataLoss="false")
        self._life = life
        self._number = 0
        self._invoked_s = 0.0

    async def run(self) -> None:
        """Micro-batch after micro-batch, until the end."""
        client = await self.clients.client()
        while not self.clients.stopping:
            self._number += 1
            self._invoked_s = self.clients.loop.now
            try:
                async with asyncio.timeout(BATCH_S):
                    await self.run_one(client, self.draw.choice([None, 3, 40]))
            except StreamNotFound:
                self.clients.cluster.check_deleted(self._life, "a streaming query")
                self.forget()
            except RangelogError as error:
                self.clients.cluster.note(f"a streaming query: {type(error).__name__}")
            except TimeoutError:
                self.clients.cluster.note("a micro-batch took too long")
            await asyncio.sleep(self.draw.expovariate(1 / PAUSE_S))

    def reached(self, start: QueryOffsets, reached: QueryOffsets, ends: Ends, budget: int | None) -> None:
        """Within the bound, and to the end without one; what is counted was trimmed."""
        (begun,), (at,), (end,) = start.streams.values(), reached.streams.values(), ends.streams.values()
        self._life = self.clients.cluster.life_of(self._life.name, at.stream_id)
        first = max(begun.offset, end.first)
        fail = self.clients.cluster.fail
        if reached.skipped - start.skipped != first - begun.offset:
            fail(f"{reached.skipped - start.skipped} records were counted as trimmed, of {first - begun.offset}")
        wanted = max(first, end.offset) if budget is None else min(first + budget, max(first, end.offset))
        if at.offset != wanted or at.first != begun.first:
            fail(f"a micro-batch from {begun} to {end} with the bound {budget} ends at {at}")
        if first > begun.offset:
            self.clients.cluster.note(RARE[0])
            self._trimmed(begun.offset, first)

    async def read(self, client: Client, options: StreamOptions, span: BatchSpan, rows: Rows) -> None:
        """As a task does; what is read is judged by the stream's history."""
        read = replace(options.read, stream=span.name)
        one = Pass(self.clients, self._life, f"query/{self._number}/{span.start}")
        reader = span_reader(client, read, span.stream_id, span.start, span.end)
        seen: list[tuple[int, list[bytes]]] = []
        saw = one._saw

        def keep(offset: int, identities: list[bytes]) -> None:
            seen.append((offset, identities))
            saw(offset, identities)

        one._saw = keep  # type: ignore[method-assign]
        await one.run(reader)
        self._life.bounded(one.name, span.start, span.end, self.clients.loop.now)
        for offset, identities in seen:
            rows.update(((span.stream_id, offset + number), each) for number, each in enumerate(identities))

    def committed(self, start: QueryOffsets, end: QueryOffsets, rows: Rows) -> None:
        """No hole, but at the beginning what was trimmed since it was planned."""
        (begun,), (at,) = start.streams.values(), end.streams.values()
        low = min(at.offset, begun.offset + end.skipped - start.skipped)
        offsets = sorted(offset for _, offset in rows)
        first = offsets[0] if offsets else at.offset
        if offsets != list(range(first, at.offset)) or first < low:
            self.clients.cluster.fail(f"a micro-batch from {low} to {at.offset} has {offsets}")
        if first > low:
            self._trimmed(low, first)
        if offsets:
            self.clients.cluster.note(CORNER_CASES[0])

    def may_miss(self, key: tuple[int, int]) -> bool:
        """What `committed` judges."""
        return True

    def _trimmed(self, low: int, first: int) -> None:
        """Have it judged whether offset `low` was trimmed."""
        self._life.refused(f"query/{self._number}", low, self._invoked_s, self.clients.loop.now, first)


class TopicQuery(Query):
    """Of a topic that keeps everything."""

    def __init__(self, topics: Topics, full_name: str) -> None:
        """`full_name`: with the namespace."""
        super().__init__(topics.clients, topic=full_name)
        self._topics = topics
        self._name = full_name
        self._acked: list[tuple[int, int]] = []
        self._exact: list[bool] = []
        self._graph = ShardGraph()

    async def run(self) -> None:
        """Micro-batch after micro-batch, until the end."""
        client = await self.clients.client()
        while not self.clients.stopping:
            await self._try(client, self.draw.choice([None, 5, 60]))
            await asyncio.sleep(self.draw.expovariate(1 / PAUSE_S))

    async def judge(self, shards: Sequence[topic_pb2.Shard], found: Mapping[int, list[tuple[int, bytes]]]) -> None:
        """Go on to the end: then it was given what the shards have, each once."""
        client = await self.clients.client()
        wanted = {(shard_id, offset): value for shard_id, records in found.items() for offset, value in records}
        for _ in range(LAST_BATCHES):
            if self.rows.keys() >= wanted.keys():
                break
            await self._try(client, None)
        if self.rows != wanted:
            missing, more = wanted.keys() - self.rows.keys(), self.rows.keys() - wanted.keys()
            self.clients.cluster.fail(
                f"a streaming query was not given {sorted(missing)[:3]}, and was {sorted(more)[:3]}"
            )

    async def _try(self, client: Client, budget: int | None) -> None:
        try:
            async with asyncio.timeout(BATCH_S):
                await self.run_one(client, budget)
        except OffsetTrimmed as error:
            self.clients.cluster.fail(f"a streaming query was told that {error}, and the topic keeps everything")
        except RangelogError as error:
            self.clients.cluster.note(f"a streaming query: {type(error).__name__}")
        except TimeoutError:
            self.clients.cluster.note("a micro-batch took too long")

    async def ends(self, client: Client, options: StreamOptions) -> Ends:
        """Find the ends; what was acked before must lie before them."""
        self._exact = []
        EXACT.set(self._exact)
        self._acked = [one.acked for one in self._topics.sent if one.acked is not None]
        return await super().ends(client, options)

    def reached(self, start: QueryOffsets, reached: QueryOffsets, ends: Ends, budget: int | None) -> None:
        """A cut, within the bound; without one behind all that was acked."""
        fail = self.clients.cluster.fail
        (begun,), (at,) = start.topics.values(), reached.topics.values()
        self._graph = ends.topics[self._name].graph
        self._graph.check_cut(at.offsets)
        count = sum(high - low for low, high in self._graph.between(begun.offsets, at.offsets).values())
        if reached.skipped or (budget is not None and count > budget):
            fail(f"a micro-batch of at most {budget} records has {count}, and {reached.skipped} were skipped")
        before = self._graph.before(at.offsets)
        lost = [one for one in self._acked if not one[1] < before.get(one[0], 0)]
        if budget is None and all(self._exact) and lost:
            fail(f"{lost[0]} was acked, and a micro-batch without a bound ends at {dict(at.offsets)}")
        if begun.offsets.keys() != at.offsets.keys():
            self.clients.cluster.note(CORNER_CASES[2])

    async def read(self, client: Client, options: StreamOptions, span: BatchSpan, rows: Rows) -> None:
        """As a task does."""
        assert span.shard_id is not None
        read = replace(options.read, topic=span.name)
        position = span.start
        reader = span_reader(client, read, span.stream_id, span.start, span.end, span.shard_id)
        async with aclosing(reader.chunks()) as chunks:
            async for chunk in chunks:
                for table in chunk:
                    offsets, values = table.column("offset").to_pylist(), table.column("value").to_pylist()
                    for offset, value in zip(offsets, values, strict=True):
                        if offset != position:
                            self.clients.cluster.fail(f"a task of {span} was given offset {offset}, not {position}")
                        rows[span.shard_id, offset] = value
                        position += 1
        if position != span.end:
            self.clients.cluster.fail(f"a task of {span} ended at {position}")

    def committed(self, start: QueryOffsets, end: QueryOffsets, rows: Rows) -> None:
        """Exactly what lies between the two cuts."""
        (begun,), (at,) = start.topics.values(), end.topics.values()
        extents = self._graph.between(begun.offsets, at.offsets)
        wanted = {(shard, offset) for shard, (low, high) in extents.items() for offset in range(low, high)}
        if rows.keys() != wanted:
            self.clients.cluster.fail(f"a micro-batch of {extents} has {len(rows)} rows, not {len(wanted)}")

    def may_miss(self, key: tuple[int, int]) -> bool:
        """Nothing."""
        return False


def start(clients: Clients) -> None:
    """Start a query of the main stream."""
    clients.start("query", StreamQuery(clients, clients.main).run())


def _text(offsets: QueryOffsets) -> str:
    return json.dumps(offsets.to_dict())


def _offsets(text: str) -> QueryOffsets:
    return QueryOffsets.from_dict(json.loads(text))
