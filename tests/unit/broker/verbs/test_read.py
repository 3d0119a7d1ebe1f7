"""Reads over a cluster in memory: what follows from cut to cut has no gap and no repeat."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any
from unittest import mock

import pytest

from rangelog import Client, Cut
from rangelog.errors import InvalidArgument, OffsetOutOfRange, Overloaded, RightMissing, TopicNotFound
from rangelog.testing import FakeCluster
from rangelog_broker.verbs import read as reading
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.read import RECORDS_MAX, WAIT_S_MAX, Reads
from rangelog_broker.verbs.record_filter import RecordFilter
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from tests.support.waiting import until

CALLER = Caller(RightsGuard(), lambda *_: None)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A client of a cluster with a topic "t" of two shards."""
    with FakeCluster(brokers=1) as cluster:
        async with cluster.client() as made:
            await made.topics.create("t", shards=2)
            yield made


@pytest.fixture
def reads(client: Client) -> Reads:
    """The verb."""
    return Reads(client, QuotaGuard())


async def send(client: Client, *values: bytes, key: bytes = b"k", timestamp: int | None = None) -> None:
    """Send records."""
    async with client.producer("t") as producer:
        for value in values:
            await producer.send(value, key=key, timestamp=timestamp)


async def test_from_cut_to_cut_everything_comes_once(client: Client, reads: Reads) -> None:
    """In the order of each key, over a split."""
    await send(client, *[b"%02d" % number for number in range(20)])
    await client.topics.scale("t", [0, 1], 3)
    await send(client, *[b"%02d" % number for number in range(20, 40)])
    found: list[bytes] = []
    position: str | Cut = "earliest"
    while True:
        answer = await reads.read(CALLER, "t", position, records_max=7)
        assert len(answer.records) <= 7
        if not answer.records:
            break
        found += [record.value for record in answer.records]
        position = answer.position
    assert found == [b"%02d" % number for number in range(40)]
    assert (reads.counts.read_records, reads.counts.read_bytes) == (40, 120)


