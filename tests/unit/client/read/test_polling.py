"""Polls: what they return, when, and that nothing is lost between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from rangelog._read.polling import COUNT_MAX, Polling
from rangelog.testing import FakeCluster
from rangelog_core.errors import InvalidArgument, Unavailable
from rangelog_core.record import Record

pytestmark = pytest.mark.virtual


class Source:
    """Chunks that the test hands out."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.closed = False
        self._end = 0

    def put(self, count: int) -> None:
        """A chunk of so many records."""
        self.queue.put_nowait([Record(self._end + n, 0, None, b"") for n in range(count)])
        self._end += count

    async def chunks(self) -> AsyncGenerator[Sequence[Record], None]:
        """What a reader has."""
        try:
            while (found := await self.queue.get()) is not None:
                if isinstance(found, Exception):
                    raise found
                yield found
        finally:
            self.closed = True


@pytest.fixture
async def source() -> Source:
    return Source()


def offsets(records: Sequence[Record]) -> list[int]:
    return [each.offset for each in records]


async def test_a_chunk_is_handed_out_in_parts(source: Source) -> None:
    """In order, each record once; a poll does not wait for more than there is."""
    polling = Polling(source.chunks())
    source.put(5)
    source.put(1)
    assert [offsets(await polling.poll(2, 5.0)) for _ in range(4)] == [[0, 1], [2, 3], [4], [5]]
    assert polling.next_offset is None
    await polling.close()


async def test_a_poll_that_finds_nothing_loses_nothing(source: Source) -> None:
    """Neither does one that is cancelled: what they waited for is in the next."""
    polling = Polling(source.chunks())
    assert offsets(await polling.poll(10, 0.0)) == []
    waiting = asyncio.create_task(polling.poll(10, 60.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    source.put(2)
    assert offsets(await polling.poll(10, 5.0)) == [0, 1]
    assert not polling.ended
    await polling.close()


async def test_the_end_is_told(source: Source) -> None:
    """A poll returns nothing then, at once."""
    polling = Polling(source.chunks())
    source.put(1)
    source.queue.put_nowait(None)
    assert offsets(await polling.poll(10, 5.0)) == [0]
    assert (offsets(await polling.poll(10, 5.0)), polling.ended) == ([], True)
    assert offsets(await polling.poll(10, 60.0)) == []


async def test_an_error_is_raised_by_each_later_poll(source: Source) -> None:
    """After the records before it."""
    polling = Polling(source.chunks())
    source.put(1)
    source.queue.put_nowait(Unavailable("no copy"))
    assert offsets(await polling.poll(10, 5.0)) == [0]
    for _ in range(2):
        with pytest.raises(Unavailable, match="no copy"):
            await polling.poll(10, 5.0)
    await polling.close()


async def test_it_is_closed_in_the_middle(source: Source) -> None:
    """The reader behind it is released, also while a read goes on; a second time does nothing."""
    polling = Polling(source.chunks())
    assert offsets(await polling.poll(10, 0.0)) == []
    await polling.close()
    await polling.close()
    assert source.closed and polling.ended
    assert offsets(await polling.poll(10, 5.0)) == []


async def test_one_poll_at_a_time(source: Source) -> None:
    """Two would not know who has which records."""
    polling = Polling(source.chunks())
    waiting = asyncio.create_task(polling.poll(10, 60.0))
    await asyncio.sleep(0)
    with pytest.raises(InvalidArgument, match="one at a time"):
        await polling.poll(10, 0.0)
    source.put(1)
    assert offsets(await waiting) == [0]
    await polling.close()


@pytest.mark.parametrize(
    ("count_max", "timeout_s"),
    [
        (0, 1),
        (-1, 1),
        (COUNT_MAX + 1, 1),
        (True, 1),
        (1.0, 1),
        (1, -1),
        (1, float("inf")),
        (1, float("nan")),
        (1, "1"),
        (1, True),
    ],
)
async def test_bad_arguments(source: Source, count_max: Any, timeout_s: Any) -> None:
    """Refused before anything is read."""
    with pytest.raises(InvalidArgument):
        await Polling(source.chunks()).poll(count_max, timeout_s)


async def test_a_lag_in_the_midst_of_an_iteration_moves_nothing() -> None:
    """It counts from the last chunk, and every record still comes once; before the first poll it counts from the start."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        await client.append("s", [b"%d" % number for number in range(5)])
        seen = []
        reader = client.reader("s", end=5)
        async for record in reader:
            seen.append(record.offset)
            assert await reader.lag() == 0
        assert seen == [0, 1, 2, 3, 4]
        polled = client.reader("s")
        assert await polled.poll(count_max=1, timeout_s=5) and await polled.lag() == 4
        waiting = client.reader("s", start=2)
        assert await waiting.lag() == 3
        assert [each.offset for each in await waiting.poll(timeout_s=5)] == [2, 3, 4]
        await polled.close()
        await waiting.close()
