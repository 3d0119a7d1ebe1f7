"""The role of a consumer with a cursor: it reads from the cursor, commits, dies in between, and others go on where it was.

Its stream keeps for the cursor, and has an age that is far below the length of a run; in half of the seeds what the cursor has
passed is trimmed as well. Sometimes a consumer goes on beside the next one, so that commits come late. Judged here: a consumer
begins at or behind every commit that was acked before, nothing is trimmed that none has asked to commit, and together they are
handed every acked record without a hole. What may be gone at the end is what a consumer has asked to commit (`Life.trims`).
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import TYPE_CHECKING

from rangelog import Client, CursorReader
from rangelog_core.errors import OffsetTrimmed, RangelogError, StreamExists
from rangelog_core.stream_config import StreamConfig
from rangelog_pd.state.versions import LEVEL_OPERATIONS
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_passes import Pass
from tests.simulation.virtual_reading import TRY_S
from tests.simulation.virtual_time import WORLD, here
from tests.simulation.virtual_writing import LAST, write

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

CORNER_CASES = (
    "a consumer went on from a cursor after a death",
    "what a cursor had passed was trimmed",
    "a late commit did not move a cursor back",
)
CURSOR = "billing"
DIES, STAYS = 0.2, 0.15
"""How often a consumer dies between two records and their commit, and how often another one begins beside it."""
CONSUMERS_MAX = 12
RECORDS, RECORDS_IN_THE_CALM = 250, 100
KEEPER = "consumers"


class Consumers:
    """All consumers of one stream, one after the other or side by side."""

    def __init__(self, clients: Clients, name: str) -> None:
        self._clients, self._cluster = clients, clients.cluster
        self._name = name
        self._chance = Random(f"{name} of seed {clients.cluster.seed}")  # its own: seeds stay what they were
        self._count = 0
        self._has_died = False
        self._seen_end = 0
        """Below it every record was handed out."""
        self._acked = 0
        """The highest commit that was acked."""
        self._life: Life | None = None

    async def keep(self) -> None:
        """Make the stream with its cursor, then start a writer and the first consumer."""
        client = await self._clients.client()
        while self._cluster.state.cluster_version < LEVEL_OPERATIONS:
            if self._clients.stopping:
                return  # of an earlier program's: in some seeds for good
            await asyncio.sleep(0.3)
        life = self._life = await self._create(client)
        while not await self._make_cursor(client):
            await asyncio.sleep(0.3)
        writer = f"v-{life.label}"
        self._clients.start(writer, write(self._clients, life, writer, RECORDS, self._chance.choice([0.02, 0.05])))
        self._start()
        while not self._clients.stopping:
            await asyncio.sleep(0.2)
        last = f"{LAST}-{life.label}-load"
        task = self._clients.start(last, write(self._clients, life, last, RECORDS_IN_THE_CALM, 0.05))
        assert task is not None
        await asyncio.wait([task])

    async def _create(self, client: Client) -> Life:
        config = StreamConfig(
            range_size_bytes_max=64 * 1024,
            range_age_seconds=self._chance.choice([0.3, 1.0]),
            retention_seconds=self._chance.choice([0.5, 2.0]),
            cursor_retention=self._chance.choice(["keep", "keep_and_trim"]),
            tiered=self._chance.random() < 0.5,
        )
        while True:
            try:
                info = await client.create_stream(self._name, config)
            except StreamExists:
                with contextlib.suppress(RangelogError):
                    info = await client.describe_stream(self._name)
                    break
            except RangelogError as error:
                self._cluster.note(f"create_stream: {type(error).__name__}")
            else:
                break
            await asyncio.sleep(0.3)
        return self._cluster.life_of(self._name, info.stream_id)

    async def _make_cursor(self, client: Client) -> bool:
        """Before the first record: what no cursor keeps may go."""
        try:
            await client.cursors(self._name).set(CURSOR, 0)
        except RangelogError:
            return False
        return True

    def _start(self) -> None:
        if self._count < CONSUMERS_MAX:
            self._count += 1
            self._clients.start(f"{self._name}-{self._count}", self._consume(f"{self._name}-{self._count}"))

    async def _consume(self, name: str) -> None:
        client, life = await self._clients.client(), self._life
        assert life is not None
        number = 0
        while self._clients.lives_on(KEEPER) or self._seen_end <= max(life.acked, default=-1):
            number += 1
            await asyncio.sleep(self._chance.choice([0.0, 0.05, 0.3]))
            one = Pass(self._clients, life, f"{name}/{number}")
            reader = client.reader(self._name, cursor=CURSOR, timeout_s=TRY_S)
            acked = self._acked
            try:
                await one.run(reader, self._chance.choice([1, 20, 1_000]))
                self._check(one, acked)
                await self._may_die()
                await self._commit(reader)
            except RangelogError as error:
                self._check(one, acked)
                if isinstance(error, OffsetTrimmed) and (error.offset or 0) > life.trimmed:
                    self._cluster.fail(f"{name}: {error.message}, and {life.trimmed} is the highest asked commit")
                if not one.failed(error, acked):
                    return

    def _check(self, one: Pass, acked: int) -> None:
        if one.first is None:
            return
        if one.first < acked:
            self._cluster.fail(f"{one.name} began at {one.first}, and {acked} was committed before")
        if one.first > self._seen_end:
            self._cluster.fail(f"{one.name} began at {one.first}, and nobody was handed {self._seen_end}")
        if self._has_died:
            self._has_died = False
            self._cluster.note(CORNER_CASES[0])
        self._seen_end = max(self._seen_end, one.position)

    async def _commit(self, reader: CursorReader) -> None:
        assert self._life is not None
        end = reader.handed_out.end
        self._life.trims.append((end, self._clients.loop.now))
        committed = await reader.commit()
        if committed.offset < max(end, 0):
            self._cluster.fail(f"a commit of {end} was acked with {committed.offset}")
        if committed.offset > end:
            self._cluster.note(CORNER_CASES[2])
        self._acked = max(self._acked, committed.offset)
        stream = self._cluster.state.streams.find(self._life.stream_id)
        if stream is not None and stream.trim_offset:
            self._cluster.note(CORNER_CASES[1])

    async def _may_die(self) -> None:
        """Between the records and their commit; another one follows, or begins already now."""
        if self._chance.random() < DIES and self._count < CONSUMERS_MAX:
            self._has_died = True
            self._clients.loop.call_in(WORLD, self._chance.uniform(0.0, 1.0), self._start)
            self._clients.kill(here().name)
            await asyncio.sleep(0)
        elif self._chance.random() < STAYS:
            self._start()
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))


def start(clients: Clients) -> None:
    """Start the role; its consumers have processes of their own."""
    clients.start(KEEPER, Consumers(clients, "consumed").keep())
