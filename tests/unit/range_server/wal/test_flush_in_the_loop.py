"""Who flushes: the loop what little gathered in its turn, the thread everything else; the order of entries stays."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rangelog_server.wal.committer import LogFailed
from rangelog_server.wal.entry import Kind
from rangelog_server.wal.log import HERE_BYTES_MAX, HERE_FLUSH_S_MAX, Wal
from tests.fakes.faces import LogDisk
from tests.support.waiting import until


class WatchedIo(LogDisk):
    """Notes on which thread each flush was, and how many entries had been submitted; `during` is called in each."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes: list[str] = []
        self.during: Callable[[], None] = lambda: None

    def fdatasync(self, fd: int) -> None:
        """See Io."""
        self.during()
        self.flushes.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        super().fdatasync(fd)


class Log:
    """A started log and what it told."""

    def __init__(self) -> None:
        self.io = WatchedIo()
        self.wal = Wal(Path("/log"), 1, io=self.io, segment_bytes=1 << 20)
        self.wal.open()
        self.flushed: list[Any] = []
        self.wal.on_flushed = self.flushed.extend
        loop = asyncio.get_running_loop()
        self.wal.start(loop.call_soon_threadsafe, loop.call_soon)
        self.count = 0

    async def ready(self) -> Log:
        """Once the spare segments are made."""
        await until(lambda: not (self.wal.waits_for_segment or len(self.wal._spares) < 2), within_s=10)
        self.io.flushes.clear()
        return self

    def submit(self, size: int = 100) -> None:
        """One entry more, kicked."""
        self.wal.submit(Kind.BATCHES, 1, 0, b"x" * size, b"", 0, self.count)
        self.count += 1
        self.wal.kick()

    async def settled(self) -> None:
        """Until all is flushed."""
        await until(lambda: len(self.flushed) >= self.count, within_s=10)
        assert self.flushed == list(range(self.count))
        assert not self.wal.pending_bytes


@pytest.fixture
def logs() -> Iterator[list[Log]]:
    """Closed at the end."""
    made: list[Log] = []
    yield made
    for log in made:
        log.wal.close()


async def open_log(logs: list[Log]) -> Log:
    """Another log."""
    logs.append(Log())
    return await logs[-1].ready()


async def test_what_one_turn_brings_is_one_flush_in_the_loop(logs: list[Log]) -> None:
    """Nothing waits for another thread."""
    log = await open_log(logs)
    for _ in range(3):
        log.wal._committer.last_commit_s = 0.0  # the one before was quick, whatever the machine did meanwhile
        for _ in range(5):
            log.submit()
        assert log.count - len(log.flushed) == 5
        await asyncio.sleep(0)
        await log.settled()
    assert log.io.flushes == ["loop"] * 3


async def test_much_is_flushed_by_the_thread(logs: list[Log]) -> None:
    """The loop goes on; what comes meanwhile waits its turn behind it, however little it is."""
    log = await open_log(logs)
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert goes_on.wait(10)

    log.io.during = hold
    log.submit(HERE_BYTES_MAX + 1)
    await asyncio.to_thread(begun.wait, 10)
    log.submit()
    await asyncio.sleep(0)
    assert log.io.flushes == []
    goes_on.set()
    await log.settled()
    assert set(log.io.flushes) == {"thread"}
    log.wal._committer.last_commit_s = 0.0
    log.submit()
    await log.settled()
    assert log.io.flushes[-1] == "loop"


async def test_after_a_slow_flush_it_is_the_threads_turn(logs: list[Log]) -> None:
    """A disk that stalls holds the loop once; once it is quick again the loop flushes again."""
    log = await open_log(logs)
    log.wal._committer.last_commit_s = 2 * HERE_FLUSH_S_MAX
    log.submit()
    await log.settled()
    log.wal._committer.last_commit_s = 0.0
    log.submit()
    await log.settled()
    assert log.io.flushes == ["thread", "loop"]


async def test_a_commit_takes_note_of_its_time(logs: list[Log]) -> None:
    """In the loop as well as on the thread."""
    log = await open_log(logs)
    never = threading.Event()
    log.io.during = lambda: never.wait(5 * HERE_FLUSH_S_MAX) and None
    log.submit()
    await log.settled()
    assert log.wal._committer.last_commit_s > HERE_FLUSH_S_MAX
    log.submit()
    await log.settled()
    assert log.io.flushes == ["loop", "thread"]


async def test_close_writes_what_waits_for_the_end_of_the_turn(logs: list[Log]) -> None:
    """Nothing that was kicked is forgotten."""
    log = await open_log(logs)
    log.submit()
    logs.clear()
    log.wal.close()
    assert log.io.flushes == ["thread"]
    assert any(b"x" * 100 in log.io.content(name) for name in log.io.names)


async def test_a_failed_flush_in_the_loop_is_the_end(logs: list[Log]) -> None:
    """It is reported as the thread's would be, and nothing is called durable."""
    log = await open_log(logs)
    said: list[str] = []
    log.wal.on_fatal = said.append

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    log.io.during = fail
    log.submit()
    with pytest.raises(LogFailed):
        log.wal._commit_gathered()
    assert said == ["the write-ahead log failed (Input/output error); the process ends at once"]
    assert log.flushed == []
    assert log.wal._committer.failed
    log.io.during = lambda: None
