"""The connections of producers by hand: hellos, frames, batches and their answers."""

from __future__ import annotations

from typing import Any

import google_crc32c
import pytest

from rangelog.errors import NotOwner, ProducerFenced, RightMissing
from rangelog_broker.serving import connection as serving
from rangelog_broker.serving.connection import ProducerPort
from rangelog_core.batch import TRAILER_BYTES, encode_batch, peek_header
from rangelog_core.batch_extension import Producer, Submission, Tag, encode_extension, encode_submission
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_core.limits import FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.rights import KINDS
from rangelog_proto.v1 import data_pb2
from tests.support.owner_cluster import made_batch
from tests.support.producer_client import (
    BATCH,
    INCARNATION,
    NAME,
    ProducerClient,
    ScriptedShards,
    frame,
    hello_message,
    sweep_at,
)

pytestmark = pytest.mark.virtual

# ---- hello


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "wrong"}, "UNAUTHORIZED"),
        ({"token": ""}, "UNAUTHORIZED"),
        ({"token": "sécret"}, "UNAUTHORIZED"),
        ({"server": "b2"}, "WRONG_SERVER"),
        ({"server": ""}, "WRONG_SERVER"),
        ({"incarnation": INCARNATION + 1}, "WRONG_SERVER"),
        ({"protocol_version": 0}, "PROTOCOL_VIOLATION"),
        ({"protocol_version": 99, "protocol_version_min": 98}, "UNSUPPORTED_VERSION"),
    ],
)
async def test_a_hello_for_another_broker_ends_the_connection(port: ProducerPort, changes: Any, code: str) -> None:
    """A wrong token, name, incarnation or version: one typed error, then the end."""
    client = ProducerClient(port)
    client.hello(**changes)
    assert await client.errors() == [(1, code)]
    assert client.wire.ended == "closed"


async def test_a_hello_names_the_broker_and_any_incarnation(port: ProducerPort) -> None:
    """Who does not know the incarnation leaves it out; the reply has it."""
    client = ProducerClient(port)
    client.hello(incarnation=0)
    (reply,) = await client.replies()
    told = data_pb2.HelloReply.FromString(reply.message)
    assert (told.server, told.incarnation) == (NAME, INCARNATION)
    assert told.payload_bytes_max == FRAME_PAYLOAD_BYTES_MAX


@pytest.mark.parametrize("opcode", [Opcode.PRODUCE, Opcode.FIND_BATCH, Opcode.APPEND])
async def test_nothing_is_served_before_the_hello(port: ProducerPort, shards: ScriptedShards, opcode: Opcode) -> None:
    """Any other first frame is refused, whatever it says, and nothing is looked up for it."""
    client = ProducerClient(port)
    client.send(opcode, 4, data_pb2.Produce(topic_id=3), BATCH)
    assert await client.errors() == [(4, "PROTOCOL_VIOLATION")]
    assert client.wire.ended == "closed"
    assert not shards.taken and not shards.asked


async def test_frames_behind_a_refused_hello_are_not_handled(port: ProducerPort, shards: ScriptedShards) -> None:
    """They came in the same bytes."""
    client = ProducerClient(port)
    produce = frame(Opcode.PRODUCE, 2, data_pb2.Produce(topic_id=3), BATCH)
    client.feed(frame(Opcode.HELLO, 1, hello_message(token="no")) + produce)
    assert await client.errors() == [(1, "UNAUTHORIZED")]
    assert not shards.taken


async def test_a_late_hello_is_not_waited_for(port: ProducerPort) -> None:
    """A connection that is silent, or sends no whole frame, ends at its deadline; a greeted one may be silent."""
    silent, slow, greeted = ProducerClient(port), ProducerClient(port), ProducerClient(port)
    greeted.hello()
    slow.feed(frame(Opcode.HELLO, 1, hello_message())[:-1])
    now = port.loop.time()
    sweep_at(port, now + serving.HELLO_TIMEOUT_S - 1)
    assert not silent.wire.ended and not slow.wire.ended
    sweep_at(port, now + serving.HELLO_TIMEOUT_S + 1)
    assert silent.wire.ended == slow.wire.ended == "closed"
    assert await silent.errors() == [(0, "PROTOCOL_VIOLATION")]
    sweep_at(port, now + 10_000)
    assert not greeted.wire.ended


