"""The connections of producers: frames in, batches to the shards that this broker owns, answers out.

Beside the rules of every frame connection: one is not read while too much of it has no answer; a request has one answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from rangelog.errors import (
    InternalError,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    WrongServer,
)
from rangelog_broker.shards.submission_window import PlacedRun
from rangelog_broker.verbs.caller import Caller
from rangelog_broker.verbs.counts import ProduceCounts
from rangelog_broker.verbs.produce import Batches, Shards
from rangelog_core.batch_extension import Producer
from rangelog_core.frame import Frame, Opcode, encode_frame
from rangelog_core.limits import MIB
from rangelog_core.net.keepalive import notice_vanished_peer
from rangelog_core.net.principals import Port
from rangelog_core.net.send_queue import SendQueue
from rangelog_core.versions import DATA_PLANE_VERSIONS, agreed, announced
from rangelog_proto.v1 import data_pb2
from rangelog_server_common.frames.connection import (
    FRAME_TIMEOUT_S,
    HELLO_TIMEOUT_S,
    SLOW_READER_TIMEOUT_S,
    UNREAD_S_MAX,
    FrameConnection,
    FramePort,
)
from rangelog_server_common.metrics.tally import count_by
from rangelog_server_common.quotas.guard import QuotaGuard, Resource
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

_log = logging.getLogger("rangelog.broker")


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
    rights: RightsGuard = field(default_factory=RightsGuard)
    quotas: QuotaGuard = field(default_factory=QuotaGuard)
    verifier: TokenVerifier | None = None
    """Of tokens, if they are accepted."""
    batches: Batches = field(init=False)
    counts: ProduceCounts = field(init=False)

    def __post_init__(self) -> None:
        self.batches = Batches(self.shards)
        self.counts = self.batches.counts

    def close(self) -> None:
        """Close all connections."""
        self.batches.close()
        FramePort.close(self)  # `super()` does not know a class that has got its slots from `dataclass`


class ProducerConnection(FrameConnection):
    """The connection of one client, for all its producers. See shards.shard.Reply."""

    _port: ProducerPort
    _gate: Caller
    _waiting: SendQueue  # the answers

    def __init__(self, port: ProducerPort) -> None:
        super().__init__(port, Port.BROKER_DATA)
        self._unanswered: dict[int, tuple[int, float]] = {}  # by request: its bytes, and when it came
        self._unanswered_bytes = 0

    # ---- frames.connection.FrameConnection

    def _make_gate(self) -> Caller:
        return Caller(self._port.rights, self._charge)

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
            self._ask(frame.request_id, 0)
            self._port.batches.spawn(self._find_batch(frame.request_id, wanted))
        else:
            raise ProtocolViolation(f"{frame.opcode.name} is no request to a broker")

    def _failed(self, frame: Frame) -> None:
        _log.exception("a request failed: %s", frame.opcode.name)
        failed = InternalError("the request failed; the broker's log has the details", outcome_unknown=True)
        self.refused(frame.request_id, failed)

    def _has_room(self) -> bool:
        return self._unanswered_bytes <= UNANSWERED_BYTES_MAX and len(self._unanswered) <= UNANSWERED_MAX

    # ---- requests

    def _hello(self, frame: Frame) -> None:
        hello = self.take_hello(frame)
        port = self._port
        version = agreed(announced(hello.protocol_version_min, hello.protocol_version), DATA_PLANE_VERSIONS)
        if hello.server != port.name or hello.incarnation not in (0, port.incarnation):
            raise WrongServer(f"this is broker {port.name}@{port.incarnation:016x}")
        self.welcome(frame.request_id, hello, port.incarnation, version, DATA_PLANE_VERSIONS)

    def _produce(self, frame: Frame) -> None:
        wanted = data_pb2.Produce.FromString(frame.message)
        self._ask(frame.request_id, len(frame.payload))
        self._port.batches.produce(self._gate, wanted.topic_id, wanted.shard_id, frame.payload, self, frame.request_id)

    def _stage(self, frame: Frame) -> None:
        wanted = data_pb2.Stage.FromString(frame.message)
        self._ask(frame.request_id, len(frame.payload))
        self._port.batches.stage(
            self._gate, wanted.topic_id, wanted.shard_id, frame.payload, self, frame.request_id,
            transactional_id=wanted.transactional_id, number=wanted.number,
        )  # fmt: skip

    async def _find_batch(self, request_id: int, wanted: data_pb2.FindBatch) -> None:
        producer = Producer(wanted.producer_id, wanted.producer_epoch, wanted.sequence)
        try:
            offset = await self._port.batches.find(
                self._gate, wanted.topic_id, wanted.shard_id, producer, staged=wanted.staged
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
        self.send(Opcode.FIND_BATCH_REPLY, request_id, reply.SerializeToString())

    # ---- answers

    def acked(self, request_id: int, offset: int) -> None:
        """See Reply."""
        self._produced(request_id, data_pb2.ProduceReply(offset=offset))

    def placed(self, request_id: int, runs: Sequence[PlacedRun]) -> None:
        """See Reply."""
        reply = data_pb2.ProduceReply()
        for first, count, shard_id, offset in runs:
            reply.runs.add(first=first, count=count, shard_id=shard_id, offset=offset)
        self._produced(request_id, reply)

    def _produced(self, request_id: int, reply: data_pb2.ProduceReply) -> None:
        self._answered(request_id)
        self._port.counts.acked_batches += 1
        if self._meter.charged:
            reply.throttle_ms = self._meter.answered_ms(request_id)
        self.send(Opcode.PRODUCE_REPLY, request_id, reply.SerializeToString())

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See Reply, and FrameConnection."""
        self._answered(request_id)
        self._meter.charged.pop(request_id, None)
        count_by(self._port.counts.refused, error.code)
        super().refused(request_id, error)

    def _charge(self, request_id: int, resource: Resource, size_bytes: int) -> None:
        """See Charge: the answer says for how long to wait."""
        if self._meter.book.any:
            over_s = self._meter.charge(request_id, resource, size_bytes)
            if over_s > 0:
                self._hold_off(min(over_s, UNREAD_S_MAX))

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
            self.resume_if_settled()

    def send(self, opcode: Opcode, request_id: int, message: bytes) -> None:
        """See FrameConnection."""
        if not self._closed:
            self._waiting.put((encode_frame(opcode, request_id, message),))


def make_factory(port: ProducerPort) -> Callable[[], ProducerConnection]:
    """Return what makes the protocol of each new connection."""
    return lambda: ProducerConnection(port)
