"""The data plane's connections: requests in, handlers, replies out. No method here waits for the disk.

Beside the rules of every frame connection: a connection is not read while too many bytes are in flight, its
own or those of all; the replies to a connection's appends are sent once per group commit.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import structlog

from rangelog_core.errors import (
    InternalError,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    RightMissing,
    Unauthorized,
    WrongServer,
)
from rangelog_core.frame import Frame, Opcode, encode_frame, encode_head
from rangelog_core.limits import MIB
from rangelog_core.net.keepalive import notice_vanished_peer
from rangelog_core.net.principals import Port
from rangelog_proto.v1 import data_pb2
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.hosted_replica import HostedReplica, RangeKey
from rangelog_server.ranges.store import Store
from rangelog_server.serving.deadlines import Deadlines
from rangelog_server.serving.fetch_queue import FetchesInAll, FetchQueue
from rangelog_server.serving.needs import resource
from rangelog_server_common.frames.connection import (
    FRAME_TIMEOUT_S,
    HELLO_TIMEOUT_S,
    SLOW_READER_TIMEOUT_S,
    UNREAD_S_MAX,
    FrameConnection,
    FramePort,
)
from rangelog_server_common.quotas.guard import QuotaGuard
from rangelog_server_common.rights.frame_gate import FrameGate
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.verifier import TokenVerifier

__all__ = ["FRAME_TIMEOUT_S", "HELLO_TIMEOUT_S", "SLOW_READER_TIMEOUT_S", "ClientConnection", "DataPlane", "Handler"]

CONNECTIONS_MAX = 2_000
REFUSALS_LOGGED_EVERY_S = 10.0
"""Refused clients retry soon."""
KEEPALIVE_IDLE_S = 20
"""Above the 2 s between two replies to a follower, so only idle connections cost packets."""
KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_COUNT = 4
"""A vanished machine is detected after a minute; a network may fail for half a minute."""
USER_TIMEOUT_MS = 60_000
"""The same for a peer that does not acknowledge sent data: without this the kernel retransmits for 15 minutes."""
INFLIGHT_BYTES_MAX = 32 * MIB
"""Bytes appended over one connection and not yet durable, above which the connection is not read."""
PENDING_BYTES_MAX = 256 * MIB
"""The same over all connections."""
WRITE_BUFFER_BYTES_MAX = 16 * MIB
ACKS_PER_FRAME = 1_000
"""Of at most 50 bytes each, below the limit of a frame's message."""
RIGHTS_CHECK_S = 60.0
"""Followers are asked at least so often whether they may still read."""
READS_AHEAD_MAX = 64
"""Over all connections: replies of about 256 KiB, or of one batch, that are read before they can be sent."""

_log = structlog.get_logger("data_plane")


@dataclass(slots=True)
class DataPlane(FramePort):
    """The state that all connections share."""

    store: Store
    identity: DirectoryIdentity
    token: str | None
    loop: asyncio.AbstractEventLoop
    readers: ThreadPoolExecutor
    connections: dict[ClientConnection, None] = field(default_factory=dict)
    paused: dict[ClientConnection, None] = field(default_factory=dict)
    reads_ahead: int = 0
    fetches: FetchesInAll = field(default_factory=FetchesInAll)
    rights: RightsGuard = field(default_factory=RightsGuard)
    quotas: QuotaGuard = field(default_factory=QuotaGuard)
    verifier: TokenVerifier | None = None
    """Of tokens, if they are accepted."""
    deadlines: Deadlines = field(init=False)
    _refusals: int = 0  # not logged yet
    _refusals_logged_s: float = float("-inf")

    def __post_init__(self) -> None:
        self.deadlines = Deadlines(self.loop)

    def refused(self, now_s: float) -> None:
        """Count a connection that was refused because of the limit."""
        self._refusals += 1
        self.store.counts.refused_connections += 1
        if now_s - self._refusals_logged_s >= REFUSALS_LOGGED_EVERY_S:
            _log.warning("too many connections", refused=self._refusals, limit=CONNECTIONS_MAX)
            self._refusals, self._refusals_logged_s = 0, now_s

    def resume_readers(self) -> None:
        """Read again from paused connections, since bytes were settled."""
        if self.paused:
            for connection in list(self.paused):
                connection.resume_if_settled()


