"""Virtual time for unit tests: the loop and the clocks of the simulator, for a test that is marked `virtual`.

Time stands still while there is something to do, and then jumps to the next timer: a test waits for hours in no time, and
measures them exactly. There is one thread and no operating system: connections are in memory, work for an executor runs on
the loop, in one piece and in no time, and a test that starts a thread or a process, or opens a socket, fails.
"""

from __future__ import annotations

import itertools
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn
from unittest import mock

import grpc
import pytest

from tests.simulation.virtual_network import Network
from tests.simulation.virtual_time import VirtualLoop, clocks_and_chance_of

LOOP: ContextVar[VirtualLoop] = ContextVar("LOOP")
"""The loop of the test that runs."""
TURNS_MAX = 50_000
"""So much happens at one instant only where a loop of `sleep(0)` waits for a timer."""
SEED = 33
"""What a test draws is the same in every run."""


def _refuse(what: str) -> Callable[..., NoReturn]:
    def refuse(*_args: Any, **_more: Any) -> NoReturn:
        pytest.fail(f"a test that is marked `virtual` {what}: take the mark away, or use what is in memory")

    return refuse


class Loopback(Network):
    """The simulator's network as one machine: what is sent arrives at once."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, lambda line: None)
        self.jitter = 0.0
        self._ports = itertools.count(40_000)

    def delay_s(self, source: str, target: str) -> float:
        """None."""
        return 0.0

    def bind(self, host: str, port: int) -> Bound:
        """A listener's socket, on a free port if none is named."""
        return Bound((host, port or next(self._ports)))


class Bound:
    """What a listener has of a socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        """See socket.socket."""
        return self._address


class UnitLoop(VirtualLoop):
    """A loop whose connections are in memory, and whose unhandled errors are logged, as on a real one."""

    def __init__(self) -> None:
        super().__init__(random.Random(SEED))
        self.thread_delay_s = lambda: 0.0
        self.network = Loopback(self)
        self.set_exception_handler(None)
        self._moved_at = 0

    def _run_once(self) -> None:
        if not self._ready:  # type: ignore[attr-defined]
            self._moved_at = self.steps
        if self.steps - self._moved_at > TURNS_MAX:
            self._moved_at = self.steps
            raise RuntimeError(f"time stands still: {TURNS_MAX} events at {self.now:g} s; what waits: {self.waiting()}")
        super()._run_once()

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        """See Network.listen."""
        return self.network.listen(factory, more.get("sock") or self.network.bind(host, port))

    add_reader = add_writer = _refuse("waits for a socket")  # type: ignore[assignment]
    subprocess_exec = subprocess_shell = _refuse("starts a process")  # type: ignore[assignment]


@contextmanager
def virtual_test() -> Iterator[None]:
    """A loop of its own, every clock on it, and no way out of it, for as long as this lasts."""
    loop = UnitLoop()
    with ExitStack() as stack:
        stack.enter_context(clocks_and_chance_of(loop, random.Random(SEED)))
        for owner, name, what in (
            (threading.Thread, "start", "starts a thread"),
            (subprocess.Popen, "__init__", "starts a process"),
            (socket.socket, "connect", "opens a socket"),
            (socket.socket, "listen", "opens a socket"),
            (time, "sleep", "sleeps beside the loop"),
            (grpc.aio, "server", "serves gRPC"),
            (grpc.aio, "insecure_channel", "opens a gRPC channel"),
            (grpc.aio, "secure_channel", "opens a gRPC channel"),
        ):
            stack.enter_context(mock.patch.object(owner, name, _refuse(what)))
        stack.callback(LOOP.reset, LOOP.set(loop))
        yield
