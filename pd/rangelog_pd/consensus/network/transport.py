"""The connections to the other members, as the tick thread uses them.

What holds: no message that asserts durability is sent before the flush (the leader's entries may be sent earlier, so that
all members flush at the same time: the leader flushes before it counts itself); the connection to a peer that breaks the
protocol, is silent for too long or does not read is closed and made again; no error of a connection reaches the Raft library.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Set
from typing import Protocol

from rangelog_core.errors import ProtocolViolation, Unavailable
from rangelog_pd.consensus.network.connection import PeerConnection
from rangelog_pd.consensus.network.dialing import Dialing
from rangelog_pd.consensus.network.handshake import SessionKeys
from rangelog_pd.consensus.network.messages import (
    Append,
    Hello,
    LeaderCheck,
    LeaderChecked,
    Message,
    Ping,
    Removed,
    SnapshotChunk,
    decode,
    encode,
)

log = logging.getLogger(__name__)

_READ, _WRITE, _ERROR = 1, 2, 4  # pysyncobj's POLL_EVENT_TYPE
_ASSERT_NOTHING = (Append, SnapshotChunk, Ping, Hello, LeaderCheck, LeaderChecked, Removed)
PING_S = 0.5
"""Followers send each other no other messages: a ping shows that the connection works."""


class Poller(Protocol):
    """The part of pysyncobj's poller that is used."""

    def subscribe(self, descr: int, callback: Callable[[int, int], None], eventMask: int, /) -> None:
        """Call back on these events of a descriptor."""

    def unsubscribe(self, descr: int, /) -> None:
        """Call back no more."""


class PeerTransport:
    """The connections of one member. Owned by the tick thread, except `wake` and `adopt`."""

    def __init__(self, poller: Poller, *, silent_s: float) -> None:
        self.on_message: Callable[[str, Message], None] = lambda _peer, _message: None
        self.on_connected: Callable[[str], None] = lambda _peer: None
        self.on_disconnected: Callable[[str], None] = lambda _peer: None
        self.dialing: Dialing | None = None
        self._poller = poller
        self._silent_s = silent_s
        self._connections: dict[str, PeerConnection] = {}
        self._adopted: collections.deque[tuple[str, socket.socket, SessionKeys]] = collections.deque()
        self._next_check_s = 0.0
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.Lock()
        poller.subscribe(self._wake_fd, self._woken, _READ)

    # --- from any thread

    def wake(self) -> None:
        """End the current wait for events."""
        # Never write to a closed descriptor: its number may belong to another file by now.
        with self._wake_lock, contextlib.suppress(BlockingIOError):
            if self._wake_fd >= 0:
                os.eventfd_write(self._wake_fd, 1)

    def adopt(self, peer: str, sock: socket.socket, keys: SessionKeys) -> None:
        """Take over a connection whose ends are authenticated."""
        self._adopted.append((peer, sock, keys))
        self.wake()

    # --- on the tick thread

    @property
    def connected(self) -> Set[str]:
        """The peers that are connected, the latest connection last."""
        return dict.fromkeys(self._connections).keys()

    def backlog_bytes(self, peer: str) -> int:
        """Return the bytes that wait to be sent to `peer`."""
        connection = self._connections.get(peer)
        return connection.backlog_bytes if connection is not None else 0

    def send(self, peer: str, message: Message) -> bool:
        """Queue a message for the next `flush`. False where there is no connection."""
        connection = self._connections.get(peer)
        if connection is None:
            return False
        # A leader's entries, a ping, a known term and what is committed assert nothing about this member's disk.
        needs_flush = not isinstance(message, _ASSERT_NOTHING)
        try:
            connection.queue(encode(message), needs_flush=needs_flush)
        except Unavailable as error:
            self._lose(connection, error)
            return False
        return True

    def drop(self, peer: str, why: str) -> None:
        """Close the connection to `peer`."""
        connection = self._connections.get(peer)
        if connection is not None:
            self._lose(connection, Unavailable(why), redial=False)

    def flush(self, flush_log: Callable[[], None]) -> None:
        """Send messages that assert no durability, flush the log, send the rest. Raises the errors of `flush_log`."""
        for connection in list(self._connections.values()):
            if not connection.needs_flush:
                self._write(connection)
        flush_log()
        for connection in list(self._connections.values()):
            if connection.needs_flush:
                connection.needs_flush = False
                self._write(connection)

    def check(self) -> None:
        """Ping idle peers, close silent connections. Cheap: most calls do nothing."""
        now_s = time.monotonic()
        if now_s < self._next_check_s:
            return
        self._next_check_s = now_s + PING_S / 2
        for peer, connection in list(self._connections.items()):
            if now_s - connection.last_received_s > self._silent_s:
                self._lose(connection, Unavailable(f"{peer} was silent for {self._silent_s} s"))
            elif now_s - connection.last_sent_s > PING_S:
                self.send(peer, Ping())

    def slept(self) -> None:
        """Restart the peers' time limits after this process was suspended."""
        now_s = time.monotonic()
        for connection in self._connections.values():
            connection.last_received_s = now_s

    def close(self) -> None:
        """Close all connections and stop listening."""
        if self.dialing is not None:
            self.dialing.stop()
        for connection in list(self._connections.values()):
            self._poller.unsubscribe(connection.fileno())
            connection.close()
        self._connections.clear()
        for _, sock, _ in self._adopted:
            sock.close()
        with self._wake_lock:
            self._poller.unsubscribe(self._wake_fd)
            os.close(self._wake_fd)
            self._wake_fd = -1

    def _woken(self, _descr: int, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        while self._adopted:
            peer, sock, keys = self._adopted.popleft()
            old = self._connections.get(peer)
            if old is not None:
                self._lose(old, Unavailable(f"{peer} connected again"), redial=False)
            connection = PeerConnection(peer, sock, keys)
            self._connections[peer] = connection
            self._subscribe(connection)
            log.info("raft: connected to %s", peer)
            self.on_connected(peer)

    def _subscribe(self, connection: PeerConnection) -> None:
        mask = _READ | _ERROR | (_WRITE if connection.backlog_bytes else 0)
        if connection.event_mask == mask:
            return
        connection.event_mask = mask

        def on_events(_descr: int, events: int) -> None:
            self._on_events(connection, events)

        self._poller.subscribe(connection.fileno(), on_events, mask)

    def _on_events(self, connection: PeerConnection, events: int) -> None:
        if connection.closed:
            return
        try:
            if events & (_READ | _ERROR):
                connection.read(lambda body: self._on_frame(connection, body))
        except (Unavailable, ProtocolViolation) as error:
            self._lose(connection, error)
            return
        if events & _WRITE and not connection.needs_flush:
            self._write(connection)

    def _on_frame(self, connection: PeerConnection, body: bytes) -> None:
        message = decode(body)
        if not isinstance(message, Ping):
            self.on_message(connection.peer, message)

    def _write(self, connection: PeerConnection) -> None:
        had_backlog = connection.backlog_bytes > 0
        if not had_backlog:
            return
        try:
            connection.write()
        except Unavailable as error:
            self._lose(connection, error)
            return
        self._subscribe(connection)

    def _lose(self, connection: PeerConnection, error: Exception, *, redial: bool = True) -> None:
        if connection.closed:
            return
        log.warning("raft: closed the connection to %s: %s", connection.peer, error)
        self._poller.unsubscribe(connection.fileno())
        connection.close()
        if self._connections.get(connection.peer) is connection:
            del self._connections[connection.peer]
        self.on_disconnected(connection.peer)
        if redial and self.dialing is not None:
            self.dialing.disconnected(connection.peer)
