"""Starts that are told from the end or from now: the last n records, and so long ago."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rangelog import Client
from rangelog.errors import InvalidArgument, OffsetOutOfRange
from rangelog.testing import FakeClock, FakeCluster


async def offsets(client: Client, start: Any, **options: Any) -> list[int]:
    """What a reader gives that starts there."""
    return [record.offset async for record in client.reader("s", start=start, **options)]


async def test_the_last_records() -> None:
    """As many as there are, after the trim offset; the last one is -1."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        assert await offsets(client, -1) == []
        await client.append("s", [b"%d" % number for number in range(10)])
        assert await offsets(client, -1) == [9]
        assert await offsets(client, -3) == [7, 8, 9]
        assert await offsets(client, -3, end=9) == [7, 8]
        assert await offsets(client, -100) == list(range(10))
        await client.seal_stream("s")
        await client.trim_stream("s", 8)
        assert await offsets(client, -3) == [8, 9]
        async with client.reader("s", start=-2, follow=True) as follower:
            assert [record.offset for record in await follower.poll(timeout_s=5)] == [8, 9]
            await client.append("s", [b"new"])
            assert [record.offset for record in await follower.poll(timeout_s=5)] == [10]
        assert await client.reader("s", start=-1).find_start() == 10
        with pytest.raises(OffsetOutOfRange):
            await offsets(client, 12)


async def test_so_long_ago() -> None:
    """By the clock that dates records; longer ago than the stream is its start."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await client.create_stream("s")
        for number in range(4):
            await client.append("s", [b"%d" % number])
            clock.advance(timedelta(hours=1))
        assert await offsets(client, timedelta(hours=2)) == [2, 3]
        assert await offsets(client, timedelta(minutes=90)) == [3]
        assert await offsets(client, timedelta(0)) == []
        assert await offsets(client, timedelta(days=30)) == [0, 1, 2, 3]
        with pytest.raises(InvalidArgument, match="in the future"):
            await offsets(client, timedelta(hours=-1))
        with pytest.raises(InvalidArgument, match="before the year 1"):
            await offsets(client, timedelta.max)


@pytest.mark.parametrize("start", ["-1", 1.0, True, None, b"earliest"])
async def test_what_is_no_start(start: Any) -> None:
    """The message lists what a start may be."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        with pytest.raises(InvalidArgument, match=r"-n for the last n records.*timedelta"):
            await offsets(client, start)
