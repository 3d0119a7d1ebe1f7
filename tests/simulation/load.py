"""What the clients of a seed do, drawn from it: who writes, who reads how, what shares a process, which streams there are."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import rangelog
from rangelog_core.stream_config import StreamConfig
from tests.simulation import (
    virtual_audit,
    virtual_cursors,
    virtual_following,
    virtual_idle,
    virtual_journals,
    virtual_left,
    virtual_operators,
    virtual_packing,
    virtual_planning,
    virtual_quotas,
    virtual_reading,
    virtual_repacking,
    virtual_scrubbing,
    virtual_sink,
    virtual_streams,
    virtual_tables,
    virtual_tier,
    virtual_topics,
)
from tests.simulation.scenario_lost_acks import LostAcks
from tests.simulation.virtual_clients import STREAM, Clients
from tests.simulation.virtual_life import Life
from tests.simulation.virtual_writing import write

STORY_WRITERS = {LostAcks.STORY: 1, LostAcks.EARLY: 1}
"""In other stories four writers take the stream from each other."""
HUB = "h0"
"""The process in which several roles share one client."""
OPENED_AGAIN_EVERY = 8
"""In so many seeds one has a stream that is opened again and again. Not drawn: that would change all other seeds."""
MANY_STREAMS_EVERY = 8
"""In so many seeds one process writes many streams. Not drawn, for the same reason."""
JOURNAL_EVERY = 8
"""In so many seeds brokers take a journal from each other. Not drawn, for the same reason."""
TOPIC_EVERY = 8
"""In so many seeds producers send to a topic over brokers. Not drawn, for the same reason."""
TABLE_EVERY = 8
"""In so many seeds brokers take a table's partition from each other. Not drawn, for the same reason."""
REPACK_EVERY = 3
"""In so many seeds objects are repacked. Not drawn, for the same reason."""
FOLLOW_EVERY = 3
"""In so many seeds a streaming query of Spark reads the main stream. Not drawn, for the same reason."""
SINK_EVERY = 8
"""In so many seeds Spark's sink writes a stream. Not drawn, for the same reason."""
CURSOR_EVERY = 12
"""In so many seeds consumers share a cursor. Not drawn, for the same reason."""
RETENTION_S = 30.0
RETENTION_KEPT_S = 15.0
"""Judged by this: cluster time may have stood still while the placement drivers were away, and then catches up."""

ASKERS: tuple[Callable[..., Coroutine[Any, Any, None]], ...] = (
    virtual_reading.read_to_the_end,
    virtual_reading.start_at_the_end,
    virtual_reading.start_at_a_time,
    virtual_reading.ask_for_the_end,
    virtual_planning.plan_and_read,
)


