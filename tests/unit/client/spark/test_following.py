"""Where a streaming query begins and how it goes on, over a cluster in memory: positions that users give, ends that shrink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from rangelog import Client, Cut, errors
from rangelog.spark.following import begin_later, find_ends, find_start, go_on, plan_batch
from rangelog.spark.stream_options import StreamOptions, parse_stream_options
from rangelog.spark.stream_source import RangelogStreamReader
from rangelog.testing import FakeCluster
from tests.support.waiting import until


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    """A new one for each test."""
    with FakeCluster(brokers=1) as made:
        yield made


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    """A client of it."""
    async with cluster.client() as made:
        yield made


def options(**given: Any) -> StreamOptions:
    """Of a query."""
    return parse_stream_options({"pd": "in memory", **given})


async def fill(client: Client, stream: str, count: int) -> None:
    """Make a stream of numbered records."""
    await client.create_stream(stream)
    async with client.writer(stream) as writer:
        for number in range(count):
            writer.append_nowait(b"%d" % number)
        await writer.flush()


async def test_a_start_beyond_the_end_of_a_stream(client: Client) -> None:
    """Refused, as in batch: rows that are appended up to there later would be left out without a word."""
    await fill(client, "a", 10)
    at_end = await find_start(client, options(stream="a", startingOffsets="10"))
    assert at_end.streams["a"].offset == 10
    for text in ("11", '{"a": 5000}'):
        with pytest.raises(errors.OffsetOutOfRange, match="beyond the end of stream 'a', which is 10"):
            await find_start(client, options(stream="a", startingOffsets=text))


async def test_a_start_beyond_the_end_of_a_shard(client: Client) -> None:
    """Refused as well."""
    topic = await client.topics.create("t", shards=1)
    async with client.producer("t") as producer:
        await producer.send(b"x")
    at_end = Cut(topic.topic_id, {0: 1})
    assert (await find_start(client, options(topic="t", startingOffsets=at_end.to_json()))).topics == {
        "default/t": at_end
    }
    with pytest.raises(errors.OffsetOutOfRange, match="shard 0: offset 2 is beyond the end"):
        await find_start(client, options(topic="t", startingOffsets=Cut(topic.topic_id, {0: 2}).to_json()))


async def test_the_backlog_has_each_stream(client: Client) -> None:
    """By name: what lies between the query's offsets and the ends."""
    await fill(client, "a", 10)
    await fill(client, "b", 7)
    both = options(stream="a,b", startingOffsets='{"a": 4, "b": "latest"}')
    start = await find_start(client, both)
    assert (await find_ends(client, both)).backlog(start) == {"a": 6, "b": 0}


