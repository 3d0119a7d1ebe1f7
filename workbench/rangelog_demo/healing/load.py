"""The load of the healing demo: numbered records in a few streams, at a pace, all the while.

What holds: a stream has one writer, which appends number after number, so the number of a record is its offset. `acked`
counts the acks in a row: below it every record was acked at its own number.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from rangelog_core.errors import RangelogError

if TYPE_CHECKING:
    import rangelog

VALUE_BYTES = 1_024
RECORDS_PER_S = 300
"""Of each stream while servers come and go."""
_BATCH = 30
_PROGRESS_RECORDS = 500


def value_of(stream: str, number: int) -> bytes:
    """Return the record of a number."""
    return f"{stream} {number} ".encode().ljust(VALUE_BYTES, b".")


@dataclass
class StreamLoad:
    """One stream, and the results of its writer's appends."""

    name: str
    submitted: int = 0
    acked: int = 0
    acked_at_s: float = field(default_factory=time.monotonic)
    longest_gap_s: float = 0.0
    problem: str = ""

    def note_ack(self, number: int, done: asyncio.Future[rangelog.Ack]) -> None:
        """An append ended."""
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self.problem = self.problem or f"{type(error).__name__}: {error}"
        elif done.result().offset != number or number != self.acked:
            self.problem = self.problem or f"record {number} was acked at offset {done.result().offset}"
        else:
            self.acked += 1
            now_s = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now_s - self.acked_at_s)
            self.acked_at_s = now_s


class HealingLoad:
    """The writers of all streams. `start`, then `stop`."""

    def __init__(self, client: rangelog.Client, names: list[str]) -> None:
        self._client = client
        self.streams = [StreamLoad(name) for name in names]
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False

    @property
    def acked(self) -> int:
        """The acked records of all streams."""
        return sum(each.acked for each in self.streams)

    @property
    def problems(self) -> list[str]:
        """The results that no writer should have got."""
        return [f"{each.name}: {each.problem}" for each in self.streams if each.problem]

    def start(self, first: int) -> None:
        """Append `first` records to each stream as fast as they go, then more at the pace."""
        self._tasks = [asyncio.create_task(self._append(each, first)) for each in self.streams]

    async def stop(self) -> None:
        """Stop, and wait until all that was submitted is acked."""
        self._stopping = True
        await asyncio.gather(*self._tasks)

    def forget_gaps(self) -> None:
        """Reset the longest time without an ack."""
        for each in self.streams:
            each.longest_gap_s, each.acked_at_s = 0.0, time.monotonic()

    async def _append(self, stream: StreamLoad, first: int) -> None:
        try:
            async with self._client.writer(stream.name) as writer:
                while not self._stopping:
                    for _ in range(_BATCH):
                        number, stream.submitted = stream.submitted, stream.submitted + 1
                        future = writer.submit(value_of(stream.name, number))
                        future.add_done_callback(partial(stream.note_ack, number))
                    await writer.ready()
                    await asyncio.sleep(0 if stream.submitted < first else _BATCH / RECORDS_PER_S)
                await writer.flush()
        except RangelogError as error:
            stream.problem = stream.problem or f"{error.code}: {error.message}"


@dataclass
class ReadBack:
    """The records of all streams, beside those that were acked."""

    read: int = 0
    lost: int = 0
    duplicated: int = 0
    problem: str = ""


async def read_back(client: rangelog.Client, streams: list[StreamLoad]) -> ReadBack:
    """Read every stream from its start, and compare record by record."""
    found = ReadBack()
    for stream in streams:
        seen = 0
        try:
            async for record in client.reader(stream.name, start="earliest"):
                if record.value == value_of(stream.name, seen) and record.offset == seen:
                    seen += 1
                elif any(record.value == value_of(stream.name, number) for number in range(seen)):
                    found.duplicated += 1
                else:
                    found.problem = f"{stream.name} has other bytes at offset {record.offset}"
        except RangelogError as error:
            found.problem = f"{stream.name} cannot be read from {seen} on: {error.message}"
        found.read += seen
        found.lost += max(0, stream.acked - seen)
    return found
