"""Keeps the writer connected to the replicas of its open range, and passes events to the core.

A replica whose server is connected already is taken at once; any other is dialed (`shared_dials`), and again when the
connection breaks, until the range is left. Each failure is reported. A replica that is connected is told so at once: it knows
that the writer is there before its first append, and after a connection broke.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from rangelog._append.shared_dials import SharedDials
from rangelog_core.errors import InternalError, RangelogError, UnsupportedVersion, WriterFenced
from rangelog_core.frame import Opcode, encode_head
from rangelog_core.ids import ReplicaId
from rangelog_core.net.data_connection import DataConnection, DataConnections
from rangelog_proto.v1 import data_pb2

_log = logging.getLogger("rangelog.writer")


class RangeEvents(Protocol):
    """The events that the links report; called on the event loop."""

    def connected(self, range_index: int, replica: ReplicaId) -> None:
        """The replica is connected."""

    def disconnected(self, range_index: int, replica: ReplicaId) -> None:
        """The replica is not connected."""

    def acked(self, range_index: int, replica: ReplicaId, durable_offset: int) -> None:
        """The replica holds all records below `durable_offset` durably."""

    def throttled(self, range_index: int, replica: ReplicaId, hold_ms: int) -> None:
        """The replica holds the writer off: it is over a quota."""

    def refused(self, range_index: int, replica: ReplicaId, error: RangelogError) -> None:
        """The replica refused an append."""

    def confirm_wanted(self, range_index: int, replica: ReplicaId) -> None:
        """A reader waits at the replica until the confirm offset moves."""

    def leave_wanted(self, range_index: int) -> None:
        """The next range can have more replicas."""


class _Listener:
    """The listener for the replies of one connection about one range."""

    def __init__(
        self,
        events: RangeEvents,
        range_index: int,
        replica: ReplicaId,
        followed: set[ReplicaId],
        closed: Callable[[ReplicaId], None],
    ) -> None:
        self._events = events
        self._range_index = range_index
        self._replica = replica
        self._followed = followed
        self._closed = closed

    def append_replied(self, reply: data_pb2.AppendReply) -> None:
        """The replica holds everything below its durable offset."""
        if reply.leave_wanted:
            self._events.leave_wanted(self._range_index)
            return
        if reply.followed:
            self._followed.add(self._replica)
        elif self._followed:
            self._followed.discard(self._replica)
        if reply.throttle_ms:  # before the ack, which lets the next batch go
            self._events.throttled(self._range_index, self._replica, reply.throttle_ms)
        self._events.acked(self._range_index, self._replica, reply.durable_offset)
        if reply.confirm_wanted:
            self._events.confirm_wanted(self._range_index, self._replica)

    def append_refused(self, error: RangelogError) -> None:
        """The replica refused an append."""
        self._events.refused(self._range_index, self._replica, error)

    def connection_closed(self, error: RangelogError) -> None:
        """No reply will come any more."""
        self._closed(self._replica)


class ReplicaLinks:
    """The links to one open range's replicas."""

    def __init__(
        self,
        events: RangeEvents,
        connections: DataConnections,
        dials: SharedDials,
        *,
        stream_id: int,
        range_index: int,
        start_offset: int,
        epoch: int,
        memory: bool,
    ) -> None:
        self._events = events
        self._connections = connections
        self._dials = dials
        self._stream_id = stream_id
        self._range_index = range_index
        self._head = data_pb2.Append(
            stream_id=stream_id, range_index=range_index, epoch=epoch, start_offset=start_offset, memory=memory
        )
        self._open: dict[ReplicaId, DataConnection] = {}
        self._dialed: dict[ReplicaId, None] = {}
        self._unsupported: set[ReplicaId] = set()
        self._left = False
        self.problems: dict[ReplicaId, str] = {}  # why a replica is not connected, as its last try said
        self.followed: set[ReplicaId] = set()  # where readers wait, as far as replies said

    def connect(self, replica: ReplicaId) -> None:
        """Connect to one replica, and again whenever the connection breaks."""
        connection = self._connections.existing(replica)
        if connection is not None:
            self._attach(replica, connection)
        else:
            self._dial(replica)

    def send(self, replicas: Sequence[ReplicaId], batches: Sequence[bytes], confirm_offset: int) -> None:
        """Send batches. Does nothing where the connection has just broken, which the core learns by an event."""
        self._head.confirm_offset = confirm_offset
        head = encode_head(Opcode.APPEND, 0, self._head.SerializeToString(), sum(map(len, batches)))
        frame = (head, *batches)
        for replica in replicas:
            connection = self._open.get(replica)
            if connection is not None:
                connection.send_encoded(frame)

    def send_confirm(self, replica: ReplicaId, confirm_offset: int) -> None:
        """Send the confirm offset to a replica."""
        connection = self._open.get(replica)
        if connection is not None:
            connection.confirm(self._stream_id, self._range_index, self._head.epoch, confirm_offset)

    def close(self) -> None:
        """Stop; the connections stay open for other writers."""
        self._left = True
        for replica in self._dialed:
            self._dials.forget(replica, self)
        for connection in self._open.values():
            connection.unlisten(self._stream_id, self._range_index)
        self._open.clear()

    # ---- DialWaiter

    def dialed(self, replica: ReplicaId, connection: DataConnection) -> None:
        """See DialWaiter."""
        self._dialed.pop(replica, None)
        if not self._left:
            self._attach(replica, connection)

    def not_dialed(self, replica: ReplicaId, error: RangelogError) -> None:
        """See DialWaiter."""
        if self._left:
            return
        self.problems[replica] = error.message
        if isinstance(error, WriterFenced | InternalError):
            self._events.refused(self._range_index, replica, error)
        elif isinstance(error, UnsupportedVersion) and replica not in self._unsupported:
            self._unsupported.add(replica)
            _log.warning("%s cannot be written to: %s", replica, error)
        self._events.disconnected(self._range_index, replica)

    # ---- inside

    def _attach(self, replica: ReplicaId, connection: DataConnection) -> None:
        listener = _Listener(self._events, self._range_index, replica, self.followed, self._broke)
        connection.listen(self._stream_id, self._range_index, listener)
        self._open[replica] = connection
        self.problems.pop(replica, None)
        head = self._head
        connection.confirm(head.stream_id, head.range_index, head.epoch, head.confirm_offset, head.start_offset)
        self._events.connected(self._range_index, replica)

    def _broke(self, replica: ReplicaId) -> None:
        """The connection ended: report, and dial again."""
        if self._left or self._open.pop(replica, None) is None:
            return
        self._dial(replica, broke=True)
        self._events.disconnected(self._range_index, replica)

    def _dial(self, replica: ReplicaId, *, broke: bool = False) -> None:
        self._dialed[replica] = None
        self._dials.wait(replica, self, broke=broke)
