"""Wall clocks that jump by days where a stream has a retention: nothing younger than that goes."""

from __future__ import annotations

import asyncio

import rangelog
from tests.chaos.chaos_faults import FLUSHES_WITHIN_S, OPENS_WITHIN_S, Fault
from tests.support.waiting import eventually

STREAM = "aging"
JUMP_S = 8 * 86_400.0
RECORDS = 600
"""Several ranges."""
ROUNDS_S = 2.5
"""Some rounds of the reconcilers."""


class ClockJumpedWithRetention(Fault):
    """The wall clock of the leading placement driver jumps by days, either way, and back, while ranges are sealed."""

    name = "clock-jumped-with-retention"
    side = "all"
    hold_s = (0.0, 0.1)
    _victim = ""

    def inject(self) -> str:
        """See Fault."""
        load = self.system.load
        first = self._end_offset()
        writer = load.begin(STREAM)
        eventually(lambda: writer.pulse.records > RECORDS, f"{writer.name} gets no acks", OPENS_WITHIN_S)
        self._victim, ahead_s = self.system.leader(), self.dice.choice([-JUMP_S, JUMP_S])
        self.system.set_clock(self._victim, ahead_s)
        more = writer.pulse.records + RECORDS
        eventually(lambda: writer.pulse.records > more, f"{writer.name} gets no acks", OPENS_WITHIN_S)
        load.end(STREAM, FLUSHES_WITHIN_S)
        self.interrupts.wait(ROUNDS_S)
        self._first = first
        self._expect_kept("while it was off")
        return f"{self._victim} {ahead_s / 86_400:+.0f} days"

    def heal(self) -> None:
        """The clock is right again: what was sealed meanwhile is as young as it was."""
        victim, self._victim = self._victim, ""
        if not victim:
            return
        self.system.set_clock(victim, 0.0)
        if STREAM in self.system.load.current:
            self.system.load.end(STREAM, FLUSHES_WITHIN_S)
        self.interrupts.wait(ROUNDS_S)
        self._expect_kept("once it was right again")

    _first: int | None = None

    def _expect_kept(self, when: str) -> None:
        if self._first is not None:
            trimmed = asyncio.run(self._describe()).trim_offset
            assert trimmed <= self._first, f"{STREAM} was trimmed at {trimmed} {when}; {self._first} was seconds old"

    def _end_offset(self) -> int:
        return asyncio.run(self._describe()).next_offset

    async def _describe(self) -> rangelog.StreamInfo:
        async with await rangelog.connect(self.system.cluster.connect_string) as client:
            return await client.describe_stream(STREAM)
