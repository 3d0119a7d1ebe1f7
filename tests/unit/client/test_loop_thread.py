"""The blocking client's thread: who may wait for it, and that everybody who waits is told something in the end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rangelog._loop_thread import LoopThread
from rangelog_core import errors
from tests.support.threads import WAIT_S, within


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """A loop that is stopped in the end."""
    made = LoopThread()
    yield made
    within(made.stop)


async def _value(value: Any) -> Any:
    await asyncio.sleep(0)
    return value


async def _failure(error: BaseException) -> None:
    raise error


class Endless:
    """An asynchronous generator that gives numbers and then waits for ever; it notes when it is ended."""

    def __init__(self, count: int) -> None:
        self.waits = threading.Event()
        self.ended = threading.Event()
        self._count = count

    async def numbers(self) -> AsyncIterator[int]:
        try:
            for number in range(self._count):
                yield number
            self.waits.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended.set()


def test_results_and_errors(loop: LoopThread) -> None:
    """A call returns what the coroutine returns and raises what it raises, from any thread."""
    assert within(lambda: loop.run(_value(3))) == 3
    with pytest.raises(errors.StreamNotFound):
        within(lambda: loop.run(_failure(errors.StreamNotFound("none"))))
    with pytest.raises(concurrent.futures.CancelledError):
        within(lambda: loop.run(_failure(asyncio.CancelledError())))
    assert within(lambda: [within(lambda n=n: loop.run(_value(n))) for n in range(20)]) == list(range(20))


def test_stop_wakes_whoever_waits(loop: LoopThread) -> None:
    """A thread that waits for a call, and one that iterates, get an error when another thread stops the loop."""
    endless, told = Endless(2), []
    waits = threading.Event()

    async def forever() -> None:
        waits.set()
        await asyncio.Event().wait()

    def wait(work: Callable[[], Any]) -> None:
        try:
            work()
        except errors.RangelogError as error:
            told.append(error)

    threads = [
        threading.Thread(target=wait, args=(work,), daemon=True)
        for work in (lambda: loop.run(forever()), lambda: list(loop.iterate(endless.numbers())))
    ]
    for thread in threads:
        thread.start()
    assert waits.wait(WAIT_S) and endless.waits.wait(WAIT_S)
    within(loop.stop)
    for thread in threads:
        thread.join(WAIT_S)
    assert [type(error) for error in told] == [errors.ClientClosed] * 2
    assert sorted(error.outcome_unknown for error in told) == [False, True]  # reading changes nothing
    assert endless.ended.is_set()


def test_after_stop(loop: LoopThread) -> None:
    """A call after stop is refused, and its coroutine is not left over; stop again, from several threads, does nothing."""
    stops = [threading.Thread(target=loop.stop, daemon=True) for _ in range(4)]
    for thread in stops:
        thread.start()
    for thread in stops:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    within(loop.stop)
    with pytest.raises(errors.ClientClosed, match="closed"):
        within(lambda: loop.run(_value(1)))
    with pytest.raises(errors.ClientClosed, match="closed"):
        within(lambda: list(loop.iterate(Endless(1).numbers())))


def test_the_last_call(loop: LoopThread) -> None:
    """What is to be done last is done on the loop, before its tasks are cancelled, once; its failure ends nothing else."""
    done: list[str] = []

    async def last() -> None:
        await asyncio.sleep(0)
        done.append(threading.current_thread().name)
        raise errors.InternalError("no matter")

    within(lambda: loop.stop(last))
    within(lambda: loop.stop(last))
    assert done == ["rangelog-sync"]


def test_a_task_that_will_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop is bounded: whoever waits for a task that takes no notice of being cancelled is told all the same."""
    monkeypatch.setattr("rangelog._loop_thread.END_TIMEOUT_S", 0.05)
    loop = LoopThread()
    waits = threading.Event()

    async def stubborn() -> None:
        waits.set()
        for _ in range(20):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    future: concurrent.futures.Future[Any] = concurrent.futures.Future()

    def wait() -> None:
        try:
            loop.run(stubborn())
        except errors.RangelogError as error:
            future.set_result(error)

    threading.Thread(target=wait, daemon=True).start()
    assert waits.wait(WAIT_S)
    within(loop.stop)
    assert isinstance(future.result(WAIT_S), errors.Unavailable)