async def test_a_frame_that_does_not_end_ends_the_connection(port: ProducerPort, client: ProducerClient) -> None:
    """From its first byte it has its time."""
    client.feed(frame(Opcode.PRODUCE, 2, data_pb2.Produce(topic_id=3), BATCH)[:30])
    sweep_at(port, port.loop.time() + serving.FRAME_TIMEOUT_S - 1)
    assert not client.wire.ended
    sweep_at(port, port.loop.time() + serving.FRAME_TIMEOUT_S + 1)
    assert client.wire.ended == "closed"


async def test_too_many_connections_are_refused(port: ProducerPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error that is to be tried elsewhere or later; the others are served."""
    monkeypatch.setattr(serving, "CONNECTIONS_MAX", 2)
    first, second, third = [ProducerClient(port) for _ in range(3)]
    assert await third.errors() == [(0, "OVERLOADED")]
    assert third.wire.ended == "closed"
    first.connection.connection_lost(None)
    fourth = ProducerClient(port)
    for each in (second, fourth):
        each.hello()
        assert (await each.replies())[0].opcode is Opcode.HELLO_REPLY


# ---- bytes and frames


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n" * 3, bytes(100), b"\xff" * 24])
async def test_garbage_ends_its_connection_and_no_other(
    port: ProducerPort, client: ProducerClient, data: bytes
) -> None:
    """One typed error, then the end; another connection is served as before."""
    other = ProducerClient(port)
    other.feed(data)
    assert await other.errors() == [(0, "PROTOCOL_VIOLATION")]
    assert other.wire.ended == "closed"
    client.send(Opcode.FIND_BATCH, 2, data_pb2.FindBatch(topic_id=3))
    assert [each.opcode for each in await client.replies()] == [Opcode.FIND_BATCH_REPLY]


async def test_what_is_queued_when_a_connection_is_closed_is_sent_first(client: ProducerClient) -> None:
    """Also the error that says why, behind other answers of the same moment."""
    elsewhere = frame(Opcode.PRODUCE, 2, data_pb2.Produce(topic_id=4), BATCH)
    client.feed(elsewhere + encode_frame(Opcode.PRODUCE, 3, b"\xff\xff\xff"))
    assert client.wire.ended == "closed"
    assert await client.errors() == [(2, "NOT_OWNER"), (3, "PROTOCOL_VIOLATION")]


async def test_a_closed_client_that_does_not_read_is_cut_off(
    client: ProducerClient, shards: ScriptedShards, port: ProducerPort
) -> None:
    """What is still to be sent is not waited for longer than of any slow client."""
    client.produce(2, BATCH)
    client.connection.pause_writing()
    client.connection.close()
    sweep_at(port, port.loop.time() + serving.SLOW_READER_TIMEOUT_S + 1)
    assert client.wire.ended == "aborted"


async def test_unknown_and_foreign_opcodes(client: ProducerClient) -> None:
    """A frame of range servers is refused and the connection goes on; a number that nothing has ends it."""
    for number, opcode in enumerate((Opcode.APPEND, Opcode.PRODUCE_REPLY, Opcode.ERROR, Opcode.SEAL), 5):
        client.send(opcode, number, data_pb2.Produce())
        assert await client.errors() == [(number, "PROTOCOL_VIOLATION")]
    assert not client.wire.ended
    client.feed(encode_frame(77, 9, b""))  # type: ignore[arg-type]
    assert await client.errors() == [(0, "PROTOCOL_VIOLATION")]
    assert client.wire.ended == "closed"


@pytest.mark.parametrize("opcode", [Opcode.PRODUCE, Opcode.FIND_BATCH, Opcode.HELLO])
async def test_a_message_that_does_not_decode_ends_the_connection(client: ProducerClient, opcode: Opcode) -> None:
    """It names the request."""
    client.feed(encode_frame(opcode, 6, b"\xff\xff\xff"))
    assert await client.errors() == [(6, "PROTOCOL_VIOLATION")]
    assert client.wire.ended == "closed"


async def test_an_oversize_frame_ends_the_connection(client: ProducerClient) -> None:
    """By its header alone: nothing of its size is allocated."""
    head = encode_frame(Opcode.PRODUCE, 2, b"", bytes(FRAME_PAYLOAD_BYTES_MAX + 1))[:24]
    client.feed(head)
    assert await client.errors() == [(0, "PROTOCOL_VIOLATION")]
    assert client.wire.ended == "closed"


# ---- batches


async def test_a_batch_goes_to_its_shard_and_its_ack_back(client: ProducerClient, shards: ScriptedShards) -> None:
    """Under the producer's number in its header; the reply has the offset."""
    client.produce(2, made_batch(Producer(7, 1, 4), b"a"))
    assert shards.taken[0][0] == Producer(7, 1, 4)
    assert await client.replies() == []
    shards.answer()
    (reply,) = await client.replies()
    assert (reply.opcode, reply.request_id) == (Opcode.PRODUCE_REPLY, 2)
    assert data_pb2.ProduceReply.FromString(reply.message).offset == 104


def _without_producer() -> bytes:
    return encode_batch(
        stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5], values=[b"x"], extension=b""
    )


