"""One authenticated connection to another member: whole frames in, whole frames out, without blocking.

Frame: length u32, keyed checksum 16 bytes (blake2b over frame number, length and body), body.

What holds: a length is checked before a byte of the body is buffered; a frame with a wrong checksum ends the connection; the
queue of frames is bounded (above the bound the connection ends, and the peer connects again); frames that assert durability
are marked, and the transport sends them after the flush.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import struct
import time
from collections.abc import Callable

from rangelog_core.errors import ProtocolViolation, Unavailable
from rangelog_pd.consensus.network.handshake import SessionKeys
from rangelog_pd.consensus.network.messages import FRAME_BYTES_MAX

_HEAD = struct.Struct("<I16s")
_NUMBER = struct.Struct("<QI")
_MAC_BYTES = 16
_RECEIVE_BYTES = 256 * 1024
_RECEIVE_BYTES_PER_ROUND = 4 * 1024 * 1024
"""The bytes read from one peer in a turn, so that a flooding peer does not delay the others."""
NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
"""What a socket raises, with TLS or without, that has nothing to read or no room."""
_TLS_RECORD_BYTES = 16 * 1024
SEND_QUEUE_BYTES_MAX = 8 * 1024 * 1024
"""The bound of a peer's queue; above it the connection is closed, and the peer catches up over the next one."""


class PeerConnection:
    """A connection, owned by the tick thread. `on_close` is called once, whichever side closes it."""

    def __init__(self, peer: str, sock: socket.socket, keys: SessionKeys) -> None:
        self.peer = peer
        self.closed = False
        self.needs_flush = False
        self.event_mask = 0
        self.last_received_s = time.monotonic()
        self.last_sent_s = self.last_received_s
        self._sock = sock
        self._encrypted = isinstance(sock, ssl.SSLSocket)  # one read returns one record, and more may have arrived
        self._keys = keys
        self._received = bytearray()
        self._queued = bytearray()
        self._sent_frames = 0
        self._received_frames = 0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        """Return the file descriptor, for the poller."""
        return self._sock.fileno()

    @property
    def backlog_bytes(self) -> int:
        """The bytes that wait to be sent."""
        return len(self._queued)

    def queue(self, body: bytes, *, needs_flush: bool) -> None:
        """Queue one frame. Raises Unavailable when the queue is full."""
        if len(self._queued) + len(body) > SEND_QUEUE_BYTES_MAX:
            raise Unavailable(f"{self.peer} does not read")
        mac = _mac(self._keys.send, self._sent_frames, body)
        self._sent_frames += 1
        self._queued += _HEAD.pack(len(body), mac)
        self._queued += body
        self.needs_flush = self.needs_flush or needs_flush

    def write(self) -> None:
        """Send as many bytes as the socket accepts. Raises Unavailable."""
        try:
            while self._queued:
                sent = self._send()
                del self._queued[:sent]
                self.last_sent_s = time.monotonic()
        except NOT_NOW:
            return
        except OSError as error:
            raise Unavailable(f"lost {self.peer}: {error}") from error

    def read(self, on_frame: Callable[[bytes], None]) -> None:
        """Read the received bytes and deliver each whole frame. Raises Unavailable or ProtocolViolation."""
        budget = _RECEIVE_BYTES_PER_ROUND
        while budget > 0:
            try:
                data = self._sock.recv(_RECEIVE_BYTES)
            except NOT_NOW:
                return
            except OSError as error:
                raise Unavailable(f"lost {self.peer}: {error}") from error
            if not data:
                raise Unavailable(f"{self.peer} closed the connection")
            self.last_received_s = time.monotonic()
            budget -= len(data)
            self._received += data
            self._deliver(on_frame)
            if self.closed or (len(data) < _RECEIVE_BYTES and not self._encrypted):
                return

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self.closed = True
        self._sock.close()

    def _send(self) -> int:
        if not self._encrypted:
            return self._sock.send(self._queued)
        # A record that was refused for lack of room is given again, perhaps with more behind it, as OpenSSL asks.
        return self._sock.send(bytes(memoryview(self._queued)[:_TLS_RECORD_BYTES]))

    def _deliver(self, on_frame: Callable[[bytes], None]) -> None:
        position = 0
        while not self.closed and len(self._received) - position >= _HEAD.size:
            length, mac = _HEAD.unpack_from(self._received, position)
            if length > FRAME_BYTES_MAX:
                raise ProtocolViolation(f"{self.peer} announces a frame of {length} bytes")
            end = position + _HEAD.size + length
            if end > len(self._received):
                break
            body = bytes(self._received[position + _HEAD.size : end])
            if not hmac.compare_digest(mac, _mac(self._keys.receive, self._received_frames, body)):
                raise ProtocolViolation(f"a frame of {self.peer} was altered, repeated or lost")
            self._received_frames += 1
            position = end
            on_frame(body)
        del self._received[:position]


def _mac(key: bytes, number: int, body: bytes) -> bytes:
    digest = hashlib.blake2b(_NUMBER.pack(number, len(body)), digest_size=_MAC_BYTES, key=key)
    digest.update(body)
    return digest.digest()
