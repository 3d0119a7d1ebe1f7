"""The times that a caller gives: seconds are not taken for milliseconds, and copies of any record are possible."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rangelog import AppendRecord
from rangelog.errors import InvalidArgument
from rangelog.testing import FakeCluster

SECONDS = 1_764_165_000
OLD_MS = (1, 999_999_999, 10_000_000_000, -5, 0, 1_764_165_000_000)


async def test_seconds_are_refused() -> None:
    """Where it is sure: of this century as seconds, of the first weeks of 1970 as milliseconds. Nothing is appended."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            for seconds in (SECONDS, 1_000_000_000, 9_999_999_999):
                with pytest.raises(InvalidArgument, match=f"timestamp {seconds} looks like seconds.*pass milliseconds"):
                    await writer.append(b"x", timestamp=seconds)
            for bad in (1.5, "now", True, 10**18, float(SECONDS)):
                with pytest.raises(InvalidArgument, match="bad timestamp"):
                    await writer.append(b"x", timestamp=bad)  # type: ignore[arg-type]
            for ms in OLD_MS:
                await writer.append(b"x", timestamp=ms)
        assert [record.timestamp_ms async for record in client.reader("s")] == list(OLD_MS)


async def test_a_copy_of_an_old_record_keeps_its_time() -> None:
    """As a datetime, or by the name of the field that says the unit."""
    moment = datetime(1970, 1, 21, 10, 2, 45, 1000, tzinfo=UTC)
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            await writer.append(b"x", timestamp=moment)
            (first,) = [record async for record in client.reader("s")]
            assert first.timestamp == moment
            copied = AppendRecord(first.value, timestamp_ms=first.timestamp_ms)
            await writer.append(b"x", timestamp=first.timestamp)
            await writer.append_batch([copied])
            await writer.append_batch([copied], expected_end=3)
            await writer.append_all([copied])
        assert {record.timestamp_ms async for record in client.reader("s")} == {first.timestamp_ms}


async def test_producers_do_the_same() -> None:
    """`send` refuses, `send_batch` takes what names its unit."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as client:
            await client.topics.create("t")
            async with client.producer("t") as producer:
                with pytest.raises(InvalidArgument, match="looks like seconds"):
                    await producer.send(b"x", timestamp=SECONDS)
                await producer.send_batch([AppendRecord(b"x", timestamp_ms=SECONDS)])
            assert [record.timestamp_ms async for record in client.topic_reader("t")] == [SECONDS]
