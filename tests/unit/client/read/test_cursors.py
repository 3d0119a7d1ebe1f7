"""Cursors of the client: few calls for many, what is committed when a consumer ends, and the blocking form."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rangelog import Client, CursorReader, errors
from rangelog._read import cursor_reader
from rangelog.testing import FakeCluster
from rangelog_proto.v1 import cursor_pb2
from tests.support.cursor_contract import numbered, offset_of, until_offset
from tests.support.waiting import until

pytestmark = pytest.mark.virtual

FINAL_S = 20.0


class CountedCalls:
    """The calls of sets that reach the placement driver; `fail` ends the next ones with an error, after they were done."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.failures: list[Exception] = []
        cursors = client._cursor_calls._client
        send = cursors.call

        async def counted(request: Any, *args: Any, **kwargs: Any) -> Any:
            answer = await send(request, *args, **kwargs)
            if isinstance(request, cursor_pb2.SetCursorsRequest):
                self.sizes.append(len(request.sets))
                if self.failures:
                    raise self.failures.pop(0)
            return answer

        monkeypatch.setattr(cursors, "call", counted)


async def test_a_consumer_of_a_thousand_streams_commits_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is committed at once goes together."""
    async with FakeCluster().client() as client:
        names = [f"s{number}" for number in range(1_000)]
        for name in names:
            await client.create_stream(name)
        readers = [client.reader(name, cursor="billing") for name in names]
        for reader in readers:
            await reader.begin()
        calls = CountedCalls(client, monkeypatch)
        await asyncio.gather(*(reader.commit() for reader in readers))
        assert sum(calls.sizes) == 1_000 and len(calls.sizes) <= 3


async def test_an_automatic_commit_without_an_answer_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outcome is unknown; the consumer goes on."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        await numbered(client, "s", 3)
        calls = CountedCalls(client, monkeypatch)
        calls.failures = [errors.OutcomeUnknown("lost"), errors.Unavailable("away")]
        async for record in client.reader("s", cursor="billing", auto_commit_s=0.001):
            if record.offset == 2:
                await until(lambda: len(calls.sizes) >= 3, within_s=FINAL_S)
        assert await offset_of(client, "s") == 3


async def test_an_automatic_commit_that_fails_for_good_ends_the_reading() -> None:
    """What was trimmed meanwhile cannot be committed: the consumer hears of it before it goes on."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        await numbered(client, "s", 10)
        await client.seal_stream("s")
        reader = client.reader("s", cursor="billing", auto_commit_s=0.001)
        with pytest.raises(errors.OffsetTrimmed):
            async for chunk in reader.chunks():
                assert len(chunk) == 10
                await until_offset(client, "s", 0)
                await client.cursors("s").delete("billing")
                await client.trim_stream("s", 5)
                reader._committed = -1
                await until(lambda: reader._failed is not None, within_s=FINAL_S)


async def test_a_consumer_that_breaks_off_commits_what_it_had_processed() -> None:
    """The record in hand is not: it is handed out again."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        await numbered(client, "s", 10)
        records = aiter(client.reader("s", cursor="billing", auto_commit_s=3_600.0))
        assert [(await anext(records)).offset for _ in range(4)] == [0, 1, 2, 3]
        await records.aclose()  # type: ignore[attr-defined]
        assert await offset_of(client, "s") == 3


async def test_the_cursor_of_an_idle_consumer_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its position is committed again from time to time, and not at each interval."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        calls = CountedCalls(client, monkeypatch)
        reader = client.reader("s", cursor="billing", auto_commit_s=0.001, follow=True)
        looks, look = [0], reader._commit_processed

        async def counted() -> None:
            looks[0] += 1
            await look()

        monkeypatch.setattr(reader, "_commit_processed", counted)
        records: Any = aiter(reader)
        waiting = asyncio.ensure_future(anext(records))
        await until(lambda: looks[0] >= 10, within_s=FINAL_S)
        assert len(calls.sizes) == 1, "nothing has changed"
        monkeypatch.setattr(cursor_reader, "SIGN_OF_LIFE_S", 0.0)
        await until(lambda: len(calls.sizes) >= 3, within_s=FINAL_S)
        waiting.cancel()
        await asyncio.wait([waiting])
        await records.aclose()


def test_the_blocking_client_has_cursors_as_well() -> None:
    """The same calls, the same results; a record counts as handed out when it is, not with its chunk."""
    with FakeCluster().sync_client() as client:
        client.create_stream("s")
        with client.writer("s") as writer:
            writer.append_batch([b"%d" % number for number in range(10)])
        cursors = client.cursors("s")
        assert cursors.get("billing") is None
        first = cursors.set("billing", 2)
        reader = client.reader("s", cursor="billing")
        found = []
        for record in reader:
            found.append(record.offset)
            if record.offset == 4:
                assert reader.commit(metadata="m").offset == 5
                break
        found += [record.offset for record in client.reader("s", cursor="billing", auto_commit_s=5.0)]
        assert found == [2, 3, 4, 5, 6, 7, 8, 9]
        (last,) = cursors.list()
        assert last.offset == 10
        with pytest.raises(errors.PreconditionFailed):
            cursors.delete("billing", expected_version=first.version)
        assert cursors.delete("billing")


async def test_a_commit_after_polls_has_what_was_polled_and_no_more() -> None:
    """The reader has read ahead; whoever goes on at the cursor gets that."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        await numbered(client, "s", 10)
        async with client.reader("s", cursor="billing") as reader:
            polled = await reader.poll(count_max=4, timeout_s=5)
            assert [record.offset for record in polled] == [0, 1, 2, 3]
            assert (await reader.commit()).offset == 4
        async with client.reader("s", cursor="billing", auto_commit_s=0.001) as reader:
            assert [record.offset for record in await reader.poll(count_max=2, timeout_s=5)] == [4, 5]
            assert isinstance(reader, CursorReader) and reader.handed_out.processed == 4, "the rest was only read"
            assert [record.offset for record in await reader.poll(count_max=2, timeout_s=5)] == [6, 7]
            await until_offset(client, "s", 6)
        assert (await offset_of(client, "s") or 0) <= 8, "the rest was read, and nobody has it"
