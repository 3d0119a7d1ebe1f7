"""A client process that appends at a steady pace and notes every call and its outcome.

It opens the stream at start (with `--standby` once told on standard input), which fences any earlier writer. Fenced
itself, it ends: another process owns the stream. After any other stop it opens anew. SIGTERM: flush, close, end.

Lines: ["open", epoch, start, ns], ["invoke", epoch, first sequence, count, ns], ["ok", epoch, first sequence, first
offset, count, ns], ["fail", …] and ["unknown", epoch, first sequence, count, error code, ns], ["stop", epoch, error, ns].
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import chaos_history as history

import rangelog
from rangelog.errors import RangelogError, WriterFenced
from rangelog_cli.lifeline import follow_parent

TICK_S = 0.01
PENDING_MAX = 1_000
PENDING_BYTES_MAX = 4 * 1024 * 1024
"""Less than what the writer takes before it says Overloaded."""
PATIENCE_S = 20.0
"""An append that waits longer is counted as a missed bound; it goes on."""
REOPEN_PAUSE_S = 0.1
OPEN_TIMEOUT_S = 10.0


class Appending:
    """The appends of one open writer."""

    def __init__(
        self, writer: Any, options: argparse.Namespace, lines: history.LineFile, pulse: history.PulseFile
    ) -> None:
        self._writer = writer
        self._options = options
        self._lines = lines
        self._pulse = pulse
        self._epoch = writer.epoch
        self._pending: dict[int, float] = {}
        self._pending_max = min(PENDING_MAX, PENDING_BYTES_MAX // options.size)
        self._outcomes: list[tuple[int, int | None, str]] = []
        self._noting = False
        self.failure: BaseException | None = None

    async def run(self, sequence: int, stopping: asyncio.Event) -> int:
        """Append until told to stop or the writer does; returns the next sequence number."""
        due = time.monotonic()
        while not stopping.is_set() and self.failure is None:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due = max(due, now - 0.2)  # what was missed in an outage is not made up for
            count = min(int((now - due) * self._options.rate), self._pending_max - len(self._pending))
            if count > 0:
                due += count / self._options.rate
                self._submit(sequence, count)
                sequence += count
            self._look_for_the_late(now)
        return sequence

    def _submit(self, first: int, count: int) -> None:
        self._lines.write([json.dumps(["invoke", self._epoch, first, count, time.monotonic_ns()])])
        self._pulse.beat(invoked=self._pulse.last.invoked + count)
        for sequence in range(first, first + count):
            value = history.value_of(self._options.name, self._epoch, sequence, self._options.size)
            try:
                future = self._writer.submit(value)
            except RangelogError as error:
                self.failure = error
                self._lines.write(
                    [
                        json.dumps(
                            ["fail", self._epoch, sequence, first + count - sequence, error.code, time.monotonic_ns()]
                        )
                    ]
                )
                return
            self._pending[sequence] = time.monotonic()
            future.add_done_callback(lambda done, sequence=sequence: self._done(sequence, done))

    def _done(self, sequence: int, future: asyncio.Future[Any]) -> None:
        self._pending.pop(sequence, None)
        error = future.exception()
        if error is None:
            self._outcomes.append((sequence, future.result().offset, ""))
        else:
            self.failure = self.failure or error
            self._outcomes.append((sequence, None, getattr(error, "code", repr(error))))
        if not self._noting:
            self._noting = True
            asyncio.get_running_loop().call_soon(self.note)

    def note(self) -> None:
        """Write down the outcomes that came since, runs of equal ones as one line."""
        self._noting = False
        outcomes, self._outcomes = self._outcomes, []
        now, lines, acked = time.monotonic_ns(), [], 0
        start = 0
        for index in range(1, len(outcomes) + 1):
            if index < len(outcomes) and _follows(outcomes[start], outcomes[index], index - start):
                continue
            sequence, offset, code = outcomes[start]
            count, start = index - start, index
            if offset is None:
                lines.append(json.dumps(["unknown", self._epoch, sequence, count, code, now]))
            else:
                acked += count
                lines.append(json.dumps(["ok", self._epoch, sequence, offset, count, now]))
                self._pulse.beat(offset=max(self._pulse.last.offset, offset + count), last_ns=now)
        self._lines.write(lines)
        self._pulse.beat(records=self._pulse.last.records + acked)

    def _look_for_the_late(self, now: float) -> None:
        oldest = next(iter(self._pending), None)
        if oldest is not None and now - self._pending[oldest] > PATIENCE_S:
            self._pending[oldest] = now
            self._pulse.beat(waits=self._pulse.last.waits + 1)


def _follows(first: tuple[int, int | None, str], other: tuple[int, int | None, str], distance: int) -> bool:
    if other[0] != first[0] + distance or (first[1] is None) != (other[1] is None):
        return False
    return other[2] == first[2] if first[1] is None else other[1] == first[1] + distance


async def write(options: argparse.Namespace) -> None:
    """The whole life of the process."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    lines, pulse = history.LineFile(options.history), history.PulseFile(options.pulse)
    async with await rangelog.connect(options.pds) as client:
        pulse.beat(state=history.READY)
        if options.standby:
            await asyncio.to_thread(sys.stdin.readline)
        sequence = 0
        while not stopping.is_set():
            writer = client.writer(options.stream, open_timeout_s=OPEN_TIMEOUT_S)
            try:
                await writer.open()
                pulse.beat(state=history.OPEN, epoch=writer.epoch)
                lines.write([json.dumps(["open", writer.epoch, writer.next_offset, time.monotonic_ns()])])
                work = Appending(writer, options, lines, pulse)
                sequence = await work.run(sequence, stopping)
                if work.failure is None:
                    await writer.flush(timeout_s=OPEN_TIMEOUT_S)
                await writer.close(flush=False)
                await asyncio.sleep(0)
                work.note()
                error = work.failure
            except RangelogError as failed:
                await writer.close(flush=False)
                error = failed
            if error is None:
                break
            lines.write([json.dumps(["stop", pulse.last.epoch, repr(error), time.monotonic_ns()])])
            if isinstance(error, WriterFenced):
                pulse.beat(state=history.FENCED)
                return
            if not getattr(error, "retriable", False):
                pulse.beat(errors=pulse.last.errors + 1)
            pulse.beat(state=history.STOPPED)
            await asyncio.sleep(REOPEN_PAUSE_S)
    pulse.beat(state=history.DONE)


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
    parser.add_argument("--standby", action="store_true")
    asyncio.run(write(parser.parse_args()))


if __name__ == "__main__":
    main()
