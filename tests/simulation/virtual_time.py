"""An event loop without a clock, sockets or threads: when nothing is due, time jumps to what is due next.

Every callback belongs to the simulated process in whose context it was scheduled. A process that died runs nothing any
more, not even its `finally` blocks; one that is paused runs what fell due once it goes on. The same calls in the same
order give the same run: nothing here depends on addresses, hashes or the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import heapq
import itertools
import logging
import os
import random
import socket
import sys
import time
import traceback
import types
import warnings
from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from unittest import mock

WALL_S = 1_800_000_000.0
"""Where the wall clock stands at the start of every run."""


class Process:
    """One life of one simulated process."""

    def __init__(self, name: str, wall_skew_s: float = 0.0) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.wall_skew_s = wall_skew_s
        self.is_earlier = False
        """Whether it runs the earlier program: virtual_versions."""
        self.parked: list[asyncio.Handle] = []
        self.failed: Callable[[str], None] = lambda message: None

    def __repr__(self) -> str:
        return self.name


PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("PROCESS")
WORLD = Process("world")


END_S = 7_200.0
"""Longer than all that a run waits for: one that gets so far waits for what never comes, and would fill the memory."""
STEPS_MAX = 1_000_000
"""Thirty times what a seed takes: a program that makes work for itself, and never comes to an end of it."""


def here() -> Process:
    """The process whose code runs now."""
    return PROCESS.get(WORLD)


class _Numbered:
    """Hashed by when it was made: sets of tasks and futures are walked in the same order in every run."""

    _number: int

    def __hash__(self) -> int:
        return self._number


class VirtualTask(_Numbered, asyncio.Task[Any]):
    """A task of the loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: VirtualLoop, **more: Any) -> None:
        self._number = loop.next_number()
        super().__init__(coroutine, loop=loop, **more)


