"""The network of a cluster under test: a host for each process, and a switch for each direction between two of them.

In namespaces (root only) every host has its own network stack on a private bridge. One direction is cut by a permanent
neighbour entry with a hardware address that nobody has: the packets leave and are dropped without a word, which is what a
partition does; a route that refuses would tell the sender. No packet filter is needed. On loopback nothing can be cut.
"""

from __future__ import annotations

import ctypes
import os
import re
import socket
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from rangelog_cli.local.ports import LOOPBACK

_NOBODY = "02:00:00:00:de:ad"
_OURS = re.compile(r"rlc(\d+)(?:-|$)")
_COMMAND_TIMEOUT_S = 20.0
_ARP_IGNORE = "/proc/sys/net/ipv4/conf/all/arp_ignore"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class Network(ABC):
    """Hosts by name."""

    kind: str
    can_cut: bool

    @abstractmethod
    def add(self, host: str) -> str:
        """Make a host; return its address."""

    @abstractmethod
    def prefix(self, host: str) -> tuple[str, ...]:
        """The command that starts a process on that host, in its own place."""

    @abstractmethod
    def set_cut(self, source: str, target: str, *, cut: bool) -> None:
        """Drop all packets from one host to another (or no longer)."""

    @abstractmethod
    def set_rate(self, host: str, bits_per_s: int | None) -> None:
        """Bound what a host can send; None: no bound."""

    @abstractmethod
    def set_stand_in(self, host: str, target: str, *, on: bool) -> None:
        """Have a host take the address of another for its own: what it sends there reaches listeners at home."""

    @abstractmethod
    def listen(self, host: str, address: str, port: int) -> socket.socket:
        """Listen on a host, from this process."""

    @abstractmethod
    def close(self) -> None:
        """Remove every host. Idempotent."""

    def isolate(self, host: str, others: Iterable[str], *, cut: bool) -> None:
        """Cut both directions between a host and others (or no longer)."""
        for other in others:
            self.set_cut(host, other, cut=cut)
            self.set_cut(other, host, cut=cut)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Loopback(Network):
    """All hosts are this machine."""

    kind = "loopback"
    can_cut = False

    def add(self, host: str) -> str:
        """See Network."""
        return LOOPBACK

    def prefix(self, host: str) -> tuple[str, ...]:
        """See Network."""
        return ()

    def set_cut(self, source: str, target: str, *, cut: bool) -> None:
        """See Network."""
        raise NotImplementedError("loopback cannot be cut")

    def set_rate(self, host: str, bits_per_s: int | None) -> None:
        """See Network."""
        raise NotImplementedError("loopback has no rate")

    def set_stand_in(self, host: str, target: str, *, on: bool) -> None:
        """See Network."""
        raise NotImplementedError("all hosts of loopback have one address")

    def listen(self, host: str, address: str, port: int) -> socket.socket:
        """See Network."""
        return socket.create_server((address, port))

    def close(self) -> None:
        """See Network."""


