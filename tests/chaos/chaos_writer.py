"""A client process that appends at a steady pace and notes every call and its outcome.

It opens the stream at start (with `--standby` once told on standard input), which fences any earlier writer. Fenced
itself, it ends: another process owns the stream. So does a stream that is deleted. After any other stop it opens anew (not
with `--once`). SIGTERM: flush, close, end. An append that failed is noted by the error's own word: failed, or with its
outcome unknown. Every fourth group of records has explicit timestamps, which go back and forth.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import rangelog
from rangelog_cli.local.lifeline import follow_parent
from rangelog_core.errors import RangelogError, StreamNotFound, WriterFenced
from tests.chaos import chaos_history
from tests.support.history import Ended, FileHistory, Invoked, Outcome

TICK_S = 0.01
PENDING_MAX = 1_000
PENDING_BYTES_MAX = 4 * 1024 * 1024
"""Less than what the writer takes before it says Overloaded."""
PATIENCE_S = 20.0
"""An append that waits longer is counted as a missed bound; it goes on."""
REOPEN_PAUSE_S = 0.1
CATCH_UP_S_MAX = 0.2
"""What was missed in an outage is not made up for."""
OPEN_TIMEOUT_S = 10.0
SETTLED_WITHIN_S = 3.0
STAMPED_EVERY = 4
"""Of the groups of records: these have timestamps of their own."""
STAMP_SPREAD_MS = 4_001
_STAMP_STEP_MS = 1_733


class Appending:
    """The appends of one open writer."""

    def __init__(
        self, writer: Any, options: argparse.Namespace, notes: FileHistory, pulse: chaos_history.PulseFile
    ) -> None:
        self._writer = writer
        self._stream, self._name, self._size = options.noted_as or options.stream, options.name, options.size
        self._rate = options.rate
        self._notes = notes
        self._pulse = pulse
        self._pending: dict[int, float] = {}
        self._pending_max = min(PENDING_MAX, PENDING_BYTES_MAX // options.size)
        self._groups = 0
        self._outcomes: list[Told] = []
        self._noting = False
        self._raised: RangelogError | None = None
        self._told: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """What stopped the writer: what its appends were told, or else what was raised when more were to be made."""
        return self._told or self._raised

    async def run(self, sequence: int, stopping: asyncio.Event) -> int:
        """Append until told to stop or the writer does; returns the next sequence number."""
        now = due = time.monotonic()
        while not stopping.is_set() and self.failure is None:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due = max(due, now - CATCH_UP_S_MAX)
            count = min(int((now - due) * self._rate), self._pending_max - len(self._pending))
            if count > 0:
                due += count / self._rate
                sequence += self._submit(sequence, count)
            self._look_for_the_late(now)
        while self._raised and self._pending and time.monotonic() < now + SETTLED_WITHIN_S:
            await asyncio.sleep(TICK_S)  # a writer that was stopped tells its appends why
        return sequence

    def _submit(self, first: int, count: int) -> int:
        """Make appends; returns how many numbers they took."""
        now = time.monotonic()
        numbers = range(first, first + count)
        identities = tuple(chaos_history.identity(self._name, sequence) for sequence in numbers)
        stamps = self._stamps(numbers)
        try:
            epoch = self._writer.epoch
        except RangelogError as error:
            self._raised = error
            return 0
        self._notes.note(Invoked(self._stream, self._name, epoch, first, identities, now, timestamps_ms=stamps))
        self._pulse.beat(invoked=self._pulse.last.invoked + count)
        for place, sequence in enumerate(numbers):
            value = chaos_history.value_of(self._name, sequence, self._size)
            try:
                future = self._writer.submit(value, timestamp=stamps[place] if stamps else None)
            except RangelogError as error:
                self._raised = error
                self._notes.failed(self._stream, self._name, sequence, time.monotonic(), first + count - sequence)
                break
            self._pending[sequence] = now
            future.add_done_callback(lambda done, sequence=sequence: self._done(sequence, done))
        return count

    def _stamps(self, numbers: range) -> tuple[int, ...] | None:
        """Timestamps that go back and forth; None: the writer takes the time as it is."""
        self._groups += 1
        if self._groups % STAMPED_EVERY:
            return None
        now_ms = time.time_ns() // 1_000_000
        return tuple(now_ms - sequence * _STAMP_STEP_MS % STAMP_SPREAD_MS for sequence in numbers)

    def _done(self, sequence: int, future: asyncio.Future[Any]) -> None:
        self._pending.pop(sequence, None)
        error = future.exception()
        self._told = self._told or error
        self._outcomes.append(_told(sequence, future))
        if not self._noting:
            self._noting = True
            asyncio.get_running_loop().call_soon(self.note)

    def note(self) -> None:
        """Write down the outcomes that came since, runs of equal ones as one event."""
        self._noting = False
        outcomes, self._outcomes = self._outcomes, []
        now, events, acked, start = time.monotonic(), [], 0, 0
        for index in range(1, len(outcomes) + 1):
            if index < len(outcomes) and _follows(outcomes[start], outcomes[index], index - start):
                continue
            (sequence, outcome, offset), count, start = outcomes[start], index - start, index
            events.append(Ended(self._stream, self._name, sequence, count, outcome, now, offset))
            if offset is not None:
                acked += count
                end = max(self._pulse.last.offset, offset + count)
                self._pulse.beat(offset=end, last_ns=time.monotonic_ns())
        self._notes.note(*events)
        self._pulse.beat(records=self._pulse.last.records + acked)

    def _look_for_the_late(self, now: float) -> None:
        oldest = next(iter(self._pending), None)
        if oldest is not None and now - self._pending[oldest] > PATIENCE_S:
            self._pending[oldest] = now
            self._pulse.beat(waits=self._pulse.last.waits + 1)


class Told(NamedTuple):
    """What the SDK said of one append."""

    sequence: int
    outcome: Outcome
    offset: int | None


def _told(sequence: int, future: asyncio.Future[Any]) -> Told:
    error = future.exception()
    if error is None:
        return Told(sequence, "ok", future.result().offset)
    certain = isinstance(error, RangelogError) and not error.outcome_unknown
    return Told(sequence, "failed" if certain else "unknown", None)


def _follows(first: Told, other: Told, distance: int) -> bool:
    if other.sequence != first.sequence + distance or other.outcome != first.outcome:
        return False
    return first.offset is None or other.offset == first.offset + distance


async def append_once(
    client: Any,
    options: argparse.Namespace,
    notes: FileHistory,
    pulse: chaos_history.PulseFile,
    first: int,
    stop: asyncio.Event,
) -> tuple[int, BaseException | None]:
    """Open the stream and append until told to stop or the writer does: the next sequence number, and what stopped it."""
    writer = client.writer(options.stream, open_timeout_s=OPEN_TIMEOUT_S)
    work: Appending | None = None
    try:
        await writer.open()
        pulse.beat(state=chaos_history.OPEN, epoch=writer.epoch)
        print(f"opened at epoch {writer.epoch}, offset {writer.next_offset}", flush=True)
        work = Appending(writer, options, notes, pulse)
        first = await work.run(first, stop)
        if work.failure is None:
            await writer.flush(timeout_s=OPEN_TIMEOUT_S)
        return first, work.failure
    except RangelogError as error:
        return first, error
    finally:
        await writer.close(flush=False)
        if work is not None:
            await asyncio.sleep(0)
            work.note()


async def write(options: argparse.Namespace) -> None:
    """The whole life of the process."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    notes, pulse = FileHistory(options.history), chaos_history.PulseFile(options.pulse)
    async with await rangelog.connect(options.pds) as client:
        pulse.beat(state=chaos_history.READY)
        if options.standby:
            await asyncio.to_thread(sys.stdin.readline)
        sequence = 0
        while not stopping.is_set():
            sequence, error = await append_once(client, options, notes, pulse, sequence, stopping)
            if error is None:
                break
            print(f"stopped at epoch {pulse.last.epoch}: {error!r}", flush=True)
            if isinstance(error, WriterFenced):
                pulse.beat(state=chaos_history.FENCED)
                return
            if isinstance(error, StreamNotFound):
                pulse.beat(state=chaos_history.GONE)
                return
            if not getattr(error, "retriable", False):
                pulse.beat(errors=pulse.last.errors + 1)
            pulse.beat(state=chaos_history.STOPPED)
            if options.once:
                return
            await asyncio.sleep(REOPEN_PAUSE_S)
    pulse.beat(state=chaos_history.DONE)


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "stream", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("history", "pulse"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    for name in ("rate", "size"):
        parser.add_argument(f"--{name}", required=True, type=int)
    parser.add_argument("--noted-as", default="")
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--once", action="store_true")
    asyncio.run(write(parser.parse_args()))


if __name__ == "__main__":
    main()