def test_on_its_own_thread(loop: LoopThread) -> None:
    """A blocking call, iterating and stopping are refused on the loop's own thread, which goes on."""

    async def block() -> list[type[BaseException]]:
        refused: list[type[BaseException]] = []
        for call in (lambda: loop.run(_value(1)), lambda: list(loop.iterate(Endless(1).numbers())), loop.stop):
            try:
                call()
            except errors.RangelogError as error:
                refused.append(type(error))
        return refused

    assert within(lambda: loop.run(block())) == [errors.InvalidArgument] * 3
    assert within(lambda: loop.run(_value(1))) == 1


def test_generators_that_are_given_up(loop: LoopThread) -> None:
    """A generator that is dropped, closed, or found by the collector on the loop's own thread is ended, without a wait."""
    dropped, closed, collected = (Endless(2) for _ in range(3))
    assert within(lambda: next(loop.iterate(dropped.numbers()))) == 0
    assert dropped.ended.wait(WAIT_S)

    def close() -> None:
        numbers = loop.iterate(closed.numbers())
        next(numbers)
        numbers.close()

    within(close)
    assert closed.ended.wait(WAIT_S)

    def abandon() -> None:
        numbers = loop.iterate(collected.numbers())
        next(numbers)
        cycle: list[Any] = [numbers]
        cycle.append(cycle)

    async def collect() -> int:
        return gc.collect()

    gc.disable()
    try:
        within(abandon)
        within(lambda: loop.run(collect()))
    finally:
        gc.enable()
    assert collected.ended.wait(WAIT_S)


def test_a_generator_that_outlives_the_loop() -> None:
    """Ending a generator after stop waits for nothing and says nothing."""
    loop, endless = LoopThread(), Endless(2)
    numbers = loop.iterate(endless.numbers())
    assert within(lambda: next(numbers)) == 0
    within(loop.stop)
    assert endless.ended.is_set()
    within(numbers.close)


def _in_a_child(work: Callable[[], Any]) -> str:
    """What `work` raises in a forked child, or "hangs"; read through a pipe."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(5)
        told = "nothing"
        try:
            work()
        except BaseException as error:
            told = type(error).__name__
        os.write(writable, told.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return told or "hangs"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_in_a_forked_child(loop: LoopThread) -> None:
    """In a child a call and a step of a generator are refused, stop and clean-up do nothing; the parent's loop goes on."""
    numbers = loop.iterate(Endless(3).numbers())
    assert within(lambda: next(numbers)) == 0
    assert _in_a_child(lambda: loop.run(_value(1))) == "InvalidArgument"
    assert _in_a_child(lambda: next(numbers)) == "InvalidArgument"
    assert _in_a_child(numbers.close) == "nothing"
    assert _in_a_child(loop.stop) == "nothing"
    assert within(lambda: next(numbers)) == 1


_INTERRUPTED = """
import asyncio, os, signal, threading
from rangelog._loop_thread import LoopThread

signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
loop, ended = LoopThread(), []

async def numbers():
    try:
        yield 1
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        ended.append("generator")

async def call():
    try:
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        ended.append("call")

for work in (lambda: loop.run(call()), lambda: list(loop.iterate(numbers()))):
    try:
        work()
    except KeyboardInterrupt:
        print(ended[-1])

async def three():
    return 3

print(loop.run(three()))
loop.stop()
"""


def test_ctrl_c() -> None:
    """Ctrl-C cancels the call and waits until it ended; the loop can be used again, and nothing is printed."""
    run = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, timeout=30)
    assert (run.returncode, run.stdout.split(), run.stderr) == (0, ["call", "generator", "3"], "")