class Namespaces(Network):
    """A network namespace each, on a bridge that this process has an address on too."""

    kind = "namespaces"
    can_cut = True

    def __init__(self) -> None:
        """Make the bridge. Raises OSError where that is not allowed."""
        sweep()
        self._name = f"rlc{os.getpid()}"
        self._addresses: dict[str, str] = {}
        self._subnet = _free_subnet()
        self._lock = threading.Lock()
        try:
            _ip("link", "add", self._name, "type", "bridge")
            _ip("addr", "add", f"{self._subnet}.1/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
        except OSError:
            self.close()
            raise

    def add(self, host: str) -> str:
        """See Network."""
        space, address = self._space(host), f"{self._subnet}.{len(self._addresses) + 10}"
        outside = f"rlv{os.getpid()}x{len(self._addresses)}"
        self._addresses[host] = address
        _ip("netns", "add", space)
        _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", outside, "master", self._name, "up")
        for arguments in (
            ("addr", "add", f"{address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _ip("-n", space, *arguments)
        return address

    def prefix(self, host: str) -> tuple[str, ...]:
        """See Network. Unlike `ip netns exec`, this leaves the mounts as they are."""
        return ("nsenter", f"--net=/run/netns/{self._space(host)}")

    def set_cut(self, source: str, target: str, *, cut: bool) -> None:
        """See Network."""
        address, space = self._addresses[target], self._space(source)
        if cut:
            _ip("-n", space, "neigh", "replace", address, "lladdr", _NOBODY, "dev", "eth0", "nud", "permanent")
        else:
            with suppress(OSError):  # it was not cut
                _ip("-n", space, "neigh", "del", address, "dev", "eth0")

    def set_rate(self, host: str, bits_per_s: int | None) -> None:
        """See Network. A token bucket: what does not fit its queue is lost."""
        space = self._space(host)
        if bits_per_s is None:
            with suppress(OSError):
                _run("tc", "-n", space, "qdisc", "del", "dev", "eth0", "root")
        else:
            shape = ("rate", str(bits_per_s), "burst", "16k", "latency", "100ms")
            _run("tc", "-n", space, "qdisc", "replace", "dev", "eth0", "root", "tbf", *shape)

    def set_stand_in(self, host: str, target: str, *, on: bool) -> None:
        """See Network. Connections that were there before are reset by the first packet. Nobody else is to notice: the host
        does not answer when others ask who has that address.
        """
        address = f"{self._addresses[target]}/32"
        if on:
            _run(*self.prefix(host), "sh", "-c", f"echo 1 > {_ARP_IGNORE}")
            _ip("-n", self._space(host), "addr", "replace", address, "dev", "lo")
        else:
            with suppress(OSError):  # it was not on
                _ip("-n", self._space(host), "addr", "del", address, "dev", "lo")

    def listen(self, host: str, address: str, port: int) -> socket.socket:
        """See Network. A thread that enters the namespace makes the socket, and ends: the socket stays there."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_listen_in, f"/run/netns/{self._space(host)}", address, port).result()

    def close(self) -> None:
        """See Network."""
        _remove(str(os.getpid()))

    def _space(self, host: str) -> str:
        return f"{self._name}-{host}"


def _listen_in(space: str, address: str, port: int) -> socket.socket:
    with open(space, "rb") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"setns {space}")
    return socket.create_server((address, port))


def open_network(*, wanted: str = "auto") -> Network:
    """Namespaces where the machine allows them (`wanted`: "auto", "namespaces", "loopback")."""
    if wanted == "loopback":
        return Loopback()
    try:
        return Namespaces()
    except (OSError, subprocess.SubprocessError):
        if wanted == "namespaces":
            raise
        return Loopback()


def sweep() -> None:
    """Remove what earlier runs left that could not clean up: names carry the pid of their process."""
    for pid in {match[1] for match in map(_OURS.match, [*_spaces(), *_links()]) if match}:
        if not Path(f"/proc/{pid}").exists():
            _remove(pid)


def _remove(pid: str) -> None:
    for name in _spaces():
        if name.startswith(f"rlc{pid}-"):
            with suppress(OSError):
                _ip("netns", "del", name)
    for name in _links():
        if name == f"rlc{pid}" or name.startswith(f"rlv{pid}x"):
            with suppress(OSError):
                _ip("link", "del", name)


def _spaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _links() -> list[str]:
    return sorted(path.name for path in Path("/sys/class/net").iterdir())


def _free_subnet() -> str:
    """Three bytes of a private network that this machine has no route to."""
    routes = _ip("-o", "route")
    start = os.getpid() % 50
    for step in range(50):
        subnet = f"10.{150 + (start + step) % 50}.{os.getpid() // 50 % 250}"
        if f"{subnet}." not in routes:
            return subnet
    raise OSError("no private network is free")


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def hosts_of(names: Sequence[str], network: Network) -> dict[str, str]:
    """Make a host for each name; name → address."""
    return {name: network.add(name) for name in names}
