"""The data plane's connections: frames in, handlers, frames out. No method here waits for the disk.

What holds: the first frame is a hello for this server in this incarnation, within a deadline; bytes that are not a frame
close their own connection and no other; a connection is not read while too many of its bytes are in flight; a reader that
does not read is disconnected; the replies to a connection's appends are sent once per group commit.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import cast

import structlog
from google.protobuf.message import DecodeError

from rangelog_core.errors import (
    InternalError,
    Overloaded,
    ProtocolViolation,
    RangelogError,
    RightMissing,
    Unauthorized,
    WrongServer,
)
from rangelog_core.frame import Frame, FrameDecoder, FrameError, Opcode, encode_frame, encode_head
from rangelog_core.limits import FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX, MIB
from rangelog_core.net.keepalive import notice_vanished_peer
from rangelog_core.net.principals import Port, Principal
from rangelog_core.quotas import Measure, RateBuckets
from rangelog_proto.v1 import data_pb2
from rangelog_server.identity import DirectoryIdentity
from rangelog_server.ranges.hosted_replica import HostedReplica, RangeKey
from rangelog_server.ranges.store import Store
from rangelog_server.serving.deadlines import Deadlines
from rangelog_server.serving.fetch_queue import FetchesInAll, FetchQueue
from rangelog_server.serving.needs import resource
from rangelog_server_common.quotas.guard import QuotaGuard, QuotaMeter
from rangelog_server_common.rights.frame_gate import FrameGate
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.admission import ConnectionCaller
from rangelog_server_common.tokens.verifier import TokenVerifier

HELLO_TIMEOUT_S = 5.0
FRAME_TIMEOUT_S = 60.0
"""The time limit of a frame from its first byte to its last."""
SLOW_READER_TIMEOUT_S = 30.0
"""A reader that reads nothing for so long is disconnected."""
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
OWED_S_MAX = 1.0
"""A client that appends while more than this is owed to a quota has not waited as told: it is not read for a while ..."""
UNREAD_S_MAX = 1.0
"""... of this length at most: far below the limits after which a server counts as silent, and a replica as slow."""
READS_AHEAD_MAX = 64
"""Over all connections: replies of about 256 KiB, or of one batch, that are read before they can be sent."""

_log = structlog.get_logger("data_plane")


@dataclass(slots=True)
class DataPlane:
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

    def sweep(self) -> None:
        """Close connections that exceed a deadline; call it about every second."""
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check_deadlines(now)
            connection.check_token()
            connection.check_rights(now)

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self.connections):
            connection.close()


Handler = Callable[["ClientConnection", Frame], None]


class ClientConnection(asyncio.BufferedProtocol):
    """The connection of one client."""

    def __init__(self, plane: DataPlane, handlers: dict[Opcode, Handler]) -> None:
        self.plane = plane
        self.store = plane.store
        self.closed = False
        self.greeted = False
        self.reads_only = False
        self.client = ""
        self.features: frozenset[str] = frozenset()  # that both sides announced
        self.weak = weakref.ref(self)  # replicas refer to it without keeping it alive
        self.fetches = FetchQueue(plane.loop, plane.fetches)
        self.gate = FrameGate(plane.rights, self._handle_later)
        self.caller = ConnectionCaller(self.gate, Port.RANGE_DATA, plane.token, plane.verifier)
        self.book = plane.quotas.book
        self.meter = QuotaMeter(plane.quotas)
        self._handlers = handlers
        self._decoder = FrameDecoder(
            message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX
        )
        self._transport: asyncio.Transport
        self._inflight_bytes = 0
        self._acks: list[tuple[HostedReplica, int]] = []  # with the request that is answered
        self._throttled: dict[HostedReplica, RateBuckets] = {}  # to be told with the next ack
        self._held_off = self._reading_paused = False
        self._writing_paused = False
        self._deadline = plane.loop.time() + HELLO_TIMEOUT_S
        self._slow_deadline = 0.0
        self._rights_checked = (0, 0.0)  # the version of rights, and when to look again in any case

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is no subclass of asyncio's
        if len(self.plane.connections) >= CONNECTIONS_MAX:
            self.plane.refused(self.plane.loop.time())
            self.send_error(0, Overloaded(f"this server has {CONNECTIONS_MAX} connections already, its limit"))
            self.close()
            return
        try:
            self.caller.connected(transport)
        except RangelogError as error:
            self.send_error(0, error)
            self.close()
            return
        notice_vanished_peer(
            transport,
            idle_s=KEEPALIVE_IDLE_S,
            interval_s=KEEPALIVE_INTERVAL_S,
            count=KEEPALIVE_COUNT,
            unacknowledged_ms=USER_TIMEOUT_MS,
        )
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self.plane.connections[self] = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Decode the received bytes and handle their frames."""
        try:
            frames = self._decoder.received(nbytes)
        except FrameError as error:
            self.send_error(0, ProtocolViolation(str(error)))
            self.close()
            return
        if frames:
            for frame in frames:
                if self.closed:
                    break
                self._handle(frame)
            self.store.wal.kick()
            if self.greeted:
                self._deadline = 0.0
            wal = self.store.wal
            if (
                self._inflight_bytes > INFLIGHT_BYTES_MAX
                or wal.pending_bytes > PENDING_BYTES_MAX
                or wal.waits_for_segment
            ):
                self._pause_reading()
        elif not self._deadline:
            self._deadline = self.plane.loop.time() + FRAME_TIMEOUT_S

    def eof_received(self) -> bool | None:
        """Close the connection, since the client has closed it."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End all work of the connection, since the socket is closed."""
        self.closed = True
        self.fetches.close()
        self.gate.close()
        self._throttled.clear()
        self.plane.connections.pop(self, None)
        self.plane.paused.pop(self, None)

    def pause_writing(self) -> None:
        """Start no more fetches, since the client does not read."""
        self._writing_paused = True
        self.fetches.hold()
        self._slow_deadline = self.plane.loop.time() + SLOW_READER_TIMEOUT_S
        self._pause_reading()

    def resume_writing(self) -> None:
        """Start fetches again, since the client reads again."""
        self._writing_paused = False
        self.resume_if_settled()
        self.fetches.release()

    # ---- requests

    def _handle(self, frame: Frame) -> None:
        try:
            handler = self._handlers.get(frame.opcode)
            if handler is None:
                raise ProtocolViolation(f"{frame.opcode.name} is not a request")
            if not self.greeted and frame.opcode is not Opcode.HELLO:
                raise ProtocolViolation("the first frame must be a hello")
            handler(self, frame)
        except RightMissing as error:  # the other streams of the connection go on
            self.send_error(frame.request_id, error)
        except (Unauthorized, WrongServer) as error:
            self.send_error(frame.request_id, error)
            self.close()
        except DecodeError:
            self.send_error(frame.request_id, ProtocolViolation(f"a {frame.opcode.name} message does not decode"))
            self.close()
        except RangelogError as error:
            self.send_error(frame.request_id, error)
            if not self.greeted:
                self.close()
        except Exception:
            _log.exception("a request failed", opcode=frame.opcode.name)
            self.send_error(frame.request_id, InternalError("the request failed; the server's log has the details"))

    def _handle_later(self, frame: Frame) -> None:
        """Handle a frame that has waited for a grant."""
        if not self.closed:
            self._handle(frame)
            self.store.wal.kick()

    def check_token(self) -> None:
        """Close the connection once its token has expired, or was revoked."""
        try:
            self.caller.check()
        except Unauthorized as error:
            self.send_error(0, error)
            self.close()

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

    # ---- replies

    def send(self, opcode: Opcode, request_id: int, message: bytes, payload: list[bytes] | None = None) -> None:
        """Send one frame."""
        if self.closed:
            return
        if payload:
            self._transport.writelines([encode_head(opcode, request_id, message, sum(map(len, payload))), *payload])
        else:
            self._transport.write(encode_frame(opcode, request_id, message))

    def send_error(self, request_id: int, error: RangelogError, stream_id: int = 0, range_index: int = 0) -> None:
        """Send an error as the reply to a request."""
        message = data_pb2.Error(
            code=error.code,
            message=error.message[:1000],
            epoch=error.epoch or 0,
            offset=error.offset or 0,
            stream_id=stream_id,
            range_index=range_index,
        )
        self.send(Opcode.ERROR, request_id, message.SerializeToString())

    def close(self) -> None:
        """Send the queued frames, then close."""
        if not self.closed:
            self.closed = True
            self._transport.close()

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
            if self._throttled:
                self._tell_throttles([hosted for hosted, _ in some], [first, *others])
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

    # ---- quotas

    def greeted_by(self, principal: Principal | None) -> None:
        """Note who is there: called with each hello."""
        self.meter.admitted(principal, self.client)

    def charge_append(self, hosted: HostedReplica, size_bytes: int) -> None:
        """Count an append that was taken; its ack says for how long to hold. Called only where there are quotas."""
        buckets, before_us = self.meter.take(Measure.APPEND, resource(hosted.core.stream_id), size_bytes)
        if not buckets:
            return
        self._throttled[hosted] = buckets
        over_s = before_us / 1_000_000 - OWED_S_MAX
        if over_s > 0 and not self._held_off and not self.closed:
            self._held_off = True
            self._pause_reading()
            self.plane.loop.call_later(min(over_s, UNREAD_S_MAX), self._hold_off_no_more)

    def _tell_throttles(self, acked: list[HostedReplica], replies: list[data_pb2.AppendReply]) -> None:
        """Say what is left to wait now: what the flush took is over already."""
        for hosted, reply in zip(acked, replies, strict=True):
            buckets = self._throttled.pop(hosted, None)
            owed_us = self.meter.owed_us(buckets) if buckets else 0
            if owed_us:
                reply.throttle_ms = -(-owed_us // 1000)
                self.plane.quotas.counts.note(Measure.APPEND, owed_us)

    def _hold_off_no_more(self) -> None:
        self._held_off = False
        self.resume_if_settled()

    # ---- flow control

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self.closed:
            self._reading_paused = True
            self._transport.pause_reading()
            self.plane.paused[self] = None

    def resume_if_settled(self) -> None:
        """Read again if no limit is exceeded."""
        if self.closed or self._held_off or self._writing_paused or self._inflight_bytes > INFLIGHT_BYTES_MAX // 2:
            return
        wal = self.store.wal
        if self._reading_paused and wal.pending_bytes <= PENDING_BYTES_MAX // 2 and not wal.waits_for_segment:
            self._reading_paused = False
            self.plane.paused.pop(self, None)
            self._transport.resume_reading()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if it exceeds a deadline."""
        late = self._deadline and now > self._deadline and not self._reading_paused
        if late:
            self.send_error(0, ProtocolViolation("no whole frame arrived in time"))
            self.close()
        elif self._writing_paused and now > self._slow_deadline:
            _log.warning("a reader is too slow; disconnected", client=self.client)
            self.store.counts.slow_readers += 1
            self.closed = True
            self._transport.abort()


def _reply_of(hosted: HostedReplica) -> data_pb2.AppendReply:
    core = hosted.core
    return data_pb2.AppendReply(
        stream_id=core.stream_id,
        range_index=core.range_index,
        epoch=core.epoch,
        durable_offset=core.durable_offset,
        followed=bool(hosted.waiters),
    )