async def test_a_pattern_lists_only_what_it_may_match(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its literal beginning; and the streams that a sink keeps for itself are nobody's rows."""
    for name in ("clicks-1", "clicks-2", "click", "other", "spark-sink-stream-1-ab-control"):
        await client.create_stream(name)
    asked: list[str] = []
    list_streams = client.list_streams

    def listing(prefix: str = "") -> Any:
        asked.append(prefix)
        return list_streams(prefix)

    monkeypatch.setattr(client, "list_streams", listing)
    for pattern, prefix, names in (
        ("clicks-[0-9]", "clicks-", ["clicks-1", "clicks-2"]),
        ("clicks?", "click", ["click"]),
        ("clicks*-1", "click", ["clicks-1"]),
        ("click|other", "", ["click", "other"]),
        (".*", "", ["click", "clicks-1", "clicks-2", "other"]),
        ("other", "other", ["other"]),
    ):
        assert list((await find_ends(client, options(streamPattern=pattern))).streams) == names
        assert asked.pop() == prefix


async def test_a_stream_of_a_pattern_that_is_deleted(client: Client) -> None:
    """Also when it is part of a micro-batch that is planned: with failOnDataLoss=false the query goes on without it."""
    await fill(client, "p-a", 3)
    await fill(client, "p-b", 5)
    strict = options(streamPattern="p-.*", startingOffsets="earliest")
    lenient = options(streamPattern="p-.*", startingOffsets="earliest", failOnDataLoss="false")
    start = await find_start(client, strict)
    planned = go_on(strict, start, await find_ends(client, strict), None)
    await client.delete_stream("p-a")
    with pytest.raises(errors.StreamNotFound):
        await plan_batch(client, strict, start, planned)
    assert [(each.name, each.end) for each in await plan_batch(client, lenient, start, planned)] == [("p-b", 5)]
    await fill(client, "p-a", 2)
    ends = await find_ends(client, strict)
    with pytest.raises(errors.StreamNotFound, match="or set failOnDataLoss=false to go on"):
        go_on(strict, planned, ends, None)
    anew = go_on(lenient, planned, ends, None)
    assert [(each.name, each.start, each.end) for each in await plan_batch(client, lenient, planned, anew)] == [
        ("p-a", 0, 2)
    ]


async def test_a_query_of_which_nothing_was_read_begins_at_what_is_there(client: Client) -> None:
    """Retention passed its start before the first micro-batch: "earliest" moves, a given offset does not."""
    await fill(client, "a", 10)
    await client.seal_stream("a")
    topic = await client.topics.create("t", shards=1)
    async with client.producer("t") as producer:
        for number in range(4):
            await producer.send(b"%d" % number)
    of_stream, of_topic = (
        options(**{kind: name}, startingOffsets="earliest") for kind, name in (("stream", "a"), ("topic", "t"))
    )
    given = options(stream="a", startingOffsets="0")
    begun, begun_at_0, begun_in_topic = [await find_start(client, each) for each in (of_stream, given, of_topic)]
    await client.topics.scale("t", [0], 1)
    await client.trim_stream("a", 6)
    await client.topics.truncate("t", Cut(topic.topic_id, {0: 3}))

    async def truncated() -> bool:
        return (await client.topics.cut("t", "head")).offsets == {0: 3}

    await until(truncated, "the topic is not truncated")
    ends = await find_ends(client, of_stream, needs_heads=True)
    later = begin_later(of_stream, begun, ends)
    reached = go_on(of_stream, later, ends, None)
    assert [(each.start, each.end) for each in await plan_batch(client, of_stream, later, reached)] == [(6, 10)]
    assert (later.streams["a"].offset, reached.skipped) == (6, 0)
    with pytest.raises(errors.OffsetTrimmed):
        go_on(of_stream, begun, ends, None)
    assert begin_later(given, begun_at_0, ends) == begun_at_0
    ends = await find_ends(client, of_topic, needs_heads=True)
    assert begin_later(of_topic, begun_in_topic, ends).topics["default/t"].offsets == {0: 3}


async def test_the_first_micro_batch_of_a_query(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark asks: where it begins, how far it goes, what it reads, while retention goes on. Later batches tell a loss."""
    await fill(client, "a", 10)
    await client.seal_stream("a")
    reader = RangelogStreamReader(options(stream="a", startingOffsets="earliest"))
    monkeypatch.setattr(reader, "_run", lambda work: asyncio.run_coroutine_threadsafe(work(client), loop).result())
    loop = asyncio.get_running_loop()

    def ask() -> tuple[dict[str, Any], dict[str, Any]]:
        start = reader.initialOffset()
        trim(2)
        reached = reader.latestOffset(start, ReadAllAvailable())
        trim(4)
        assert [(each.start, each.end) for each in reader.partitions(start, reached)] == [(4, 10)]
        return start, reached

    def trim(offset: int) -> None:
        asyncio.run_coroutine_threadsafe(client.trim_stream("a", offset), loop).result()

    _, reached = await asyncio.to_thread(ask)
    async with client.writer("a") as writer:
        await writer.append(b"x")
        await writer.append(b"y")
    await client.seal_stream("a")
    await client.trim_stream("a", 11)
    with pytest.raises(errors.OffsetTrimmed, match="trimmed before they were read"):
        await asyncio.to_thread(reader.latestOffset, reached, ReadAllAvailable())
