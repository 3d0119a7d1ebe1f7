"""A client process that reads while faults happen, and notes what it saw and when.

`tail`: follows the stream from its start for ever. `windows`: reads random stretches of what is acked, from either tier.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))

import chaos_history
from history import FileHistory

import rangelog
from rangelog.errors import RangelogError
from rangelog_cli.lifeline import follow_parent

PAUSE_S = 0.4
WINDOW_RECORDS_MAX = 3_000
PREFERENCES = ("hot_first", "cold_first")


class Noting:
    """Writes down what is read. `name` is one pass of a reader."""

    def __init__(self, stream: str, notes: FileHistory, pulse: chaos_history.PulseFile) -> None:
        self._stream = stream
        self._notes = notes
        self.pulse = pulse

    def saw(self, name: str, source: str, records: Sequence[Any]) -> None:
        """One poll. Records that do not follow each other are noted one by one, for the checker to see."""
        now, start = time.monotonic(), records[0].offset
        found = [chaos_history.identity_of(record.value) for record in records]
        if all(record.offset == start + index for index, record in enumerate(records)):
            self._notes.saw(self._stream, name, start, found, now, source)
        else:
            for record, each in zip(records, found, strict=True):
                self._notes.saw(self._stream, name, record.offset, [each], now, source)
        end = records[-1].offset + 1
        self.pulse.beat(records=self.pulse.last.records + len(records), offset=end, last_ns=time.monotonic_ns())

    def failed(self, text: str) -> None:
        """A reader gave up."""
        print(text, flush=True)
        self.pulse.beat(errors=self.pulse.last.errors + 1)


async def follow(client: Any, stream: str, noting: Noting) -> None:
    """Read the stream from its start, for ever; a reader that gives up is followed by another where it was."""
    position = 0
    while True:
        try:
            reader = client.reader(stream, start=position, follow=True)
            noting.pulse.beat(state=chaos_history.OPEN)
            async for chunk in reader.chunks():
                noting.saw(f"{stream}-tail", "tail", chunk)
                position = chunk[-1].offset + 1
        except RangelogError as error:
            noting.failed(f"tail at {position}: {error!r}")
        await asyncio.sleep(PAUSE_S)


async def windows(client: Any, stream: str, noting: Noting, seed: int) -> None:
    """Read random stretches, for ever."""
    dice = random.Random(seed)
    for number in itertools.count():
        await asyncio.sleep(PAUSE_S)
        kind = dice.choice(PREFERENCES)
        try:
            end = await client.end_offset(stream)
            noting.pulse.beat(state=chaos_history.OPEN)
            if end == 0:
                continue
            start = dice.randrange(end)
            stop = min(end, start + dice.randrange(1, WINDOW_RECORDS_MAX))
            async for chunk in client.reader(stream, start=start, end=stop, read_preference=kind).chunks():
                noting.saw(f"{stream}-window-{number}", kind, chunk)
        except RangelogError as error:
            noting.failed(f"{kind}: {error!r}")


async def read(options: argparse.Namespace) -> None:
    """The whole life of the process: until it is killed."""
    pulse = chaos_history.PulseFile(options.pulse)
    noting = Noting(options.stream, FileHistory(options.history), pulse)
    async with await rangelog.connect(options.pds) as client:
        if options.mode == "tail":
            await follow(client, options.stream, noting)
        else:
            await windows(client, options.stream, noting, options.seed)


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "stream"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("history", "pulse"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--mode", choices=("tail", "windows"), required=True)
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(read(parser.parse_args()))


if __name__ == "__main__":
    main()
