"""Two drivers of group commit: threads that wait, and an event loop that gets futures. They may share one queue.

What holds:
- a `CommitTarget` is called by one thread at a time: the one that has set the flag;
- a caller that gives up waiting, or is interrupted, leaves no entry without a thread that will take it;
- on the loop nothing blocks: the winner's work is done by a thread of the driver's own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Generic, Protocol, TypeVar

from rangelog_core.errors import AppendTimeout, InternalError, RangelogError
from rangelog_files.group_commit import CommitCaller, CommitEntry, CommitQueue, CommitStep

_Event = TypeVar("_Event")
_WriteEvent = TypeVar("_WriteEvent", contravariant=True)
_IDLE = (CommitStep.WAIT, CommitStep.DONE)


class CommitTarget(Protocol[_WriteEvent]):
    """A file, which writes and flushes. An error of either means that the file is given up, and the next one is begun."""

    def write(self, events: Sequence[_WriteEvent]) -> Sequence[object]:
        """Write a group, and return the place of each event. Raises RangelogError: no event of it may count as written."""

    def flush(self) -> None:
        """Return once all that was written is on the disk. Raises RangelogError."""


class ThreadCommits(Generic[_Event]):
    """Group commit for callers that are threads, each of which waits for its outcome.

    Example:
        ```python
        commits = ThreadCommits(CommitQueue(threading.Lock()), target)
        place = commits.append(event, size_bytes=100, timeout_s=10.0)
        ```
    """

    def __init__(self, queue: CommitQueue[_Event], target: CommitTarget[_Event]) -> None:
        self._queue = queue
        self._target = target
        self._mine = threading.local()

    def append(self, event: _Event, size_bytes: int, timeout_s: float) -> object:
        """Return the event's place once it is on the disk.

        Raises:
            AppendTimeout: No outcome within `timeout_s` seconds: the event may be written yet.
            RangelogError: The write or the flush of its group failed.
        """
        woken: SimpleQueue[None] | None = getattr(self._mine, "woken", None)
        if woken is None:
            woken = self._mine.woken = SimpleQueue()
        while not woken.empty():  # meant for an earlier entry, whose outcome was seen without it
            woken.get()
        entry: CommitEntry[_Event] = CommitEntry(event, size_bytes, lambda: woken.put(None), caller_waits=True)
        caller = CommitCaller(self._queue, entry)
        deadline_s = monotonic() + timeout_s
        while caller.next is not CommitStep.DONE:
            try:
                work(caller, self._target)
                if caller.next is CommitStep.WAIT:
                    if not (entry.marked or entry.handed):
                        woken.get(timeout=max(0.0, deadline_s - monotonic()))  # may be for an earlier entry: no matter
                    caller.step()
            except BaseException as error:
                caller.give_up()
                work(caller, self._target)
                if not isinstance(error, Empty):
                    raise
        if not entry.marked:
            raise AppendTimeout(f"no flush within {timeout_s:g} s: the event may be written yet", outcome_unknown=True)
        if entry.error is not None:
            raise _own(entry.error)
        return entry.place


class LoopCommits(Generic[_Event]):
    """Group commit for an event loop: each event has a future. Made and used on one loop.

    Example:
        ```python
        commits = LoopCommits(CommitQueue(threading.Lock()), target)
        place = await commits.submit(event, size_bytes=100)
        ```
    """

    def __init__(self, queue: CommitQueue[_Event], target: CommitTarget[_Event]) -> None:
        self._queue = queue
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "rangelog-group-commit")
        self._marked: deque[tuple[CommitEntry[_Event], asyncio.Future[object]]] = deque()
        self._due = False

    def submit(self, event: _Event, size_bytes: int) -> asyncio.Future[object]:
        """Return a future of the event's place. A future that is cancelled takes nothing back."""
        future: asyncio.Future[object] = self._loop.create_future()

        def wake() -> None:
            self._marked.append((entry, future))
            if not self._due:
                self._due = True
                self._loop.call_soon_threadsafe(self._resolve)

        entry: CommitEntry[_Event] = CommitEntry(event, size_bytes, wake, caller_waits=False)
        caller = CommitCaller(self._queue, entry, leaves=True)
        caller.step()
        caller.step()
        if caller.next is not CommitStep.DONE:
            self._thread.submit(work, caller, self._target)
        return future

    def close(self) -> None:
        """End the thread, once its work is done. For when all futures are done."""
        self._thread.shutdown(wait=True)

    def _resolve(self) -> None:
        self._due = False  # first: what is marked from here on has a call of its own
        while self._marked:
            entry, future = self._marked.popleft()
            if future.done():
                continue
            if entry.error is None:
                future.set_result(entry.place)
            else:
                future.set_exception(_own(entry.error))


def work(caller: CommitCaller[_Event], target: CommitTarget[_Event]) -> None:
    """Take steps until the caller waits or is done. An interruption is raised once the caller holds no flag."""
    interrupted: BaseException | None = None
    while caller.next not in _IDLE:
        try:
            _step(caller, target)
        except BaseException as error:
            if caller.next is CommitStep.ENQUEUE:  # it may be queued or not
                raise
            interrupted = error
            if caller.next is CommitStep.WRITE:
                caller.wrote(error=_unknown(error))
            elif caller.next is CommitStep.FLUSH:
                caller.flushed(_unknown(error))
    if interrupted is not None and not isinstance(interrupted, RangelogError):
        raise interrupted


def _step(caller: CommitCaller[_Event], target: CommitTarget[_Event]) -> None:
    if caller.next is CommitStep.WRITE:
        caller.wrote(target.write([entry.event for entry in caller.group]))
    elif caller.next is CommitStep.FLUSH:
        target.flush()
        caller.flushed()
    else:
        caller.step()


def _unknown(error: BaseException) -> RangelogError:
    if isinstance(error, RangelogError):
        return error
    return InternalError(f"the write of a group was cut off: {error!r}", outcome_unknown=True)


def _own(error: RangelogError) -> RangelogError:
    """Return an instance for one caller: each raises its own."""
    return error.with_outcome(unknown=not error.outcome_unknown).with_outcome(unknown=error.outcome_unknown)
