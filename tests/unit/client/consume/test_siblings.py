"""One event is told alike wherever it is met: a topic's shard has the class, the offset and the words of a stream.

A topic's error begins with its topic and shard. What the paths are: readers of the SDK, a member of a group, plans and spans
of Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from rangelog import Client, Cut, errors
from rangelog._consume.group_core import Begin, GroupShard
from rangelog._consume.group_records import ShardOfTopic
from rangelog._consume.shard_feed import ShardFeeds
from rangelog._read import reader as stream_reading
from rangelog._topics.shard_errors import errors_of_shard
from rangelog.protocol.reading import tiers_for
from rangelog.spark.filters import Selection
from rangelog.spark.options import parse_options
from rangelog.spark.planning import plan
from rangelog.spark.topic_planning import plan_snapshot, take_snapshot
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import write
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

IN_SHARD = "topic 'default/t', shard 0: "
Path = Callable[[Client, int], Awaitable[Any]]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """Of a cluster with a stream and a topic of 10 records each, of which 3 are trimmed."""
    async with TopicCluster().client() as made:
        await made.create_stream("s")
        async with made.writer("s") as writer:
            await writer.append_batch([b"v"] * 10)
        await made.seal_stream("s")
        await made.trim_stream("s", 3)
        topic_id = (await made.topics.create("t")).topic_id
        await write(made, topic_id, 0, [b"v"] * 9)
        await write(made, topic_id, 0, [b"v"])  # the range before is sealed
        await made.topics.truncate("t", Cut(topic_id, {0: 3}))
        yield made


async def by_reader(client: Client, offset: int) -> None:
    """The SDK, of a stream."""
    async for _ in client.reader("s", start=offset, timeout_s=1):
        pass


async def by_plan(client: Client, offset: int) -> None:
    """Spark, of a stream."""
    options = {"pd": "in memory", "stream": "s", "start": str(offset)}
    await plan(client, parse_options(options), Selection())


async def cut_at(client: Client, offset: int) -> Cut:
    """A position of the topic."""
    return Cut((await client.topics.describe("t")).topic_id, {0: offset})


async def by_topic_reader(client: Client, offset: int) -> None:
    """The SDK, of a topic."""
    async for _ in client.topic_reader("t", start=await cut_at(client, offset), timeout_s=1):
        pass


async def by_snapshot(client: Client, offset: int) -> None:
    """Spark, of a topic."""
    options = parse_options({"pd": "in memory", "topic": "t", "start": (await cut_at(client, offset)).to_json()})
    await plan_snapshot(client, options, await take_snapshot(client, options), Selection())


async def by_member(client: Client, offset: int) -> None:
    """A member of a group."""
    topic_id = (await client.topics.describe("t")).topic_id
    shard = GroupShard(topic_id, 0)
    stream = f"_topic-{topic_id}-shard-0"

    def make_reader(_: GroupShard, *, start: int, follow: bool) -> Any:
        return client._group_reader(stream, start=start, follow=follow)

    woken = asyncio.Event()
    feeds = ShardFeeds(
        make_reader, woken=woken, found_end=lambda *_: None, skipped=lambda *_: None, skips_trimmed=False,
        named=lambda each: ShardOfTopic("default/t", each.shard_id),
    )  # fmt: skip
    feeds.perform(Begin(shard, 1, offset, True))
    await until(lambda: feeds.failed is not None or feeds.next_chunk() is not None)
    await feeds.close()
    if feeds.failed is not None:
        raise feeds.failed


OF_STREAMS: list[Path] = [by_reader, by_plan]
OF_TOPICS: list[Path] = [by_topic_reader, by_snapshot, by_member]


def told(error: errors.RangelogError) -> tuple[type[errors.RangelogError], int | None, str]:
    """What a program sees, without the name of the shard."""
    return type(error), error.offset, error.message.removeprefix(IN_SHARD)


EVENTS = [
    pytest.param(1, errors.OffsetTrimmed, 3, "offset 1 was trimmed; what is left starts at 3", id="trimmed"),
    pytest.param(99, errors.OffsetOutOfRange, 10, "offset 99 is beyond the end, which is 10", id="beyond"),
]


@pytest.mark.parametrize(("offset", "kind", "nearest", "words"), EVENTS)
@pytest.mark.parametrize("path", [*OF_STREAMS, *OF_TOPICS])
async def test_an_offset_that_cannot_be_read(
    client: Client, path: Path, offset: int, kind: type[errors.RangelogError], nearest: int, words: str
) -> None:
    """Trimmed, or not written yet: with the nearest one that can be."""
    with pytest.raises(errors.RangelogError) as caught:
        await path(client, offset)
    assert told(caught.value) == (kind, nearest, words)
    assert caught.value.message.startswith(IN_SHARD) == (path in OF_TOPICS)


@pytest.mark.parametrize("path", [by_reader, by_topic_reader, by_member])
async def test_records_that_are_lost(client: Client, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy is left, which an operator has accepted: where to go on is said, and in which shard."""

    def of_lost(source: Any, **options: Any) -> Any:
        lost = SimpleNamespace(lost=True, tiered_end_offset=0, end_offset=10, hot_dropped=False)
        return tiers_for(lost, **options)

    monkeypatch.setattr(stream_reading, "tiers_for", of_lost)
    began_s = asyncio.get_running_loop().time()
    with pytest.raises(errors.RecordsLost) as caught:
        await path(client, 5)
    words = "the records from offset 5 to 10 are lost, which an operator has accepted: go on at 10, or trim up to it"
    assert told(caught.value) == (errors.RecordsLost, 10, words)
    assert asyncio.get_running_loop().time() < began_s + 1, "there is nothing to wait for"
    assert caught.value.message.startswith(IN_SHARD) == (path in OF_TOPICS)


@pytest.mark.parametrize(
    "error", [errors.OffsetTrimmed("x", offset=1), errors.OffsetOutOfRange("x", offset=1), errors.RecordsLost("x", offset=1)]
)  # fmt: skip
def test_spans_of_spark_name_the_shard(error: errors.RangelogError) -> None:
    """What a task meets, whatever it is, as its plan would."""
    with pytest.raises(errors.RangelogError) as caught, errors_of_shard("default/t", 0):
        raise error
    assert told(caught.value) == (type(error), 1, "x")
    with pytest.raises(errors.TopicNotFound, match="topic 'default/t' was deleted"), errors_of_shard("default/t", 0):
        raise errors.StreamNotFound("stream '_topic-1-shard-0' was deleted")


async def test_what_was_deleted_meanwhile(client: Client) -> None:
    """A follower is told, by the name that it was given."""
    cases: list[tuple[Any, Callable[[], Awaitable[Any]], type[errors.RangelogError], str]] = [
        (client.reader("s", follow=True), partial(client.delete_stream, "s"), errors.StreamNotFound, "stream 's'"),
        (client.topic_reader("t", follow=True), partial(client.topics.delete, "t", force=True), errors.TopicNotFound,
         "topic 'default/t'"),
    ]  # fmt: skip
    for reader, delete, kind, words in cases:
        async with aclosing(aiter(reader)) as records:
            await anext(records)
            await delete()
            with pytest.raises(kind) as caught:
                async for _ in records:
                    pass
        assert caught.value.message == f"{words} was deleted"
