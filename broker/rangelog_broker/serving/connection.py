"""The connections of producers: frames in, batches to the shards that this broker owns, answers out.

Beside the rules of every frame connection: one is not read while too much of it has no answer; a request has one answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from rangelog.errors import (
    Corruption,
    InternalError,
    InvalidArgument,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    UnsupportedVersion,
    WrongServer,
)
from rangelog_broker.serving.counts import ProduceCounts
from rangelog_broker.shards.shard import OwnedShard
from rangelog_core.batch import BatchHeader, check_batch_fields, check_record_headers, open_columns
from rangelog_core.batch_extension import Producer, Tag, decode_producer
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_core.ids import check_name
from rangelog_core.limits import MIB
from rangelog_core.net.keepalive import notice_vanished_peer
from rangelog_core.net.principals import Port
from rangelog_core.net.send_queue import SendQueue
from rangelog_core.rights import Verb
from rangelog_core.versions import DATA_PLANE_VERSIONS, agreed, announced
from rangelog_proto.v1 import data_pb2
from rangelog_proto.v1.rights_pb2 import RESOURCE_KIND_TOPIC, RESOURCE_KIND_TRANSACTION
from rangelog_server_common.frames.connection import (
    FRAME_TIMEOUT_S,
    HELLO_TIMEOUT_S,
    SLOW_READER_TIMEOUT_S,
    UNREAD_S_MAX,
    FrameConnection,
    FramePort,
)
from rangelog_server_common.metrics.tally import count_by
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.verifier import TokenVerifier

__all__ = [
    "FRAME_TIMEOUT_S",
    "HELLO_TIMEOUT_S",
    "SLOW_READER_TIMEOUT_S",
    "ProducerConnection",
    "ProducerPort",
    "make_factory",
]

CONNECTIONS_MAX = 10_000
UNANSWERED_BYTES_MAX = 32 * MIB
"""Of one connection; above it the connection is not read."""
UNANSWERED_MAX = 10_000
"""Requests of one connection without an answer."""
CHANGING_S_MAX = 0.25
"""A batch for a shard that is being opened or ended waits for so long before it is refused."""

_APPEND = int(Verb.APPEND)
_TOPIC, _TRANSACTION = int(RESOURCE_KIND_TOPIC), int(RESOURCE_KIND_TRANSACTION)
_log = logging.getLogger("rangelog.broker")


class Shards(Protocol):
    """What this broker owns."""

    def owned(self, topic_id: int, shard_id: int) -> OwnedShard:
        """Return an open shard. Raises NotOwner, ShardEnded."""

    def changing(self, topic_id: int, shard_id: int) -> asyncio.Future[None] | None:
        """Return what is done once a shard that is assigned to this broker and takes no batch now is open, or has ended.

        None: it takes batches, or is not assigned to this broker. The caller does not cancel the future.
        """

    async def find_batch(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """Return the offset of a batch of an ended shard, or None: it is not there.

        Raises Unavailable, ShardNotFound, OutcomeUnknown (it is there, nobody knows where), ProducerFenced (nobody knows).
        """

    async def find_staged(self, topic_id: int, shard_id: int, producer: Producer) -> int | None:
        """Return 0 for a batch that was staged at an ended shard, or None. Raises as `find_batch`."""


@dataclass(slots=True)
class ProducerPort(FramePort):
    """The state that all connections share."""

    name: str
    incarnation: int
    token: str | None
    shards: Shards
    loop: asyncio.AbstractEventLoop
    connections: dict[ProducerConnection, None] = field(default_factory=dict)
    paused: dict[ProducerConnection, None] = field(default_factory=dict)
    questions: set[asyncio.Task[None]] = field(default_factory=set)
    counts: ProduceCounts = field(default_factory=ProduceCounts)
    rights: RightsGuard = field(default_factory=RightsGuard)
    quotas: QuotaGuard = field(default_factory=QuotaGuard)
    verifier: TokenVerifier | None = None
    """Of tokens, if they are accepted."""

    def close(self) -> None:
        """Close all connections."""
        for task in self.questions:
            task.cancel()
        FramePort.close(self)  # `super()` does not know a class that has got its slots from `dataclass`

    def spawn(self, work: Awaitable[None]) -> None:
        """Run a question beside the connection."""
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[arg-type]
        self.questions.add(task)
        task.add_done_callback(self.questions.discard)


class ProducerConnection(FrameConnection):
    """The connection of one client, for all its producers. See shards.shard.Reply."""

    _port: ProducerPort
    _waiting: SendQueue  # the answers

    def __init__(self, port: ProducerPort) -> None:
        super().__init__(port, Port.BROKER_DATA)
        self._unanswered: dict[int, tuple[int, float]] = {}  # by request: its bytes, and when it came
        self._unanswered_bytes = 0

    # ---- frames.connection.FrameConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See FrameConnection."""
        self._waiting = SendQueue(cast("asyncio.Transport", transport))
        notice_vanished_peer(transport)
        super().connection_made(transport)

    def _check_room(self) -> None:
        if len(self._port.connections) >= CONNECTIONS_MAX:
            raise Overloaded(f"this broker has {CONNECTIONS_MAX} connections already")

    def close(self) -> None:
        """See FrameConnection."""
        if not self._closed and not self._slow_deadline:
            self._waiting.release()
        super().close()

    def _request(self, frame: Frame) -> None:
        if frame.request_id in self._unanswered and frame.opcode is not Opcode.HELLO:
            # under that number it would be the answer of the other request
            self.send_error(0, ProtocolViolation(f"request {frame.request_id} has no answer yet"))
            self.close()
        elif frame.opcode is Opcode.PRODUCE:
            self._produce(frame)
        elif frame.opcode is Opcode.HELLO:
            self._hello(frame)
        elif frame.opcode is Opcode.STAGE:
            self._stage(frame)
        elif frame.opcode is Opcode.FIND_BATCH:
            wanted = data_pb2.FindBatch.FromString(frame.message)
            if not self._passes(frame, wanted.topic_id):
                return
            self._ask(frame.request_id, 0)
            self._port.spawn(self._find_batch(frame.request_id, wanted))
        else:
            raise ProtocolViolation(f"{frame.opcode.name} is no request to a broker")

    def _failed(self, frame: Frame) -> None:
        _log.exception("a request failed: %s", frame.opcode.name)
        failed = InternalError("the request failed; the broker's log has the details", outcome_unknown=True)
        self.refused(frame.request_id, failed)

    def _has_room(self) -> bool:
        return self._unanswered_bytes <= UNANSWERED_BYTES_MAX and len(self._unanswered) <= UNANSWERED_MAX

    # ---- requests

    def _passes(self, frame: Frame, topic_id: int) -> bool:
        """Whether the client may append to a topic; while that is not known the frame waits. Raises RightMissing."""
        return self._gate.passes(frame, _APPEND, (_TOPIC, topic_id))

    def _hello(self, frame: Frame) -> None:
        hello = self.take_hello(frame)
        port = self._port
        version = agreed(announced(hello.protocol_version_min, hello.protocol_version), DATA_PLANE_VERSIONS)
        if hello.server != port.name or hello.incarnation not in (0, port.incarnation):
            raise WrongServer(f"this is broker {port.name}@{port.incarnation:016x}")
        self.welcome(frame.request_id, hello, port.incarnation, version, DATA_PLANE_VERSIONS)

    def _produce(self, frame: Frame) -> None:
        wanted = data_pb2.Produce.FromString(frame.message)
        if not self._passes(frame, wanted.topic_id):
            return
        changing = self._port.shards.changing(wanted.topic_id, wanted.shard_id)
        if changing is not None:
            self._ask(frame.request_id, len(frame.payload), wanted.topic_id)
            self._port.spawn(self._produce_later(frame, wanted, changing))
            return
        shard = self._port.shards.owned(wanted.topic_id, wanted.shard_id)
        header, producer = _checked(frame.payload)
        self._port.counts.received_records += header.count
        self._ask(frame.request_id, len(frame.payload), wanted.topic_id)
        shard.produce(header, producer, frame.payload, self, frame.request_id)

    async def _produce_later(self, frame: Frame, wanted: data_pb2.Produce, changing: asyncio.Future[None]) -> None:
        """Take a batch once its shard is open, or refuse it once the shard has ended: its producer need not try and try."""
        await asyncio.wait([changing], timeout=CHANGING_S_MAX)
        try:
            shard = self._port.shards.owned(wanted.topic_id, wanted.shard_id)
            header, producer = _checked(frame.payload)
            self._port.counts.received_records += header.count
            shard.produce(header, producer, frame.payload, self, frame.request_id)
        except RangelogError as error:
            self.refused(frame.request_id, error)
        except Exception:
            _log.exception("a batch of shard %d/%d failed", wanted.topic_id, wanted.shard_id)
            failed = InternalError("the request failed; the broker's log has the details", outcome_unknown=True)
            self.refused(frame.request_id, failed)

    def _stage(self, frame: Frame) -> None:
        wanted = data_pb2.Stage.FromString(frame.message)
        if not self._passes(frame, wanted.topic_id):
            return
        name = check_name("transactional id", wanted.transactional_id)
        if not self._gate.passes(frame, _APPEND, (_TRANSACTION, name)):
            return
        shard = self._port.shards.owned(wanted.topic_id, wanted.shard_id)
        header, producer = _checked(frame.payload)
        self._port.counts.received_records += header.count
        self._ask(frame.request_id, len(frame.payload), wanted.topic_id)
        shard.transactions.stage(wanted.number, name, producer, frame.payload, self, frame.request_id)

    async def _find_batch(self, request_id: int, wanted: data_pb2.FindBatch) -> None:
        producer = Producer(wanted.producer_id, wanted.producer_epoch, wanted.sequence)
        try:
            find = self._port.shards.find_staged if wanted.staged else self._port.shards.find_batch
            offset = await find(wanted.topic_id, wanted.shard_id, producer)
        except RangelogError as error:
            self.refused(request_id, error)
            return
        except Exception:
            _log.exception("a question about shard %d/%d failed", wanted.topic_id, wanted.shard_id)
            self.refused(request_id, InternalError("the request failed; the broker's log has the details"))
            return
        self._answered(request_id)
        reply = data_pb2.FindBatchReply(found=offset is not None, offset=offset or 0)
        self._send(Opcode.FIND_BATCH_REPLY, request_id, reply.SerializeToString())

    # ---- answers

    def acked(self, request_id: int, offset: int) -> None:
        """See Reply."""
        self._answered(request_id)
        self._port.counts.acked_batches += 1
        reply = data_pb2.ProduceReply(offset=offset)
        if self._meter.charged:
            reply.throttle_ms = self._meter.answered_ms(request_id)
        self.send(Opcode.PRODUCE_REPLY, request_id, reply.SerializeToString())

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See Reply, and FrameConnection."""
        self._answered(request_id)
        self._meter.charged.pop(request_id, None)
        count_by(self._port.counts.refused, error.code)
        super().refused(request_id, error)

    def _ask(self, request_id: int, size_bytes: int, topic_id: int = 0) -> None:
        """Note a request that is to be answered. `topic_id`: of a batch."""
        if topic_id and self._meter.book.any:
            over_s = self._meter.charge(request_id, (_TOPIC, topic_id), size_bytes)
            if over_s > 0:
                self._hold_off(min(over_s, UNREAD_S_MAX))
        self._unanswered[request_id] = size_bytes, time.perf_counter()
        self._unanswered_bytes += size_bytes
        self._port.counts.received_bytes += size_bytes

    def _answered(self, request_id: int) -> None:
        found = self._unanswered.pop(request_id, None)
        if found is not None:
            size_bytes, came_s = found
            self._unanswered_bytes -= size_bytes
            self._port.counts.durations.observe(time.perf_counter() - came_s)
        if self._reading_paused:
            self.resume_if_settled()

    def send(self, opcode: Opcode, request_id: int, message: bytes) -> None:
        """See FrameConnection."""
        if not self._closed:
            self._waiting.put((encode_frame(opcode, request_id, message),))

    _send = send


def _checked(payload: bytes) -> tuple[BatchHeader, Producer]:
    """Return the header of a producer's batch, and its producer. Raises InvalidArgument.

    Nothing but the producer may be in the header's extension: the log would keep it, and later owners read more into it.
    """
    try:
        header, fields = check_batch_fields(payload)
        columns = open_columns(header, payload, fields)  # what no reader can decode would stop all readers of the shard
        check_record_headers(columns, 0, header.count)
    except (ProtocolViolation, Corruption, UnsupportedVersion) as error:
        raise InvalidArgument(f"not a batch: {error.message}") from error
    if fields.keys() != {Tag.PRODUCER} or not header.count:
        raise InvalidArgument("a batch for a shard has records, and names its producer and nothing else")
    return header, decode_producer(fields[Tag.PRODUCER])


def make_factory(port: ProducerPort) -> Callable[[], ProducerConnection]:
    """Return what makes the protocol of each new connection."""
    return lambda: ProducerConnection(port)
