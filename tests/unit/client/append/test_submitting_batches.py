"""Batches that were encoded elsewhere: appended as they are, at the writer's next offsets, in order with its own records."""

from __future__ import annotations

import asyncio

import pytest

from rangelog.errors import AppendTimeout, Overloaded, WriterClosed, WriterFenced
from rangelog.testing import FakeCluster
from rangelog_core.batch import check_batch, encode_batch, extension_of, restamp
from rangelog_core.batch_extension import Producer, Tag, encode_extension, encode_producer
from tests.support.noting_connections import NotingConnections, opened_writer
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

PRODUCER = {Tag.PRODUCER: encode_producer(Producer(7, 1, 0))}


def encoded(*values: bytes) -> bytes:
    """As a producer sends it: of no stream, from offset 0 on."""
    return encode_batch(
        stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5] * len(values), values=list(values),
        extension=encode_extension(PRODUCER),
    )  # fmt: skip


async def test_batches_and_records_are_in_the_order_in_which_they_were_submitted() -> None:
    """Each future has the offset of its batch's first record."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            writer.append_nowait(b"a")
            first = writer.submit_batch(encoded(b"b", b"c"))
            last = writer.submit(b"d")
            second = writer.submit_batch(encoded(b"e"))
            assert writer.next_offset == 5
            acks = await asyncio.gather(first, last, second)
            assert [ack.offset for ack in acks] == [1, 3, 4]
        assert [record.value async for record in client.reader("s")] == [b"a", b"b", b"c", b"d", b"e"]


async def test_the_header_s_fields_stay() -> None:
    """Stream, range, epoch and offset are the writer's; the checksum fits."""
    data = restamp(encoded(b"a", b"b"), stream_id=3, range_index=4, epoch=5, base_offset=100)
    header = check_batch(data)
    assert (header.stream_id, header.range_index, header.epoch, header.base_offset, header.end_offset) == (
        3,
        4,
        5,
        100,
        102,
    )
    assert extension_of(data, header) == PRODUCER


async def test_flush_waits_for_them() -> None:
    """As for records."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    writer.submit_batch(encoded(b"a"))
    flushed = asyncio.create_task(writer.flush())
    await asyncio.sleep(0)
    assert not flushed.done()
    for name in ("a", "b"):
        connections.of[name].reply(1)
    await flushed
    await writer.close()


async def test_what_is_not_acked_has_an_unknown_outcome() -> None:
    """When the writer is closed, or fenced: it was sent."""
    writer = await opened_writer(NotingConnections())
    sent = writer.submit_batch(encoded(b"a"))
    await writer.close(flush=False)
    with pytest.raises(WriterClosed) as caught:
        await sent
    assert caught.value.outcome_unknown
    with pytest.raises(WriterClosed):
        writer.submit_batch(encoded(b"a"))
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        first, second = client.writer("s"), client.writer("s")
        await first.open()
        await second.open()
        with pytest.raises(WriterFenced) as fenced:
            await first.submit_batch(encoded(b"a"))
        assert fenced.value.outcome_unknown
        await first.close(flush=False)
        await second.close()


async def test_they_count_for_the_writer_s_bounds() -> None:
    """Of the writer, and of all writers of its client."""
    connections = NotingConnections()
    writer = await opened_writer(connections)
    writer._pending.inflight_bytes_max, writer._pending.bytes_max = 1_000, 2_000
    writer.submit_batch(encoded(bytes(3_000)))
    await until(lambda: connections.appends.batches_in_flight == 1)
    assert connections.appends.bytes_in_flight > 3_000
    with pytest.raises(AppendTimeout):
        await writer.ready(timeout_s=0.001)
    with pytest.raises(Overloaded):
        writer.submit_batch(encoded(b"a"))
    await writer.close(flush=False)
    assert connections.appends.bytes_in_flight == 0
