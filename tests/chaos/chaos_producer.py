"""A client process that sends records to the topic at a steady pace and notes each, and each ack.

Lines: ["sent", producer, key, number], ["acked", producer, key, number, shard, offset, time in ns]. A producer that failed is
replaced by another one, with a name of its own. SIGTERM: flush, close, end.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import rangelog
from rangelog.errors import RangelogError
from rangelog_cli.local.lifeline import follow_parent
from tests.chaos.chaos_topic_notes import KEYS, TOPIC, Notes, ProgressFile, RecordName, value_of

TICK_S = 0.01
PENDING_MAX = 400
CATCH_UP_S_MAX = 0.2
APPEND_TIMEOUT_S = 60.0
FLUSH_TIMEOUT_S = 25.0
REOPEN_PAUSE_S = 0.2


class Sending:
    """The records of one producer."""

    def __init__(self, producer: Any, name: str, numbers: list[int], notes: Notes, progress: ProgressFile) -> None:
        self._producer, self._name, self._numbers = producer, name, numbers
        self._notes, self._progress = notes, progress
        self._pending = 0
        self._count = 0
        self.error: BaseException | None = None

    async def run(self, rate: int, stopping: asyncio.Event) -> None:
        """Send until told to stop, or a record fails."""
        due = time.monotonic()
        while not stopping.is_set() and self.error is None:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due = max(due, now - CATCH_UP_S_MAX)
            count = min(int((now - due) * rate), PENDING_MAX - self._pending)
            if count > 0:
                due += count / rate
                self._send(count)

    def _send(self, count: int) -> None:
        names = []
        for _ in range(count):
            key = self._count % KEYS
            self._count += 1
            names.append(RecordName(self._name, key, self._numbers[key]))
            self._numbers[key] += 1
        self._notes.note(*(("sent", *name) for name in names))
        for name in names:
            self._progress.begun(name.key, name.number)
            future = self._producer.submit(value_of(name), key=b"key-%d" % name.key)
            self._pending += 1
            future.add_done_callback(lambda done, name=name: self._settled(name, done))

    def _settled(self, name: RecordName, future: asyncio.Future[Any]) -> None:
        self._pending -= 1
        error = future.exception() if not future.cancelled() else asyncio.CancelledError()
        if error is not None:
            self.error = self.error or error
            return
        ack = future.result()
        self._notes.note(("acked", *name, ack.shard, ack.offset, time.monotonic_ns()))
        self._progress.done(name.key, name.number)


async def produce(options: argparse.Namespace) -> None:
    """The whole life of the process."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    notes, progress, numbers = Notes(options.history), ProgressFile(options.pulse), [0] * KEYS
    life = 0
    async with await rangelog.connect(options.pds) as client:
        while not stopping.is_set():
            life += 1
            try:
                async with client.producer(TOPIC, append_timeout_s=APPEND_TIMEOUT_S) as producer:
                    sending = Sending(producer, f"{options.name}-{life}", numbers, notes, progress)
                    await sending.run(options.rate, stopping)
                    if sending.error is not None:
                        print(f"{options.name}-{life} stopped: {sending.error!r}", flush=True)
                        notes.note(("stopped", f"{options.name}-{life}", repr(sending.error)))
                    await producer.flush(timeout_s=FLUSH_TIMEOUT_S)
                    await asyncio.sleep(0)
            except RangelogError as error:
                print(f"{options.name}-{life}: {error!r}", flush=True)
                await asyncio.sleep(REOPEN_PAUSE_S)
    notes.note(("done",))


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("history", "pulse"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--rate", required=True, type=int)
    asyncio.run(produce(parser.parse_args()))


if __name__ == "__main__":
    main()
