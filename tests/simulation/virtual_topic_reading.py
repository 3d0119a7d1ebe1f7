"""Readers of a topic that die and start again at a saved cut, over splits and merges (T4).

What is kept between two lives of a reader is the cut's text, and here what it had read up to it. Of each shard the records come
without gap or repeat; the first record of a shard comes after all records of the shards that precede it; a cut names what was
read, no more and no less.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rangelog import Cut
from rangelog.errors import RangelogError
from rangelog_proto.v1 import topic_pb2

if TYPE_CHECKING:
    from tests.simulation.virtual_clients import Clients

ARRIVES_S = 120.0
PREFERENCES = ("hot_first", "hot_first", "cold_first")


@dataclass
class TopicReading:
    """One reader, whose process is started again and again."""

    clients: Clients
    name: str
    topic: str
    read: dict[int, int] = field(default_factory=dict)
    """How many records of each shard this life has, with those before its start."""
    values: dict[tuple[int, int], bytes] = field(default_factory=dict)
    _saved: str = ""
    _saved_read: dict[int, int] = field(default_factory=dict)
    _began: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    """Shards with what had been read when their first records came."""
    _cuts: list[tuple[Mapping[int, int], dict[int, int]]] = field(default_factory=list)
    """Saved cuts with what had been read."""
    _lives: int = 0
    _role: str = ""

    async def supervise(self) -> None:
        """Start the reader whenever it does not run; kill it now and then."""
        clients, chance = self.clients, self.clients.chance
        while not clients.stopping:
            self._start_again()
            await asyncio.sleep(chance.uniform(0.2, 2.0))
            if chance.random() < 0.3:
                clients.kill(self._role)

    def _start_again(self) -> None:
        if not self._role or not self.clients.lives_on(self._role):
            self._lives += 1
            self._role = f"n-{self.name}-{self._lives}"
            self.clients.start(self._role, self._live())

    async def _live(self) -> None:
        """Read from the saved cut on; stop and begin anew there now and then."""
        clients, chance = self.clients, self.clients.chance
        client = await clients.client()
        while True:
            self.read = dict(self._saved_read)
            start = Cut.from_json(self._saved) if self._saved else "earliest"
            if self._saved:
                clients.cluster.note("a reader of a topic began at a saved cut")
            reader = client.topic_reader(
                self.topic, start=start, follow=chance.random() < 0.7, read_preference=chance.choice(PREFERENCES)
            )
            try:
                async with aclosing(aiter(reader)) as records:  # type: ignore[type-var]
                    async for record in records:
                        self._saw(record.shard_id, record.offset, record.value)
                        draw = chance.random()
                        if draw < 0.01:
                            self._keep(reader.position().to_json())
                        if draw > 0.9995:
                            break
                        if draw > 0.99:
                            await asyncio.sleep(chance.expovariate(1 / 0.05))
            except RangelogError as error:
                clients.cluster.note(f"topic reader: {type(error).__name__}")
            await asyncio.sleep(chance.uniform(0.0, 0.3))

    def _saw(self, shard: int, offset: int, value: bytes) -> None:
        fail = self.clients.cluster.fail
        due = self.read.get(shard, 0)
        if offset != due:
            fail(f"{self.name} read record {offset} of shard {shard}, and {due} was due")
        if self.values.setdefault((shard, offset), value) != value:
            fail(f"{self.name} read two records at {offset} of shard {shard}")
        if offset == 0:
            self._began.append((shard, dict(self.read)))
        self.read[shard] = offset + 1

    def _keep(self, text: str) -> None:
        self._cuts.append((Cut.from_json(text).offsets, dict(self.read)))
        self._saved, self._saved_read = text, dict(self.read)

    # ---- the end

    async def judge(self, shards: list[topic_pb2.Shard], found: dict[int, list[tuple[int, bytes]]]) -> None:
        """Wait until everything is read, and check what was read on the way."""
        clients = self.clients
        ends = {shard_id: len(records) for shard_id, records in found.items()}
        deadline = clients.loop.now + ARRIVES_S
        while {shard: count for shard, count in self.read.items() if count} != {
            s: end for s, end in ends.items() if end
        }:
            if clients.loop.now > deadline:
                clients.cluster.fail(f"{self.name} does not come to the end {ends}: it is at {self.read}")
            self._start_again()
            await asyncio.sleep(0.5)
        if self._role:  # else the topic is empty, and it never ran
            clients.dismiss(self._role)
        before = _ancestors(shards)
        for shard, read in self._began:
            if before[shard]:
                clients.cluster.note("a reader of a topic went on to a shard's successors")
            early = [each for each in before[shard] if read.get(each, 0) != ends[each]]
            if early:
                clients.cluster.fail(f"{self.name} began shard {shard} before the end of {early[0]}, which precedes it")
        for cut, read in self._cuts:
            self._check_cut(cut, read, ends, before)
        kept = {(shard, offset): value for shard, records in found.items() for offset, value in records}
        wrong = [place for place, value in self.values.items() if kept.get(place) != value]
        if wrong:
            clients.cluster.fail(f"{self.name} read {self.values[wrong[0]]!r} at {wrong[0]}, which is not there")

    def _check_cut(
        self, cut: Mapping[int, int], read: dict[int, int], ends: dict[int, int], before: dict[int, set[int]]
    ) -> None:
        behind = set().union(*(before[each] for each in cut))
        for shard, end in ends.items():
            named = cut.get(shard, end if shard in behind else 0)
            if named != read.get(shard, 0):
                self.clients.cluster.fail(
                    f"a cut of {self.name} has {named} records of shard {shard}; {read.get(shard, 0)} were read: {cut}"
                )


def _ancestors(shards: list[topic_pb2.Shard]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    for shard in sorted(shards, key=lambda each: each.shard_id):  # predecessors have lower ids
        found[shard.shard_id] = set(shard.predecessors).union(*(found[each] for each in shard.predecessors))
    return found
