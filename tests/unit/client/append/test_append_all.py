"""All records of an iterable: bounded memory, whatever it has, and what an error leaves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rangelog import AppendRecord
from rangelog.errors import InvalidArgument, RecordTooLarge
from rangelog.testing import FakeCluster
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX

pytestmark = pytest.mark.virtual


async def test_any_iterable_is_appended_in_order() -> None:
    """A list, a generator, an asynchronous generator, and none."""

    async def later() -> AsyncIterator[bytes | AppendRecord]:
        for number in range(2):
            yield AppendRecord(b"a%d" % number, key=b"k")

    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            assert await writer.append_all([b"l"]) == 1
            assert await writer.append_all(b"g%d" % number for number in range(3)) == 3
            assert await writer.append_all(later()) == 2
            assert await writer.append_all([]) == 0
            assert writer.confirm_offset == 6
        found = [(record.key, record.value) async for record in client.reader("s")]
        assert found == [(None, b"l"), (None, b"g0"), (None, b"g1"), (None, b"g2"), (b"k", b"a0"), (b"k", b"a1")]


async def test_no_record_is_taken_before_there_is_room() -> None:
    """The writer never has more than its limit and one record, and nobody sees Overloaded."""
    size_bytes, limit_bytes = 10_000, 100_000
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s", inflight_bytes_max=limit_bytes) as writer:
            most = 0

            def records() -> Iterator[bytes]:
                nonlocal most
                for _ in range(300):
                    most = max(most, writer._pending.size_bytes)
                    yield bytes(size_bytes)

            assert await writer.append_all(records()) == 300
            assert 0 < most <= limit_bytes + 2 * size_bytes


async def test_an_error_says_whether_records_before_it_may_be_there() -> None:
    """With none before it the outcome is known."""
    too_large = bytes(RECORD_SIZE_BYTES_MAX + 1)
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            with pytest.raises(RecordTooLarge) as first:
                await writer.append_all([too_large])
            assert not first.value.outcome_unknown
            with pytest.raises(RecordTooLarge) as second:
                await writer.append_all([b"a", too_large, b"b"])
            assert second.value.outcome_unknown
        assert [record.value async for record in client.reader("s")] == [b"a"]


@pytest.mark.parametrize("records", [b"bytes", "text", 5, None, bytearray(b"x")])
async def test_what_is_no_iterable_of_records(records: Any) -> None:
    """Bytes would be appended as numbers."""
    async with FakeCluster().client() as client:
        await client.create_stream("s")
        async with client.writer("s") as writer:
            with pytest.raises(InvalidArgument, match="an iterable of values"):
                await writer.append_all(records)
