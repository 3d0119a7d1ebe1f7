"""What a client shows its user, whatever the cluster: one suite for the fake cluster in memory and for real servers.

A test class inherits from `ClientContract` and brings two fixtures: `client`, a connected rangelog.Client, and `stream`, a name
that no other test uses.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

import rangelog
from rangelog import AppendRecord, Client, StreamConfig, StreamConfigChange, errors
from tests.support.cursor_contract import CursorContract

T0_MS = 1_700_000_000_000


async def values(client: Client, stream: str, **options: Any) -> list[bytes]:
    """What a reader gets."""
    return [record.value async for record in client.reader(stream, **options)]


async def write(client: Client, stream: str, *records: bytes) -> None:
    """Append as a writer of its own."""
    async with client.writer(stream) as writer:
        await writer.append_batch(records)


class ClientContract(CursorContract):
    """All of it."""

    # ---- streams

    async def test_a_stream_is_created_described_listed_and_deleted(self, client: Client, stream: str) -> None:
        """A new stream is empty; its name is taken until it is deleted, and its id is never used again."""
        made = await client.create_stream(stream, StreamConfig(compression="zstd", retention_bytes=10_000_000))
        assert (made.name, made.epoch, made.trim_offset, made.next_offset, made.range_count) == (stream, 0, 0, 0, 0)
        assert (made.replicas, made.acks, made.compression, made.retention_bytes) == (3, 2, "zstd", 10_000_000)
        assert await client.describe_stream(stream) == made
        assert [each.name async for each in client.list_streams(stream)] == [stream]
        assert [each.name async for each in client.list_streams(stream, after=stream)] == []
        with pytest.raises(errors.StreamExists):
            await client.create_stream(stream)
        await client.delete_stream(stream)
        with pytest.raises(errors.StreamNotFound):
            await client.describe_stream(stream)
        assert (await client.create_stream(stream)).stream_id > made.stream_id

    async def test_a_change_of_a_stream_leaves_the_rest(self, client: Client, stream: str) -> None:
        """Only what is given changes; a change of nothing is refused."""
        before = await client.create_stream(stream, StreamConfig(retention_bytes=10_000_000))
        after = await client.update_stream(stream, StreamConfigChange(hot_retention_seconds=3600))
        assert (after.hot_retention_ms, after.retention_bytes) == (3_600_000, before.retention_bytes)
        with pytest.raises(errors.InvalidArgument):
            await client.update_stream(stream, StreamConfigChange())
        with pytest.raises(errors.InvalidArgument):
            await client.update_stream(stream, StreamConfigChange(acks=5))

    @pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 201])
    async def test_a_bad_name_is_refused(self, client: Client, name: str) -> None:
        """A name that cannot be one is an InvalidArgument, before anything is sent."""
        with pytest.raises(errors.InvalidArgument):
            await client.create_stream(name)

    async def test_what_does_not_exist_is_not_found(self, client: Client, stream: str) -> None:
        """Every verb on a stream that is not there raises StreamNotFound."""
        for call in (
            client.delete_stream(stream),
            client.trim_stream(stream, 0),
            client.seal_stream(stream),
            client.end_offset(stream),
            client.writer(stream).open(),
            values(client, stream),
        ):
            with pytest.raises(errors.StreamNotFound):
                await call

    # ---- appending

    async def test_records_come_back_as_they_were_appended(self, client: Client, stream: str) -> None:
        """Offsets are dense from 0; key, headers and timestamp are kept."""
        await client.create_stream(stream)
        async with client.writer(stream) as writer:
            assert writer.next_offset == 0
            assert await writer.append(b"a", key=b"k", headers={"h": b"1"}, timestamp=T0_MS) == rangelog.Ack(0)
            acks = await writer.append_batch([b"b", AppendRecord(b"c", b"", None, T0_MS + 1)])
            assert [ack.offset for ack in acks] == [1, 2]
            assert (writer.next_offset, writer.confirm_offset) == (3, 3)
        first, second, third = [record async for record in client.reader(stream)]
        assert first == rangelog.Record(0, T0_MS, b"k", b"a", {"h": b"1"})
        assert (second.offset, second.key, second.value) == (1, None, b"b")
        assert (third.offset, third.timestamp_ms, third.key, third.value) == (2, T0_MS + 1, b"", b"c")
        assert await client.end_offset(stream) == 3

    async def test_pipelined_appends_are_acked_in_order(self, client: Client, stream: str) -> None:
        """Futures give the offsets that were promised; a flush waits for everything."""
        await client.create_stream(stream)
        async with client.writer(stream) as writer:
            futures = [writer.submit(b"%d" % number) for number in range(500)]
            offsets = [writer.append_nowait(b"%d" % number) for number in range(500, 600)]
            await writer.flush()
            assert [future.result().offset for future in futures] + offsets == list(range(600))
        assert await values(client, stream) == [b"%d" % number for number in range(600)]

    async def test_what_cannot_be_appended_is_refused(self, client: Client, stream: str) -> None:
        """A record above the limit or of a wrong type is refused, and the writer goes on; a batch is refused as a whole."""
        await client.create_stream(stream)
        writer = client.writer(stream, inflight_bytes_max=1_000)
        with pytest.raises(errors.WriterClosed):
            await writer.append(b"x")
        async with writer:
            with pytest.raises(errors.RecordTooLarge):
                await writer.append(b"x" * (1 << 20) + b"x")
            with pytest.raises(errors.InvalidArgument):
                await writer.append("text")  # type: ignore[arg-type]
            with pytest.raises(errors.InvalidArgument):
                await writer.append_batch([b"good", None])  # type: ignore[list-item]
            with pytest.raises(errors.Overloaded):
                for _ in range(10):
                    writer.submit(b"x" * 400)
            await writer.ready()
            await writer.append(b"last")
        with pytest.raises(errors.WriterClosed):
            await writer.append(b"x")
        found = await values(client, stream)
        assert set(found[:-1]) == {b"x" * 400} and found[-1] == b"last"

    async def test_a_later_writer_fences_an_earlier_one(self, client: Client, stream: str) -> None:
        """What the earlier one had acked stays; what it appends after that is refused and is not in the log."""
        await client.create_stream(stream)
        first, second = client.writer(stream), client.writer(stream)
        await first.open()
        await first.append(b"first")
        await second.open()
        assert second.epoch > first.epoch
        assert second.next_offset == 1
        with pytest.raises(errors.WriterFenced) as caught:
            await first.append(b"too late")
        assert caught.value.epoch == second.epoch
        await second.append(b"second")
        await first.close(flush=False)
        await second.close()
        assert await values(client, stream) == [b"first", b"second"]

    async def test_a_full_range_is_left_for_the_next(self, client: Client, stream: str) -> None:
        """Records beyond a range's size go to new ranges; readers see one offset space."""
        await client.create_stream(stream, StreamConfig(range_size_bytes_max=64 * 1024))
        count = 0
        async with client.writer(stream) as writer, asyncio.timeout(30):
            # A full range takes appends while the writer asks for the next one, so a call comes between two of them.
            while (await client.describe_stream(stream)).range_count <= 3:
                await writer.append(b"%d " % count + b"." * 10_000)
                count += 1
        assert count <= 40, "a full range is left late"
        assert [int(value.split()[0]) for value in await values(client, stream)] == list(range(count))

    # ---- reading

    async def test_a_reader_begins_and_ends_where_it_was_told(self, client: Client, stream: str) -> None:
        """Offsets, earliest, latest and an end; what is beyond the end is an error that names it."""
        await client.create_stream(stream)
        assert await values(client, stream) == []
        await write(client, stream, b"a", b"b", b"c", b"d")
        assert await values(client, stream, start=1, end=3) == [b"b", b"c"]
        assert await values(client, stream, start="latest") == []
        assert await values(client, stream, start=4) == []
        with pytest.raises(errors.OffsetOutOfRange) as caught:
            await values(client, stream, start=5)
        assert caught.value.offset == 4
        for start in ("newest", True, 1.5):
            with pytest.raises(errors.InvalidArgument):
                await values(client, stream, start=start)
        with pytest.raises(errors.InvalidArgument):
            client.reader(stream, read_preference="warm")

    async def test_a_reader_begins_at_a_time(self, client: Client, stream: str) -> None:
        """The first record at or after it, in whichever range; nothing where there is none."""
        await client.create_stream(stream)
        for number in range(4):
            async with client.writer(stream) as writer:
                await writer.append(b"%d" % number, timestamp=T0_MS + 1000 * number)
        assert await values(client, stream, start=datetime.fromtimestamp(T0_MS / 1000 + 1.5, UTC)) == [b"2", b"3"]
        assert await values(client, stream, start=datetime.fromtimestamp(T0_MS / 1000 + 60, UTC)) == []

    async def test_a_follower_gets_what_comes_later(self, client: Client, stream: str) -> None:
        """It waits on an empty stream, goes on over a change of writers, and ends at its end."""
        await client.create_stream(stream)
        following = asyncio.create_task(values(client, stream, follow=True, end=4))
        await write(client, stream, b"a", b"b")
        await write(client, stream, b"c", b"d")
        async with asyncio.timeout(20):
            assert await following == [b"a", b"b", b"c", b"d"]

    # ---- the end of things

    async def test_a_sealed_stream_takes_a_new_writer_only(self, client: Client, stream: str) -> None:
        """A seal gives the end and fences who wrote; a stream nobody wrote to ends at 0."""
        await client.create_stream(stream)
        assert await client.seal_stream(stream) == 0
        async with client.writer(stream) as writer:
            await writer.append(b"a")
            assert await client.seal_stream(stream) == 1
            with pytest.raises(errors.WriterFenced):
                await writer.append(b"b")
            await writer.close(flush=False)
        await write(client, stream, b"c")
        assert await values(client, stream) == [b"a", b"c"]

    async def test_trimmed_records_are_gone(self, client: Client, stream: str) -> None:
        """Sealed records can be trimmed and nothing beyond them; who asks for one below learns where the stream starts."""
        await client.create_stream(stream)
        await write(client, stream, b"a", b"b", b"c")
        with pytest.raises(errors.OffsetOutOfRange):
            await client.trim_stream(stream, 2)  # the range is open still
        await client.seal_stream(stream)
        assert (await client.trim_stream(stream, 2)).trim_offset == 2
        assert (await client.trim_stream(stream, 1)).trim_offset == 2
        assert await values(client, stream) == [b"c"]
        with pytest.raises(errors.OffsetTrimmed) as caught:
            await values(client, stream, start=1)
        assert caught.value.offset == 2

    async def test_a_deleted_stream_is_gone_for_its_clients(self, client: Client, stream: str) -> None:
        """Its writer and its follower learn it; a stream that is made by its name begins anew and is none of theirs."""
        await client.create_stream(stream)
        writer = client.writer(stream)
        await writer.open()
        await writer.append(b"a")
        has_begun = asyncio.Event()

        async def follow() -> None:
            async for _ in client.reader(stream, follow=True):
                has_begun.set()

        following = asyncio.create_task(follow())
        await has_begun.wait()
        await client.delete_stream(stream)
        await client.create_stream(stream)
        async with asyncio.timeout(20):
            with pytest.raises(errors.StreamNotFound):
                await writer.append(b"b")
            with pytest.raises(errors.StreamNotFound):
                await following
        await writer.close(flush=False)
        assert await client.append(stream, [b"new"]) == 0
        assert await values(client, stream) == [b"new"]

    async def test_a_closed_client_does_nothing_more(self, client: Client, stream: str) -> None:
        """Its writers are closed with it, and every call is an error."""
        await client.create_stream(stream)
        writer = client.writer(stream)
        await writer.open()
        await client.close()
        assert writer.closed
        with pytest.raises(errors.WriterClosed):
            await writer.append(b"a")
        with pytest.raises(errors.Unavailable):
            await client.describe_stream(stream)
