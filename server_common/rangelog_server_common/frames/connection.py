"""The base of the connections of frames, of range servers and brokers: all but their own requests.

What holds: the first frame is a hello, within a deadline; bytes that are not a frame close their own connection and no other;
a connection is not read while too much of it is in flight, while it is held off, or while its client does not read; a client
that reads nothing for long is disconnected.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Any, Protocol, cast

from google.protobuf.message import DecodeError

from rangelog_core.errors import ProtocolViolation, RangelogError, Unauthorized
from rangelog_core.frame import Frame, FrameDecoder, FrameError, Opcode
from rangelog_core.limits import FRAME_MESSAGE_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX
from rangelog_core.net.principals import Port
from rangelog_core.versions import FEATURES, VersionRange
from rangelog_proto.v1 import data_pb2
from rangelog_server_common.quotas.guard import AppendMeter, QuotaGuard
from rangelog_server_common.rights.frame_gate import FrameGate
from rangelog_server_common.rights.guard import RightsGuard
from rangelog_server_common.tokens.admission import ConnectionCaller, Gate
from rangelog_server_common.tokens.verifier import TokenVerifier

HELLO_TIMEOUT_S = 5.0
FRAME_TIMEOUT_S = 60.0
"""The time limit of a frame from its first byte to its last. It starts again when the connection is read again."""
SLOW_READER_TIMEOUT_S = 30.0
"""A client that reads nothing for so long is disconnected."""
UNREAD_S_MAX = 1.0
"""A connection that is held off is not read for so long at most: far below the limits after which a server counts as silent."""


class FramePort:
    """The state that all connections of one port share."""

    __slots__ = ()

    loop: asyncio.AbstractEventLoop
    token: str | None
    connections: dict[Any, None]
    paused: dict[Any, None]  # of these: those that are not read
    rights: RightsGuard
    quotas: QuotaGuard
    verifier: TokenVerifier | None

    def sweep(self) -> None:
        """Close connections that exceed a deadline; call it about every second."""
        now = self.loop.time()
        for connection in list(self.connections):
            connection.sweep(now)

    def close(self) -> None:
        """Close all connections."""
        for connection in list(self.connections):
            connection.close()


class WaitingWork(Protocol):
    """Replies, or the work that makes them, which wait while the client does not read."""

    def hold(self) -> None:
        """The client does not read."""

    def release(self) -> None:
        """The client reads again."""

    def close(self) -> None:
        """The connection is closed."""


class ClosableGate(Gate, Protocol):
    """A gate that forgets what waits."""

    def close(self) -> None:
        """The connection is closed."""


class FrameConnection(asyncio.BufferedProtocol, ABC):
    """The connection of one client. A subclass has the requests, the way out, and the limits of what is in flight."""

    _port: FramePort
    _gate: ClosableGate
    _waiting: WaitingWork  # set before `connection_made` of this class

    def __init__(self, port: FramePort, kind: Port) -> None:
        self._port = port
        self.greeted = False
        self.client = ""  # as its hello says
        self._decoder = FrameDecoder(
            message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX
        )
        self.get_buffer = self._decoder.get_buffer  # type: ignore[method-assign]  # each read asks for it: no call in between
        self._transport: asyncio.Transport
        self._closed = False
        self._gate = self._make_gate()
        self._caller = ConnectionCaller(self._gate, kind, port.token, port.verifier)
        self._meter = AppendMeter(port.quotas)
        self._held_off = self._reading_paused = False
        self._deadline = 0.0  # of the hello, or of the frame that has begun; 0: none
        self._slow_deadline = 0.0  # of a client that does not read; 0: it reads

    @property
    def closed(self) -> bool:
        """Whether nothing more is sent or handled."""
        return self._closed

    # ---- the subclass

    def _make_gate(self) -> ClosableGate:
        """Return what checks the rights of the client."""
        return FrameGate(self._port.rights, self._handle_later)

    @abstractmethod
    def send(self, opcode: Opcode, request_id: int, message: bytes) -> None:
        """Send one frame."""

    @abstractmethod
    def _check_room(self) -> None:
        """Raise Overloaded if the port has no room for one more connection."""

    @abstractmethod
    def _request(self, frame: Frame) -> None:
        """Handle one request. Raises RangelogError, which is its reply."""

    @abstractmethod
    def _failed(self, frame: Frame) -> None:
        """Log the exception that a request raised, and reply with InternalError."""

    @abstractmethod
    def _has_room(self) -> bool:
        """Whether so little is in flight that a paused connection is read again."""

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is no subclass of asyncio's
        try:
            self._check_room()
            self._caller.connected(transport)
        except RangelogError as error:
            self.send_error(0, error)
            self.close()
            return
        self._port.connections[self] = None
        self._deadline = self._port.loop.time() + HELLO_TIMEOUT_S

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
                if self._closed:
                    break
                self._handle(frame)
            if self.greeted:
                self._deadline = 0.0
            self._handled()
        elif not self._deadline:
            self._deadline = self._port.loop.time() + FRAME_TIMEOUT_S

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the client, since the socket is closed."""
        self._closed = True
        self._gate.close()
        self._waiting.close()
        self._meter.charged.clear()
        self._port.connections.pop(self, None)
        self._port.paused.pop(self, None)

    def pause_writing(self) -> None:
        """Handle no more requests, since the client does not read."""
        self._slow_deadline = self._port.loop.time() + SLOW_READER_TIMEOUT_S
        self._waiting.hold()
        self._pause_reading()

    def resume_writing(self) -> None:
        """Go on, since the client reads again."""
        self._slow_deadline = 0.0
        self.resume_if_settled()
        self._waiting.release()

    # ---- requests

    def _handle(self, frame: Frame) -> None:
        try:
            if not self.greeted and frame.opcode is not Opcode.HELLO:
                raise ProtocolViolation("the first frame must be a hello")
            self._request(frame)
        except DecodeError:
            self.send_error(frame.request_id, ProtocolViolation(f"a {frame.opcode.name} message does not decode"))
            self.close()
        except RangelogError as error:
            self.refused(frame.request_id, error)
            if not self.greeted:
                self.close()
        except Exception:
            self._failed(frame)

    def _handle_later(self, frame: Frame) -> None:
        """Handle a frame that has waited for a grant."""
        if not self._closed:
            self._handle(frame)
            self._handled()

    def _handled(self) -> None:
        """Pause reading if too much is in flight. Called once the frames that arrived together are handled."""
        if not self._has_room():
            self._pause_reading()

    def take_hello(self, frame: Frame) -> data_pb2.Hello:
        """Return a hello whose token is accepted. Raises Unauthorized."""
        hello = data_pb2.Hello.FromString(frame.message)
        self._caller.greeted(hello.token)
        return hello

    def welcome(
        self, request_id: int, hello: data_pb2.Hello, incarnation: int, version: int, versions: VersionRange
    ) -> None:
        """Accept a hello that names this server: note who greets, and reply with the version in force."""
        self.greeted = True
        self.client = "".join(each for each in hello.client[:100] if each.isprintable())  # others are shown it
        self._meter.admitted(self._caller.principal, self.client)
        reply = data_pb2.HelloReply(
            protocol_version=version,
            server=hello.server,
            incarnation=incarnation,
            payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX,
            protocol_version_min=versions.lowest,
            protocol_version_max=versions.highest,
            features=sorted(FEATURES),
        )
        self.send(Opcode.HELLO_REPLY, request_id, reply.SerializeToString())

    # ---- replies

    def refused(self, request_id: int, error: RangelogError) -> None:
        """Send the error of a request that is refused."""
        self.send_error(request_id, error)

    def send_error(self, request_id: int, error: RangelogError, stream_id: int = 0, range_index: int = 0) -> None:
        """Send an error as the reply to a request; 0: about no request."""
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
        if not self._closed:
            self._closed = True
            self._transport.close()

    # ---- flow control

    def _hold_off(self, seconds: float) -> None:
        """Do not read for so long, since the client owes much to a quota and did not wait."""
        if not self._held_off and not self._closed:
            self._held_off = True
            self._pause_reading()
            self._port.loop.call_later(seconds, self._hold_off_no_more)

    def _hold_off_no_more(self) -> None:
        self._held_off = False
        self.resume_if_settled()

    def _pause_reading(self) -> None:
        if not self._reading_paused and not self._closed:
            self._reading_paused = True
            self._transport.pause_reading()
            self._port.paused[self] = None

    def resume_if_settled(self) -> None:
        """Read again if no reason is left not to."""
        if self._closed or self._held_off or self._slow_deadline:
            return
        if self._reading_paused and self._has_room():
            self._reading_paused = False
            self._port.paused.pop(self, None)
            self._transport.resume_reading()
            if self._deadline and self.greeted:
                self._deadline = self._port.loop.time() + FRAME_TIMEOUT_S

    # ---- sweeps

    def sweep(self, now: float) -> None:
        """Close the connection if it exceeds a deadline, or its token has ended. Called about every second."""
        self.check_deadlines(now)
        self.check_token()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if it exceeds a deadline."""
        if self._slow_deadline:
            if now > self._slow_deadline:
                self._cut_off()
        elif self._deadline and now > self._deadline and not self._reading_paused:
            self.send_error(0, ProtocolViolation("no whole frame arrived in time"))
            self.close()

    def _cut_off(self) -> None:
        """Disconnect a client that does not read; what is queued for it is lost."""
        self._closed = True
        self._transport.abort()

    def check_token(self) -> None:
        """Close the connection once its token has expired, or was revoked."""
        try:
            self._caller.check()
        except Unauthorized as error:
            self.send_error(0, error)
            self.close()