class VirtualFuture(_Numbered, asyncio.Future[Any]):
    """A future of the loop."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. `network` gives it connections, `disk_delay_s` says how long work on a thread takes."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.chance = chance
        self.problems: list[str] = []
        self.network: Any = None
        self.thread_delay_s: Callable[[], float] = lambda: chance.expovariate(1 / 0.0005)
        self._keep: list[Any] = []  # coroutines of the dead: they must not be finalised in the middle of a run
        self._owners: dict[Any, Process] = {}
        self.set_exception_handler(self._unhandled)
        self.set_task_factory(self._make_task)
        self._clock_resolution = 0.0
        self._numbers = itertools.count()

    def next_number(self) -> int:
        """The number of the next task or future."""
        return next(self._numbers)

    def create_future(self) -> asyncio.Future[Any]:
        """A future that is hashed by its number."""
        return VirtualFuture(loop=self)

    def time(self) -> float:
        """Virtual seconds."""
        return self.now

    # ---- running

    def _run_once(self) -> None:
        ready, scheduled = self._ready, self._scheduled  # type: ignore[attr-defined]
        if not ready:
            while scheduled and scheduled[0]._cancelled:
                scheduled[0]._scheduled = False
                heapq.heappop(scheduled)
            if not scheduled:
                raise RuntimeError(f"nothing will ever happen again; what waits: {self.waiting()}")
            self.now = max(self.now, scheduled[0]._when)
            assert self.now <= END_S, f"the run does not end: {END_S:g} s have passed"
            while scheduled and scheduled[0]._when <= self.now:
                handle = heapq.heappop(scheduled)
                handle._scheduled = False
                if not handle._cancelled:
                    ready.append(handle)
        assert self.steps <= STEPS_MAX, f"the run does not end: {STEPS_MAX} events in {self.now:.0f} s"
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS, WORLD)
            if not process.alive:
                self._keep.append(handle)
            elif process.paused:
                process.parked.append(handle)
            else:
                self.steps += 1
                handle._run()

    def waiting(self) -> str:
        """Every task that has not ended, with the line on which it waits."""
        frames = {task: task.get_stack(limit=1) for task in self._owners if not task.done()}
        return ", ".join(
            f"{task.get_name()} at {frame[0].f_code.co_filename}:{frame[0].f_lineno}"
            for task, frame in frames.items()
            if frame
        )

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        """There is one thread."""
        return self.call_soon(callback, *args, context=context)

    def _make_task(self, loop: Any, coroutine: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
        task = VirtualTask(coroutine, loop=self, **more)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._keep.append(task)
        context = more.get("context")
        self._owners[task] = context.get(PROCESS, WORLD) if context is not None else here()
        return task

    def call_in(self, process: Process, delay_s: float, call: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
        """Do something later as that process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        return self.call_at(self.now + delay_s, call, *args, context=context)

    def spawn(self, process: Process, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task as that process."""
        context = contextvars.copy_context()
        context.run(PROCESS.set, process)
        task = self._make_task(self, coroutine, context=context)
        task.add_done_callback(self._ended, context=context)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """The main work of a process ended; it has no reason to fail."""
        if not task.cancelled() and (error := task.exception()) is not None:
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            self.problems.append(f"{here().name} ended: {type(error).__name__}: {error}\n{where}")

    def pause(self, process: Process) -> None:
        """It runs nothing until `resume`."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """What fell due meanwhile runs now, in order."""
        process.paused = False
        self._ready.extendleft(reversed(process.parked))  # type: ignore[attr-defined]
        process.parked = []

    def _unhandled(self, loop: Any, context: dict[str, Any]) -> None:
        error = context.get("exception")
        owner = context.get("handle") or context.get("task") or context.get("future")
        process = self._process_of(owner)
        if process.alive:
            where = "".join(traceback.format_tb(error.__traceback__)[-4:]) if error is not None else ""
            self.problems.append(f"{process.name}: unhandled {error!r} ({context.get('message')})\n{where}")

    def _process_of(self, owner: Any) -> Process:
        """Whose callback or task it was."""
        if isinstance(owner, asyncio.Handle):
            return owner._context.get(PROCESS, WORLD)  # type: ignore[attr-defined,no-any-return]
        return self._owners.get(owner, WORLD)

    # ---- threads, sockets

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Runs it in one piece, a little later."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except BaseException as error:
                if isinstance(error, StopIteration):
                    error = RuntimeError("StopIteration on a thread")
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.thread_delay_s(), run)
        return future

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        """See Network.connect."""
        return await self.network.connect(factory, host, port)

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **more: Any) -> Any:
        """See Network.listen."""
        return self.network.listen(factory, more.get("sock"))

    def _process_events(self, event_list: Any) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps."""

    async def shutdown_default_executor(self, timeout: Any = None) -> None:
        """There is none."""


@contextlib.contextmanager
def virtual_world(seed: int) -> Iterator[VirtualLoop]:
    """A loop, with every clock and every source of chance in its hands for as long as this lasts."""
    chance = random.Random(seed)
    loop = VirtualLoop(random.Random(chance.random()))
    with no_last_words():
        try:
            with clocks_and_chance_of(loop, chance):
                yield loop
        finally:
            asyncio.set_event_loop(None)
            _bury(loop)


@contextlib.contextmanager
def clocks_and_chance_of(loop: VirtualLoop, chance: random.Random) -> Iterator[None]:
    """Every clock shows the time of the loop, and every source of chance follows from `chance`, for as long as this lasts."""
    bytes_of = random.Random(chance.random())
    state = random.getstate()
    random.seed(chance.random())

    def wall() -> float:
        return WALL_S + loop.now + here().wall_skew_s

    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, state)
        for patch in (
            mock.patch.object(time, "monotonic", lambda: loop.now),
            mock.patch.object(time, "monotonic_ns", lambda: int(loop.now * 1e9)),
            mock.patch.object(time, "perf_counter", lambda: loop.now),
            mock.patch.object(time, "time", wall),
            mock.patch.object(time, "time_ns", lambda: int(wall() * 1e9)),
            mock.patch.object(os, "getpid", lambda: 1),  # clients say who they are
            mock.patch.object(socket, "gethostname", lambda: "host"),
            mock.patch.object(os, "urandom", bytes_of.randbytes),
            mock.patch.object(random, "_urandom", bytes_of.randbytes),
        ):
            stack.enter_context(patch)
        yield


@contextlib.contextmanager
def no_last_words() -> Iterator[None]:
    """Collect no garbage until the end, and then in silence: coroutines of processes that died end where they stood.

    Nothing is logged meanwhile: a test runner keeps records, and with them the frames that they name, until its test is over.
    What is left of a world then ends wherever a collection happens to strike; inside `ast.parse` that is a SystemError.
    """
    hook, is_collecting, disabled = sys.unraisablehook, gc.isenabled(), logging.root.manager.disable
    sys.unraisablehook = lambda args: None
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        yield
        assert not gc.isenabled(), "the collector was switched on: a run would depend on when it strikes"
    finally:
        while gc.collect():  # one that ends in a `finally` lives until the next collection
            pass
        sys.unraisablehook = hook
        logging.disable(disabled)
        if is_collecting:
            gc.enable()


def _bury(loop: VirtualLoop) -> None:
    """Let go of everything that never ended, without running any of it."""
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of dead processes that never began
    loop._keep.clear()
    loop._owners.clear()
    loop._ready.clear()  # type: ignore[attr-defined]
    loop._scheduled.clear()  # type: ignore[attr-defined]
    gc.collect()
    loop.network = None
    loop.close()
    gc.collect()


def frozen(**values: Any) -> types.SimpleNamespace:
    """A bag of attributes."""
    return types.SimpleNamespace(**values)
