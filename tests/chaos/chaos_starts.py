"""Readers that begin again and again, where the end of a stream is being proved: what they are told must last.

Each role is one small pass of a reader: from where the last one ended, at the latest record, by time, over a plan as Spark
makes it (read twice: at once, and again later), and one that only asks for the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from rangelog._read.stream_view import StreamView, confirmed_end
from rangelog_core.errors import OffsetOutOfRange, RangelogError, StreamNotFound
from tests.chaos.chaos_noting import Noting

READ_TIMEOUT_S = 5.0
AGE_MS_MAX = 20_000
"""How far back a start by time looks."""
CHUNKS_BY_TIME = 2
"""A start by time is about where it begins; no more than that is read."""
PLANNED_MAX = 2_000
SPAN_RECORDS = 700
PLAN_SHARE = 0.5
"""A plan is read again about so often when it is its turn, else a new one is made."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Planned(NamedTuple):
    """A plan that was read once."""

    number: int
    options: Any
    stream_id: int
    spans: list[tuple[int, int]]


class Starts:
    """Begins readers of one stream; `name` is what it is called in the cluster."""

    def __init__(self, client: Any, connect_string: str, name: str, noting: Noting, dice: random.Random) -> None:
        self._client = client
        self._connect_string = connect_string
        self._name = name
        self._noting = noting
        self._dice = dice
        self._position = 0
        self._highest = 0
        self._plan: Planned | None = None
        self._number = 0

    async def once(self) -> None:
        """Begin one reader. Raises StreamNotFound; whatever else stops it is noted."""
        self._number += 1
        role: Callable[[str], Awaitable[None]] = self._dice.choice(
            (self.own, self.own, self.latest, self.ask, self.by_time, self.spans)
        )
        name = f"{self._noting.reader}-{role.__name__}-{self._number}"
        try:
            await role(name)
        except StreamNotFound:
            raise
        except RangelogError as error:
            self._noting.failed(name, error)

    async def own(self, name: str) -> None:
        """From where the last one ended up to the end of now."""
        start, invoked_s = self._position, time.monotonic()
        reader = self._client.reader(self._name, start=start, timeout_s=READ_TIMEOUT_S)
        try:
            async for chunk in reader.chunks():
                self._noting.saw(name, "own", chunk)
        except OffsetOutOfRange as error:
            self._noting.refused(name, start, invoked_s, error)
            self._position = error.offset or 0
            return
        self._ended(name, start, reader.position, invoked_s)

    async def latest(self, name: str) -> None:
        """Where "latest" begins is an end that is told."""
        invoked_s = time.monotonic()
        reader = self._client.reader(self._name, start="latest", timeout_s=READ_TIMEOUT_S)
        async for chunk in reader.chunks():
            self._noting.saw(name, "latest", chunk)
        self._told(name, reader.position, invoked_s)

    async def ask(self, name: str) -> None:
        """Where does it end? By the public word, and by the one that says whether it is exact."""
        invoked_s = time.monotonic()
        if self._dice.random() < 0.5:
            self._told(name, await self._client.end_offset(self._name), invoked_s)
            return
        view = StreamView(self._client.metadata, self._name)
        proved = await confirmed_end(view, self._client.connections)
        self._told(name, proved.offset, invoked_s, exact=proved.exact)

    async def by_time(self, name: str) -> None:
        """From a time on."""
        timestamp_ms = time.time_ns() // 1_000_000 - self._dice.randrange(AGE_MS_MAX)
        start, invoked_s = _EPOCH + timedelta(milliseconds=timestamp_ms), time.monotonic()
        reader = self._client.reader(self._name, start=start, timeout_s=READ_TIMEOUT_S)
        count = 0
        async with aclosing(reader.chunks()) as chunks:
            async for chunk in chunks:
                if not count:
                    self._noting.started(name, timestamp_ms, chunk[0].offset, invoked_s)
                self._noting.saw(name, "by_time", chunk)
                count += 1
                if count == CHUNKS_BY_TIME:
                    break
        if not count:
            self._noting.started(name, timestamp_ms, reader.position, invoked_s)

    async def spans(self, name: str) -> None:
        """A plan as Spark makes it: its tasks give the same rows whenever they run."""
        if self._plan is not None and self._dice.random() < PLAN_SHARE:
            again, self._plan = self._plan, None
            await self._read_plan(name, again)
            return
        from rangelog.spark.filters import Selection
        from rangelog.spark.options import parse_options
        from rangelog.spark.planning import plan

        start, invoked_s = max(0, self._highest - self._dice.randrange(PLANNED_MAX)), time.monotonic()
        options = parse_options(
            {
                "pd": self._connect_string,
                "stream": self._name,
                "start": str(start),
                "records_per_partition": str(SPAN_RECORDS),
            }
        )
        try:
            stream_id, spans = await plan(self._client, options, Selection())
        except OffsetOutOfRange as error:
            self._noting.refused(name, start, invoked_s, error)
            return
        self._told(name, spans[-1][1] if spans else start, invoked_s)
        made = Planned(self._number, options, stream_id, spans)
        await self._read_plan(name, made)
        self._plan = made

    async def _read_plan(self, name: str, made: Planned) -> None:
        from rangelog.spark.reading import span_reader

        for start, end in made.spans:
            task = f"{name}-of-{made.number}-{start}"
            async for tables in span_reader(self._client, made.options, made.stream_id, start, end).chunks():
                for table in tables:
                    if table.num_rows:
                        offsets, values = table.column("offset").to_pylist(), table.column("value").to_pylist()
                        self._noting.saw_values(task, "spark", offsets, values)
            self._noting.bounded(task, start, end)

    # ---- inside

    def _told(self, name: str, offset: int, invoked_s: float, *, exact: bool = False) -> None:
        self._noting.end_told(name, offset, invoked_s, exact=exact)
        self._highest = max(self._highest, offset)
        if self._dice.random() < 0.5:
            self._position = offset  # the next one begins where this one was told to

    def _ended(self, name: str, start: int, end: int, invoked_s: float) -> None:
        self._noting.bounded(name, start, end)
        self._noting.end_told(name, end, invoked_s, exact=False)
        self._position = end
        self._highest = max(self._highest, end)
