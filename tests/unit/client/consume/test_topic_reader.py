"""Readers of topics on a cluster in memory: every record, in order, over scales; positions, ends, trims and deletions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from rangelog import AppendRecord, Client, errors
from rangelog._topics.cut import Cut
from rangelog_core.key_ranges import KEY_SPACE_END, KeyRange
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import end_topic, scale, shard_writer, write

pytestmark = pytest.mark.virtual

T0_MS = 1_700_000_000_000
HALF = KEY_SPACE_END // 2


@pytest.fixture
def cluster() -> TopicCluster:
    """A new one for each test."""
    return TopicCluster()


@pytest.fixture
async def client(cluster: TopicCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


async def read(client: Client, **options: Any) -> list[tuple[int, bytes]]:
    """What a reader of the topic gets: shard and value."""
    return [(record.shard_id, record.value) async for record in client.topic_reader("t", **options)]


async def scaled_topic(client: Client) -> int:
    """Shard 0 has a, b; 1 and 2 follow it with c and d; 3 follows both with e."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [b"a", b"b"])
    await scale(client, "t", [0], 2)
    await write(client, topic_id, 1, [b"c"])
    await write(client, topic_id, 2, [b"d"])
    await scale(client, "t", [1, 2], 1)
    await write(client, topic_id, 3, [b"e"])
    return topic_id


def in_order(found: list[tuple[int, bytes]]) -> bool:
    """Whether these are the records of the scaled topic in one of their orders."""
    return found[:2] == [(0, b"a"), (0, b"b")] and {*found[2:4]} == {(1, b"c"), (2, b"d")} and found[4:] == [(3, b"e")]


async def test_records_of_all_shards_are_read_predecessors_first(client: Client) -> None:
    """From the start to what is acked when the reader starts, with all that a record has."""
    topic_id = await scaled_topic(client)
    assert in_order(await read(client))
    record = AppendRecord(b"f", b"key", {"h": b"1"}, T0_MS)
    await write(client, topic_id, 3, [record])
    last = [each async for each in client.topic_reader("t")][-1]
    assert last == (3, 1, T0_MS, b"key", b"f", {"h": b"1"})
    assert last.timestamp == datetime.fromtimestamp(T0_MS / 1000, UTC)


async def test_a_reader_goes_on_from_each_position(client: Client) -> None:
    """Wherever a reader stops, another one that starts at its position gets the rest, and nothing twice."""
    await scaled_topic(client)
    for count in range(6):
        reader = client.topic_reader("t")
        found = []
        if count:
            async for record in reader:
                found.append((record.shard_id, record.value))
                if len(found) == count:
                    break
        start: Any = Cut.from_json(reader.position().to_json()) if count else "earliest"
        assert in_order(found + await read(client, start=start)), count
    assert reader.position().offsets == {3: 1}


async def test_chunks_count_as_yielded_wholly(client: Client) -> None:
    """The position is behind a chunk as soon as it is out."""
    topic_id = await scaled_topic(client)
    reader = client.topic_reader("t")
    with pytest.raises(errors.InvalidArgument):
        reader.position()
    async for chunk in reader.chunks():
        assert (chunk.shard_id, chunk.start_offset, chunk.end_offset) == (0, 0, 2)
        assert [record.value for record in chunk.records] == [b"a", b"b"]
        assert reader.position() == Cut(topic_id, {0: 2})
        break
    assert await read(client, start=Cut(topic_id, {0: 2}), end=Cut(topic_id, {1: 0, 2: 1})) == [(2, b"d")]


