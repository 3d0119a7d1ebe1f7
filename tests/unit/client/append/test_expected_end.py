"""Appends with an expected end: the record is there, at that offset, or nowhere; however often, and by whom, it is tried."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from rangelog import Ack, AppendRecord, Client, Record, Writer
from rangelog.errors import AppendTimeout, InvalidArgument, PreconditionFailed, RangelogError, RecordTooLarge
from rangelog.testing import FakeCluster
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX


async def values(client: Client) -> list[bytes]:
    """What is in the stream "s"."""
    return [record.value async for record in client.reader("s")]


async def test_the_record_gets_the_offset_or_none() -> None:
    """Where the stream ends there it is appended; elsewhere the error has the end, and the stream is as before."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            assert (await writer.append(b"0", expected_end=0)).offset == 0
            assert writer.append_nowait(b"1", expected_end=1) == 1
            for wrong in (0, 1, 3):
                for call in (writer.append, writer.submit, writer.append_nowait):
                    with pytest.raises(PreconditionFailed, match=f"ends at 2, not at {wrong}") as told:
                        made: Any = call(b"x", expected_end=wrong)
                        await made
                    assert (told.value.offset, told.value.outcome_unknown, writer.next_offset) == (2, False, 2)
            assert (await writer.submit(b"2", key=b"k", expected_end=2)).offset == 2
        assert await values(client) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("expected_end", [-1, True, 1.0, "0", None])
async def test_what_is_no_offset(expected_end: Any) -> None:
    """Refused in the words of the argument, at whatever end; None is no condition."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            await writer.append(b"0", expected_end=0)
            if expected_end is None:
                assert (await writer.append(b"1", expected_end=None)).offset == 1
                return
            with pytest.raises(InvalidArgument, match="expected_end is an offset"):
                await writer.append(b"1", expected_end=expected_end)
        assert await values(client) == [b"0"]


async def test_the_end_counts_what_is_not_acked() -> None:
    """A repeat on the same writer, while the first try is under way, brings no second record."""
    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            cluster.hold_acks()
            with pytest.raises(AppendTimeout):
                await writer.append(b"once", expected_end=0, timeout_s=0.02)
            with pytest.raises(PreconditionFailed):
                await writer.append(b"once", expected_end=0)
            cluster.release_acks()
        assert await values(client) == [b"once"]


async def test_an_append_that_waits_for_room_is_judged_when_it_has_some() -> None:
    """What others appended meanwhile counts."""
    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("s")
        async with client.writer("s", inflight_bytes_max=500) as writer:
            cluster.hold_acks()
            first = writer.submit(b"x" * 480)
            waiting = asyncio.create_task(writer.append(b"y", expected_end=1))
            await asyncio.sleep(0)
            writer.append_nowait(b"z", expected_end=1)
            cluster.release_acks()
            with pytest.raises(PreconditionFailed):
                await waiting
            assert (await first).offset == 0
        assert [len(value) for value in await values(client)] == [480, 1]


async def test_a_batch_is_appended_behind_one_another_or_not_at_all() -> None:
    """No record of another task comes between; one that is too large for a step is refused with what to do."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s", inflight_bytes_max=10_000) as writer:
            others = asyncio.create_task(writer.append_batch([b"%d" % number + b"." * 400 for number in range(30)]))
            while writer.next_offset < 5:
                await asyncio.sleep(0)
            end = writer.next_offset
            batch: list[bytes | AppendRecord] = [
                AppendRecord(b"%d" % n * 900, key=b"k", headers={"h": b"v"}) for n in range(9)
            ]
            acked: list[Ack] = []
            while not acked:
                try:
                    acked = await writer.append_batch(batch, expected_end=end)
                except PreconditionFailed as error:
                    assert error.offset is not None and error.offset > end
                    end = error.offset
            assert [ack.offset for ack in acked] == list(range(end, end + 9))
            await others
            with pytest.raises(
                InvalidArgument, match="records of 10064 bytes with an expected_end; the limit is 10000"
            ):
                await writer.append_batch([b"x" * 10_000], expected_end=writer.next_offset)
            with pytest.raises(RecordTooLarge):
                await writer.append_batch([b"good", bytes(RECORD_SIZE_BYTES_MAX + 1)], expected_end=writer.next_offset)
            assert await writer.append_batch([], expected_end=writer.next_offset) == []
        records = [record async for record in client.reader("s")]
        assert [record.value for record in records[end : end + 9]] == [b"%d" % n * 900 for n in range(9)]
        assert len(records) == 39


