"""Sends over a cluster in memory: each record has its own outcome, and what has ended is replaced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import pytest

from rangelog import AppendRecord, Client, ProducerAck, TopicProducer
from rangelog.errors import (
    InvalidArgument,
    Overloaded,
    RangelogError,
    RequestTimeout,
    RightMissing,
    StorageFull,
    TopicNotFound,
    TopicStateForbids,
)
from rangelog.testing import FakeCluster
from rangelog_broker.verbs import send as sending
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.send import BYTES_MAX, RECORDS_MAX, Sends
from rangelog_core.limits import RECORD_SIZE_BYTES_MAX
from rangelog_core.net.principals import Principal, Role
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
async def sends(client: Client) -> AsyncIterator[Sends]:
    """The verb."""
    made = Sends(client, QuotaGuard())
    yield made
    await made.close()


def records(*values: bytes, key: bytes | None = None) -> list[AppendRecord]:
    """Records of one key."""
    return [AppendRecord(value, key) for value in values]


async def read(client: Client, topic: str = "t") -> dict[tuple[int, int], bytes]:
    """What is in a topic, by place."""
    return {(record.shard_id, record.offset): record.value async for record in client.topic_reader(topic)}


async def test_each_record_is_where_its_outcome_says(client: Client, sends: Sends) -> None:
    """Requests share one producer, which is open once."""
    answered = await asyncio.gather(*(
        sends.send(CALLER, "t", records(b"%d-0" % each, b"%d-1" % each, key=b"%d" % each)) for each in range(20)
    ))  # fmt: skip
    found = await read(client)
    assert len(found) == 40
    for each, outcomes in enumerate(answered):
        assert [found[one] for one in outcomes if isinstance(one, ProducerAck)] == [b"%d-0" % each, b"%d-1" % each]
        first, second = outcomes
        assert isinstance(first, ProducerAck) and isinstance(second, ProducerAck)
        assert first.shard == second.shard and first.offset < second.offset
    assert (sends.topic_count, sends.counts.acked_records, sends.counts.refused_records) == (1, 40, 0)


async def test_a_bad_record_has_its_error_and_the_others_are_in(client: Client, sends: Sends) -> None:
    """In the order of the request."""
    given = [
        AppendRecord(b"a"),
        AppendRecord(b"x" * (RECORD_SIZE_BYTES_MAX + 1)),
        AppendRecord(b"b", timestamp_ms=-(1 << 70)),
        AppendRecord(b"c"),
    ]
    outcomes = await sends.send(CALLER, "t", given)
    assert [getattr(each, "code", "acked") for each in outcomes] == [
        "acked", "RECORD_TOO_LARGE", "INVALID_ARGUMENT", "acked",
    ]  # fmt: skip
    assert sorted((await read(client)).values()) == [b"a", b"c"]


async def test_what_no_request_may_ask(sends: Sends) -> None:
    """Nothing is sent, and no producer is opened."""
    with pytest.raises(InvalidArgument, match="0 records"):
        await sends.send(CALLER, "t", [])
    with pytest.raises(InvalidArgument, match=f"{RECORDS_MAX + 1} records"):
        await sends.send(CALLER, "t", records(*[b""] * (RECORDS_MAX + 1)))
    many = [b"x" * RECORD_SIZE_BYTES_MAX] * (BYTES_MAX // RECORD_SIZE_BYTES_MAX + 1)
    with pytest.raises(InvalidArgument, match="bytes"):
        await sends.send(CALLER, "t", records(*many))
    with pytest.raises(
        InvalidArgument, match="bytes"
    ):  # its headers count: one line of them may be that of many records
        await sends.send(CALLER, "t", [AppendRecord(b"", headers={"h": bytes(BYTES_MAX // 1_000)})] * 1_000)
    with pytest.raises(InvalidArgument, match="name"):
        await sends.send(CALLER, "a/b/c", records(b"x"))
    assert sends.topic_count == 0
    with pytest.raises(TopicNotFound):
        await sends.send(CALLER, "nope", records(b"x"))
    assert sends.topic_count == 0


async def test_a_topic_that_was_made_again_is_sent_to(client: Client, sends: Sends) -> None:
    """The producer of the one before has ended; a sealed topic says so."""
    await sends.send(CALLER, "t", records(b"before"))
    await client.topics.delete("t", force=True)
    with pytest.raises(RangelogError) as gone:
        (outcome,) = await sends.send(CALLER, "t", records(b"between"))
        raise outcome  # type: ignore[misc]  # an error
    assert isinstance(gone.value, TopicNotFound)
    await client.topics.create("t")

    async def is_sent() -> bool:
        (outcome,) = await sends.send(CALLER, "t", records(b"after"))
        return isinstance(outcome, ProducerAck)

    await until(is_sent, "a record is sent to the new topic")
    assert set((await read(client)).values()) == {b"after"}
    await client.topics.seal("t")

    async def refused() -> bool:
        try:
            (outcome,) = await sends.send(CALLER, "t", records(b"late"))
        except TopicStateForbids:
            return True
        return isinstance(outcome, TopicStateForbids)

    await until(refused, "the topic is sealed")


async def test_requests_that_ask_for_no_ack_are_in_all_the_same(client: Client, sends: Sends) -> None:
    """Where nothing fails. A record that can be in no log is refused at once."""
    await sends.send_unacked(CALLER, "t", records(b"a", b"b"))
    with pytest.raises(RangelogError):
        await sends.send_unacked(CALLER, "t", records(b"x" * (RECORD_SIZE_BYTES_MAX + 1)))
    await sends.send(CALLER, "t", records(b"c"))
    await sends.close()
    assert sorted((await read(client)).values()) == [b"a", b"b", b"c"]
    assert sends.counts.unacked_records == 2


async def test_nothing_is_sent_without_the_right(sends: Sends) -> None:
    """The caller is asked before the topic is looked up."""
    caller = Caller(RightsGuard(), lambda *_: None)
    caller.admitted(Principal(Role.CLIENT, "c"))
    refusal = mock.AsyncMock(side_effect=RightMissing("no"))
    with mock.patch.object(Caller, "require_named", refusal), pytest.raises(RightMissing):
        await sends.send(caller, "t", records(b"x"))
    assert sends.topic_count == 0
    (_, kind, name), _ = refusal.call_args
    assert (kind, name) == (2, "default/t") or name == "default/t"


async def test_topics_are_bounded_and_idle_ones_give_their_place(
    client: Client, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer that has sent nothing lately is closed."""
    monkeypatch.setattr(sending, "PRODUCERS_MAX", 1)
    await client.topics.create("u")
    await sends.send(CALLER, "t", records(b"x"))
    with pytest.raises(Overloaded, match="1 topics"):
        await sends.send(CALLER, "u", records(b"x"))
    monkeypatch.setattr(sending, "IDLE_S", -1.0)
    sends._sweep()
    await sends.send(CALLER, "u", records(b"x"))
    assert sends.topic_count == 1


