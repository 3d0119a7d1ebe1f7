"""Group commit by real threads, and on an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rangelog_core.errors import AppendTimeout, InternalError, StorageFull
from rangelog_files.commit_drivers import LoopCommits, ThreadCommits
from rangelog_files.group_commit import CommitQueue
from tests.support.waiting import eventually

Event = tuple[int, int]


class NotingTarget:
    """Notes what is written, and what was written when a flush began; a flush waits for `open`."""

    def __init__(self) -> None:
        self.written: list[Event] = []
        self.groups: list[int] = []
        self.flushed = 0
        self.open = threading.Event()
        self.open.set()
        self.in_flush = threading.Event()
        self.fail: Callable[[], None] = lambda: None
        self._busy = threading.Lock()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        assert self._busy.acquire(blocking=False), "two threads write at once"
        try:
            yield
        finally:
            self._busy.release()

    def write(self, events: Sequence[Event]) -> list[int]:
        with self._alone():
            first = len(self.written)
            self.written += events
            self.groups.append(len(events))
            return list(range(first, len(self.written)))

    def flush(self) -> None:
        with self._alone():
            began = len(self.written)
            self.in_flush.set()
            assert self.open.wait(60)
            self.fail()
            self.flushed = began


def _made() -> tuple[CommitQueue[Event], NotingTarget, ThreadCommits[Event]]:
    queue: CommitQueue[Event] = CommitQueue(threading.Lock())
    target = NotingTarget()
    return queue, target, ThreadCommits(queue, target)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as threads:
        yield threads


def _one_in_flush_and_many_queued(
    pool: ThreadPoolExecutor, many: int
) -> tuple[NotingTarget, list[Future[object]], ThreadCommits[Event]]:
    """One caller's flush stands, and so many others are queued behind it."""
    queue, target, commits = _made()
    target.open.clear()
    futures = [pool.submit(commits.append, (0, 0), 1, 60.0)]
    assert target.in_flush.wait(60)
    futures += [pool.submit(commits.append, (number + 1, 0), 1, 60.0) for number in range(many)]
    eventually(lambda: len(queue.entries) == many, "all others are queued", 30.0)
    return target, futures, commits


def test_r9_callers_that_wait_for_one_flush_share_the_next(pool: ThreadPoolExecutor) -> None:
    """Twelve callers that queue behind a flush have the second one together."""
    target, futures, _ = _one_in_flush_and_many_queued(pool, 12)
    target.open.set()
    assert sorted(each.result(60) for each in futures) == list(range(13))  # type: ignore[type-var]
    assert target.groups == [1, 12]


def test_r10_each_event_once_before_its_return_in_the_order_of_its_thread(pool: ThreadPoolExecutor) -> None:
    """Sixteen threads, 200 events each, against a target that two threads must not enter."""
    _, target, commits = _made()

    def caller(number: int) -> None:
        for each in range(200):
            place = commits.append((number, each), 10, 60.0)
            assert isinstance(place, int) and place < target.flushed, "acked before a flush"
            assert target.written[place] == (number, each)

    for done in [pool.submit(caller, number) for number in range(16)]:
        done.result(100)
    assert len(target.written) == len(set(target.written)) == 16 * 200
    for number in range(16):
        assert [each for of, each in target.written if of == number] == list(range(200))


def test_r10_a_thread_that_always_wins_keeps_nothing_of_earlier_events() -> None:
    """Alone it is never woken; what would wake it must not pile up."""
    _, _, commits = _made()
    for number in range(500):
        commits.append((0, number), 1, 60.0)
    assert commits._mine.woken.qsize() <= 1


def test_r11_a_failed_flush_errors_each_event_of_its_group_and_no_other(pool: ThreadPoolExecutor) -> None:
    """The group before it is acked, and so is the one after it."""
    target, futures, commits = _one_in_flush_and_many_queued(pool, 7)
    fails = iter([False, True, False])

    def fail() -> None:
        if next(fails):
            raise StorageFull("no room", outcome_unknown=True)

    target.fail = fail
    target.open.set()
    assert futures[0].result(60) == 0
    errors = [each.exception(60) for each in futures[1:]]
    assert [type(each) for each in errors] == [StorageFull] * 7
    assert all(each.outcome_unknown for each in errors if isinstance(each, StorageFull))
    assert len({id(each) for each in errors}) == 7, "two threads raise one instance"
    assert commits.append((9, 9), 1, 60.0) == 8


