"""What a user can get wrong, or meet, through the SDK against a real cluster: each a typed error, nothing acked lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.stream_config import StreamConfig

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(shared_cluster: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client of the shared cluster."""
    async with await rangelog.connect(shared_cluster.connect_string) as client:
        yield client


async def values(client: rangelog.Client, stream: str, **options: object) -> list[bytes]:
    """All values of a stream."""
    return [record.value async for record in client.reader(stream, **options)]  # type: ignore[arg-type]


async def test_unknown_stream_and_existing_stream_and_bad_name(client: rangelog.Client) -> None:
    """Each verb on a stream that is not there says so; a name is taken once; a bad name is refused."""
    with pytest.raises(rangelog.StreamNotFound):
        await client.describe_stream("nope")
    with pytest.raises(rangelog.StreamNotFound):
        await values(client, "nope")
    with pytest.raises(rangelog.StreamNotFound):
        await client.writer("nope").open()
    await client.create_stream("taken")
    with pytest.raises(rangelog.StreamExists):
        await client.create_stream("taken")
    for name in ("", "a/b", "../x", "x" * 300, "-x", "a b"):
        with pytest.raises(rangelog.InvalidArgument):
            await client.create_stream(name)


async def test_records_over_the_limit(client: rangelog.Client) -> None:
    """A record at the limit is taken; one byte more, or not bytes at all, is refused before anything is sent."""
    await client.create_stream("at-the-limit")
    async with client.writer("at-the-limit") as writer:
        with pytest.raises(rangelog.RecordTooLarge):
            await writer.append(bytes(RECORD_SIZE_BYTES_MAX + 1))
        with pytest.raises(rangelog.InvalidArgument):
            await writer.append("text")  # type: ignore[arg-type]
        ack = await writer.append(bytes(RECORD_SIZE_BYTES_MAX))
        assert ack.offset == 0
        acks = await writer.append_batch([b"x" * 900_000] * 20)
        assert [each.offset for each in acks] == list(range(1, 21))
    assert [len(value) for value in await values(client, "at-the-limit")] == [RECORD_SIZE_BYTES_MAX] + [900_000] * 20


async def test_everything_comes_back_as_it_was(client: rangelog.Client) -> None:
    """Keys, missing keys, headers, timestamps, compressed or not; from any start."""
    for compression in ("none", "zstd"):
        name = f"whole-{compression}"
        await client.create_stream(name, StreamConfig(compression=compression))  # type: ignore[arg-type]
        async with client.writer(name) as writer:
            for n in range(300):
                writer.submit(
                    b"%d" % n,
                    key=None if n % 2 else b"k%d" % n,
                    headers={"n": b"%d" % n} if n % 3 == 0 else None,
                    timestamp=datetime.fromtimestamp(1000 + n, UTC),
                )
            await writer.flush()
        records = [record async for record in client.reader(name)]
        assert [record.offset for record in records] == list(range(300))
        assert records[6] == rangelog.Record(6, 1_006_000, b"k6", b"6", {"n": b"6"})
        assert records[7].key is None
        assert await values(client, name, start=295) == [b"%d" % n for n in range(295, 300)]
        assert await values(client, name, start=10, end=12) == [b"10", b"11"]
        assert (await values(client, name, start=datetime.fromtimestamp(1200, UTC)))[0] == b"200"
        assert await values(client, name, start="latest") == []


async def test_offsets_out_of_range_and_trimmed(client: rangelog.Client) -> None:
    """Beyond the end and below the trim offset are different errors, and both name where to go."""
    await client.create_stream("trimmed")
    async with client.writer("trimmed") as writer:
        await writer.append_batch([b"%d" % n for n in range(10)])
    with pytest.raises(rangelog.OffsetOutOfRange) as beyond:
        await values(client, "trimmed", start=11)
    assert beyond.value.offset == 10
    assert await client.seal_stream("trimmed") == 10
    assert (await client.trim_stream("trimmed", 4)).trim_offset == 4
    with pytest.raises(rangelog.OffsetOutOfRange):
        await client.trim_stream("trimmed", 11)
    with pytest.raises(rangelog.OffsetTrimmed) as trimmed:
        await values(client, "trimmed", start=3)
    assert trimmed.value.offset == 4
    assert await values(client, "trimmed") == [b"%d" % n for n in range(4, 10)]


async def test_a_fenced_writer_is_told_so(client: rangelog.Client) -> None:
    """The second writer goes on where the first one's acks end; the first one's next append is refused."""
    await client.create_stream("fenced")
    first = client.writer("fenced")
    await first.open()
    acks = [await first.append(b"first %d" % n) for n in range(5)]
    async with client.writer("fenced") as second:
        assert second.next_offset == acks[-1].offset + 1
        with pytest.raises(rangelog.WriterFenced) as fenced:
            await first.append(b"too late")
        assert fenced.value.epoch == second.epoch
        with pytest.raises(rangelog.WriterFenced):
            await first.append(b"still too late")
        await second.append(b"second")
    await first.close(flush=False)
    assert await values(client, "fenced") == [b"first %d" % n for n in range(5)] + [b"second"]
    with pytest.raises(rangelog.WriterClosed):
        await second.append(b"closed")


async def test_follow_sees_each_record_once_acked(client: rangelog.Client) -> None:
    """A following reader gets records while they are written, over a change of writer, in order."""
    await client.create_stream("over-a-change")
    seen: list[bytes] = []

    async def follow() -> None:
        async for record in client.reader("over-a-change", follow=True):
            seen.append(record.value)
            if len(seen) == 60:
                return

    reading = asyncio.create_task(follow())
    for turn in range(3):
        async with client.writer("over-a-change") as writer:
            for n in range(20):
                await writer.append(b"%d-%d" % (turn, n))
    async with asyncio.timeout(30):
        await reading
    assert seen == [b"%d-%d" % (turn, n) for turn in range(3) for n in range(20)]


def test_blocking_facade(shared_cluster: Cluster) -> None:
    """The same verbs, blocking."""
    with rangelog.sync.connect(shared_cluster.connect_string) as client:
        client.create_stream("blocking")
        with client.writer("blocking") as writer:
            futures = [writer.submit(b"%d" % n) for n in range(100)]
            assert writer.append(b"last").offset == 100
            assert [future.result(10).offset for future in futures] == list(range(100))
        assert [record.value for record in client.reader("blocking")][-1] == b"last"
        assert "blocking" in [info.name for info in client.list_streams()]
        with pytest.raises(rangelog.StreamNotFound):
            client.describe_stream("nope")
