"""Connections between simulated members: in order and whole while they live, and ended by a crash as real ones are.

A killed process's ends are closed by its kernel; a machine without power says nothing, and answers "reset" when it is
back. What the world loses is sent again, later and later. A window bounds what is on its way.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rangelog_pd.consensus.network.dialing import HANDSHAKE_TIMEOUT_S, PATIENCE_S
from rangelog_pd.consensus.network.handshake import SessionKeys

if TYPE_CHECKING:
    from tests.simulation.raft_process import RaftProcess

WINDOW_BYTES = 1024 * 1024
RESEND_MIN_S, RESEND_MAX_S = 0.2, 1.0
PACKET_BYTES_MIN = 60
READ, WRITE, ERROR = 1, 2, 4


class _Packet:
    def __init__(self, data: bytes | None) -> None:
        self.data = data  # None: nothing more comes
        self.arrived = False


class VirtualSocket:
    """One end of a connection."""

    def __init__(self, owner: RaftProcess, peer: str) -> None:
        self.owner = owner
        self.peer = peer
        self.other: VirtualSocket
        self.closed = False
        self._fd = owner.descriptor(self)
        self._received = bytearray()
        self._ended = False
        self._reset = False
        self._silent = False
        self._way: collections.deque[_Packet] = collections.deque()
        self._way_bytes = 0
        self._blocked = False

    # ---- what Connection calls

    def fileno(self) -> int:
        return -1 if self.closed else self._fd

    def setblocking(self, flag: bool) -> None:
        pass

    def setsockopt(self, *_: int) -> None:
        pass

    def send(self, data: bytes | bytearray) -> int:
        self.owner.check_running()
        if self._reset or self.closed:
            raise ConnectionResetError(104, "Connection reset by peer")
        room = self.owner.group.window_bytes - self._way_bytes
        if room <= 0:
            self._blocked = True
            raise BlockingIOError
        part = bytes(data[:room])
        self.owner.leaves(self, part)
        self._put(_Packet(part))
        return len(part)

    def recv(self, length: int) -> bytes:
        self.owner.check_running()
        if self._received:
            data = bytes(self._received[:length])
            del self._received[:length]
            return data
        if self._reset:
            raise ConnectionResetError(104, "Connection reset by peer")
        if self._ended:
            return b""
        raise BlockingIOError

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.owner.forget_descriptor(self._fd)
            if self.owner.running:
                self._put(_Packet(None))

    # ---- what the network and the process do

    def events(self, mask: int) -> int:
        """What a poller would say."""
        found = 0
        if self._received or self._ended or self._reset:
            found |= mask & READ
        if self._way_bytes < self.owner.group.window_bytes or self._reset:
            found |= mask & WRITE
        if self._reset:
            found |= mask & ERROR
        return found

    def owner_died(self, *, silently: bool) -> None:
        """The kernel closes it, or the machine is gone: then nothing of it arrives any more."""
        if self.closed:
            return
        self.closed = True
        if silently:
            self._silent = True
        elif self.owner.world.random.random() < 0.5:
            self._silent = True
            self._tell_reset(self.other)
        else:
            self._put(_Packet(None))

    def _put(self, packet: _Packet) -> None:
        if self._silent or self._reset:
            return
        self._way.append(packet)
        self._way_bytes += len(packet.data or b"")
        self._transmit(packet, RESEND_MIN_S)

    def _transmit(self, packet: _Packet, resend_s: float) -> None:
        if self._silent or self._reset:
            return
        size = max(len(packet.data or b""), PACKET_BYTES_MIN)
        world = self.owner.world
        delays = world.deliver(self.owner.name, self.peer, size)
        lag_s = self.owner.elapsed_s
        if not delays:
            self._resend(packet, resend_s)
            return
        for delay_s in delays:
            world.call_later(lag_s + delay_s, lambda: self._arrive(packet))

    def _resend(self, packet: _Packet, resend_s: float) -> None:
        wait_s = self.owner.elapsed_s + resend_s
        self.owner.world.call_later(wait_s, lambda: self._transmit(packet, min(resend_s * 2, RESEND_MAX_S)))

    def _arrive(self, packet: _Packet) -> None:
        target = self.other
        if self._silent or packet.arrived:
            return
        if not target.owner.machine_up:
            self._resend(packet, RESEND_MAX_S)
            return
        if target.closed:
            if target.owner.world.deliver(target.owner.name, self.owner.name, PACKET_BYTES_MIN):
                self.be_reset()
            else:
                self._resend(packet, RESEND_MAX_S)
            return
        packet.arrived = True
        while self._way and self._way[0].arrived:
            data = self._way.popleft().data
            if data is None:
                target._ended = True
            else:
                target._received += data
                self._way_bytes -= len(data)
        target.owner.wake()
        if self._blocked:
            self._blocked = False
            self.owner.wake()

    def _tell_reset(self, target: VirtualSocket) -> None:
        delays = self.owner.world.deliver(self.owner.name, target.owner.name, PACKET_BYTES_MIN)
        if delays:
            self.owner.world.call_later(delays[0], target.be_reset)

    def be_reset(self) -> None:
        """The other end does not exist."""
        if not self._reset:
            self._reset = True
            self._way.clear()
            self._way_bytes = 0
            if not self.closed:
                self.owner.count("connections reset")
                self.owner.wake()


def connect(dialer: RaftProcess, listener: RaftProcess) -> tuple[VirtualSocket, VirtualSocket]:
    """The two ends of a new connection."""
    one, other = VirtualSocket(dialer, listener.name), VirtualSocket(listener, dialer.name)
    one.other, other.other = other, one
    return one, other


class _Dialled:
    """A member to be dialled."""

    def __init__(self) -> None:
        self.wanted = False
        self.under_way = False
        self.not_before_s = 0.0
        self.gone = False


class VirtualDialing:
    """Stands in for `Dialing`: the greater name dials, again and again; the other one if it is not called for a while."""

    def __init__(self, owner: RaftProcess, *, retry_s: float) -> None:
        self._owner = owner
        self._retry_s = retry_s
        self._peers: dict[str, _Dialled] = {}
        self._stopped = False
        self.on_ready: Callable[[str, Any, SessionKeys], None] | None = None

    def start(self, on_ready: Callable[[str, Any, SessionKeys], None]) -> None:
        """See Dialing."""
        self.on_ready = on_ready
        self._owner.dialing = self

    def follow(self, peers: dict[str, str]) -> None:
        """See Dialing."""
        for name in list(self._peers):
            if name not in peers:
                self._peers.pop(name).gone = True
        for name in peers:
            if name not in self._peers:
                self._peers[name] = _Dialled()
                self.disconnected(name)

    def called(self, name: str) -> None:
        """A peer dialled this member."""
        if name in self._peers:
            self._peers[name].wanted = False

    def disconnected(self, name: str) -> None:
        """See Dialing."""
        peer = self._peers.get(name)
        if peer is not None:
            peer.wanted = True
            patience_s = PATIENCE_S * self._owner.world.random.uniform(1.0, 2.0) if name > self._owner.name else 0.0
            self._later(name, peer, max(peer.not_before_s - self._owner.world.now, patience_s))

    def stop(self) -> None:
        """See Dialing."""
        self._stopped = True
        self._owner.dialing = None

    @property
    def _over(self) -> bool:
        return self._stopped or self._owner.dialing is not self

    def _later(self, name: str, peer: _Dialled, wait_s: float) -> None:
        if not peer.under_way:
            peer.under_way = True
            self._owner.world.call_later(wait_s, lambda: self._dial(name, peer))

    def _dial(self, name: str, peer: _Dialled) -> None:
        if self._over or peer.gone or not peer.wanted or name not in self._owner.group.processes:
            peer.under_way = False
            return
        world, own = self._owner.world, self._owner.name
        peer.not_before_s = world.now + self._retry_s * world.random.uniform(0.5, 1.0)
        way_s = 0.0
        for source, target in [(own, name), (name, own)] * 2:
            delays = world.deliver(source, target, PACKET_BYTES_MIN)
            way_s = way_s + delays[0] if delays else HANDSHAKE_TIMEOUT_S
            if way_s >= HANDSHAKE_TIMEOUT_S:
                world.call_later(HANDSHAKE_TIMEOUT_S, lambda: self._again(name, peer))
                return
        world.call_later(way_s, lambda: self._connected(name, peer))

    def _again(self, name: str, peer: _Dialled) -> None:
        peer.under_way = False
        if not self._over and not peer.gone and peer.wanted:
            self.disconnected(name)

    def _connected(self, name: str, peer: _Dialled) -> None:
        other = self._owner.peer(name)
        if self._over or peer.gone:
            return
        if not other.machine_up or other.paused or self._owner.paused:
            self._owner.world.call_later(HANDSHAKE_TIMEOUT_S, lambda: self._again(name, peer))
            return
        listening = other.dialing
        if not other.running or listening is None or listening.on_ready is None or self.on_ready is None:
            self._again(name, peer)
            return
        peer.under_way = False
        peer.wanted = False
        one, two = connect(self._owner, other)
        self._owner.count("connections made")
        listening.called(self._owner.name)
        with other.inside():
            listening.on_ready(self._owner.name, two, SessionKeys(b"listener", b"dialer"))
        with self._owner.inside():
            self.on_ready(name, one, SessionKeys(b"dialer", b"listener"))
