"""Makes authenticated connections, on threads of their own, so that neither name look-ups nor strangers delay Raft.

What holds: of two members the one with the greater name dials, and the other one only when it was not called for a while (it
may be unknown there); an unauthenticated peer occupies at most one of a few handshake threads until the handshake's deadline;
a connection is used only after both ends are authenticated.
"""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping

from rangelog_core.errors import RangelogError, Unavailable
from rangelog_core.net.addresses import split_address
from rangelog_core.net.tls import TlsConfig
from rangelog_pd.consensus.network.handshake import MemberIdentity, SessionKeys, dial, listen
from rangelog_pd.consensus.network.member_tls import MemberTls, check_name_of

log = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 2.0
HANDSHAKES_MAX = 16
"""The number of simultaneous handshakes; further connections are closed."""

PATIENCE_S = 1.0
"""How long the member with the lesser name waits to be called."""

REFUSAL_LOG_S = 1.0
"""The least time between two log lines about refused connections."""

OnReady = Callable[[str, socket.socket, SessionKeys], None]


def parse_address(address: str) -> tuple[str, int]:
    """Split host:port; port 0 lets the system choose. Raises InvalidArgument."""
    return split_address(address, port_min=0)


class _Peer:
    """A member to be dialled."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wanted = threading.Event()
        self.wanted.set()
        self.gone = False


class Dialing:
    """Accepts the connections of peers that dial this member, and dials the others, with retries."""

    def __init__(
        self, identity: MemberIdentity, listen_address: str, *, retry_s: float, tls: TlsConfig | None = None
    ) -> None:
        """Bind the address. Raises Unavailable when it is in use."""
        self._tls = MemberTls(tls) if tls is not None else None
        self._identity = identity
        self._retry_s = retry_s
        self._on_ready: OnReady | None = None
        self._stopping = threading.Event()
        self._handshakes = threading.BoundedSemaphore(HANDSHAKES_MAX)
        self._peers: dict[str, _Peer] = {}
        self._server = _bind(listen_address)
        self._next_warning_s = 0.0
        self._threads: list[threading.Thread] = []

    def start(self, on_ready: OnReady) -> None:
        """Start to listen. `on_ready` may be called on any thread."""
        self._on_ready = on_ready
        self._start(threading.Thread(target=self._accept, name="raft-accept", daemon=True))

    def follow(self, peers: Mapping[str, str]) -> None:
        """Dial these members from now on (name → address), and no others. Called on one thread only."""
        for name, peer in list(self._peers.items()):
            if peers.get(name) != peer.address:
                del self._peers[name]
                peer.gone = True
                peer.wanted.set()
        for name, address in peers.items():
            if name not in self._peers:
                peer = self._peers[name] = _Peer(address)
                self._start(
                    threading.Thread(target=self._dial, args=(name, peer), name=f"raft-dial-{name}", daemon=True)
                )

    def disconnected(self, name: str) -> None:
        """Dial `name` again after its connection closed."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.wanted.set()

    def stop(self) -> None:
        """Stop listening and dialling. A thread in a handshake ends after it, without a connection."""
        self._stopping.set()
        for peer in list(self._peers.values()):
            peer.wanted.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(0.2)

    def _start(self, thread: threading.Thread) -> None:
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                sock, _ = self._server.accept()
            except OSError as error:
                if not self._stopping.wait(0.05):
                    log.warning("raft port: %s", error)
                continue
            if not self._handshakes.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._answer, args=(sock,), name="raft-handshake", daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        try:
            caller = None
            if self._tls is not None:
                sock, caller = self._tls.accept(sock, HANDSHAKE_TIMEOUT_S)
            name, keys = listen(sock, self._identity, timeout_s=HANDSHAKE_TIMEOUT_S)
            if caller is not None:
                check_name_of(caller, name)
            peer = self._peers.get(name)
            if peer is not None:
                peer.wanted.clear()
            self._hand_over(name, sock, keys)
        except RangelogError as error:
            sock.close()
            if time.monotonic() > self._next_warning_s:
                self._next_warning_s = time.monotonic() + REFUSAL_LOG_S
                log.warning("raft port: refused a connection: %s", error)
        except OSError:
            sock.close()
        finally:
            self._handshakes.release()

    def _dial(self, name: str, peer: _Peer) -> None:
        reported = ""
        while True:
            peer.wanted.wait()
            if name > self._identity.name and not peer.gone:
                self._stopping.wait(PATIENCE_S * random.uniform(1.0, 2.0))
            if self._stopping.is_set() or peer.gone:
                return
            if not peer.wanted.is_set():
                continue
            not_before_s = time.monotonic() + self._retry_s * random.uniform(0.5, 1.0)
            sock: socket.socket | None = None
            try:
                sock = socket.create_connection(parse_address(peer.address), timeout=HANDSHAKE_TIMEOUT_S)
                if self._tls is not None:
                    sock = self._tls.connect(sock, name, HANDSHAKE_TIMEOUT_S)
                keys = dial(sock, self._identity, name, timeout_s=HANDSHAKE_TIMEOUT_S)
                peer.wanted.clear()
                self._hand_over(name, sock, keys)
                reported = ""
            except (RangelogError, OSError) as error:
                if sock is not None:
                    sock.close()
                if str(error) != reported:
                    reported = str(error)
                    log.warning("raft: cannot reach %s at %s: %s", name, peer.address, error)
            # Also after a success: a peer that closes at once must not be dialled in a loop.
            self._stopping.wait(max(not_before_s - time.monotonic(), 0.0))

    def _hand_over(self, peer: str, sock: socket.socket, keys: SessionKeys) -> None:
        if self._stopping.is_set() or self._on_ready is None:
            sock.close()
            return
        self._on_ready(peer, sock, keys)


def _bind(address: str) -> socket.socket:
    host, port = parse_address(address)
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        server = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise Unavailable(f"cannot listen on {address}: {error.strerror}") from error
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(64)
    except OSError as error:
        server.close()
        raise Unavailable(f"cannot listen on {address}: {error.strerror}") from error
    return server
