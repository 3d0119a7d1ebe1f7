"""What production modules see of time, lots, threads and descriptors while a simulated process runs.

The names are put in place when a process is entered and taken away when it is left, so that nothing outside a simulation
ever sees them. All of them speak of the process that is inside at the moment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pysyncobj.syncobj

from rangelog_pd.consensus import pysyncobj_consensus
from rangelog_pd.consensus.network import connection, transport
from rangelog_pd.consensus.rules import member_changes, raft, replication, snapshots

if TYPE_CHECKING:
    from tests.simulation.raft_process import RaftProcess

_inside: list[RaftProcess] = []


def _process() -> RaftProcess:
    return _inside[-1]


class _SilentLog:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_args, **_more: None


class VirtualThread:
    """Runs its target as one event, a while after `start`, or in `join` if that comes first."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...] = (), **_: object) -> None:
        self._target = target
        self._args = args
        self._owner = _process()
        self._done = False

    def start(self) -> None:
        self._owner.run_aside(self._run)

    def is_alive(self) -> bool:
        return not self._done

    def join(self, timeout: float | None = None) -> None:
        self._run()

    def _run(self) -> None:
        if not self._done:
            self._done = True
            self._target(*self._args)


class EventCounter:
    """An eventfd."""

    def __init__(self) -> None:
        self.value = 0

    def events(self, mask: int) -> int:
        return mask & 1 if self.value else 0


class VirtualPoller:
    """pysyncobj's poller. A process waits between its steps, so only a wait of 0 s looks, and `look` does."""

    def __init__(self, owner: RaftProcess) -> None:
        self._owner = owner
        self._masks: dict[int, int] = {}
        self._callbacks: dict[int, Callable[[int, int], None]] = {}

    def subscribe(self, descr: int, callback: Callable[[int, int], None], mask: int) -> None:
        self._masks[descr] = mask
        self._callbacks[descr] = callback

    def unsubscribe(self, descr: int) -> None:
        self._masks.pop(descr, None)

    def poll(self, timeout: float) -> None:
        if timeout == 0:
            self.look()

    def ready(self) -> list[tuple[int, int]]:
        """Descriptors with what may be done with them."""
        found = []
        for descr in sorted(self._masks):
            waiting = self._owner.descriptors.get(descr)
            events = waiting.events(self._masks[descr]) if waiting is not None else 0
            if events:
                found.append((descr, events))
        return found

    def look(self) -> None:
        """Handle what is there."""
        for descr, events in self.ready():
            self._callbacks[descr](descr, events)


class _Descriptors:
    """`os`, as the transport uses it."""

    EFD_NONBLOCK = os.EFD_NONBLOCK
    EFD_CLOEXEC = os.EFD_CLOEXEC

    def eventfd(self, _value: int, _flags: int) -> int:
        return _process().descriptor(EventCounter())

    def eventfd_write(self, descr: int, value: int) -> None:
        process = _process()
        process.descriptors[descr].value += value
        process.wake()

    def eventfd_read(self, descr: int) -> int:
        counter = _process().descriptors[descr]
        if not counter.value:
            raise BlockingIOError
        value: int = counter.value
        counter.value = 0
        return value

    def close(self, descr: int) -> None:
        _process().forget_descriptor(descr)


def _monotonic() -> float:
    return _process().clock()


_time = SimpleNamespace(monotonic=_monotonic)
_random = SimpleNamespace(
    random=lambda: _process().random.random(), uniform=lambda low, high: _process().random.uniform(low, high)
)
_PLACES: list[tuple[Any, str, Any]] = [
    (pysyncobj.syncobj, "monotonicTime", _monotonic),
    (pysyncobj.syncobj, "random", _random),
    (pysyncobj.syncobj, "logger", _SilentLog()),
    (pysyncobj.syncobj, "createPoller", lambda _kind: _process().poller),
    (
        pysyncobj.syncobj,
        "os",
        SimpleNamespace(path=SimpleNamespace(isfile=lambda _path: _process().disk.exists(_process().snapshot_path))),
    ),
    *[(module, "monotonic", _monotonic) for module in (raft, replication, member_changes)],
    (raft, "random", _random),
    (transport, "time", _time),
    (transport, "os", _Descriptors()),
    (connection, "time", _time),
    (snapshots, "time", _time),
    (snapshots, "threading", SimpleNamespace(Thread=VirtualThread)),
    (pysyncobj_consensus, "time", _time),
    *[(module, "log", _SilentLog()) for module in (raft, member_changes, transport, snapshots, pysyncobj_consensus)],
]


def limits_of(message_bytes_max: int | None) -> list[tuple[Any, str, Any]]:
    """Small messages, so that a log or a snapshot of some kilobytes takes many of them, as a large one does."""
    if message_bytes_max is None:
        return []
    return [
        (replication, "APPEND_BYTES_MAX", message_bytes_max),
        (replication, "_SEND_BACKLOG_BYTES", 2 * message_bytes_max),
        (snapshots, "SNAPSHOT_CHUNK_BYTES", message_bytes_max),
    ]


@contextmanager
def inside(process: RaftProcess) -> Iterator[None]:
    """See the module."""
    before: list[tuple[Any, str, Any]] = []
    if not _inside:
        for module, name, value in (*_PLACES, *process.group.limits):
            before.append((module, name, getattr(module, name)))
            setattr(module, name, value)
    _inside.append(process)
    try:
        yield
    finally:
        _inside.pop()
        for module, name, value in before:
            setattr(module, name, value)
