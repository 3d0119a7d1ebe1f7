"""The servers of a peer: started on free ports of loopback with their files in one directory, ended by pid.

What holds: no server outlives this process, however it ends (the kernel kills them with it), and no directory the next
run of the same peer.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / "build" / "bench-peers" / "venv"
HOST = "127.0.0.1"
_DEATH_SIGNAL = 1
_LIBC = ctypes.CDLL(None)


class Missing(Exception):
    """The peer cannot be measured here; the message says why."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, from below those that outgoing connections take."""
    found: list[int] = []
    while len(found) < count:
        port = random.randint(12_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def remove_left_over(parent: Path, name: str) -> None:
    """Remove directories of runs that were killed before they could: those whose process is gone."""
    for directory in parent.glob(f"{name}-*-*"):
        pid = directory.name.removeprefix(f"{name}-").partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(directory, ignore_errors=True)


def die_with_parent() -> None:
    """To be called in a child before it becomes another program: the kernel kills it when its parent ends."""
    _LIBC.prctl(_DEATH_SIGNAL, signal.SIGKILL)


class Servers:
    """Processes by name."""

    def __init__(self, name: str) -> None:
        parent = ROOT / "build" / "bench-peers"
        parent.mkdir(parents=True, exist_ok=True)
        remove_left_over(parent, name)
        self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-{os.getpid()}-", dir=parent))
        self.started: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start one; what it says goes to NAME.out in the directory."""
        with (self.directory / f"{name}.out").open("ab") as output:
            self.started[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | dict(env or {}),
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    def finish(self, name: str, limit_s: float = 60.0) -> None:
        """Wait until one has ended by itself. Raises RuntimeError when that takes longer, or it failed."""
        try:
            code = self.started[name].wait(limit_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{name} has not ended after {limit_s:g} s") from None
        if code:
            written = (self.directory / f"{name}.out").read_text(errors="replace")
            raise RuntimeError(f"{name} ended with {code}: {written[-500:].strip()}")

    def pids(self) -> dict[str, int]:
        """Of those that run."""
        return {name: each.pid for name, each in self.started.items() if each.poll() is None}

    def kill(self, name: str) -> None:
        """`kill -9` its whole process group."""
        each = self.started[name]
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
        each.wait()

    def stop(self) -> None:
        """End all and remove the directory."""
        for each in self.started.values():
            if each.poll() is None:
                each.terminate()
        deadline_s = time.monotonic() + 5
        for name, each in self.started.items():
            try:
                each.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(name)
        shutil.rmtree(self.directory, ignore_errors=True)


def wait_port(port: int, limit_s: float = 60.0) -> None:
    """Return once somebody listens there; raises Missing after `limit_s`."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        try:
            socket.create_connection((HOST, port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Missing(f"nobody listens on port {port} after {limit_s:g} s")


async def listening(port: int, limit_s: float = 60.0) -> None:
    """The same for an event loop; a cancellation ends the wait at once."""
    deadline_s = time.monotonic() + limit_s
    while time.monotonic() < deadline_s:
        try:
            _, connection = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        connection.close()
        return
    raise Missing(f"nobody listens on port {port} after {limit_s:g} s")