def _with_field(value: bytes, more: dict[int, bytes] | None = None) -> bytes:
    extension = encode_extension({Tag.PRODUCER: value} | (more or {}))
    return encode_batch(
        stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5], values=[b"x"], extension=extension
    )


def _submitted(value: bytes) -> bytes:
    return encode_batch(
        stream_id=0, range_index=0, epoch=0, base_offset=0, timestamps_ms=[5], values=[b"x"],
        extension=encode_extension({Tag.SUBMISSION: value}),
    )  # fmt: skip


def _undecodable(at: int, byte: int) -> bytes:
    """A batch with a good checksum of which a byte of the offsets of its values is another one."""
    data = made_batch(Producer(7, 1, 0), b"one", b"two")
    body = bytearray(data[:-TRAILER_BYTES])
    body[peek_header(data).header_size + 2 * 8 + at] = byte
    return bytes(body) + google_crc32c.value(bytes(body)).to_bytes(TRAILER_BYTES, "little")


@pytest.mark.parametrize(
    "payload",
    [
        _undecodable(2 * 4, 7),
        _undecodable(4, 9),
        _undecodable(0, 1),
        b"",
        b"no batch",
        BATCH[:-1],
        BATCH + b"x",
        BATCH + BATCH,
        BATCH[:70] + bytes((BATCH[70] ^ 1,)) + BATCH[71:],
        BATCH[:3] + bytes((BATCH[3] ^ 0x40,)) + BATCH[4:],
        _without_producer(),
        _with_field(b""),
        _with_field(bytes(19)),
        _with_field(bytes(40)),
        _with_field(bytes(20), {Tag.TRANSACTION: bytes(36)}),
        _with_field(bytes(20), {Tag.KEY_RANGE: b""}),
        _with_field(bytes(20), {Tag.CONTROL: b""}),
        _with_field(bytes(20), {0xFFFF: b"of a later program"}),
        _with_field(bytes(20), {Tag.SUBMISSION: encode_submission(Submission(bytes(16), 0, ((0, 1),)))}),
        _submitted(encode_submission(Submission(bytes(16), 0, ((0, 2),)))),
        _submitted(encode_submission(Submission(bytes(16), 0, ((0, 1), (2, 1))))),
        _submitted(bytes(24)),
        _submitted(bytes(24) + b"\xff" * 8),
        _submitted(bytes(23)),
    ],
)
async def test_what_is_no_batch_of_a_producer_is_refused(
    client: ProducerClient, shards: ScriptedShards, payload: bytes
) -> None:
    """Cut, damaged, two of them, of nobody: a typed error that is certain, and the connection goes on."""
    client.produce(2, payload)
    ((request_id, code),) = await client.errors()
    assert request_id == 2 and code in ("INVALID_ARGUMENT", "PROTOCOL_VIOLATION", "CORRUPTION", "UNSUPPORTED_VERSION")
    assert not shards.taken
    client.produce(3, BATCH)
    shards.answer()
    assert [each.request_id for each in await client.replies()] == [3]


