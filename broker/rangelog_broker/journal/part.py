"""One part of a journal whose machine has several, in the shape of a journal of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from rangelog.errors import RangelogError
from rangelog_broker.journal.joint_machine import JointMachine, command_for
from rangelog_broker.journal.journal import PROPOSE_TIMEOUT_S, Journal
from rangelog_broker.journal.machine import M
from rangelog_broker.journal.sessions import Result

T = TypeVar("T")


class JournalPart(Generic[M]):
    """The commands and reads of one part. Sessions are the whole journal's. See Journal for the methods."""

    def __init__(self, journal: Journal[JointMachine], number: int) -> None:
        self._journal = journal
        self._number = number

    @property
    def machine(self) -> M:
        """The part's machine. Change nothing in it."""
        return cast("M", self._journal.machine.parts[self._number])

    @property
    def closed(self) -> RangelogError | None:
        """What ended the journal."""
        return self._journal.closed

    @property
    def epoch(self) -> int:
        """See Journal."""
        return self._journal.epoch

    @property
    def now_ms(self) -> int:
        """See Journal."""
        return self._journal.now_ms

    async def open_session(self, *, timeout_s: float = PROPOSE_TIMEOUT_S) -> int:
        """See Journal."""
        return await self._journal.open_session(timeout_s=timeout_s)

    async def propose(
        self, session: int, sequence: int, command: bytes, *, settled: int = 0, timeout_s: float = PROPOSE_TIMEOUT_S
    ) -> bytes:
        """See Journal."""
        whole = command_for(self._number, command)
        return await self._journal.propose(session, sequence, whole, settled=settled, timeout_s=timeout_s)

    async def propose_own(self, command: bytes, *, timeout_s: float = PROPOSE_TIMEOUT_S) -> bytes:
        """See Journal."""
        return await self._journal.propose_own(command_for(self._number, command), timeout_s=timeout_s)

    def submit_own(self, command: bytes) -> asyncio.Future[Result]:
        """See Journal."""
        return self._journal.submit_own(command_for(self._number, command))

    async def read(self, look: Callable[[M], T], *, timeout_s: float = PROPOSE_TIMEOUT_S) -> T:
        """See Journal."""
        return await self._journal.read(lambda _: look(self.machine), timeout_s=timeout_s)

    def read_stale(self, look: Callable[[M], T]) -> T:
        """See Journal."""
        return self._journal.read_stale(lambda _: look(self.machine))