async def test_requests_that_find_no_room_wait_in_turn(
    client: Client, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much comes at once: none of it is refused for want of room."""
    monkeypatch.setattr(sending, "INFLIGHT_BYTES_MAX", 200_000)
    big = [b"x" * 99_000, b"y" * 99_000]
    answered = await asyncio.gather(*(sends.send(CALLER, "t", records(*big, key=b"k")) for _ in range(20)))
    assert all(isinstance(each, ProducerAck) for outcomes in answered for each in outcomes)
    assert len(await read(client)) == 40


async def test_a_cancelled_request_disturbs_no_other(client: Client, sends: Sends) -> None:
    """Its records may be in; those behind them are."""
    tasks: list[Any] = [asyncio.ensure_future(sends.send(CALLER, "t", records(b"%d" % each))) for each in range(10)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[3], asyncio.CancelledError)
    assert all(isinstance(each[0], ProducerAck) for index, each in enumerate(done) if index != 3)  # type: ignore[index]
    await sends.send(CALLER, "t", records(b"last"))
    assert len(await read(client)) >= 10


async def test_a_record_without_an_ack_in_time_may_be_in_the_log(
    client: Client, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error says so; those that were acked have their places all the same."""
    monkeypatch.setattr(sending, "SEND_TIMEOUT_S", 0.05)
    await sends.send(CALLER, "t", records(b"first"))
    submit = TopicProducer.submit

    def lost(self: TopicProducer, value: bytes, **options: Any) -> asyncio.Future[ProducerAck]:
        return asyncio.get_running_loop().create_future() if value == b"lost" else submit(self, value, **options)

    monkeypatch.setattr(TopicProducer, "submit", lost)
    acked, late = await sends.send(CALLER, "t", records(b"acked", b"lost"))
    assert isinstance(acked, ProducerAck)
    assert isinstance(late, RequestTimeout) and late.outcome_unknown


async def test_a_request_that_waits_for_room_is_not_overtaken(
    client: Client, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of one key are in the order in which they came here."""
    await sends.send(CALLER, "t", records(b"before", key=b"k"))
    room, asked = asyncio.Event(), 0

    async def ready(self: TopicProducer, **_: Any) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            await room.wait()

    monkeypatch.setattr(TopicProducer, "ready", ready)
    first = asyncio.ensure_future(sends.send(CALLER, "t", records(b"first", key=b"k")))
    await until(lambda: asked == 1, "the first waits for room")
    second = asyncio.ensure_future(sends.send(CALLER, "t", records(b"second", key=b"k")))
    await asyncio.sleep(0)
    room.set()
    (one,), (two,) = await asyncio.gather(first, second)
    assert isinstance(one, ProducerAck) and isinstance(two, ProducerAck)
    assert (one.shard, one.offset) < (two.shard, two.offset)


async def test_a_producer_that_finds_no_room_in_the_log_is_kept(
    client: Client, sends: Sends, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still retries what it has: another one would overtake it."""
    await sends.send(CALLER, "t", records(b"first"))
    before = sends._topics["default/t"]
    monkeypatch.setattr(TopicProducer, "ready", mock.AsyncMock(side_effect=StorageFull("no room")))
    with pytest.raises(StorageFull):
        await sends.send(CALLER, "t", records(b"second"))
    assert sends._topics["default/t"] is before
