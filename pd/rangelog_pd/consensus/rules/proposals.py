"""The queue of proposals between the event loop and the tick thread.

What holds: number and bytes of pending proposals are bounded; a proposal that the tick thread never took was certainly not
proposed; a result never raises into the Raft library, even after the event loop is closed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rangelog_core.errors import Overloaded, RangelogError, Unavailable
from rangelog_core.limits import MIB

OUTSTANDING_MAX = 1024
OUTSTANDING_BYTES_MAX = 8 * MIB
"""The bound of pending proposals; above it further ones are refused."""
TICK_BYTES_MAX = 1 * MIB
"""Proposals of one tick: bounds the time until the next heartbeat."""

_SUCCESS, _DISCARDED = 0, 3  # pysyncobj's FAIL_REASON


@dataclass(eq=False)
class Proposal:
    """One proposed command and its waiter. `taken` is guarded by the queue's lock."""

    command: bytes
    future: asyncio.Future[Any]
    taken: bool = False


class Proposals:
    """The queue of one member, made on the event loop that waits for the results."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._queue: collections.deque[Proposal] = collections.deque()
        self._outstanding: dict[Proposal, None] = {}
        self._outstanding_bytes = 0
        self._answers: list[tuple[Proposal, Any]] = []

    # --- on the event loop

    def put(self, command: bytes) -> tuple[Proposal, bool]:
        """Queue a proposal; return it, and whether the tick thread must be woken. Raises Overloaded."""
        if len(self._outstanding) >= OUTSTANDING_MAX or self._outstanding_bytes >= OUTSTANDING_BYTES_MAX:
            raise Overloaded(f"{len(self._outstanding)} commands wait for a majority of placement drivers; try again")
        proposal = Proposal(command, self._loop.create_future())
        self._outstanding[proposal] = None
        self._outstanding_bytes += len(command)
        with self._lock:
            self._queue.append(proposal)
            return proposal, len(self._queue) == 1

    def drop(self, proposal: Proposal) -> bool:
        """Give up a proposal. Returns True if it was never proposed, and now never will be."""
        if self._outstanding.pop(proposal, 0) is None:
            self._outstanding_bytes -= len(proposal.command)
        with self._lock:
            if not proposal.taken:
                with contextlib.suppress(ValueError):
                    self._queue.remove(proposal)
            return not proposal.taken

    def fail_all(self, taken: RangelogError, queued: RangelogError) -> None:
        """Fail all proposals, since the tick thread has ended."""
        for proposal in list(self._outstanding):
            _resolve(proposal, taken if proposal.taken else queued)

    # --- on the tick thread

    def take(self, *, leads: bool, refusal: Callable[[], RangelogError]) -> tuple[list[Proposal], bool]:
        """Return the proposals of this tick, and whether more wait; a member that does not lead refuses all."""
        taken: list[Proposal] = []
        size = 0
        with self._lock:
            while self._queue and size < TICK_BYTES_MAX:
                proposal = self._queue.popleft()
                proposal.taken = leads
                size += len(proposal.command)
                taken.append(proposal)
            more = bool(self._queue)
        if leads:
            return taken, more
        for proposal in taken:
            self._answers.append((proposal, refusal()))
        self.post()
        return [], more

    def answer(self, proposal: Proposal, result: Any, reason: int) -> None:
        """Note a result. The library calls this method, which only appends to a list."""
        if reason == _DISCARDED:
            result = Unavailable("leadership was lost and the command with it: it was not applied; try again")
        elif reason != _SUCCESS:
            result = Unavailable(f"the command was refused (reason {reason})")
        self._answers.append((proposal, result))

    def post(self) -> None:
        """Deliver the results of this tick to the event loop, unless it is closed."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_resolve_all, answers)


def _resolve_all(answers: list[tuple[Proposal, Any]]) -> None:
    for proposal, result in answers:
        _resolve(proposal, result)


def _resolve(proposal: Proposal, result: Any) -> None:
    if proposal.future.done():
        return
    if isinstance(result, BaseException):
        proposal.future.set_exception(result)
    else:
        proposal.future.set_result(result)
