"""Group commit: many callers share one write and one flush, without a thread that writes for all of them. No I/O.

A caller puts its entry on the queue and tries to set the flag, from false to true. The one that succeeds is the *winner*: it
takes what is queued, has it written and flushed, marks each outcome, resets the flag, and looks at the queue once more.
A *loser* waits until its entry is marked, or until a winner that leaves hands it the work.

What holds: in every order of the steps of any callers (`tests/model/commit_model.py` explores all orders of three)
- an entry is written once, before its caller returns; the entries of one caller are written in the order of its calls;
- an entry is acked only after a flush that began after its write;
- no entry is left once every caller is quiet: who cannot set the flag leaves its entry to one that looks after it has reset it;
- when the write or the flush of a group fails, each entry of the group has the error, and none is acked.

Each call of `CommitCaller.step` reads or writes one thing that callers share; only a set of the flag must be atomic. So the
steps may be run by threads as they are. A write, a flush and a wait are done by the machine's driver.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from rangelog_core.errors import RangelogError

GROUP_ENTRIES_MAX = 4_096
GROUP_BYTES_MAX = 4 << 20

_Event = TypeVar("_Event")


class CommitFlag(Protocol):
    """The flag of the one winner. `threading.Lock` is one: `acquire(blocking=False)` is the compare-and-set."""

    def acquire(self, blocking: bool = True) -> bool:
        """With blocking=False: set the flag if it is not set, atomically; return whether this call has set it."""

    def release(self) -> None:
        """Reset the flag."""


class CommitStep(Enum):
    """The next step of a caller."""

    ENQUEUE = "enqueue"
    CLAIM = "claim"
    TAKE = "take"
    WRITE = "write"
    FLUSH = "flush"
    MARK = "mark"
    RELEASE = "release"
    LOOK = "look"
    HAND = "hand"
    WAKE = "wake"
    WAIT = "wait"
    GIVE_UP = "give up"
    DONE = "done"


class CommitEntry(Generic[_Event]):
    """One entry of the queue: what one caller has written at once, and its outcome.

    `place` is where its driver's write has put it, set with the outcome; `error` is why it is not acked.
    """

    __slots__ = ("caller_waits", "error", "event", "handed", "marked", "place", "size_bytes", "wake")

    def __init__(self, event: _Event, size_bytes: int, wake: Callable[[], object], *, caller_waits: bool) -> None:
        self.event = event
        self.size_bytes = size_bytes
        self.wake = wake
        self.caller_waits = caller_waits  # it may be handed the work
        self.handed = False
        self.marked = False
        self.place: object = None
        self.error: RangelogError | None = None

    def mark(self, place: object, error: RangelogError | None) -> None:
        """Set the outcome."""
        self.place, self.error = place, error
        self.marked = True  # last: who sees it sees the others


class CommitQueue(Generic[_Event]):
    """The queue and the flag that the callers of one file share."""

    __slots__ = ("bytes_max", "entries", "entries_max", "flag")

    def __init__(
        self, flag: CommitFlag, *, entries_max: int = GROUP_ENTRIES_MAX, bytes_max: int = GROUP_BYTES_MAX
    ) -> None:
        self.flag = flag
        self.entries: deque[CommitEntry[_Event]] = deque()
        self.entries_max = entries_max
        self.bytes_max = bytes_max

    def take(self) -> CommitEntry[_Event] | None:
        """Take the next entry; None: the queue is empty."""
        try:
            return self.entries.popleft()
        except IndexError:
            return None

    def head(self) -> CommitEntry[_Event] | None:
        """Return the next entry without taking it; None: the queue is empty."""
        try:
            return self.entries[0]
        except IndexError:
            return None


class CommitCaller(Generic[_Event]):
    """One call of one caller, from its entry's queueing to its outcome.

    Example:
        ```python
        caller = CommitCaller(queue, entry)
        while caller.next is not CommitStep.DONE:
            if caller.next is CommitStep.WRITE:
                caller.wrote(places=file.write(caller.group))
            elif caller.next is CommitStep.FLUSH:
                file.flush()
                caller.flushed()
            else:
                caller.step()
        ```
    """

    __slots__ = (
        "_after", "_asleep", "_error", "_head", "_marked", "_places", "_queue",
        "entry", "group", "group_bytes", "leaves", "next",
    )  # fmt: skip

    def __init__(self, queue: CommitQueue[_Event], entry: CommitEntry[_Event], *, leaves: bool = False) -> None:
        self._queue = queue
        self.entry = entry
        self.next = CommitStep.ENQUEUE
        self.leaves = leaves
        """Whether it ends as soon as it holds no flag, with its entry marked or not: its caller does not wait for it."""
        self.group: list[CommitEntry[_Event]] = []
        """As the winner: the entries taken for the next write."""
        self.group_bytes = 0
        self._places: Sequence[object] = ()
        self._error: RangelogError | None = None
        self._marked = 0
        self._head: CommitEntry[_Event] | None = None
        self._asleep: list[CommitEntry[_Event]] = []  # marked, their callers not woken yet
        self._after = CommitStep.WAIT  # the step behind WAKE

    def step(self) -> None:
        """Take the next step. Not for WRITE and FLUSH, which the driver does, and DONE."""
        _STEPS[self.next](self)

    def wrote(self, places: Sequence[object] = (), error: RangelogError | None = None) -> None:
        """Tell that the group was written, each entry at its place; or the error, with which all of it fails."""
        self._places, self._error = places, error
        self.next = CommitStep.FLUSH if error is None else CommitStep.MARK

    def flushed(self, error: RangelogError | None = None) -> None:
        """Tell that a flush that began after the write has ended; or its error, with which all of the group fails."""
        self._error = error
        self.next = CommitStep.MARK

    def give_up(self) -> None:
        """Do not wait for the outcome any more; before DONE it may still do the work, when it was handed it meanwhile."""
        self.next = CommitStep.GIVE_UP

    # ---- the steps

    def _enqueue(self) -> None:
        self._queue.entries.append(self.entry)
        self.next = CommitStep.CLAIM

    def _claim(self) -> None:
        won = self._queue.flag.acquire(blocking=False)
        self.next = CommitStep.TAKE if won else self._when_idle()

    def _take(self) -> None:
        full = len(self.group) >= self._queue.entries_max or self.group_bytes >= self._queue.bytes_max
        found = None if full else self._queue.take()
        if found is not None:
            self.group.append(found)
            self.group_bytes += found.size_bytes
        else:
            self.next = CommitStep.WRITE if self.group else CommitStep.RELEASE

    def _mark(self) -> None:
        entry = self.group[self._marked]
        entry.mark(self._places[self._marked] if self._error is None else None, self._error)
        self._marked += 1
        if self._marked == len(self.group):
            self._asleep = self.group
            self.group, self.group_bytes, self._marked, self._error, self._places = [], 0, 0, None, ()
            self.next = CommitStep.RELEASE

    def _release(self) -> None:
        self._queue.flag.release()
        self.next = CommitStep.LOOK

    def _look(self) -> None:
        self._head = self._queue.head()
        self._after = CommitStep.CLAIM if self._head is not None else self._when_idle()
        is_handed = self._head is not None and self._head.caller_waits and self._head is not self.entry
        self.next = CommitStep.HAND if is_handed else CommitStep.WAKE

    def _hand(self) -> None:
        """The caller of the head tries to win next: its claim comes after this caller's release."""
        assert self._head is not None
        self._head.handed = True
        self._head.wake()
        self._after, self.next = self._when_idle(), CommitStep.WAKE

    def _wake(self) -> None:
        """Wake the callers of what was marked: behind the next winner, so that the disk does not stand still meanwhile."""
        for entry in self._asleep:
            if entry is not self.entry or self.leaves:
                entry.wake()
        self._asleep, self.next = [], self._after

    def _wait(self) -> None:
        if self.entry.marked:
            self.next = CommitStep.DONE
        elif self.entry.handed:
            self.entry.handed = False
            self.next = CommitStep.CLAIM

    def _give_up(self) -> None:
        """First no more work is handed to it; then it tries to do what it may have been handed."""
        self.entry.caller_waits = False
        self.leaves = True
        self.next = CommitStep.CLAIM

    def _when_idle(self) -> CommitStep:
        return CommitStep.DONE if self.leaves else CommitStep.WAIT


_STEPS: dict[CommitStep, Callable[[CommitCaller[Any]], None]] = {
    CommitStep.ENQUEUE: CommitCaller._enqueue,
    CommitStep.CLAIM: CommitCaller._claim,
    CommitStep.TAKE: CommitCaller._take,
    CommitStep.MARK: CommitCaller._mark,
    CommitStep.RELEASE: CommitCaller._release,
    CommitStep.LOOK: CommitCaller._look,
    CommitStep.HAND: CommitCaller._hand,
    CommitStep.WAKE: CommitCaller._wake,
    CommitStep.WAIT: CommitCaller._wait,
    CommitStep.GIVE_UP: CommitCaller._give_up,
}
