"""The connections of producers by hand: questions about ended shards, limits, clients that do not read."""

from __future__ import annotations

import asyncio

import pytest

from rangelog.errors import NotOwner, RangelogError, ShardEnded, Unavailable
from rangelog_broker.serving import connection as serving
from rangelog_broker.serving.connection import ProducerPort
from rangelog_broker.verbs import produce
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Opcode
from rangelog_proto.v1 import data_pb2
from tests.support.owner_cluster import made_batch
from tests.support.producer_client import (
    BATCH,
    ProducerClient,
    ScriptedShards,
    frame,
    sweep_at,
)

pytestmark = pytest.mark.virtual

# ---- questions


async def test_questions_about_ended_shards(client: ProducerClient, shards: ScriptedShards) -> None:
    """Found with its offset, not found, or an error."""
    outcomes: list[int | RangelogError | None] = [17, None, Unavailable("not now"), 0]
    for number, outcome in enumerate(outcomes, 10):
        shards.found = outcome
        message = data_pb2.FindBatch(topic_id=3, shard_id=1, producer_id=7, producer_epoch=2, sequence=5)
        client.send(Opcode.FIND_BATCH, number, message)
        (reply,) = await client.replies()
        assert reply.request_id == number
        if isinstance(outcome, RangelogError):
            assert data_pb2.Error.FromString(reply.message).code == outcome.code
        else:
            told = data_pb2.FindBatchReply.FromString(reply.message)
            assert (told.found, told.offset) == (outcome is not None, outcome or 0)
    assert set(shards.asked) == {Producer(7, 2, 5)}


async def test_a_question_that_fails_unexpectedly_has_an_answer(client: ProducerClient, shards: ScriptedShards) -> None:
    """A defect is an error to the client, not silence."""
    shards.found = KeyError("defect")
    client.send(Opcode.FIND_BATCH, 2, data_pb2.FindBatch(topic_id=3))
    assert await client.errors() == [(2, "INTERNAL")]


async def test_questions_end_with_the_port(port: ProducerPort, client: ProducerClient, shards: ScriptedShards) -> None:
    """Those that wait are cancelled, and leave nothing behind."""
    shards.gate.clear()
    client.send(Opcode.FIND_BATCH, 2, data_pb2.FindBatch(topic_id=3))
    await asyncio.sleep(0)
    port.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not port.batches._tasks
    assert client.wire.ended == "closed"


# ---- shards that are opened or ended


async def test_batches_wait_while_their_shard_is_opened(client: ProducerClient, shards: ScriptedShards) -> None:
    """They are taken in order once it is open; they count as unanswered meanwhile."""
    change = shards.change = asyncio.get_running_loop().create_future()
    for number in (2, 3):
        client.produce(number, BATCH)
    await asyncio.sleep(0)
    assert await client.replies() == [] and not shards.taken
    shards.change = None
    change.set_result(None)
    while len(shards.taken) < 2:
        await asyncio.sleep(0)
    assert [request_id for _, _, request_id in shards.taken] == [2, 3]
    shards.answer(2)
    assert [each.request_id for each in await client.replies()] == [2, 3]


async def test_batches_wait_until_their_shard_has_ended(client: ProducerClient, shards: ScriptedShards) -> None:
    """Their producer learns that it has ended, rather than that it tries too early."""
    change = shards.change = asyncio.get_running_loop().create_future()
    client.produce(2, BATCH)
    await asyncio.sleep(0)
    shards.change, shards.refusal = None, ShardEnded("at its end")
    change.set_result(None)
    while not (told := await client.errors()):
        await asyncio.sleep(0)
    assert told == [(2, "SHARD_ENDED")]


@pytest.mark.parametrize("defect", [True, False])
async def test_batches_do_not_wait_for_ever(
    client: ProducerClient, shards: ScriptedShards, monkeypatch: pytest.MonkeyPatch, defect: bool
) -> None:
    """After a while they are refused, as they would have been at once; a defect is an answer as well."""
    monkeypatch.setattr(produce, "CHANGING_S_MAX", 0.0)
    shards.change = asyncio.get_running_loop().create_future()
    shards.refusal = KeyError("defect") if defect else NotOwner("not open yet")
    client.produce(2, BATCH)
    async with asyncio.timeout(10):
        while not (told := await client.errors()):
            await asyncio.sleep(0.001)
    assert told == [(2, "INTERNAL" if defect else "NOT_OWNER")]


# ---- flow control


@pytest.mark.parametrize("many", [True, False])
async def test_too_much_without_an_answer_pauses_reading(
    client: ProducerClient, shards: ScriptedShards, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    """By number or by bytes; reading goes on once there is room, and every request has its answer."""
    monkeypatch.setattr(serving, "UNANSWERED_MAX" if many else "UNANSWERED_BYTES_MAX", 10 if many else 10 * len(BATCH))
    for number in range(2, 12):
        client.produce(number, BATCH)
        assert client.wire.reading
    client.produce(12, BATCH)
    assert not client.wire.reading
    shards.answer()
    assert client.wire.reading
    client.produce(13, BATCH)
    assert not client.wire.reading
    shards.answer(11)
    assert client.wire.reading
    assert [each.request_id for each in await client.replies()] == list(range(2, 14))


async def test_refused_requests_take_no_room(client: ProducerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have their answer."""
    monkeypatch.setattr(serving, "UNANSWERED_MAX", 10)
    for number in range(2, 100):
        client.produce(number, b"no batch")
    assert client.wire.reading
    assert len(await client.errors()) == 98


async def test_a_client_that_does_not_read_is_not_read(client: ProducerClient, shards: ScriptedShards) -> None:
    """Its answers are kept, so no more requests are taken until it reads again: what is kept is bounded."""
    client.produce(2, BATCH)
    client.connection.pause_writing()
    assert not client.wire.reading
    shards.answer()
    assert await client.replies() == []
    client.connection.resume_writing()
    assert client.wire.reading
    assert [each.request_id for each in await client.replies()] == [2]


async def test_a_client_that_never_reads_is_cut_off(
    client: ProducerClient, shards: ScriptedShards, port: ProducerPort
) -> None:
    """After its time, also when it goes on sending what had been received already."""
    client.produce(2, BATCH)
    now = port.loop.time()
    client.connection.pause_writing()
    client.produce(3, made_batch(Producer(7, 0, 1), b"c"))
    sweep_at(port, now + serving.SLOW_READER_TIMEOUT_S - 1)
    assert not client.wire.ended
    sweep_at(port, now + serving.SLOW_READER_TIMEOUT_S + 1)
    assert client.wire.ended == "aborted"


async def test_a_resumed_client_has_its_whole_time_again(client: ProducerClient, port: ProducerPort) -> None:
    """Neither the slow client's deadline nor that of a frame from before the pause holds afterwards."""
    client.feed(frame(Opcode.PRODUCE, 2, data_pb2.Produce(topic_id=3), BATCH)[:30])
    client.connection.pause_writing()
    client.connection.resume_writing()
    sweep_at(port, port.loop.time() + serving.SLOW_READER_TIMEOUT_S + 1)
    assert not client.wire.ended


async def test_a_paused_client_that_is_not_full_stays_paused(
    client: ProducerClient, shards: ScriptedShards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both reasons must be gone before it is read again."""
    monkeypatch.setattr(serving, "UNANSWERED_MAX", 0)
    client.produce(2, BATCH)
    client.connection.pause_writing()
    shards.answer()
    assert not client.wire.reading
    client.produce(3, BATCH)
    client.connection.resume_writing()
    assert not client.wire.reading
    shards.answer()
    assert client.wire.reading