async def test_a_batch_for_a_shard_that_is_not_here(client: ProducerClient) -> None:
    """Refused under its request's number."""
    client.produce(2, BATCH, topic_id=4)
    client.produce(3, BATCH, shard_id=1 << 40)
    assert await client.errors() == [(2, "NOT_OWNER"), (3, "NOT_OWNER")]


async def test_a_batch_is_staged_by_whom_may_append_to_its_transaction(client: ProducerClient) -> None:
    """And to the topic: the right to either alone would let a program end the transactions of another one."""
    asked: list[tuple[int, int | str]] = []

    def passes(frame: Frame, verbs: int, resource: tuple[int, int | str]) -> bool:
        asked.append(resource)
        if resource[1] in ("theirs", 4):
            raise RightMissing("client:w may not append to it")
        return resource[1] != "unknown"

    client.connection._gate.passes = passes  # type: ignore[assignment, method-assign]
    asking = [(4, "mine"), (3, "theirs"), (3, "unknown"), (5, "mine")]
    for request_id, (topic_id, name) in enumerate(asking, 2):
        message = data_pb2.Stage(topic_id=topic_id, transactional_id=name)
        client.send(Opcode.STAGE, request_id, message, BATCH)
    assert await client.errors() == [(2, "RIGHT_MISSING"), (3, "RIGHT_MISSING"), (5, "NOT_OWNER")]
    both = [((KINDS["topic"], topic_id), (KINDS["transaction"], name)) for topic_id, name in asking[1:]]
    assert asked == [(KINDS["topic"], 4), *(each for pair in both for each in pair)]


async def test_refusals_carry_their_epoch(client: ProducerClient, shards: ScriptedShards) -> None:
    """A producer that is fenced learns by which epoch."""
    shards.refusal = ProducerFenced("later", epoch=12)
    client.produce(2, BATCH)
    (reply,) = await client.replies()
    told = data_pb2.Error.FromString(reply.message)
    assert (told.code, told.epoch) == ("PRODUCER_FENCED", 12)


async def test_a_defect_is_one_answer_and_no_end(
    client: ProducerClient, shards: ScriptedShards, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the request's outcome is unknown, the next one is served."""
    shards.refusal = KeyError("defect")
    client.produce(2, BATCH)
    assert await client.errors() == [(2, "INTERNAL")]
    assert "defect" in caplog.text
    shards.refusal = None
    client.produce(2, BATCH)
    assert len(shards.taken) == 1


async def test_a_request_number_that_has_no_answer_yet_ends_the_connection(
    client: ProducerClient, shards: ScriptedShards
) -> None:
    """One number, one answer: under its own number the refusal would be taken for the outcome of the first batch."""
    client.produce(2, BATCH)
    client.produce(2, made_batch(Producer(7, 0, 1), b"c"))
    assert await client.errors() == [(0, "PROTOCOL_VIOLATION")]
    assert client.wire.ended == "closed"
    assert len(shards.taken) == 1


@pytest.mark.parametrize("payload", [b"no batch", BATCH])
async def test_a_refused_repeat_of_a_number_answers_nothing_either(
    client: ProducerClient, shards: ScriptedShards, payload: bytes
) -> None:
    """Also where the repeat itself is refused for another reason."""
    client.produce(2, BATCH)
    client.produce(2, payload, topic_id=4)
    assert await client.errors() == [(0, "PROTOCOL_VIOLATION")]
    assert client.wire.ended == "closed"


async def test_answers_to_a_client_that_left_go_nowhere(
    client: ProducerClient, shards: ScriptedShards, port: ProducerPort
) -> None:
    """The batch is acked or refused all the same; the port forgets the connection."""
    client.produce(2, BATCH)
    client.produce(3, made_batch(Producer(7, 0, 1), b"c"))
    client.connection.connection_lost(ConnectionResetError())
    assert not port.connections
    shards.answer()
    shards.taken[0][1].refused(3, NotOwner("gone"))
    assert await client.replies() == []
