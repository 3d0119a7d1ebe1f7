"""Walks of the whole reader on a cluster in memory: writes, scales, broken connections and restarts, in any order.

The core's own walks try many more schedules; these see what its runtime does with tasks, waiting chunks and the map.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable

import pytest

from rangelog import AppendRecord, Client, Cut, KeyRange, TopicRecord
from rangelog._topics import watches
from rangelog_core.key_ranges import KEY_SPACE_END
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import scale, write

pytestmark = pytest.mark.virtual

PARTS = 6
"""Keys are the numbers of equal parts of the key space."""
ENDS = [KEY_SPACE_END * part // PARTS for part in range(PARTS + 1)]


class Walk:
    """One topic, its records, and a reader that is restarted now and then."""

    def __init__(self, seed: int, cluster: TopicCluster, client: Client, topic_id: int) -> None:
        self.draw = random.Random(seed)
        self.cluster, self.client, self.topic_id = cluster, client, topic_id
        self.sent: dict[int, list[int]] = defaultdict(list)
        self.count = 0
        self.found: list[TopicRecord] = []
        self.going = asyncio.Event()  # unset: the application rests at a record
        self.going.set()
        self.reader = client.topic_reader("t", follow=True)
        self.reading = asyncio.create_task(self.read())

    async def read(self) -> None:
        """Read, with other tasks in between."""
        by_chunk = self.draw.random() < 0.3
        if by_chunk:
            async for chunk in self.reader.chunks():
                self.found += [TopicRecord(chunk.shard_id, *record) for record in chunk.records]
                await self.going.wait()
        async for record in self.reader:
            self.found.append(record)
            await self.going.wait()
            if self.draw.random() < 0.2:
                await asyncio.sleep(0)

    async def write(self) -> None:
        """A few records in some shards."""
        for shard in await self.client.topics.shards("t"):
            keys = [key for key in range(PARTS) if shard.key_range.low <= ENDS[key] < shard.key_range.high]
            records = []
            for _ in range(self.draw.randint(0, 12) if keys else 0):
                key = self.draw.choice(keys)
                self.sent[key].append(self.count)
                records.append(AppendRecord(b"%d" % self.count, b"%d" % key))
                self.count += 1
            if records:
                await write(self.client, self.topic_id, shard.shard_id, records)

    async def scale(self) -> None:
        """Neighbours become other neighbours."""
        shards = await self.client.topics.shards("t")
        first = self.draw.randrange(len(shards))
        parents = shards[first : first + self.draw.randint(1, 3)]
        low, high = parents[0].key_range.low, parents[-1].key_range.high
        inner = [end for end in ENDS if low < end < high]
        ends = sorted(self.draw.sample(inner, self.draw.randint(0, min(2, len(inner)))))
        ranges = [KeyRange(*pair) for pair in zip([low, *ends], [*ends, high], strict=True)]
        await scale(self.client, "t", [each.shard_id for each in parents], ranges)

    async def restart(self) -> None:
        """Stop the reader where it is, and begin another one there."""
        position = await self.stop()
        if position is not None:
            start = Cut.from_json(position.to_json())
            self.reader = self.client.topic_reader("t", start=start, follow=True)
        else:
            self.reader = self.client.topic_reader("t", follow=True)
        self.reading = asyncio.create_task(self.read())

    async def stop(self) -> Cut | None:
        """End the reader in the middle of whatever it does; None: it had not begun."""
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        return self.reader.position() if self.found else None

    async def hold(self) -> None:
        """The application takes its time, or goes on."""
        if self.going.is_set():
            self.going.clear()
        else:
            self.going.set()

    async def break_connections(self) -> None:
        """All of them."""
        self.cluster.break_connections()

    async def turn(self) -> None:
        """Let the reader go on for a while, and learn of scales."""
        for _ in range(self.draw.randint(1, 60)):
            await asyncio.sleep(0)
        map_version = (await self.client.topics.describe("t")).map_version
        watched = self.client.topic_watches._watches.get(self.topic_id)
        while self.draw.random() < 0.8 and watched is not None and watched.users and watched.map.version < map_version:
            await asyncio.sleep(0.001)

    async def finish(self) -> None:
        """Until the reader has everything; then it has each record once, in order of its key."""
        self.going.set()
        while len(self.found) < self.count:
            assert not self.reading.done(), self.reading
            await asyncio.sleep(0.001)
        tail = await self.client.topics.cut("t", "tail")
        while self.reader.position() != tail:  # it has yet to learn of scales behind its last record
            await asyncio.sleep(0.001)
        await self.stop()
        by_key: dict[int, list[int]] = defaultdict(list)
        for record in self.found:
            assert record.key is not None
            by_key[int(record.key)].append(int(record.value))
        assert by_key == {key: sent for key, sent in self.sent.items() if sent}


@pytest.mark.parametrize("seed", range(24))
async def test_walks_of_the_whole_reader(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record once and in order of its key, wherever readers stop and whatever happens beside them."""
    monkeypatch.setattr(watches, "FALL_BACK_S", 0.002)
    cluster = TopicCluster()
    async with asyncio.timeout(60), cluster.client() as client:
        topic_id = (await client.topics.create("t", shards=1 + seed % 3)).topic_id
        walk = Walk(seed, cluster, client, topic_id)
        weights: dict[Callable[[], Awaitable[None]], float] = {
            walk.write: 6, walk.scale: 2, walk.restart: 2, walk.turn: 8, walk.hold: 3, walk.break_connections: 0.5,
        }  # fmt: skip
        for _ in range(60):
            await walk.draw.choices(list(weights), list(weights.values()))[0]()
        await walk.finish()
