"""Starts by name or time while retention goes on: until something is handed out they are looked up again, never in error."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from rangelog import AppendRecord, Client, Record
from rangelog._read.reader import Reader
from rangelog.errors import OffsetTrimmed
from rangelog.testing import FakeClock, FakeCluster
from rangelog_core.record import ms_of

HOUR = timedelta(hours=1)


async def filled(client: Client, clock: FakeClock, count: int = 6) -> None:
    """A stream with a record each hour, all in a sealed range."""
    await client.create_stream("s")
    for number in range(count):
        await client.append("s", [b"%d" % number])
        clock.advance(HOUR)
    await client.seal_stream("s")


async def begun_then_trimmed(client: Client, reader: Reader, offset: int = 3) -> None:
    """The reader looks its start up; then retention is faster than its first record."""
    await reader.begin()
    await client.trim_stream("s", offset)
    await reader._view.refresh(0)  # what a reader does that finds the objects gone


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("start", ["earliest", -5, -4, timedelta(hours=5), timedelta(hours=4, minutes=30)])
async def test_a_start_by_name_moves_until_something_is_handed_out(start: Any, follow: bool) -> None:
    """It begins where it would begin had it been asked a moment later."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await filled(client, clock)
        reader = client.reader("s", start=start, follow=follow)
        await begun_then_trimmed(client, reader)
        async with reader:
            assert reader.next_offset < 3
            found = [(await reader.poll(timeout_s=5))[0].offset for _ in range(3)]  # each came in a batch of its own
            assert found == [3, 4, 5]


@pytest.mark.parametrize("start", ["earliest", -5, timedelta(hours=5)])
async def test_what_was_handed_out_is_gone_on_with_or_told(start: Any) -> None:
    """After the first record the loss of the next ones is an error."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await client.create_stream("s")
        for number in range(6):
            await client.append("s", [b"%d" % number])
            clock.advance(HOUR)
            await client.seal_stream("s")  # each record is a chunk of its own
        chunks = client.reader("s", start=start).chunks()
        assert (await anext(chunks))[0].offset <= 1
        await client.trim_stream("s", 5)
        with pytest.raises(OffsetTrimmed) as caught:
            async for _ in chunks:
                pass
        assert caught.value.offset == 5


@pytest.mark.parametrize("start", [0, "latest", timedelta(0)])
async def test_offsets_and_the_end_do_not_move(start: Any) -> None:
    """An offset is the caller's; records that come behind the end, or after a time, are those that were asked for."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await filled(client, clock)
        reader = client.reader("s", start=start, follow=True)
        await reader.begin()
        await client.append("s", [b"%d" % number for number in range(3)])
        await client.seal_stream("s")
        await client.trim_stream("s", 8)
        await reader._view.refresh(0)
        with pytest.raises(OffsetTrimmed):
            await reader.poll(timeout_s=5)


async def test_a_time_is_looked_for_behind_what_was_trimmed() -> None:
    """Records of an earlier time than the start's, as programs that copy date them, are passed over again."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await client.create_stream("s")
        wanted = clock.now
        records = [AppendRecord(b"x", timestamp_ms=ms_of(wanted + hours * HOUR)) for hours in (0, -2, -2, 1)]
        await client.append("s", records)
        await client.seal_stream("s")
        reader = client.reader("s", start=wanted)
        await begun_then_trimmed(client, reader, 1)
        assert [record.offset async for record in reader] == [3]


async def test_a_cursor_begins_where_the_stream_begins_by_then() -> None:
    """One that does not exist yet: what it commits before and after its first record is there."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await filled(client, clock)
        reader = client.reader("s", start="earliest", cursor="c", follow=True)
        await begun_then_trimmed(client, reader)
        assert (await reader.commit()).offset == 3
        found: list[Record] = []
        async for record in reader:
            found.append(record)
            assert (await reader.commit()).offset == record.offset + 1
            if len(found) == 2:
                break
        assert [record.offset for record in found] == [3, 4]
        await client.trim_stream("s", 6)
        with pytest.raises(OffsetTrimmed, match="of cursor 'c'"):
            await client.reader("s", start="earliest", cursor="c").begin()


async def test_a_cursor_that_commits_by_itself_does_not_end() -> None:
    """Its first commit is of the start that was trimmed since."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await filled(client, clock)
        reader = client.reader("s", start="earliest", cursor="c", auto_commit_s=0.001)
        await begun_then_trimmed(client, reader)
        await reader._commit_processed()
        assert [record.offset async for record in reader] == [3, 4, 5]


async def test_what_is_processed_before_the_first_record_is_where_it_is() -> None:
    """A commit while the first record is out says that none is processed: its position is not the one that was trimmed."""
    clock = FakeClock()
    async with FakeCluster(clock=clock).client() as client:
        await filled(client, clock)
        reader = client.reader("s", start="earliest", cursor="c", auto_commit_s=60)
        await begun_then_trimmed(client, reader)
        async for record in reader:
            await reader._commit_processed()
            cursor = await client.cursors("s").get("c")
            assert cursor is not None and cursor.offset == record.offset == 3
            break
