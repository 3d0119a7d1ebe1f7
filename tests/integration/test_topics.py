"""Topics on real processes: administered, written shard by shard, scaled, and read back in order from anywhere."""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import pytest

import rangelog
from rangelog import AppendRecord, Cut, KeyRange, Retention, StreamConfig, TopicConfig, TopicConfigChange, errors
from rangelog_cli.local.processes import Cluster
from rangelog_core.key_ranges import KEY_SPACE_END
from tests.support.leader import leader_of
from tests.support.shard_streams import cover, end_topic, scale, seal, write

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

T0_MS = 1_700_000_000_000
PARTS = 8
"""Keys are the numbers of equal parts of the key space."""


@pytest.fixture
async def client(shared_cluster: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client of the file's cluster."""
    async with await rangelog.connect(shared_cluster.connect_string) as made:
        yield made


@pytest.fixture
def name() -> str:
    """A topic that no other test of the file uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


def part_range(low: int, high: int) -> KeyRange:
    """The key range of some parts."""
    return KeyRange(KEY_SPACE_END * low // PARTS, KEY_SPACE_END * high // PARTS)


class Producer:
    """Writes numbered records of each key to the current shard of the key, in the place of shards' owners."""

    def __init__(self, client: rangelog.Client, name: str, topic_id: int) -> None:
        self.client, self.name, self.topic_id = client, name, topic_id
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self.count = 0

    async def write(self, rounds: int) -> None:
        """Some records of each key, in all current shards."""
        for shard in await self.client.topics.shards(self.name):
            records = []
            for _ in range(rounds):
                for key in range(PARTS):
                    position = KEY_SPACE_END * key // PARTS
                    if shard.key_range.low <= position < shard.key_range.high:
                        self.count += 1
                        value = b"%d" % self.count
                        self.sent[b"%d" % key].append(value)
                        records.append(AppendRecord(value, b"%d" % key, None, T0_MS + self.count))
            if records:
                await write(self.client, self.topic_id, shard.shard_id, records)

    def check(self, found: Sequence[rangelog.TopicRecord]) -> None:
        """All of it, once, in order of each key."""
        by_key: dict[bytes, list[bytes]] = defaultdict(list)
        for record in found:
            assert record.key is not None
            by_key[record.key].append(record.value)
        assert by_key == self.sent


async def read(client: rangelog.Client, name: str, **options: object) -> list[rangelog.TopicRecord]:
    """All that a reader gets."""
    return [record async for record in client.topic_reader(name, **options)]  # type: ignore[arg-type]


async def test_a_topic_is_read_in_order_of_keys_over_splits_and_merges(client: rangelog.Client, name: str) -> None:
    """From the start, from each position on the way, and by a follower that was there before the scales."""
    topic_id = (await client.topics.create(name, shards=2)).topic_id
    producer = Producer(client, name, topic_id)
    followed: list[rangelog.TopicRecord] = []
    follower = client.topic_reader(name, follow=True)

    async def follow() -> None:
        async for record in follower:
            followed.append(record)

    following = asyncio.create_task(follow())
    await producer.write(20)
    await scale(client, name, [0], 2)
    await producer.write(20)
    await scale(client, name, [2, 3, 1], [part_range(0, 3), part_range(3, 5), part_range(5, PARTS)])
    await producer.write(20)
    await scale(client, name, [4, 5, 6], 1)
    await producer.write(20)

    reader = client.topic_reader(name)
    found, positions = [], []
    async for record in reader:
        found.append(record)
        if len(found) % 60 == 0:
            positions.append((len(found), reader.position()))
    producer.check(found)
    assert reader.position() == await client.topics.cut(name, "tail")
    assert len(positions) >= 8
    for count, position in positions:
        rest = await read(client, name, start=Cut.from_json(position.to_json()))
        producer.check(found[:count] + rest)
    (_, first), *_, (_, last) = positions
    assert len(await read(client, name, start=first, end=last)) == positions[-1][0] - positions[0][0]

    await client.topics.seal(name)
    await end_topic(client, name)
    await asyncio.wait_for(following, 60)
    producer.check(followed)


async def test_cuts_at_times_and_truncation(client: rangelog.Client, name: str) -> None:
    """A cut at a time leaves nothing out; what lies before a truncation is gone, and said so."""
    topic_id = (await client.topics.create(name)).topic_id
    producer = Producer(client, name, topic_id)
    await producer.write(10)
    middle = datetime.fromtimestamp((T0_MS + producer.count + 1) / 1000, UTC)
    await scale(client, name, [0], 2)
    await producer.write(10)
    cut = await client.topics.cut(name, middle)
    assert cut == Cut(topic_id, {1: 0, 2: 0})
    late = await read(client, name, start=middle)
    assert len(late) == producer.count // 2 and all(record.timestamp >= middle for record in late)

    await client.topics.truncate(name, cut)
    await cover(client, name)
    assert await client.topics.cut(name, "head") == cut
    assert sorted(await read(client, name)) == sorted(late)
    with pytest.raises(errors.OffsetTrimmed) as caught:
        await read(client, name, start=Cut(topic_id, {0: 3}))
    assert caught.value.offset == 80
    (first, *_) = await client.topics.shards(name, include_ended=True)
    assert first.truncated
    with pytest.raises(errors.InvalidArgument):
        await client.topics.truncate(name, Cut(topic_id, {1: 0}))
    with pytest.raises(errors.OffsetOutOfRange):
        await client.topics.truncate(name, Cut(topic_id, {1: 1_000, 2: 0}))


async def test_a_start_beyond_the_end_and_a_later_end(client: rangelog.Client, name: str) -> None:
    """The one is refused with the end there is; a follower waits for the other, and reads nothing beyond it."""
    topic_id = (await client.topics.create(name, shards=2)).topic_id
    await write(client, topic_id, 0, [b"a"])
    for follow in (False, True):
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            await read(client, name, start=Cut(topic_id, {0: 2, 1: 0}), follow=follow)
        assert caught.value.offset == 1
    waiting = asyncio.create_task(read(client, name, start="latest", end=Cut(topic_id, {0: 2, 1: 1}), follow=True))
    tail = await client.topics.cut(name, "tail")
    await write(client, topic_id, 0, [b"b", b"c"])
    await write(client, topic_id, 1, [b"d"])
    values = {record.value for record in await asyncio.wait_for(waiting, 60)}
    assert values <= {b"b", b"d"}, tail


async def test_the_administration_of_topics(client: rangelog.Client, name: str) -> None:
    """Configuration and tags come back as they were given; the states of a topic's life, and what each forbids."""
    config = TopicConfig(
        stream=StreamConfig(compression="zstd", range_age_seconds=60), retention=Retention(age_seconds=3600)
    )
    namespace = f"n-{name}"
    with pytest.raises(errors.NamespaceNotFound):
        await client.topics.create(f"{namespace}/{name}")
    await client.topics.create_namespace(namespace)
    full = f"{namespace}/{name}"
    made = await client.topics.create(full, config, shards=[part_range(0, 5), part_range(5, PARTS)], tags={"a": "b"})
    assert (made.config.retention, made.config.stream.range_age_seconds) == (Retention(age_seconds=3600), 60)
    assert (made.config.stream.compression, made.tags, made.shard_count) == ("zstd", {"a": "b"}, 2)
    with pytest.raises(errors.TopicExists):
        await client.topics.create(full)
    changed = await client.topics.update(
        full, TopicConfigChange(retention=Retention(shard_size_bytes=1 << 30)), remove_tags=["a"]
    )
    assert (changed.config.retention.shard_size_bytes, changed.tags) == (1 << 30, {})
    assert changed.config.stream == made.config.stream
    with pytest.raises(errors.PreconditionFailed):
        await client.topics.update(full, set_tags={"c": "d"}, expected_version=made.version)
    assert [each.name async for each in client.topics.list(namespace=namespace, prefix="t-")] == [full]
    with pytest.raises(errors.TopicStateForbids):
        await client.topics.delete(full)
    with pytest.raises(errors.RequestTimeout):
        await client.topics.scale(full, [0], 2, timeout_s=5.0)
    with pytest.raises(errors.TopicStateForbids):
        await client.topics.seal(full)
    await client.topics.cancel_scale(full)
    with pytest.raises(errors.PreconditionFailed):
        await client.topics.delete_namespace(namespace)
    await client.topics.seal(full)
    await end_topic(client, full)
    assert (await client.topics.describe(full)).state == "sealed"
    await client.topics.delete(full)
    with pytest.raises(errors.TopicNotFound):
        await client.topics.describe(full)
    await client.topics.delete_namespace(namespace)


async def test_a_deletion_ends_followers(client: rangelog.Client, name: str) -> None:
    """With an error that names the topic."""
    topic_id = (await client.topics.create(name)).topic_id
    await write(client, topic_id, 0, [b"a"])
    reader = aiter(client.topic_reader(name, follow=True))
    assert (await anext(reader)).value == b"a"
    await client.topics.delete(name, force=True)
    with pytest.raises(errors.TopicNotFound):
        await asyncio.wait_for(anext(reader), 60)


async def test_a_shard_that_has_ended_takes_no_writer(client: rangelog.Client, name: str) -> None:
    """Its stream is sealed for good, so a reader's end of it stays."""
    topic_id = (await client.topics.create(name)).topic_id
    await write(client, topic_id, 0, [b"a"])
    (shard,) = await client.topics.shards(name)
    await scale(client, name, [0], 2)
    with pytest.raises(errors.StreamSealed):
        await seal(client, topic_id, shard)
    with pytest.raises(errors.StreamSealed):
        await write(client, topic_id, 0, [b"b"])
    assert [record.value for record in await read(client, name)] == [b"a"]


async def test_a_follower_survives_a_leader_that_is_killed(cluster: Cluster, name: str) -> None:
    """The watch of the topic begins anew at the next one; the scale that follows is learned of."""
    async with await rangelog.connect(cluster.connect_string) as client:
        topic_id = (await client.topics.create(name)).topic_id
        await write(client, topic_id, 0, [b"a"])
        reader = aiter(client.topic_reader(name, follow=True))
        assert (await anext(reader)).value == b"a"
        cluster.kill(await asyncio.to_thread(leader_of, cluster))
        await scale(client, name, [0], 2)
        await write(client, topic_id, 2, [b"b"])
        assert (await asyncio.wait_for(anext(reader), 60)).value == b"b"
