"""The ways to append: with an ack, with a future, without either, and many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import rangelog
from rangelog_cli.local.processes import Cluster

pytestmark = pytest.mark.integration


@pytest.fixture
async def client(shared_cluster: Cluster) -> AsyncIterator[rangelog.Client]:
    """A client of the shared cluster."""
    async with await rangelog.connect(shared_cluster.connect_string) as client:
        yield client


async def values(client: rangelog.Client, stream: str) -> list[bytes]:
    """Return all that is acked."""
    return [record.value async for record in client.reader(stream)]


async def test_append_nowait_gives_the_offset_and_is_acked_by_a_flush(client: rangelog.Client) -> None:
    """No future per record: the offset is told at once, the confirm offset and flush tell when it is acked."""
    await client.create_stream("nowait")
    async with client.writer("nowait") as writer:
        assert [writer.append_nowait(b"%d" % n) for n in range(100)] == list(range(100))
        keyed = writer.append_nowait(b"k", key=b"key", headers={"h": b"1"}, timestamp=datetime.fromtimestamp(5, UTC))
        assert (keyed, writer.next_offset) == (100, 101)
        await writer.flush()
        assert writer.confirm_offset == 101
        with pytest.raises(rangelog.InvalidArgument):
            writer.append_nowait("text")  # type: ignore[arg-type]
        assert writer.next_offset == 101
    with pytest.raises(rangelog.WriterClosed):
        writer.append_nowait(b"late")
    records = [record async for record in client.reader("nowait")]
    assert [record.value for record in records] == [b"%d" % n for n in range(100)] + [b"k"]
    assert records[100] == rangelog.Record(100, 5_000, b"key", b"k", {"h": b"1"})
    assert records[99].key is None


async def test_append_nowait_refuses_when_twice_the_room_is_taken(client: rangelog.Client) -> None:
    """Who never awaits is stopped before memory fills; after `ready` it goes on, and nothing was lost."""
    await client.create_stream("room")
    async with client.writer("room", inflight_bytes_max=100_000) as writer:
        taken = 0
        with pytest.raises(rangelog.Overloaded):
            for _ in range(1_000):
                writer.append_nowait(bytes(1_000))
                taken += 1
        assert 100 < taken < 300
        await writer.ready()
        writer.append_nowait(b"more")
    assert len(await values(client, "room")) == taken + 1


async def test_batches_of_two_tasks_get_the_offsets_of_their_own_records(client: rangelog.Client) -> None:
    """While one waits for room the other appends: each is told where its own records lie."""
    await client.create_stream("two")
    async with client.writer("two", inflight_bytes_max=20_000) as writer:
        batches = [[b"%s%d" % (name, n) + bytes(500) for n in range(200)] for name in (b"a", b"b")]
        acks = await asyncio.gather(*(writer.append_batch(batch) for batch in batches))
    written = await values(client, "two")
    assert [written[ack.offset] for ack in acks[0]] == batches[0]
    assert [written[ack.offset] for ack in acks[1]] == batches[1]


async def test_readers_hear_of_the_last_ack_when_the_writer_closes_at_once(client: rangelog.Client) -> None:
    """The replicas are told what is acked although nothing follows that would carry it: an end that is named is served."""
    await client.create_stream("last")
    async with client.writer("last") as writer:
        await writer.append_batch([b"%d" % n for n in range(20)])
    read = [record.value async for record in client.reader("last", start=0, end=20)]
    assert read == [b"%d" % n for n in range(20)]
