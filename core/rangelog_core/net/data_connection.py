"""One connection of the data plane to one range server, shared by all requests of this client to the server.

What holds: a request ends with a reply of its id, an error, a typed timeout, or the end of the connection; a subscription
receives any number of replies before that. A connection that receives nothing for seconds while a request waits is dead,
and is closed. Replies to appends go to the listener of their range, or are dropped when it has none; the reply to a request
that was `put` goes to its own listener, whenever it comes. The peer is the named server and incarnation, or the connection is
refused. A violation of the protocol closes the connection, with a reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar, cast

from google.protobuf.message import DecodeError

from rangelog_core.allocator import keep_large_blocks
from rangelog_core.errors import (
    HandshakeFailed,
    InternalError,
    ProtocolViolation,
    RangelogError,
    RequestTimeout,
    Unavailable,
    error_from_code,
)
from rangelog_core.frame import Frame, FrameDecoder, FrameError, Opcode, encode_head
from rangelog_core.ids import Incarnation, ReplicaId
from rangelog_core.limits import (
    APPENDS_BYTES_MAX,
    FETCHES_BYTES_MAX,
    FRAME_MESSAGE_BYTES_MAX,
    FRAME_PAYLOAD_BYTES_MAX,
)
from rangelog_core.net.addresses import split_address
from rangelog_core.net.budgets import AppendBudget, FetchBudget
from rangelog_core.net.greeting import TokenRenewal, hello_of
from rangelog_core.net.keepalive import notice_vanished_peer
from rangelog_core.net.principals import Role
from rangelog_core.net.put_requests import PutRequests, ReplyListener
from rangelog_core.net.replies import Replies
from rangelog_core.net.send_queue import SendQueue
from rangelog_core.net.tls import TlsConfig
from rangelog_core.net.tls_errors import from_socket, refused_certificate, serves_tls
from rangelog_core.net.tls_peers import check_server, client_arguments
from rangelog_core.net.token_sources import Token, text_for
from rangelog_core.versions import DATA_PLANE_VERSIONS, FEATURES
from rangelog_proto.v1 import common_pb2, data_pb2

CONNECT_TIMEOUT_S = 3.0
SILENT_S = 3.0
"""A peer that sends nothing for so long while a request waits counts as dead."""
CONFIRMS_PER_FRAME = 1_000
"""Of at most 50 bytes each, below the limit of a frame's message."""

PeerKind = Literal["range server", "broker"]
_ROLES: dict[PeerKind, Role] = {"range server": Role.RANGE_SERVER, "broker": Role.BROKER}

_T = TypeVar("_T")
_log = logging.getLogger("rangelog.transport")


class RangeListener(Protocol):
    """The appender of a range over this connection."""

    def append_replied(self, reply: data_pb2.AppendReply) -> None:
        """The replica holds everything below its durable offset."""

    def append_refused(self, error: RangelogError) -> None:
        """The replica refused an append."""

    def connection_closed(self, error: RangelogError) -> None:
        """No reply will come any more."""