def test_r10_a_caller_whose_time_is_up_leaves_no_event_behind(pool: ThreadPoolExecutor) -> None:
    """Its outcome is unknown, and its event is written by the others."""
    target, futures, commits = _one_in_flush_and_many_queued(pool, 1)
    with pytest.raises(AppendTimeout) as caught:
        commits.append((50, 0), 1, 0.0)
    assert caught.value.outcome_unknown
    target.open.set()
    assert [each.result(60) for each in futures] == [0, 1]
    eventually(lambda: target.flushed == 3, "the event of the caller that left is flushed", 30.0)
    assert target.written[-1] == (50, 0)


def test_r10_a_winner_that_is_interrupted_leaves_the_flag_free(pool: ThreadPoolExecutor) -> None:
    """Ctrl-C in a flush ends that caller alone."""
    target, futures, commits = _one_in_flush_and_many_queued(pool, 3)
    interrupts = iter([True, False, False])

    def fail() -> None:
        if next(interrupts):
            raise KeyboardInterrupt

    target.fail = fail
    target.open.set()
    assert isinstance(futures[0].exception(60), KeyboardInterrupt)
    assert sorted(each.result(60) for each in futures[1:]) == [1, 2, 3]  # type: ignore[type-var]
    assert commits.append((9, 9), 1, 60.0) == 4


def test_r10_an_unknown_error_of_the_disk_is_everyones_and_unknown(pool: ThreadPoolExecutor) -> None:
    """A defect of the target is raised where it happened; the others get InternalError."""
    target, futures, _ = _one_in_flush_and_many_queued(pool, 3)
    fails = iter([False, True])

    def fail() -> None:
        if next(fails):
            raise ValueError("a defect")

    target.fail = fail
    target.open.set()
    errors = [each.exception(60) for each in futures[1:]]
    assert sum(isinstance(each, InternalError) and each.outcome_unknown for each in errors) == 2
    assert sum(isinstance(each, ValueError) for each in errors) == 1, "the winner sees the defect itself"


async def test_r10_on_a_loop_futures_are_resolved_in_order_after_their_flush() -> None:
    """2,000 futures, fewer flushes."""
    target = NotingTarget()
    commits: LoopCommits[Event] = LoopCommits(CommitQueue(threading.Lock()), target)
    futures = [commits.submit((0, number), 10) for number in range(2_000)]
    places = await asyncio.wait_for(asyncio.gather(*futures), 60)
    assert places == list(range(2_000))
    assert target.flushed == 2_000
    assert len(target.groups) < 2_000, "no flush was shared"
    commits.close()


async def test_r10_on_a_loop_a_cancelled_future_takes_nothing_back() -> None:
    """Its event is written all the same, and the others have their outcomes."""
    target = NotingTarget()
    target.open.clear()
    commits: LoopCommits[Event] = LoopCommits(CommitQueue(threading.Lock()), target)
    first, second, third = (commits.submit((0, number), 10) for number in range(3))
    second.cancel()
    target.open.set()
    assert await asyncio.wait_for(asyncio.gather(first, third), 60) == [0, 2]
    commits.close()


async def test_r11_on_a_loop_a_failed_flush_errors_each_future_of_its_group() -> None:
    """The future of the group before it has its place."""
    target = NotingTarget()
    target.open.clear()
    commits: LoopCommits[Event] = LoopCommits(CommitQueue(threading.Lock()), target)
    first = commits.submit((0, 0), 10)
    assert await asyncio.to_thread(target.in_flush.wait, 60)
    rest = [commits.submit((0, number), 10) for number in range(1, 6)]
    fails = iter([False, True])

    def fail() -> None:
        if next(fails):
            raise StorageFull("no room")

    target.fail = fail
    target.open.set()
    assert await asyncio.wait_for(first, 60) == 0
    errors = await asyncio.wait_for(asyncio.gather(*rest, return_exceptions=True), 60)
    assert [type(each) for each in errors] == [StorageFull] * 5
    commits.close()


async def test_r10_threads_and_a_loop_share_one_queue() -> None:
    """Both drivers over one queue: each keeps its order."""
    queue, target, commits = _made()
    on_loop: LoopCommits[Event] = LoopCommits(queue, target)

    def blocking() -> None:
        for number in range(100):
            commits.append((1, number), 10, 60.0)

    thread = asyncio.get_running_loop().run_in_executor(None, blocking)
    for number in range(100):
        await asyncio.wait_for(on_loop.submit((0, number), 10), 60)
    await asyncio.wait_for(thread, 60)
    for number in range(2):
        assert [each for of, each in target.written if of == number] == list(range(100))
    on_loop.close()
