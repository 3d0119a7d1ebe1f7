"""A client process that reads while faults happen, and notes what it saw and when.

`tail`: follows the stream from its start for ever. `once`: the same by one reader, which is not replaced when it gives up.
`windows`: reads random stretches of what is acked, from either tier. `starts`: begins one small reader after the other, of
several streams on one client (see chaos_starts). A stream that is deleted ends the process; so that its namesake's records
show, a stream can be noted under another name than it is read by.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # run by its path: imports begin at the project's folder
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import rangelog
from rangelog_cli.local.lifeline import follow_parent
from rangelog_core.errors import OffsetOutOfRange, RangelogError, StreamNotFound
from tests.chaos import chaos_history
from tests.chaos.chaos_noting import Noting
from tests.chaos.chaos_starts import Starts
from tests.support.history import FileHistory

PAUSE_S = 0.4
WINDOW_RECORDS_MAX = 3_000
PREFERENCES = ("hot_first", "cold_first")


async def follow(client: Any, stream: str, noting: Noting, *, once: bool) -> None:
    """Read the stream from its start, for ever; a reader that gives up is followed by another where it was."""
    position = 0
    while not (once and noting.pulse.last.errors):
        invoked_s = time.monotonic()
        try:
            reader = client.reader(stream, start=position, follow=True)
            noting.pulse.beat(state=chaos_history.OPEN)
            async for chunk in reader.chunks():
                noting.saw(noting.reader, "tail", chunk)
                position = chunk[-1].offset + 1
        except StreamNotFound:
            raise
        except OffsetOutOfRange as error:
            noting.refused(noting.reader, position, invoked_s, error)
            noting.failed(f"tail at {position}", error)
        except RangelogError as error:
            noting.failed(f"tail at {position}", error)
        await asyncio.sleep(PAUSE_S)


async def windows(client: Any, stream: str, noting: Noting, dice: random.Random) -> None:
    """Read random stretches, for ever."""
    for number in itertools.count():
        await asyncio.sleep(PAUSE_S)
        kind = dice.choice(PREFERENCES)
        name = f"{noting.reader}-{number}"
        try:
            invoked_s = time.monotonic()
            end = await client.end_offset(stream)
            noting.end_told(name, end, invoked_s, exact=False)
            noting.pulse.beat(state=chaos_history.OPEN)
            if end == 0:
                continue
            start = dice.randrange(end)
            stop = min(end, start + dice.randrange(1, WINDOW_RECORDS_MAX))
            invoked_s = time.monotonic()
            reader = client.reader(stream, start=start, end=stop, read_preference=kind)
            async for chunk in reader.chunks():
                noting.saw(name, kind, chunk)
            noting.bounded(name, start, reader.position)
        except StreamNotFound:
            raise
        except OffsetOutOfRange as error:
            noting.refused(name, start, invoked_s, error)
            noting.failed(name, error)
        except RangelogError as error:
            noting.failed(name, error)


async def begin_again(starts: list[Starts], noting: Noting, pause_s: float) -> None:
    """Begin one reader after the other, for ever."""
    for each in itertools.cycle(starts):
        await asyncio.sleep(pause_s / len(starts))
        noting.pulse.beat(state=chaos_history.OPEN)
        await each.once()


async def read(options: argparse.Namespace) -> None:
    """The whole life of the process: until it is killed, or its stream is deleted."""
    pulse = chaos_history.PulseFile(options.pulse)
    notes, dice = FileHistory(options.history), random.Random(options.seed)
    streams = options.stream.split(",")
    noted = [Noting(options.noted_as or stream, options.name, notes, pulse) for stream in streams]
    async with await rangelog.connect(options.pds) as client:
        try:
            if options.mode in ("tail", "once"):
                await follow(client, streams[0], noted[0], once=options.mode == "once")
            elif options.mode == "windows":
                await windows(client, streams[0], noted[0], dice)
            else:
                starts = [Starts(client, options.pds, *each, dice) for each in zip(streams, noted, strict=True)]
                await begin_again(starts, noted[0], options.pause)
        except StreamNotFound as error:
            print(f"{options.mode}: {error!r}", flush=True)
            pulse.beat(state=chaos_history.GONE)


def main() -> None:
    """Entry point of the child process."""
    follow_parent()
    parser = argparse.ArgumentParser()
    for name in ("pds", "stream", "name"):
        parser.add_argument(f"--{name}", required=True)
    for name in ("history", "pulse"):
        parser.add_argument(f"--{name}", required=True, type=Path)
    parser.add_argument("--mode", choices=("tail", "once", "windows", "starts"), required=True)
    parser.add_argument("--noted-as", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pause", type=float, default=PAUSE_S)
    asyncio.run(read(parser.parse_args()))


if __name__ == "__main__":
    main()