Handler = Callable[["ClientConnection", Frame], None]


class ClientConnection(FrameConnection):
    """The connection of one client."""

    _gate: FrameGate[Frame]

    def __init__(self, plane: DataPlane, handlers: dict[Opcode, Handler]) -> None:
        super().__init__(plane, Port.RANGE_DATA)
        self.plane = plane
        self.store = plane.store
        self.reads_only = False
        self.features: frozenset[str] = frozenset()  # that both sides announced
        self.weak = weakref.ref(self)  # replicas refer to it without keeping it alive
        self.fetches = self._waiting = FetchQueue(plane.loop, plane.fetches)
        self.gate = self._gate
        self.meter, self.book = self._meter, self._meter.book
        self._handlers = handlers
        self._inflight_bytes = 0
        self._acks: list[tuple[HostedReplica, int]] = []  # with the request that is answered
        self._rights_checked = (0, 0.0)  # the version of rights, and when to look again in any case

    # ---- frames.connection.FrameConnection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See FrameConnection."""
        super().connection_made(transport)
        if not self._closed:
            notice_vanished_peer(
                transport,
                idle_s=KEEPALIVE_IDLE_S,
                interval_s=KEEPALIVE_INTERVAL_S,
                count=KEEPALIVE_COUNT,
                unacknowledged_ms=USER_TIMEOUT_MS,
            )
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)

    def _check_room(self) -> None:
        if len(self.plane.connections) >= CONNECTIONS_MAX:
            self.plane.refused(self.plane.loop.time())
            raise Overloaded(f"this server has {CONNECTIONS_MAX} connections already, its limit")

    def _request(self, frame: Frame) -> None:
        try:
            handler = self._handlers[frame.opcode]
        except KeyError:
            raise ProtocolViolation(f"{frame.opcode.name} is not a request") from None
        handler(self, frame)

    def _handled(self) -> None:
        wal = self.store.wal
        wal.kick()
        if self._inflight_bytes > INFLIGHT_BYTES_MAX or wal.pending_bytes > PENDING_BYTES_MAX or wal.waits_for_segment:
            self._pause_reading()

    def _has_room(self) -> bool:
        wal = self.store.wal
        return (
            self._inflight_bytes <= INFLIGHT_BYTES_MAX // 2
            and wal.pending_bytes <= PENDING_BYTES_MAX // 2
            and not wal.waits_for_segment
        )

    def refused(self, request_id: int, error: RangelogError) -> None:
        """See FrameConnection. After a missing right the other streams of the connection go on."""
        super().refused(request_id, error)
        if isinstance(error, Unauthorized | WrongServer) and not isinstance(error, RightMissing):
            self.close()

    def _failed(self, frame: Frame) -> None:
        _log.exception("a request failed", opcode=frame.opcode.name)
        self.send_error(frame.request_id, InternalError("the request failed; the server's log has the details"))

    def _cut_off(self) -> None:
        _log.warning("a reader is too slow; disconnected", client=self.client)
        self.store.counts.slow_readers += 1
        super()._cut_off()

    def sweep(self, now: float) -> None:
        """See FrameConnection; the rights of followers are checked as well."""
        super().sweep(now)
        self.check_rights(now)

    # ---- for handlers

    def check_rights(self, now: float) -> None:
        """End the followers that may not read any more, after each change of rights, and every minute."""
        version = self.plane.rights.grants.version
        checked_version, again = self._rights_checked
        if self.gate.is_open or (version == checked_version and now < again):
            return
        known = [
            each.may_go_on() for each in list(self.fetches.following.values())
        ]  # all of them: each asks for its grant
        if all(known):
            self._rights_checked = (version, now + RIGHTS_CHECK_S)

    def require_member(self) -> None:
        """Check that the client named this incarnation. Raises WrongServer."""
        if self.reads_only:
            raise WrongServer("name the server's incarnation in the hello to write to it")

    def send(self, opcode: Opcode, request_id: int, message: bytes, payload: list[bytes] | None = None) -> None:
        """Send one frame."""
        if self._closed:
            return
        if payload:
            self._transport.writelines([encode_head(opcode, request_id, message, sum(map(len, payload))), *payload])
        else:
            self._transport.write(encode_frame(opcode, request_id, message))

    def charge_append(self, hosted: HostedReplica, size_bytes: int) -> None:
        """Count an append that was taken; its ack says for how long to hold. Called only where there are quotas."""
        over_s = self.meter.charge(hosted, resource(hosted.core.stream_id), size_bytes)
        if over_s > 0:
            self._hold_off(min(over_s, UNREAD_S_MAX))

    # ---- ranges.store.Appender

    def acked(self, hosted: HostedReplica, request_id: int) -> None:
        """Queue an ack: all records below the replica's durable offset are durable."""
        self._acks.append((hosted, request_id))

    def ask_confirm(self, hosted: HostedReplica) -> None:
        """Request the confirm offset from the writer, by an ack without a new durable offset."""
        reply = _reply_of(hosted)
        reply.confirm_wanted = True
        self.send(Opcode.APPEND_REPLY, 0, reply.SerializeToString())

    def ask_idle(self, key: RangeKey, epoch: int, start_offset: int) -> None:
        """Request the confirm offset from the writer of a range of which this server has nothing."""
        reply = data_pb2.AppendReply(
            stream_id=key[0], range_index=key[1], epoch=epoch, durable_offset=start_offset, confirm_wanted=True
        )
        self.send(Opcode.APPEND_REPLY, 0, reply.SerializeToString())

    def ask_to_leave(self, key: RangeKey, epoch: int, durable_offset: int) -> None:
        """Say to the writer that another range can have more replicas, by an ack without a new durable offset."""
        reply = data_pb2.AppendReply(
            stream_id=key[0], range_index=key[1], epoch=epoch, durable_offset=durable_offset, leave_wanted=True
        )
        self.send(Opcode.APPEND_REPLY, 0, reply.SerializeToString())

    def refuse(self, key: RangeKey, error: RangelogError) -> None:
        """Say to the writer that its appends to this range are refused from now on, by an error about no request."""
        self.send_error(0, error, *key)

    def send_acks(self) -> None:
        """Send the acks of all ranges in one frame: with many streams on a connection, a frame each would cost more."""
        acks, self._acks = self._acks, []
        for start in range(0, len(acks), ACKS_PER_FRAME):
            some = acks[start : start + ACKS_PER_FRAME]
            first, *others = [_reply_of(hosted) for hosted, _ in some]
            if self.meter.charged:
                for (hosted, _), reply in zip(some, (first, *others), strict=True):
                    reply.throttle_ms = self.meter.answered_ms(hosted)
            first.others.extend(others)
            self.send(Opcode.APPEND_REPLY, acks[start][1], first.SerializeToString())

    def taken(self, size_bytes: int) -> None:
        """Note that so many more bytes are in flight."""
        self._inflight_bytes += size_bytes

    def settled(self, size_bytes: int) -> None:
        """Note that so many bytes are no longer in flight."""
        self._inflight_bytes -= size_bytes
        if self._reading_paused:
            self.resume_if_settled()


def _reply_of(hosted: HostedReplica) -> data_pb2.AppendReply:
    core = hosted.core
    return data_pb2.AppendReply(
        stream_id=core.stream_id,
        range_index=core.range_index,
        epoch=core.epoch,
        durable_offset=core.durable_offset,
        followed=bool(hosted.waiters),
    )
