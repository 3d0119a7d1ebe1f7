"""A client process that reads while faults happen, and notes what it saw and when.

`tail`: follows the stream from its start for ever. `windows`: reads random stretches of what is acked, from either tier.
Lines: ["poll", kind, start offset, [[writer, epoch, first sequence, count], …], ns];
["error", kind, text, ns] when a reader gave up.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chaos_history as history

import rangelog
from rangelog.errors import RangelogError
from rangelog_cli.lifeline import follow_parent

PAUSE_S = 0.25
WINDOW_RECORDS_MAX = 3_000
PREFERENCES = ("hot_first", "cold_first")


class Noting:
    """Writes down what is read."""

    def __init__(self, lines: history.LineFile, pulse: history.PulseFile) -> None:
        self.lines = lines
        self.pulse = pulse

    def saw(self, kind: str, records: Sequence[Any]) -> None:
        """One poll: consecutive records. A value that no writer made is noted as such."""
        now, start = time.monotonic_ns(), records[0].offset
        found: list[history.Identity] = []
        for record in records:
            try:
                found.append(history.identity_of(record.value))
            except ValueError:
                found.append((f"damaged {record.value[:40]!r}", 0, record.offset))
            if record.offset != start + len(found) - 1:
                self.failed(kind, f"offset {record.offset} came after {start + len(found) - 2}")
        self.lines.write([json.dumps(["poll", kind, start, history.packed(found), now], separators=(",", ":"))])
        self.pulse.beat(records=self.pulse.last.records + len(records), offset=start + len(records), last_ns=now)

    def failed(self, kind: str, text: str) -> None:
        """A reader gave up."""
        self.lines.write([json.dumps(["error", kind, text, time.monotonic_ns()])])
        self.pulse.beat(errors=self.pulse.last.errors + 1)


async def follow(client: Any, stream: str, noting: Noting) -> None:
    """Read the stream from its start, for ever; a reader that gives up is followed by another where it was."""
    position = 0
    while True:
        try:
            reader = client.reader(stream, start=position, follow=True)
            noting.pulse.beat(state=history.OPEN)
            async for chunk in reader.chunks():
                noting.saw("tail", chunk)
                position = chunk[-1].offset + 1
        except RangelogError as error:
            noting.failed("tail", f"at {position}: {error!r}")
        await asyncio.sleep(PAUSE_S)


async def windows(client: Any, stream: str, noting: Noting, seed: int) -> None:
    """Read random stretches, for ever."""
    dice = random.Random(seed)
    while True:
        await asyncio.sleep(PAUSE_S)
        kind = dice.choice(PREFERENCES)
        try:
            end = await client.end_offset(stream)
            noting.pulse.beat(state=history.OPEN)
            if end == 0:
                continue
            start = dice.randrange(end)
            stop = min(end, start + dice.randrange(1, WINDOW_RECORDS_MAX))
            async for chunk in client.reader(stream, start=start, end=stop, read_preference=kind).chunks():
                noting.saw(kind, chunk)
        except RangelogError as error:
            noting.failed(kind, repr(error))


async def read(options: argparse.Namespace) -> None:
    """The whole life of the process: until it is killed."""
    noting = Noting(history.LineFile(options.history), history.PulseFile(options.pulse))
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