async def test_an_answer_is_bounded_in_bytes(client: Client, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has one record at least."""
    monkeypatch.setattr(reading, "BYTES_MAX", 100)
    async with client.producer("t") as producer:
        for headers in ({}, {"h": bytes(1_000)}):
            await producer.send(bytes(0 if headers else 1_000), key=b"k", headers=headers)
            await producer.send(b"last", key=b"k")
    found = await reads.read(CALLER, "t", "earliest")
    assert len(found.records) == 1
    assert [len(each.headers) for each in (await reads.read(CALLER, "t", found.position)).records] == [0, 1]


async def test_a_read_at_the_end_waits(client: Client, reads: Reads) -> None:
    """For the first record, which it has; or for its time, and then its position is the end."""
    await send(client, b"before")
    nothing = await reads.read(CALLER, "t", "latest", wait_s=0.05)
    assert not nothing.records
    waiting = asyncio.ensure_future(reads.read(CALLER, "t", nothing.position, wait_s=30.0))
    while reads.waiting_count == 0:
        await asyncio.sleep(0)
    await send(client, b"after")
    assert [record.value for record in (await waiting).records] == [b"after"]
    assert reads.waiting_count == 0


async def test_a_stop_answers_those_that_wait(client: Client, reads: Reads) -> None:
    """With nothing, and the position that they had; later ones do not wait."""
    await send(client, b"before")
    start = (await reads.read(CALLER, "t", "earliest")).position
    waiting = [asyncio.ensure_future(reads.read(CALLER, "t", start, wait_s=60.0)) for _ in range(3)]
    while reads.waiting_count < 3:
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        reads.leave()
        for answer in [*await asyncio.gather(*waiting), await reads.read(CALLER, "t", start, wait_s=60.0)]:
            assert (answer.records, answer.position) == ([], start)


async def test_too_many_that_wait_are_answered_at_once(
    client: Client, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty; too many that read are refused."""
    monkeypatch.setattr(reading, "WAITING_MAX", 0)
    assert not (await reads.read(CALLER, "t", "latest", wait_s=30.0)).records
    monkeypatch.setattr(reading, "READS_MAX", 0)
    with pytest.raises(Overloaded):
        await reads.read(CALLER, "t", "earliest")


async def test_starts(client: Client, reads: Reads) -> None:
    """By time; beyond the end; of another topic."""
    await send(client, b"old", timestamp=1_600_000_000_000)
    await send(client, b"new", timestamp=1_700_000_000_000)
    by_time = await reads.read(CALLER, "t", datetime.fromtimestamp(1_650_000_000, UTC))
    assert [record.value for record in by_time.records] == [b"new"]
    offsets = dict(by_time.position.offsets)
    beyond = Cut(by_time.position.topic_id, {shard: offset + 5 for shard, offset in offsets.items()})
    with pytest.raises(OffsetOutOfRange):
        await reads.read(CALLER, "t", beyond)
    await client.topics.create("u")
    with pytest.raises(InvalidArgument):
        await reads.read(CALLER, "u", by_time.position)
    with pytest.raises(TopicNotFound):
        await reads.read(CALLER, "nope", "earliest")


async def test_what_no_request_may_ask(reads: Reads) -> None:
    """Before anything is looked up."""
    for bad in ({"records_max": 0}, {"records_max": RECORDS_MAX + 1}, {"wait_s": -1.0}, {"wait_s": WAIT_S_MAX + 1}):
        with pytest.raises(InvalidArgument):
            await reads.read(CALLER, "t", "earliest", **bad)  # type: ignore[arg-type]
    with (
        mock.patch.object(Caller, "require_named", mock.AsyncMock(side_effect=RightMissing("no"))),
        pytest.raises(RightMissing),
    ):
        await reads.read(CALLER, "t", "earliest")


async def test_what_is_wanted(client: Client, reads: Reads) -> None:
    """By key, header, and time, all of which must hold."""
    async with client.producer("t") as producer:
        for number in range(12):
            key = (b"a", b"b", None)[number % 3]
            headers = {"even": b"yes", "n": b"%d" % number} if number % 2 == 0 else None
            await producer.send(b"%d" % number, key=key, headers=headers, timestamp=1_700_000_000_000 + number)

    async def values(**wanted: Any) -> list[int]:
        found = await reads.read(CALLER, "t", "earliest", wanted=RecordFilter(**wanted))
        return sorted(int(record.value) for record in found.records)

    assert await values(key=b"a") == [0, 3, 6, 9]
    assert await values(headers={"even": b"yes"}) == [0, 2, 4, 6, 8, 10]
    assert await values(headers={"even": b"yes", "n": b"4"}) == [4]
    assert await values(headers={"even": b"no"}) == await values(headers={"odd": b""}) == await values(key=b"") == []
    assert await values(until_ms=1_700_000_000_003) == [0, 1, 2]
    assert await values(key=b"b", headers={"even": b"yes"}, until_ms=1_700_000_000_009) == [4]


@pytest.mark.parametrize("limit", ["SCAN_RECORDS_MAX", "SCAN_BYTES_MAX", "records_max"])
async def test_a_filter_looks_at_so_many_and_goes_on(
    client: Client, reads: Reads, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """From cut to cut every wanted record comes once, over a split; an answer that ends early says so, whatever it has."""
    records_max = 1_000
    if limit == "records_max":
        records_max = 3
    else:
        monkeypatch.setattr(reading, limit, 7 if limit == "SCAN_RECORDS_MAX" else 7 * 4)
    keys = [b"%d" % (number % 5) for number in range(100)]
    async with client.producer("t") as producer:
        for number, key in enumerate(keys[:50]):
            await producer.send(b"%03d" % number, key=key)
        await client.topics.scale("t", [0, 1], 3)
        for number, key in enumerate(keys[50:], 50):
            await producer.send(b"%03d" % number, key=key)
    found: list[int] = []
    position: str | Cut = "earliest"
    empty = 0
    for _ in range(200):
        answer = await reads.read(CALLER, "t", position, wanted=RecordFilter(b"3"), records_max=records_max)
        found += [int(record.value) for record in answer.records]
        if not answer.more and not answer.records:
            break
        assert answer.position != position and len(answer.records) <= records_max
        empty += not answer.records
        position = answer.position
    assert found == list(range(3, 100, 5))
    assert empty > 1 or limit == "records_max"


async def test_a_filter_waits_for_what_is_wanted(client: Client, reads: Reads) -> None:
    """Others that come meanwhile are passed, and do not end the wait; its time does."""
    await send(client, b"before", key=b"a")
    waiting = asyncio.ensure_future(reads.read(CALLER, "t", "latest", wait_s=30.0, wanted=RecordFilter(b"a")))
    for value in (b"1", b"2"):
        await until(lambda: reads.waiting_count == 1, "it waits")
        await send(client, value, key=b"other")
    await until(lambda: reads.waiting_count == 1, "it waits again")
    await send(client, b"3", key=b"a")
    found = await waiting
    assert [record.value for record in found.records] == [b"3"]
    nothing = await reads.read(CALLER, "t", found.position, wait_s=0.05, wanted=RecordFilter(b"a"))
    assert not nothing.records and not nothing.more


async def test_what_a_filter_leaves_out_counts(client: Client) -> None:
    """To the quota of reads: to look at records costs as much as to have them."""
    charged: list[int] = []
    reads = Reads(client, QuotaGuard())
    await send(client, b"1234567890", b"1234567890")
    with mock.patch.object(Reads, "_charge", lambda _self, _who, _name, size_bytes: charged.append(size_bytes)):
        await reads.read(CALLER, "t", "earliest", wanted=RecordFilter(b"other"))
    assert charged == [22]
