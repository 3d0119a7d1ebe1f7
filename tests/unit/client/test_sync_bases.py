"""Blocking classes on a loop that only notes its calls: the ends of blocks, what reads; and calls on a loop's own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from rangelog._client import Client
from rangelog._connecting import Connecting
from rangelog._loop_thread import LoopThread
from rangelog._sync_bases import Entered, Sender, connected
from rangelog._sync_topics import Topics
from rangelog._topics import topics as asynchronous
from rangelog.errors import InvalidArgument
from tests.support.threads import within


class NotingLoop:
    """Notes the names of coroutines, and which of them read."""

    def __init__(self, *, forked: bool = False) -> None:
        self.forked = forked
        self.calls: list[tuple[str, bool]] = []

    def run(self, work: Coroutine[Any, Any, Any], *, reads: bool = False) -> None:
        """Run nothing."""
        self.calls.append((work.__name__, reads))
        work.close()


class Used:
    """An object that is used with `async with`, and perhaps closed by another."""

    def __init__(self, *, closed: bool = False) -> None:
        self.closed = closed

    async def __aenter__(self) -> Used:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...

    async def close(self, *, flush: bool = True, timeout_s: float | None = None) -> None:
        """Close it."""


@pytest.mark.parametrize("kind", [Entered, Sender])
@pytest.mark.parametrize(
    ("forked", "fails", "ends"), [(False, False, True), (False, True, True), (True, True, False), (True, False, True)]
)
def test_the_end_of_a_block(kind: Callable[..., Entered[Used]], forked: bool, fails: bool, ends: bool) -> None:
    """A child that ends by an exception leaves the object to its parent; a child that goes on gets the loop's error."""
    loop = NotingLoop()
    with pytest.raises(KeyError) if fails else nullcontext(), kind(loop, Used()):
        loop.forked = forked
        if fails:
            raise KeyError
    assert [name for name, _ in loop.calls] == ["__aenter__", *(["__aexit__"] if ends else [])]


def test_a_writer_that_its_client_closed() -> None:
    """Neither the end of a block nor `close` asks for anything."""
    loop: Any = NotingLoop()
    with Sender(loop, Used(closed=True)) as sender:
        loop.calls.clear()
        sender.close()
    assert loop.calls == []


def test_calls_that_read() -> None:
    """They say so, for the error of a client that is closed meanwhile; calls that change something do not."""
    loop: Any = NotingLoop()
    topics = Topics(loop, asynchronous.Topics(Mock(), Mock(), Mock()))
    topics.describe("t")
    topics.seal("t")
    assert loop.calls == [("describe", True), ("seal", False)]


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """A loop that ends with the test."""
    made = LoopThread()
    yield made
    within(made.stop)


def test_a_plain_call_runs_on_the_loop(loop: LoopThread) -> None:
    """Its result and its error come to the caller."""
    assert within(lambda: loop.call(threading.current_thread)).name == "rangelog-sync"
    with pytest.raises(ZeroDivisionError):
        within(lambda: loop.call(lambda: 1 // 0))


def test_a_client_that_cannot_be_made_leaves_no_thread() -> None:
    """The error is the caller's."""
    threads = []

    def make() -> Client:
        threads.append(threading.current_thread())
        raise InvalidArgument("no such address")

    with pytest.raises(InvalidArgument):
        within(lambda: connected(Mock(), Connecting(make)))
    assert not threads[0].is_alive()