class DataConnection(asyncio.BufferedProtocol):
    """A connection to one range server, or of producers to a broker. Make it with `connect`; close it with `close`."""

    def __init__(self, replica: ReplicaId, kind: PeerKind = "range server", tls: TlsConfig | None = None) -> None:
        """`kind`: what messages call the peer. `tls`: what the transport will use."""
        self.replica = replica
        self._kind = kind
        self._tls = tls
        self.peer = f"{kind} {replica.server}"
        self.closed: RangelogError | None = None
        self.protocol_version = 0  # in force, once both sides agreed
        self.features: frozenset[str] = frozenset()  # that both sides announced
        self._decoder = FrameDecoder(
            message_bytes_max=FRAME_MESSAGE_BYTES_MAX, payload_bytes_max=FRAME_PAYLOAD_BYTES_MAX
        )
        self._transport: asyncio.Transport | None = None
        self._request_id = 0
        self._received_count = 0
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._subscriptions: dict[int, Replies] = {}
        self._listeners: dict[tuple[int, int], RangeListener] = {}
        self._put_requests = PutRequests()
        self._confirms: list[tuple[int, int, int, int, int | None]] = []  # that go out together
        self._out: SendQueue | None = None

    @classmethod
    async def connect(
        cls,
        address: str,
        replica: ReplicaId,
        *,
        token: Token | None = None,
        tls: TlsConfig | None = None,
        client_name: str = "",
        timeout_s: float = CONNECT_TIMEOUT_S,
        kind: PeerKind = "range server",
    ) -> DataConnection:
        """Connect and agree on a version with the server.

        With TLS the peer's certificate must name it, or every server of its kind. Raises Unavailable, RequestTimeout,
        HandshakeFailed, WrongServer, Unauthorized, ProtocolViolation, UnsupportedVersion, ConfigInvalid.
        """
        host, port = split_address(address)
        text = text_for(token, tls, address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                more = client_arguments(tls, _ROLES[kind])
                transport, connection = await loop.create_connection(
                    lambda: cls(replica, kind, tls), host, port, **more
                )
                connection.check_peer(transport)
                await connection.greet(token=text, client_name=client_name, timeout_s=timeout_s)
            if callable(token):
                TokenRenewal(connection, text, lambda: text_for(token, tls, address), client_name)
        except TimeoutError as error:
            raise RequestTimeout(f"{kind} {replica.server} at {address} does not answer") from error
        except OSError as error:
            failed = from_socket(error, f"{kind} {replica.server} at {address}", tls)
            if isinstance(error, ConnectionRefusedError) or failed is None:
                raise Unavailable(f"{kind} {replica.server} at {address} cannot be reached") from error
            raise failed from error
        return connection

    def check_peer(self, transport: asyncio.BaseTransport) -> None:
        """Check the peer's certificate; part of `connect`. Raises HandshakeFailed, after closing."""
        if self._tls is None:
            return
        certificate = transport.get_extra_info("peercert")
        try:
            check_server(certificate, self._tls, _ROLES[self._kind], self.replica.server, self.peer)
        except HandshakeFailed:
            self.close()
            raise

    async def greet(self, *, token: str | None, client_name: str, timeout_s: float) -> None:
        """Agree on a version with the server; part of `connect`. Raises as `connect` does, and closes the connection then."""
        hello = hello_of(self.replica, token or "", client_name)
        try:
            reply = await self.request(Opcode.HELLO, hello, timeout_s=timeout_s)
            self._greeted(reply.message)
        except BaseException:
            self.close()
            raise

    # ---- use

    async def request(
        self, opcode: Opcode, message: bytes, payload: Sequence[bytes] = (), *, timeout_s: float
    ) -> Frame:
        """Send a request and return its reply. Raises the error in the reply, RequestTimeout or Unavailable."""
        if self.closed is not None:
            raise self.closed
        request_id = self._next_id()
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = future
        self._write(opcode, request_id, message, payload)
        try:
            return await self.wait_for(future, timeout_s)
        finally:
            self._pending.pop(request_id, None)

    def subscribe(self, opcode: Opcode, message: bytes) -> Replies:
        """Send a request that has more than one reply. Raises the error that closed the connection."""
        if self.closed is not None:
            raise self.closed
        request_id = self._next_id()
        replies = self._subscriptions[request_id] = Replies(self, request_id)
        self._write(opcode, request_id, message, ())
        return replies

    def unsubscribe(self, request_id: int) -> None:
        """Drop all later replies to a request."""
        self._subscriptions.pop(request_id, None)

    async def wait_for(self, future: asyncio.Future[_T], timeout_s: float) -> _T:
        """Wait for a reply. Raises RequestTimeout; the connection is closed if the peer sent nothing in that time."""
        timer = future.get_loop().call_later(timeout_s, self._timed_out, future, timeout_s, self._received_count)
        try:
            return await future
        finally:
            timer.cancel()

    def _timed_out(self, future: asyncio.Future[_T], timeout_s: float, received_count: int) -> None:
        if future.done():
            return
        problem = RequestTimeout(f"{self.peer} did not answer within {timeout_s:g} s")
        future.set_exception(problem)
        if self._received_count == received_count and timeout_s >= SILENT_S:
            self._close(problem)  # its machine may be gone: TCP alone would notice after a quarter of an hour

    def send(
        self, opcode: Opcode, message: bytes, payload: Sequence[bytes] = (), *, request_id: int | None = None
    ) -> None:
        """Send without waiting; an append's replies go to its range's listener. Does nothing once closed."""
        if self.closed is None:
            self._write(opcode, self._next_id() if request_id is None else request_id, message, payload)

    def put(self, opcode: Opcode, message: bytes, payload: Sequence[bytes], listener: ReplyListener) -> int:
        """Send a request whose reply goes to a listener; return its id. Sends nothing once the connection is closed."""
        request_id = self._next_id()
        if self.closed is None:
            self._put_requests.add(request_id, listener)
            self._write(opcode, request_id, message, payload)
        return request_id

    def attach(self, listener: ReplyListener) -> None:
        """Tell who puts requests when the connection ends, until it is detached. Raises the error that closed it."""
        if self.closed is not None:
            raise self.closed
        self._put_requests.attach(listener)

    def detach(self, listener: ReplyListener) -> None:
        """Forget a listener, but for replies to what it has put. Idempotent."""
        self._put_requests.detach(listener)

    def send_encoded(self, buffers: Sequence[bytes]) -> None:
        """Send a frame that was encoded before, perhaps for several connections. Does nothing once closed."""
        if self.closed is None:
            self._put(buffers)

    def confirm(
        self, stream_id: int, range_index: int, epoch: int, confirm_offset: int, start_offset: int | None = None
    ) -> None:
        """Send a range's confirm offset; confirms of many ranges in one turn of the loop share a frame.

        `start_offset`, of the range: its writer has just connected.
        """
        self._confirms.append((stream_id, range_index, epoch, confirm_offset, start_offset))
        if len(self._listeners) <= 1:
            self._send_confirms()
        elif len(self._confirms) == 1:
            asyncio.get_running_loop().call_soon(self._send_confirms)

    def listen(self, stream_id: int, range_index: int, listener: RangeListener) -> None:
        """Deliver the replies to this range's appends to `listener`."""
        self._listeners[stream_id, range_index] = listener

    def unlisten(self, stream_id: int, range_index: int) -> None:
        """Remove the listener of a range."""
        self._listeners.pop((stream_id, range_index), None)

    def close(self) -> None:
        """Close at once; idempotent."""
        self._close(Unavailable(f"the connection to {self.peer} was closed"))

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transport is no subclass of asyncio's
        self._out = SendQueue(self._transport)
        notice_vanished_peer(transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Decode the received bytes and deliver their frames."""
        self._received_count += 1
        try:
            for frame in self._decoder.received(nbytes):
                self._dispatch(frame)
        except (FrameError, DecodeError) as error:
            self._close(ProtocolViolation(f"{self.peer}: {error}"))

    def pause_writing(self) -> None:
        """Keep what is put from now on: the server does not read as fast."""
        if self._out is not None:
            self._out.hold()

    def resume_writing(self) -> None:
        """Send what was kept."""
        if self._out is not None:
            self._out.release()

    def eof_received(self) -> bool | None:
        """Close the connection, since the peer has closed it."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all requests, since the socket is closed."""
        self._close(self._why_lost(exc))

    # ---- inside

    def _why_lost(self, exc: Exception | None) -> RangelogError:
        if self._out is not None and not self.protocol_version:  # a peer that speaks the protocol says why
            if self._tls is None:
                return serves_tls(self.peer)
            return from_socket(exc, self.peer, self._tls) or refused_certificate(self.peer, self._tls)
        return Unavailable(f"the connection to {self.peer} broke")

    def _greeted(self, message: bytes) -> None:
        """Adopt the server's version and features. Raises ProtocolViolation on a version that was not offered."""
        try:
            reply = data_pb2.HelloReply.FromString(message)
        except DecodeError as error:
            raise ProtocolViolation(f"{self.peer}: a malformed reply to hello") from error
        lowest, highest = DATA_PLANE_VERSIONS
        if not lowest <= reply.protocol_version <= highest:
            raise ProtocolViolation(
                f"{self.peer} chose version {reply.protocol_version} of the data plane; this client "
                f"offered {DATA_PLANE_VERSIONS}"
            )
        self.protocol_version = reply.protocol_version
        self.features = FEATURES.intersection(reply.features)

    def _send_confirms(self) -> None:
        confirms, self._confirms = self._confirms, []
        for position in range(0, len(confirms), CONFIRMS_PER_FRAME):
            first, *others = [
                data_pb2.Confirm(
                    stream_id=stream_id,
                    range_index=index,
                    epoch=epoch,
                    confirm_offset=confirm_offset,
                    start_offset=start,
                )
                for stream_id, index, epoch, confirm_offset, start in confirms[position : position + CONFIRMS_PER_FRAME]
            ]
            first.others.extend(others)
            self.send(Opcode.CONFIRM, first.SerializeToString(), request_id=0)

    def _next_id(self) -> int:
        self._request_id = self._request_id % 0xFFFF_FFFF + 1
        return self._request_id

    def _write(self, opcode: Opcode, request_id: int, message: bytes, payload: Sequence[bytes]) -> None:
        size = sum(map(len, payload)) if payload else 0
        self._put((encode_head(opcode, request_id, message, size), *payload))

    def _put(self, buffers: Sequence[bytes]) -> None:
        if self._out is None:
            raise InternalError("the connection is used before it is open")
        self._out.put(buffers)

    def _dispatch(self, frame: Frame) -> None:
        if frame.opcode is Opcode.APPEND_REPLY:
            reply = data_pb2.AppendReply.FromString(frame.message)
            for each in (reply, *reply.others):
                listener = self._listeners.get((each.stream_id, each.range_index))
                if listener is not None:
                    listener.append_replied(each)
            return
        future = self._pending.get(frame.request_id)
        subscription = self._subscriptions.get(frame.request_id)
        if frame.opcode is not Opcode.ERROR:
            if self._put_requests.taken(frame):
                return
            if subscription is not None:
                subscription.put(frame)
            elif future is not None and not future.done():
                future.set_result(frame)
            return
        told = data_pb2.Error.FromString(frame.message)
        error = error_from_code(told.code, told.message, epoch=told.epoch or None, offset=told.offset)
        if self._put_requests.refused(frame.request_id, error):
            return
        if subscription is not None:
            subscription.fail(error)
            return
        if future is not None:
            if not future.done():
                future.set_exception(error)
            return
        listener = self._listeners.get((told.stream_id, told.range_index))
        if listener is not None:
            listener.append_refused(error)
        elif frame.request_id == 0 and not told.stream_id:  # the error concerns the connection, no request and no range
            self._close(error)
        else:  # it may concern an append of a closed writer, and other writers share the connection
            _log.debug("an error without a request from %s: %s", self.replica, error)

    def _close(self, error: RangelogError) -> None:
        if self.closed is not None:
            return
        self.closed = error
        if self._out is not None:
            self._out.close()
        if self._transport is not None:
            self._transport.abort()
        for future in list(self._pending.values()):
            if not future.done():
                future.set_exception(error)
        for subscription in list(self._subscriptions.values()):
            subscription.fail(error)
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            listener.connection_closed(error)
        self._put_requests.close(error)


class DataConnections:
    """The connections of one client, one per server and incarnation, made on demand and shared; and the servers' addresses.

    Writers and readers learn addresses from the ranges that the placement driver sends: the latest one counts for all.
    """

    def __init__(
        self,
        *,
        token: Token | None = None,
        tls: TlsConfig | None = None,
        client_name: str = "",
        appends_bytes_max: int = APPENDS_BYTES_MAX,
        fetches_bytes_max: int = FETCHES_BYTES_MAX,
    ) -> None:
        self._token = token
        self._tls = tls
        self._client_name = client_name
        self._connections: dict[ReplicaId, DataConnection] = {}
        self._making: dict[ReplicaId, asyncio.Task[DataConnection]] = {}
        self.addresses: dict[ReplicaId, str] = {}
        self.appends = AppendBudget(appends_bytes_max)
        self.fetches = FetchBudget(fetches_bytes_max)

    def learn(self, source: common_pb2.Range) -> None:
        """Take over the addresses of a range's replicas, as the placement driver sent them."""
        for each in source.replicas:
            if each.data_address:
                self.addresses[replica_id(each.server, each.incarnation)] = each.data_address

    def existing(self, replica: ReplicaId) -> DataConnection | None:
        """Return the open connection, if there is one."""
        connection = self._connections.get(replica)
        return connection if connection is not None and connection.closed is None else None

    async def get(self, replica: ReplicaId, address: str = "", *, kind: PeerKind = "range server") -> DataConnection:
        """Return the connection to a replica's server. Raises as DataConnection.connect does.

        `address`: where it is not the learned one. `kind`: what messages call the server.
        """
        connection = self.existing(replica)
        if connection is not None:
            return connection
        address = address or self.addresses.get(replica, "")
        if not address:
            raise Unavailable(f"{kind} {replica} is no longer registered")
        task = self._making.get(replica)
        if task is None:
            task = asyncio.create_task(self._make(replica, address, kind))
            self._making[replica] = task
            task.add_done_callback(lambda _: self._making.pop(replica, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and (me is None or not me.cancelling()):
                raise Unavailable("the client was closed while it connected") from None
            raise

    async def _make(self, replica: ReplicaId, address: str, kind: PeerKind) -> DataConnection:
        keep_large_blocks()
        connection = await DataConnection.connect(
            address, replica, token=self._token, tls=self._tls, client_name=self._client_name, kind=kind
        )
        self._connections[replica] = connection
        return connection

    async def close(self) -> None:
        """Close all connections; idempotent. Frames that are queued are sent first."""
        for task in list(self._making.values()):
            task.cancel()
        await asyncio.sleep(0)  # confirms that wait for their frame ...
        await asyncio.sleep(0)  # ... and the loop, which writes at the end of its turn
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()


def replica_id(server: str, incarnation: int) -> ReplicaId:
    """Return the identity of the replica that a message names."""
    return ReplicaId(server, Incarnation(incarnation))