async def test_nothing_comes_between_the_records_of_a_batch() -> None:
    """Also where they are more than the writer had room for when the batch began."""
    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("s")
        async with client.writer("s", inflight_bytes_max=10_000) as writer:
            cluster.hold_acks()
            writer.append_nowait(b"x" * 4_000)
            batch = asyncio.create_task(writer.append_batch([b"b" * 900] * 9, expected_end=1))
            while writer.next_offset == 1:
                await asyncio.sleep(0)
            writer.append_nowait(b"behind", expected_end=10)
            cluster.release_acks()
            assert [ack.offset for ack in await batch] == list(range(1, 10))
        assert [len(value) for value in await values(client)] == [4_000, *[900] * 9, 6]


async def test_one_shot_and_blocking_appends_have_it_too() -> None:
    """`client.append` of a script, and the blocking writer."""
    cluster = FakeCluster()
    async with cluster.client() as client:
        await client.create_stream("s")
        assert await client.append("s", [b"0", b"1"], expected_end=0) == 0
        with pytest.raises(PreconditionFailed) as told:
            await client.append("s", [b"0", b"1"], expected_end=0)
        assert told.value.offset == 2

    def blocking() -> None:
        with cluster.sync_client() as other, other.writer("s") as writer:
            with pytest.raises(PreconditionFailed):
                writer.append(b"x", expected_end=1)
            assert writer.append(b"2", expected_end=2).offset == 2
            assert writer.append_nowait(b"3", expected_end=3) == 3
            assert writer.submit(b"4", expected_end=4).result(10).offset == 4
            assert [ack.offset for ack in writer.append_batch([b"5"], expected_end=5)] == [5]

    await asyncio.to_thread(blocking)
    async with cluster.client() as client:
        assert await values(client) == [b"%d" % number for number in range(6)]


class Program:
    """Appends its numbers in order, each once, over writers that end anywhere: by the recipe of docs/sdk.md."""

    def __init__(self, client: Client, cluster: FakeCluster, chance: random.Random) -> None:
        self.client, self.cluster, self.chance = client, cluster, chance
        self.writer: Writer | None = None
        self.unknown = 0

    async def open(self) -> Writer:
        """A writer, in place of one that may still be at work."""
        if self.writer is not None and self.chance.random() < 0.5:
            await self.writer.close(flush=False)
        self.writer = self.client.writer("s")
        self.cluster.release_acks()
        await self.writer.open()
        return self.writer

    async def append(self, number: int, expected_end: int) -> None:
        """Until it is certain that the number is there, at that offset."""
        while True:
            try:
                writer = self.writer or await self.open()
                if self.chance.random() < 0.4:
                    self.cluster.hold_acks()
                await writer.append(b"%d" % number, expected_end=expected_end, timeout_s=0.005)
                return
            except PreconditionFailed as error:
                assert error.offset is not None and error.offset > expected_end
                self.cluster.release_acks()
                await writer.flush()
                found = await anext(aiter(self.client.reader("s", start=expected_end)))
                assert found.value == b"%d" % number, "another one's record"
                return
            except RangelogError as error:
                self.unknown += error.outcome_unknown
                if self.chance.random() < 0.7:
                    await self.open()


@pytest.mark.parametrize("seed", range(12))
async def test_repeats_bring_each_record_once(seed: int) -> None:
    """Over acks that do not come, broken connections, and writers that take over from each other."""
    cluster, chance = FakeCluster(), random.Random(seed)
    async with cluster.client() as client:
        await client.create_stream("s")
        program = Program(client, cluster, chance)
        for number in range(40):
            if chance.random() < 0.1:
                cluster.break_connections()
            await program.append(number, number)
        cluster.release_acks()
        assert program.unknown > 3
        found: list[Record] = [record async for record in client.reader("s")]
        assert [record.value for record in found] == [b"%d" % number for number in range(40)]