async def test_a_follower_goes_over_scales_as_they_are_committed(client: Client) -> None:
    """It finishes the parents, then reads the children, and ends when the topic is sealed and read."""
    topic_id = (await client.topics.create("t", shards=2)).topic_id
    reader = client.topic_reader("t", follow=True)
    found: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def follow() -> None:
        async for record in reader:
            found.put_nowait((record.shard_id, record.value))

    async with asyncio.timeout(30):
        following = asyncio.create_task(follow())
        await write(client, topic_id, 0, [b"a"])
        assert await found.get() == (0, b"a")
        thirds = [KeyRange(0, HALF // 2), KeyRange(HALF // 2, HALF + 1), KeyRange(HALF + 1, KEY_SPACE_END)]
        await scale(client, "t", [0, 1], thirds)
        await write(client, topic_id, 3, [b"b"])
        assert await found.get() == (3, b"b")
        await scale(client, "t", [2, 3, 4], 1)
        await write(client, topic_id, 5, [b"c"])
        assert await found.get() == (5, b"c")
        assert reader.position() == Cut(topic_id, {5: 1})
        await client.topics.seal("t")
        await end_topic(client, "t")
        await following


async def test_a_follower_ends_at_a_cut_that_is_reached_later(client: Client) -> None:
    """The end may lie behind all that is there when the reader starts."""
    topic_id = (await client.topics.create("t", shards=2)).topic_id
    async with asyncio.timeout(30):
        reading = asyncio.create_task(read(client, follow=True, end=Cut(topic_id, {0: 2, 1: 0})))
        async with shard_writer(client, topic_id, 0) as writer:
            await writer.append_batch([b"a", b"b", b"c"])
        assert await reading == [(0, b"a"), (0, b"b")]


async def test_a_reader_without_follow_ends_at_the_tail_of_its_start(client: Client) -> None:
    """Also at an end cut that is further; from the tail it reads nothing."""
    topic_id = (await client.topics.create("t")).topic_id
    assert await read(client) == []
    await write(client, topic_id, 0, [b"a", b"b"])
    assert await read(client, end=Cut(topic_id, {0: 9})) == [(0, b"a"), (0, b"b")]
    assert await read(client, start="latest") == []
    reader = client.topic_reader("t")
    async for record in reader:
        if record.offset == 0:
            await write(client, topic_id, 0, [b"c"])
    assert reader.position() == Cut(topic_id, {0: 2})


async def test_what_was_trimmed_is_said_so(client: Client) -> None:
    """A start below the trim is an error with the first offset there is; "earliest" starts there."""
    topic_id = await scaled_topic(client)
    await client.topics.truncate("t", Cut(topic_id, {1: 1, 2: 0}))
    assert await read(client) == [(2, b"d"), (3, b"e")]
    assert (await client.topics.cut("t", "head")).offsets == {1: 1, 2: 0}
    for start in (Cut(topic_id, {0: 1}), Cut(topic_id, {1: 0, 2: 0})):
        with pytest.raises(errors.OffsetTrimmed) as caught:
            await read(client, start=start)
        assert caught.value.offset == (2 if 0 in start.offsets else 1)


async def test_a_trim_after_the_look_for_the_start(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader from the start takes what there is then; its position is behind what was trimmed."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [b"a", b"b"])
    reader = client.topic_reader("t", follow=True)
    cut_in = client.topics.cut_in

    async def trimmed_since(*arguments: Any) -> Cut:
        found = await cut_in(*arguments)
        await scale(client, "t", [0], 1)
        await client.topics.truncate("t", Cut(topic_id, {0: 1}))
        return found

    monkeypatch.setattr(client.topics, "cut_in", trimmed_since)
    async with asyncio.timeout(30):
        async for record in reader:
            assert record.value == b"b" and reader.position() == Cut(topic_id, {0: 2})
            break


async def test_a_start_beyond_the_end_is_refused(client: Client) -> None:
    """Of a shard that has ended, of a current one, with and without follow; the error has the end."""
    topic_id = await scaled_topic(client)
    for offsets, end in (({0: 3}, 2), ({3: 2}, 1)):
        for follow in (False, True):
            with pytest.raises(errors.OffsetOutOfRange) as caught:
                await read(client, start=Cut(topic_id, offsets), follow=follow)
            assert caught.value.offset == end


async def test_what_is_no_cut_of_the_topic_is_refused(client: Client) -> None:
    """Unknown shards, gaps, overlaps, shards that precede one another, another topic's cut, and no cut at all."""
    topic_id = await scaled_topic(client)
    wrong: list[tuple[dict[int, int], type[errors.RangelogError]]] = [
        ({9: 0}, errors.ShardNotFound),
        ({1: 0}, errors.KeyRangeGap),
        ({0: 0, 1: 0}, errors.KeyRangeOverlap),
    ]
    for offsets, error in wrong:
        for options in ({"start": Cut(topic_id, offsets)}, {"end": Cut(topic_id, offsets)}):
            with pytest.raises(error):
                await read(client, **options)
    with pytest.raises(errors.InvalidArgument, match="created anew"):
        await read(client, start=Cut(topic_id + 1, {0: 0}))
    for bad in ({"start": "newest"}, {"start": 3}, {"start": []}, {"end": 3}, {"read_preference": "warm"}):
        with pytest.raises(errors.InvalidArgument):
            client.topic_reader("t", **bad)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidArgument):
        client.topic_reader("a/b/c")
    with pytest.raises(errors.TopicNotFound):
        [each async for each in client.topic_reader("u")]


async def test_a_reader_starts_at_a_time(client: Client) -> None:
    """Nothing at or after the time is left out; what was wholly earlier is passed over with its shards."""
    topic_id = (await client.topics.create("t")).topic_id
    at = [AppendRecord(b"%d" % number, None, None, T0_MS + 1000 * number) for number in range(4)]
    await write(client, topic_id, 0, at[:2])
    await scale(client, "t", [0], 2)
    await write(client, topic_id, 1, at[2:3])
    await write(client, topic_id, 2, at[3:])
    assert await read(client, start=datetime.fromtimestamp(T0_MS / 1000 + 0.5, UTC)) == [
        (0, b"1"),
        *[each for each in await read(client) if each[0] > 0],
    ]
    assert await read(client, start=datetime.fromtimestamp(T0_MS / 1000 + 2.5, UTC)) == [(2, b"3")]
    late = datetime.fromtimestamp(T0_MS / 1000 + 60, UTC)
    assert await read(client, start=late) == []
    assert (await client.topics.cut("t", late)).offsets == {1: 1, 2: 1}


async def test_a_deleted_topic_ends_its_readers(client: Client) -> None:
    """Followers are told so, not that an internal stream is missing."""
    await client.topics.create("t", shards=2)
    async with asyncio.timeout(30):
        following = asyncio.create_task(read(client, follow=True))
        await asyncio.sleep(0)
        await client.topics.delete("t", force=True)
        with pytest.raises(errors.TopicNotFound):
            await following


async def test_shards_are_read_in_turns(client: Client) -> None:
    """A long shard does not keep back the records of the others, and no shard has more than one chunk that waits."""
    topic_id = (await client.topics.create("t", shards=3)).topic_id
    for shard_id in range(3):
        async with shard_writer(client, topic_id, shard_id) as writer:
            for number in range(6):
                await writer.append_batch([b"%d" % number + b"." * 200_000])
    reader = client.topic_reader("t")
    turns = []
    async for chunk in reader.chunks():
        turns.append(chunk.shard_id)
        for _ in range(50):
            await asyncio.sleep(0)  # the readers of shards have what time they want
        assert sorted({each.shard_id for each, _ in reader._ready}) == sorted(
            each.shard_id for each, _ in reader._ready
        )
    assert len(turns) >= 9
    counts = dict.fromkeys(range(3), 0)
    for shard_id in turns[:6]:
        counts[shard_id] += 1
    assert set(counts.values()) == {2}, turns


async def test_nothing_is_left_of_a_reader_that_was_closed(client: Client) -> None:
    """Its tasks have ended, and its watch with them."""
    topic_id = await scaled_topic(client)
    before = asyncio.all_tasks()
    reader = client.topic_reader("t", start=Cut(topic_id, {3: 0}), follow=True)
    async with asyncio.timeout(30):
        async for _ in reader:
            break
    while client.topic_watches._watches or asyncio.all_tasks() - before:
        await asyncio.sleep(0.01)


async def test_without_a_placement_driver_known_shards_are_read_on(cluster: TopicCluster, client: Client) -> None:
    """And a scale is learned of once there is one again."""
    topic_id = (await client.topics.create("t")).topic_id
    reader = aiter(client.topic_reader("t", follow=True))
    async with asyncio.timeout(30), shard_writer(client, topic_id, 0) as writer:
        await writer.append(b"a")
        assert (await anext(reader)).value == b"a"
        cluster.stop_placement_driver()
        await writer.append(b"b")
        assert (await anext(reader)).value == b"b"
        cluster.start_placement_driver()
        await scale(client, "t", [0], 2)
        await write(client, topic_id, 2, [b"c"])
        assert (await anext(reader)).value == b"c"