class Load:
    """See the module. A story has its own writers, one after the other, and few readers beside them."""

    def __init__(self, clients: Clients, *, story: str) -> None:
        self._clients, self._chance = clients, clients.chance
        self._story = story
        self.retention = not story and self._chance.random() < 0.12
        self._shared = self._chance.random() < 0.6

    async def create_stream(self) -> None:
        """The main one."""
        client = await rangelog.connect(self._clients.cluster.pd_addresses)
        hot_s = self._chance.choice([None, 0.0, 5.0, float("inf")])
        tiered = self._chance.random() < 0.7
        info = await client.create_stream(
            STREAM,
            StreamConfig(
                range_size_bytes_max=64 * 1024,
                retention_seconds=RETENTION_S if self.retention else None,
                hot_retention_seconds=hot_s if tiered else float("inf"),
                tiered=tiered,
            ),
        )
        life = self._clients.cluster.lives[info.stream_id] = Life(STREAM, STREAM, info.stream_id)
        if self.retention:
            life.retained(RETENTION_KEPT_S)
        await client.close()

    def start(self, duration_s: float) -> None:
        """Start everything, now or later."""
        self._start_writers(duration_s)
        for number, preference in enumerate(("hot_first", "cold_first")[: self._chance.randrange(0, 3)]):
            name = f"r{number}"
            self._start(name, virtual_reading.follow(self._clients, self._clients.main, name, preference))
        if self._chance.random() < 0.5:
            self._clients.start("admin", virtual_streams.trim(self._clients, self._clients.main))
        virtual_packing.start(self._clients)
        self._start_askers(1 if self._story else self._chance.randrange(2, 5))
        if not self._story:
            self._start_other_streams()

    def _start_writers(self, duration_s: float) -> None:
        chance = self._chance
        for number in range(STORY_WRITERS.get(self._story, 4) if self._story else chance.randrange(1, 4)):
            count, pause_s = chance.randrange(50, 500), chance.choice([0.002, 0.02, 0.1])
            if self._story:
                count, pause_s = 1_000, 0.02
            begin_s = chance.uniform(0, duration_s) if number else 0.0
            self._clients.loop.call_later(begin_s, self._start_writer, f"w{number}", count, pause_s)

    def _start_writer(self, name: str, count: int, pause_s: float) -> None:
        self._clients.start(name, self._clients.write(name, count, pause_s))

    def _start_askers(self, count: int) -> None:
        chance = self._chance
        for number in range(count):
            asker, name = chance.choice(ASKERS), f"a{number}"
            rounds, pause_s = chance.randrange(2, 5), chance.choice([0.1, 0.5, 2.0])
            self._start(name, asker(self._clients, self._clients.main, name, rounds, pause_s))

    def _start_other_streams(self) -> None:
        clients, chance = self._clients, self._chance
        if chance.random() < 0.35:
            clients.start("keeper", virtual_streams.keep(clients, "side", chance.randrange(2, 4)), self._where())
        if chance.random() < 0.3:
            clients.start("maker", self._second(), self._where())
        if chance.random() < 0.04:
            clients.start("host", virtual_streams.gather(clients, "quiet"))
        if clients.cluster.seed % OPENED_AGAIN_EVERY == 3:
            clients.start("opener", virtual_streams.open_again(clients, "idle"))
        if clients.cluster.seed % MANY_STREAMS_EVERY == 5:
            clients.start("creator", virtual_streams.write_many(clients, "fleet"))
        if clients.cluster.seed % virtual_left.EVERY == 2:
            virtual_left.start(clients)
        if clients.cluster.seed % virtual_operators.EVERY == 0:
            virtual_operators.start(clients)
            virtual_idle.start(clients)
        if clients.cluster.seed % virtual_tier.EVERY == 3:
            virtual_tier.start(clients)
        if clients.cluster.seed % REPACK_EVERY == 1:
            virtual_repacking.start(clients)
        if clients.cluster.seed % virtual_quotas.EVERY == 1:
            virtual_quotas.start(clients)
        virtual_scrubbing.start(clients)
        virtual_audit.start(clients)
        if clients.cluster.seed % virtual_packing.PIECES_EVERY == 2:
            virtual_packing.start_pieces(clients)
        if clients.cluster.seed % FOLLOW_EVERY == 2:
            virtual_following.start(clients)
        if clients.cluster.seed % SINK_EVERY == 6:
            clients.start("spark", virtual_sink.keep(clients, "sunk"))
        if clients.cluster.seed % CURSOR_EVERY == 2:
            virtual_cursors.start(clients)
        if clients.cluster.seed % TOPIC_EVERY == 1:
            clients.start("manager", virtual_topics.keep(clients, "topic"))
        if clients.cluster.seed % JOURNAL_EVERY == 7:
            clients.start("registrar", virtual_journals.keep(clients, "journal"))
        if clients.cluster.seed % TABLE_EVERY == 1:
            clients.start("tabulator", virtual_tables.keep(clients, "table"))

    async def _second(self) -> None:
        """A second stream that lives for ever, with a writer and a reader of its own beside those of the main one."""
        clients, chance = self._clients, self._chance
        life = await virtual_streams.create(clients, "other")
        on = chance.choice([HUB, "w0", ""])
        writer, reader = f"v-{life.label}", f"f-{life.label}"
        clients.start(writer, write(clients, life, writer, chance.randrange(20, 200), 0.05), on)
        clients.start(reader, virtual_reading.follow(clients, life, reader), on)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._clients.start(name, work, self._where())

    def _where(self) -> str:
        """A process of its own, the hub, or that of the first writer: then it dies with it."""
        return self._chance.choice([HUB, HUB, HUB, "w0"]) if self._shared else ""
