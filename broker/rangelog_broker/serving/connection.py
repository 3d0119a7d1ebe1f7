"""The connections of producers: frames in, batches to the shards that this broker owns, answers out.

What holds: the first frame is a hello for this broker in this incarnation, within a deadline; bytes that are not a frame close
their own connection and no other; a connection is not read while too much of it has no answer; a request has one answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import DecodeError

from rangelog.errors import (
    InternalError,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    Unauthorized,
    WrongServer,
)
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import ProduceCounts
from rangelog_broker.verbs.produce import Batches, Shards
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Frame, FrameDecoder, FrameError, Opcode, encode_frame
from rangelog_core.limits import FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX, MIB
from rangelog_core.net.keepalive import notice_vanished_peer
from rangelog_core.net.principals import Port
from rangelog_core.net.send_queue import SendQueue
from rangelog_core.quotas import Measure, RateBuckets
from rangelog_core.versions import DATA_PLANE_VERSIONS, FEATURES, agreed, announced
from rangelog_proto.v1 import data_pb2
from rangelog_server_common.metrics.tally import count_by
from rangelog_server_common.quotas.guard import QuotaGuard, QuotaMeter, Resource
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.admission import ConnectionCaller
from rangelog_server_common.tokens.verifier import TokenVerifier

HELLO_TIMEOUT_S = 5.0
FRAME_TIMEOUT_S = 60.0
"""The time limit of a frame from its first byte to its last."""
SLOW_READER_TIMEOUT_S = 30.0
CONNECTIONS_MAX = 10_000
UNANSWERED_BYTES_MAX = 32 * MIB
"""Of one connection; above it the connection is not read."""
UNANSWERED_MAX = 10_000
"""Requests of one connection without an answer."""
OWED_S_MAX, UNREAD_S_MAX = 1.0, 1.0
"""A client that sends while more than the first is owed to a quota is not read for a while: the second at most."""

_log = logging.getLogger("rangelog.broker")


@dataclass(slots=True)
class ProducerPort:
    """The state that all connections share."""

    name: str
    incarnation: int
    token: str | None
    shards: Shards
    loop: asyncio.AbstractEventLoop
    connections: dict[ProducerConnection, None] = field(default_factory=dict)
    rights: RightsGuard = field(default_factory=RightsGuard)
    quotas: QuotaGuard = field(default_factory=QuotaGuard)
    verifier: TokenVerifier | None = None
    """Of tokens, if they are accepted."""

    def sweep(self) -> None:
        """Close connections that exceed a deadline; call it about every second."""
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check_deadlines(now)
            connection.check_token()

    batches: Batches = field(init=False)
    counts: ProduceCounts = field(init=False)

    def __post_init__(self) -> None:
        self.batches = Batches(self.shards)
        self.counts = self.batches.counts

    def close(self) -> None:
        """Close all connections."""
        self.batches.close()
        for connection in list(self.connections):
            connection.close()


class ProducerConnection(asyncio.BufferedProtocol):
    """The connection of one client, for all its producers. See shards.shard.Reply."""

    def __init__(self, port: ProducerPort) -> None:
        self._port = port
        self._decoder = FrameDecoder(
            message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX
        )
        self._transport: asyncio.Transport
        self._out: SendQueue
        self._greeted = False
        self._closed = False
        self._unanswered: dict[int, tuple[int, float]] = {}  # by request: its bytes, and when it came
        self._unanswered_bytes = 0
        self._reading_paused = self._writing_paused = self._held_off = False
        self._throttled: dict[int, RateBuckets] = {}  # by request, to be told with its answer
        self._book, self._meter = port.quotas.book, QuotaMeter(port.quotas)
        self._deadline = 0.0
        self._asks = Caller(port.rights, self._charge)
        self._caller = ConnectionCaller(self._asks, Port.BROKER_DATA, port.token, port.verifier)

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)
        self._out = SendQueue(self._transport)
        notice_vanished_peer(transport)
        try:
            self._caller.connected(transport)
        except RangelogError as error:
            self._send_error(0, error)
            self.close()
            return
        if len(self._port.connections) >= CONNECTIONS_MAX:
            self._send_error(0, Overloaded(f"this broker has {CONNECTIONS_MAX} connections already"))
            self.close()
            return
        self._port.connections[self] = None
        self._deadline = self._port.loop.time() + HELLO_TIMEOUT_S

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Decode the received bytes and handle their frames."""
        try:
            frames = self._decoder.received(nbytes)
        except FrameError as error:
            self._send_error(0, ProtocolViolation(str(error)))
            self.close()
            return
        for frame in frames:
            if self._closed:
                return
            self._handle(frame)
        if self._writing_paused:
            pass  # the deadline is that of a slow reader
        elif frames and self._greeted:
            self._deadline = 0.0
        elif not self._deadline:
            self._deadline = self._port.loop.time() + FRAME_TIMEOUT_S
        if self._is_full:
            self._pause_reading()

    def eof_received(self) -> bool | None:
        """Close the connection, since the client has closed it."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client: what it has sent goes on, and it asks again."""
        self._closed = True
        self._asks.close()
        self._out.close()
        self._port.connections.pop(self, None)

    def pause_writing(self) -> None:
        """Keep the answers, since the client does not read, and take no more requests that would have some."""
        self._writing_paused = True
        self._out.hold()
        self._pause_reading()
        self._deadline = self._port.loop.time() + SLOW_READER_TIMEOUT_S

    def resume_writing(self) -> None:
        """Send what was kept."""
        self._writing_paused = False
        self._deadline = 0.0
        self._out.release()
        self._resume_if_answered()

    # ---- requests

    def _handle(self, frame: Frame) -> None:
        try:
            if frame.opcode is Opcode.HELLO:
                self._hello(frame)
            elif not self._greeted:
                raise ProtocolViolation("the first frame must be a hello")
            elif frame.request_id in self._unanswered:  # under that number it would be the answer of the other request
                self._send_error(0, ProtocolViolation(f"request {frame.request_id} has no answer yet"))
                self.close()
            elif frame.opcode is Opcode.PRODUCE:
                self._produce(frame)
            elif frame.opcode is Opcode.STAGE:
                self._stage(frame)
            elif frame.opcode is Opcode.FIND_BATCH:
                wanted = data_pb2.FindBatch.FromString(frame.message)
                self._ask(frame.request_id, 0)
                self._port.batches.spawn(self._find_batch(frame.request_id, wanted))
            else:
                raise ProtocolViolation(f"{frame.opcode.name} is no request to a broker")
        except DecodeError:
            self._send_error(frame.request_id, ProtocolViolation(f"a {frame.opcode.name} message does not decode"))
            self.close()
        except RangelogError as error:
            self.refused(frame.request_id, error)
            if not self._greeted:
                self.close()
        except Exception:
            _log.exception("a request failed: %s", frame.opcode.name)
            failed = InternalError("the request failed; the broker's log has the details", outcome_unknown=True)
            self.refused(frame.request_id, failed)

    def _hello(self, frame: Frame) -> None:
        hello = data_pb2.Hello.FromString(frame.message)
        port = self._port
        self._caller.greeted(hello.token)
        version = agreed(announced(hello.protocol_version_min, hello.protocol_version), DATA_PLANE_VERSIONS)
        if hello.server != port.name or hello.incarnation not in (0, port.incarnation):
            raise WrongServer(f"this is broker {port.name}@{port.incarnation:016x}")
        self._greeted = True
        self._meter.admitted(self._caller.principal, hello.client)
        reply = data_pb2.HelloReply(
            protocol_version=version,
            server=port.name,
            incarnation=port.incarnation,
            payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX,
            protocol_version_min=DATA_PLANE_VERSIONS.lowest,
            protocol_version_max=DATA_PLANE_VERSIONS.highest,
            features=sorted(FEATURES),
        )
        self._send(Opcode.HELLO_REPLY, frame.request_id, reply.SerializeToString())

    def _produce(self, frame: Frame) -> None:
        wanted = data_pb2.Produce.FromString(frame.message)
        self._ask(frame.request_id, len(frame.payload))
        self._port.batches.produce(self._asks, wanted.topic_id, wanted.shard_id, frame.payload, self, frame.request_id)

    def _stage(self, frame: Frame) -> None:
        wanted = data_pb2.Stage.FromString(frame.message)
        self._ask(frame.request_id, len(frame.payload))
        self._port.batches.stage(
            self._asks, wanted.topic_id, wanted.shard_id, frame.payload, self, frame.request_id,
            transactional_id=wanted.transactional_id, number=wanted.number,
        )  # fmt: skip

    async def _find_batch(self, request_id: int, wanted: data_pb2.FindBatch) -> None:
        producer = Producer(wanted.producer_id, wanted.producer_epoch, wanted.sequence)
        try:
            offset = await self._port.batches.find(
                self._asks, wanted.topic_id, wanted.shard_id, producer, staged=wanted.staged
            )
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
        if self._throttled:
            reply.throttle_ms = self._throttle_ms(request_id)
        self._send(Opcode.PRODUCE_REPLY, request_id, reply.SerializeToString())

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See Reply."""
        self._answered(request_id)
        self._throttled.pop(request_id, None)
        count_by(self._port.counts.refused, error.code)
        self._send_error(request_id, error)

    # ---- quotas

    def _charge(self, request_id: int, resource: Resource, size_bytes: int) -> None:
        """See Charge: the answer says for how long to hold."""
        if not self._book.any:
            return
        buckets, before_us = self._meter.take(Measure.APPEND, resource, size_bytes)
        if not buckets:
            return
        self._throttled[request_id] = buckets
        over_s = before_us / 1_000_000 - OWED_S_MAX
        if over_s > 0 and not self._held_off and not self._closed:
            self._held_off = True
            self._pause_reading()
            self._port.loop.call_later(min(over_s, UNREAD_S_MAX), self._hold_off_no_more)

    def _throttle_ms(self, request_id: int) -> int:
        """Return what is left to wait now: what the append took is over already."""
        buckets = self._throttled.pop(request_id, None)
        owed_us = self._meter.owed_us(buckets) if buckets else 0
        if owed_us:
            self._port.quotas.counts.note(Measure.APPEND, owed_us)
        return -(-owed_us // 1000)

    def _hold_off_no_more(self) -> None:
        self._held_off = False
        self._resume_if_answered()

    def close(self) -> None:
        """Send the queued frames, then close."""
        if not self._closed:
            self._closed = True
            if not self._writing_paused:
                self._out.release()
            self._transport.close()

    def check_token(self) -> None:
        """Close the connection once its token has expired, or was revoked."""
        try:
            self._caller.check()
        except Unauthorized as error:
            self._send_error(0, error)
            self.close()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if it exceeds a deadline."""
        if not self._deadline or now <= self._deadline:
            return
        if self._writing_paused:
            self._closed = True
            self._transport.abort()
        elif not self._reading_paused and not self._closed:
            self._send_error(0, ProtocolViolation("no whole frame arrived in time"))
            self.close()

    @property
    def _is_full(self) -> bool:
        return self._unanswered_bytes > UNANSWERED_BYTES_MAX or len(self._unanswered) > UNANSWERED_MAX

    def _ask(self, request_id: int, size_bytes: int) -> None:
        """Note a request that is to be answered."""
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
            self._resume_if_answered()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._closed:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_if_answered(self) -> None:
        if (
            self._reading_paused
            and not self._held_off
            and not self._is_full
            and not self._writing_paused
            and not self._closed
        ):
            self._reading_paused = False
            self._transport.resume_reading()

    def _send(self, opcode: Opcode, request_id: int, message: bytes) -> None:
        if not self._closed:
            self._out.put((encode_frame(opcode, request_id, message),))

    def _send_error(self, request_id: int, error: RangelogError) -> None:
        message = data_pb2.Error(
            code=error.code, message=error.message[:1000], epoch=error.epoch or 0, offset=error.offset or 0
        )
        self._send(Opcode.ERROR, request_id, message.SerializeToString())


def make_factory(port: ProducerPort) -> Callable[[], ProducerConnection]:
    """Return what makes the protocol of each new connection."""
    return lambda: ProducerConnection(port)
