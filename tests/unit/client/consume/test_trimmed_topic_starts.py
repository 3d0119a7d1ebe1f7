"""Topic readers whose start was looked up, and trimmed before a record of its shard was handed out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from rangelog import AppendRecord, Client, errors
from rangelog._topics.cut import Cut
from tests.support.fake_topics import TopicCluster
from tests.support.shard_streams import scale, write

pytestmark = pytest.mark.virtual

T0_MS = 1_700_000_000_000


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster in memory."""
    async with TopicCluster().client() as made:
        yield made


def at_second(number: int) -> AppendRecord:
    """A record that is named by its time."""
    return AppendRecord(b"%d" % number, timestamp_ms=T0_MS + number * 1000)


def moment(number: int) -> datetime:
    """The time of such a record."""
    return datetime.fromtimestamp(T0_MS / 1000 + number, UTC)


async def first(client: Client, count: int, **options: Any) -> list[bytes]:
    """The first values that a follower gets."""
    found: list[bytes] = []
    async with asyncio.timeout(30):
        async for record in client.topic_reader("t", follow=True, **options):
            found.append(record.value)
            if len(found) == count:
                break
    return found


def trim_when_found(client: Client, monkeypatch: pytest.MonkeyPatch, topic_id: int, *, after: Sequence[AppendRecord] = (),
                    scales: bool = True, **offsets: int) -> None:  # fmt: skip
    """Once the start is looked up, records are appended to shard 0, it is scaled, and the topic is truncated."""
    cut_in, done = client.topics.cut_in, []

    async def trimmed_since(known: Any, place: Any) -> Cut:
        found = await cut_in(known, place)
        if place != "tail" and not done:
            done.append(place)
            if after:
                await write(client, topic_id, 0, list(after))
            if scales:
                await scale(client, "t", [0], 1)
            cut = {int(name.removeprefix("shard")): offset for name, offset in offsets.items()}
            await client.topics.truncate("t", Cut(topic_id, cut))
        return found

    monkeypatch.setattr(client.topics, "cut_in", trimmed_since)


async def test_a_start_by_time_moves(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the first record at or after the time that is left; earlier ones that lie between are passed over."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [at_second(each) for each in (0, 5, 1, 6)])
    trim_when_found(client, monkeypatch, topic_id, shard0=2)
    assert await first(client, 1, start=moment(5)) == [b"6"]


async def test_what_came_after_a_start_by_time_is_not_passed_over(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record was there as the start was looked up: the loss of one that came then is told."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [at_second(0)])
    trim_when_found(client, monkeypatch, topic_id, after=[at_second(7), at_second(8)], shard0=2)
    with pytest.raises(errors.OffsetTrimmed) as caught:
        await first(client, 1, start=moment(5))
    assert caught.value.offset == 2


@pytest.mark.parametrize("start", ["earliest", moment(1)])
async def test_the_followers_of_what_is_gone_move_too(
    client: Client, monkeypatch: pytest.MonkeyPatch, start: Any
) -> None:
    """A shard is trimmed wholly, and the one that follows it in part, before anything is handed out."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [at_second(1)])
    await scale(client, "t", [0], 1)
    await write(client, topic_id, 1, [at_second(2), at_second(3)])
    await scale(client, "t", [1], 1)
    trim_when_found(client, monkeypatch, topic_id, scales=False, shard1=1)
    assert await first(client, 1, start=start) == [b"3"]


async def test_behind_a_record_nothing_moves(client: Client) -> None:
    """The next shard was trimmed since: its loss is told to who has read the one before."""
    topic_id = (await client.topics.create("t")).topic_id
    await write(client, topic_id, 0, [at_second(1)])
    await scale(client, "t", [0], 1)
    await write(client, topic_id, 1, [at_second(2), at_second(3)])
    await scale(client, "t", [1], 1)
    found: list[bytes] = []
    with pytest.raises(errors.OffsetTrimmed, match="shard 1"):
        async for record in client.topic_reader("t", follow=True):
            found.append(record.value)
            await client.topics.truncate("t", Cut(topic_id, {1: 1}))
    assert found == [b"1"]
