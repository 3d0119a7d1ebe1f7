"""Tests in virtual time: what their clocks show, and how they fail when they ask for what is real or never comes."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

import grpc
import pytest

from tests.support.virtual_loop import LOOP, virtual_test

REAL_S = time.monotonic


@pytest.mark.virtual
async def test_hours_pass_at_once_on_every_clock() -> None:
    """The loop's clock and those that the code under test reads itself are one."""
    began_s, wall_s = REAL_S(), time.time()
    await asyncio.sleep(3_600)
    assert asyncio.get_running_loop().time() == time.monotonic() == time.perf_counter() == 3_600
    assert time.time() - wall_s == 3_600
    assert REAL_S() - began_s < 1_800


@pytest.fixture
def begun_s() -> float:
    """When the test was made ready."""
    return time.monotonic()


@pytest.fixture
async def ended() -> Iterator[None]:
    """Sleeps before and after the test."""
    await asyncio.sleep(2)
    yield
    await asyncio.sleep(2)
    assert time.monotonic() == 9


@pytest.mark.virtual
async def test_fixtures_share_the_clock_of_their_test(begun_s: float, ended: None) -> None:
    """Those that do not await see it as well, and all come to their end on it."""
    assert (begun_s, time.monotonic()) == (0, 2)
    await asyncio.sleep(5)


@pytest.mark.virtual
async def test_a_time_limit_is_exact() -> None:
    """To the last digit."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.25):
            await asyncio.Event().wait()
    assert time.monotonic() == 0.25


@pytest.mark.virtual
async def test_connections_are_in_memory() -> None:
    """Streams of asyncio in both directions, until one side hangs up."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(b"echo\n")
    assert await reader.read() == b"echo\n"
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)


@pytest.mark.virtual
async def test_work_on_a_thread_is_done_on_the_loop_and_takes_no_time() -> None:
    """In one piece."""
    assert await asyncio.to_thread(threading.get_ident) == threading.get_ident()
    assert time.monotonic() == 0


def run(test: Callable[[], Awaitable[None]]) -> None:
    """As a test in virtual time."""
    with virtual_test(), asyncio.Runner(loop_factory=LOOP.get) as runner:
        runner.run(test())  # type: ignore[arg-type]


def test_what_never_comes_fails_with_who_waits_for_it() -> None:
    """Nothing to do and no timer."""

    async def test() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match=r"nothing will ever happen again; what waits: Task-\d+ at .*test_virtual"):
        run(test)


def test_a_loop_that_does_not_let_time_pass_fails() -> None:
    """`sleep(0)` waits for a timer that never falls due."""

    async def test() -> None:
        async with asyncio.timeout(1):
            while True:
                await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="time stands still: 50000 events at 0 s"):
        run(test)


@pytest.mark.parametrize(
    ("use", "what"),
    [
        (lambda: threading.Thread(target=int).start(), "starts a thread"),
        (lambda: subprocess.run(["true"], check=True), "starts a process"),
        (lambda: socket.create_connection(("127.0.0.1", 1)), "opens a socket"),
        (lambda: socket.create_server(("127.0.0.1", 0)), "opens a socket"),
        (lambda: asyncio.get_running_loop().add_reader(0, int), "waits for a socket"),
        (lambda: time.sleep(0), "sleeps beside the loop"),
        (lambda: grpc.aio.server(), "serves gRPC"),
        (lambda: grpc.aio.insecure_channel("127.0.0.1:1"), "opens a gRPC channel"),
    ],
)
def test_what_is_real_is_refused(use: Callable[[], object], what: str) -> None:
    """In a sentence that names it; no handler of the code under test hides it."""

    async def test() -> None:
        try:
            use()
        except Exception:
            return

    with pytest.raises(pytest.fail.Exception, match=f"marked `virtual` {what}"):
        run(test)


def test_clocks_and_chance_are_real_again_afterwards() -> None:
    """Nothing leaks into the next test, and what a test draws is the same in every run."""
    drawn: list[float] = []

    async def test() -> None:
        await asyncio.sleep(1)
        drawn.append(random.random())

    before = (time.monotonic, time.time, time.sleep, threading.Thread.start, socket.socket.connect, random.getstate())
    run(test)
    run(test)
    after = (time.monotonic, time.time, time.sleep, threading.Thread.start, socket.socket.connect, random.getstate())
    assert before == after
    assert drawn[0] == drawn[1]
