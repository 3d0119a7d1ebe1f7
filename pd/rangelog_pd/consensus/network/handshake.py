"""The handshake by which two members authenticate each other before any other message.

    dialer                                     listener
      HELLO    own name, wanted name, group, nonce  →
      ←  NONCE      32 random bytes
      PROOF    HMAC(secret, "dialer" + both nonces and the hello)  →
      ←  PROOF      HMAC(secret, "listener" + the same)

What holds: without the secret a peer neither gets a proof from a listener nor sends it a frame; all sizes are fixed or bounded
before they are read; the whole exchange has one deadline; comparison takes constant time. Both ends derive a key per
direction from secret and nonces: every later frame has a keyed checksum with its number, so that no program in between can
forge, repeat or reorder frames. Contents are not encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from rangelog_core.errors import Unauthorized, Unavailable
from rangelog_core.limits import NAME_LENGTH_MAX

_MAGIC = b"RLRAFT01"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO = struct.Struct("<8sBB")  # magic, length of the own name, length of the wanted name


@dataclass(frozen=True)
class SessionKeys:
    """One key per direction."""

    send: bytes
    receive: bytes


@dataclass(frozen=True)
class MemberIdentity:
    """The identity of this member, and the secret that it shares with the others."""

    name: str
    group: bytes
    secret: bytes


def group_digest(members: Iterable[str]) -> bytes:
    """Return the identity of a group that begins with these members; it stays when they change.

    Members of different groups must not connect: two majorities could form.
    """
    return hashlib.sha256("\n".join(sorted(members)).encode()).digest()


def dial(sock: socket.socket, identity: MemberIdentity, peer: str, *, timeout_s: float) -> SessionKeys:
    """Authenticate with `peer`, which this member dialled. Raises Unauthorized or Unavailable."""
    exchange = _Exchange(sock, timeout_s)
    nonce = os.urandom(_NONCE_BYTES)
    own, wanted = identity.name.encode(), peer.encode()
    hello = _HELLO.pack(_MAGIC, len(own), len(wanted)) + own + wanted + identity.group + nonce
    exchange.send(hello)
    transcript = hello + exchange.receive(_NONCE_BYTES)
    exchange.send(_proof(identity.secret, b"dialer", transcript))
    exchange.check(exchange.receive(_PROOF_BYTES), _proof(identity.secret, b"listener", transcript))
    return SessionKeys(
        _proof(identity.secret, b"key dialer", transcript), _proof(identity.secret, b"key listener", transcript)
    )


def listen(sock: socket.socket, identity: MemberIdentity, *, timeout_s: float) -> tuple[str, SessionKeys]:
    """Authenticate the member that dialled; return its name. Raises Unauthorized or Unavailable.

    It may be one that this member has not heard of yet: what it may say is decided by the rules.
    """
    exchange = _Exchange(sock, timeout_s)
    head = exchange.receive(_HELLO.size)
    magic, own_length, wanted_length = _HELLO.unpack(head)
    if magic != _MAGIC or max(own_length, wanted_length) > NAME_LENGTH_MAX:
        raise Unauthorized("not a Raft member's greeting")
    names = exchange.receive(own_length + wanted_length)
    group, nonce = exchange.receive(len(identity.group)), exchange.receive(_NONCE_BYTES)
    own_nonce = os.urandom(_NONCE_BYTES)
    exchange.send(own_nonce)
    transcript = head + names + group + nonce + own_nonce
    exchange.check(exchange.receive(_PROOF_BYTES), _proof(identity.secret, b"dialer", transcript))
    peer = names[:own_length].decode(errors="replace")
    if names[own_length:] != identity.name.encode():
        raise Unauthorized(f"{peer} expects another member at this address")
    if group != identity.group or peer == identity.name:
        raise Unauthorized(f"{peer} is of another group than this one")
    exchange.send(_proof(identity.secret, b"listener", transcript))
    return peer, SessionKeys(
        _proof(identity.secret, b"key listener", transcript), _proof(identity.secret, b"key dialer", transcript)
    )


def _proof(secret: bytes, label: bytes, transcript: bytes) -> bytes:
    return hmac.digest(secret, label + b"\0" + transcript, "sha256")


class _Exchange:
    """Blocking, exact reads and writes under one deadline."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock = sock
        self._deadline = time.monotonic() + timeout_s

    def send(self, data: bytes) -> None:
        try:
            self._sock.settimeout(self._remaining_s())
            self._sock.sendall(data)
        except OSError as error:
            raise Unavailable(f"the handshake broke off: {error}") from error

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                self._sock.settimeout(self._remaining_s())
                part = self._sock.recv(count - len(data))
            except OSError as error:
                raise Unavailable(f"the handshake broke off: {error}") from error
            if not part:
                raise Unavailable("the handshake broke off: closed by the peer (another secret or other members?)")
            data += part
        return data

    @staticmethod
    def check(proof: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(proof, expected):
            raise Unauthorized("the peer does not know the secret")

    def _remaining_s(self) -> float:
        remaining_s = self._deadline - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("timed out")
        return remaining_s
